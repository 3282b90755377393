"""Curricula of Zaremba and Sutskever (2014, arXiv:1410.4615, section 5) for the number of digits in training."""

from typing import Any

import numpy as np

from gyral.core.checks import check_choice, check_integer

CURRICULA = ("none", "naive", "mixed", "combined")


class Curriculum:
    """Draws the numbers of digits of the operands of training programs.

    * "none": always the largest number.
    * "naive": the smallest number first; one more digit when `patience` validations in a row do not exceed the best
      score since the last digit was added.
    * "mixed": each operand has its own number, uniform between the smallest and the largest.
    * "combined": each program follows "naive" or "mixed", with probability 1/2 each.

    It differs from the authors' code (wojciechz/learning_to_execute on GitHub, `utils/strategies.lua` and `data.lua`):
    there, "combined" decides for each number, and takes "mixed" with probability 1/5; the smallest number of digits of
    "mixed" is 1; and a number of n digits is drawn uniformly from 1 to 10^n, so that it may have fewer digits. The
    programs of Yang (2016) are "mixed" with 2 to 4 digits, so that no published number here depends on "combined".

    Args:
        strategy: one of `CURRICULA`; the option `curriculum`.
        smallest, largest: numbers of digits.
        patience: number of validations.

    Attributes:
        grows: whether the validations change the numbers of digits.
        level: the current number of digits of "naive".

    Raises:
        OptionError: an argument is out of bounds.
    """

    def __init__(self, strategy: str, smallest: int, largest: int, patience: int) -> None:
        self.strategy = check_choice("curriculum", strategy, CURRICULA)
        self.smallest, self.largest = smallest, largest
        self.patience = check_integer("patience", patience)
        self.grows = strategy in ("naive", "combined")
        self.level = smallest
        self._best: float | None = None
        self._failures = 0  # validations in a row without a new best score

    def draw(self, generator: np.random.Generator, programs: int, operands: int) -> np.ndarray:
        """Return the number of digits of each operand of each program, (programs, operands)."""
        size = (programs, operands)
        if self.strategy in ("none", "naive"):
            return np.full(size, self.largest if self.strategy == "none" else self.level)
        mixed = generator.integers(self.smallest, self.largest + 1, size)
        if self.strategy == "mixed":
            return mixed
        return np.where(generator.integers(2, size=(programs, 1)) == 0, self.level, mixed)

    def update(self, score: float) -> None:
        """Update the level after a validation; larger scores are better."""
        if self._best is None or score > self._best:
            self._best, self._failures = score, 0
            return
        self._failures += 1
        if self._failures >= self.patience and self.level < self.largest:
            self.level += 1
            self._best, self._failures = None, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        return {"level": self.level, "best": self._best, "failures": self._failures}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a saved position.

        Raises:
            OptionError: the position is not one of this curriculum.
        """
        self.level = check_integer("level", state["level"], self.smallest, self.largest)
        self._best = None if state["best"] is None else float(state["best"])
        self._failures = check_integer("failures", state["failures"], 0)
