"""How long a run takes. Imports no torch."""

from typing import NamedTuple


class Pace(NamedTuple):
    """How long a run takes, from a few of its steps.

    Attributes:
        seconds: seconds of the run: its start, all steps, the validations and the final test.
        steps: number of steps that were measured.
        spent: seconds that measuring took.
    """

    seconds: float
    steps: int
    spent: float


def count_validations(step: int, steps: int, interval: int) -> int:
    """Return how many validations follow after a step: one after each interval, and one at the end of the run.

    Args:
        step: number of steps taken, after which the validation has taken place if one is due.
        steps: number of steps of the run.
        interval: steps between two validations.
    """
    return -(-steps // interval) - step // interval if step < steps else 0
