"""How long the parts of a run take, and from that the run. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """How long the parts of a run take.

    Attributes:
        start: seconds until the first step.
        step: seconds of a step.
        steps: number of steps.
        validation: seconds of a validation.
        validations: number of validations.
        test: seconds of the final test.
        measured: number of steps that were measured.
        spent: seconds that measuring took.
    """

    start: float
    step: float
    steps: int
    validation: float
    validations: int
    test: float
    measured: int = 0
    spent: float = 0.0

    @property
    def training(self) -> float:
        """Seconds of all steps."""
        return self.steps * self.step

    @property
    def work(self) -> float:
        """Seconds of all steps, the validations and the final test."""
        return self.training + self.validations * self.validation + self.test


def count_validations(step: int, steps: int, interval: int) -> int:
    """Return how many validations follow after a step: one after each interval, and one at the end of the run.

    Args:
        step: number of steps taken, after which the validation has taken place if one is due.
        steps: number of steps of the run.
        interval: steps between two validations.
    """
    return -(-steps // interval) - step // interval if step < steps else 0
