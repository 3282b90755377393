"""The curriculum of Mao et al. (ICLR 2019): scenes with few objects and short programs first."""

from collections.abc import Sequence
from typing import Any

from gyral.core.checks import check_integer, check_real
from gyral.core.errors import OptionError


class Lessons:
    """Lessons with bounds on the objects of a scene and the steps of a program; the last lesson has no bounds.

    The next lesson begins when the accuracy on the questions of validation that are within the bounds of the current
    lesson is at least `threshold`.

    Args:
        lessons: pairs of numbers of objects and of steps, such as [[3, 3], [4, 5]]. Empty: no curriculum.
        threshold: accuracy on the questions of the lesson, in validation, at which the next lesson begins; in (0, 1].

    Attributes:
        level: number of the current lesson, from 0.

    Raises:
        OptionError: an argument is out of bounds.
    """

    def __init__(self, lessons: Sequence[Sequence[int]], threshold: float) -> None:
        if isinstance(lessons, str) or not all(isinstance(each, Sequence) and len(each) == 2 for each in lessons):
            raise OptionError("lessons", lessons, "must be pairs of objects and steps, such as [[3, 3], [4, 5]]")
        for part in zip(*lessons, strict=True):
            if any(isinstance(number, bool) or not isinstance(number, int) or number < 1 for number in part):
                raise OptionError("lessons", lessons, "must have integers ≥ 1")
        self.lessons = [(objects, steps) for objects, steps in lessons]
        self.threshold = check_real("threshold", threshold, above=0, maximum=1)
        self.level = 0

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The largest numbers of objects and of steps in the current lesson; None: no bounds."""
        return self.lessons[self.level] if self.level < len(self.lessons) else None

    def update(self, accuracy: float) -> None:
        """Start the next lesson if the accuracy of a validation on the current lesson reaches the threshold."""
        if self.level < len(self.lessons) and accuracy >= self.threshold:
            self.level += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        return {"level": self.level}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a saved position.

        Raises:
            OptionError: the position is not one of this curriculum.
        """
        self.level = check_integer("level", state["level"], 0, len(self.lessons))
