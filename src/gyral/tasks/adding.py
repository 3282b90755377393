"""The adding problem: add the two marked numbers of a sequence.

An example of length 8; marked numbers have a *:

    input       0.62 0.17* 0.94 0.30 0.55 0.08 0.71* 0.46
    target      0.88
"""

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from gyral.core.options import Range
from gyral.data.batching import Batch
from gyral.models.attention import LastStep
from gyral.tasks.data_module import GeneratedData
from gyral.tasks.data_task import DataTask
from gyral.tasks.objective import Regression

BASELINE = 1 / 6  # variance of the sum of two uniform numbers
SHOWN_AT_ENDS = 3  # numbers at each end of a rendered example; of the others, only the marked ones are shown


class AddingData(GeneratedData):
    """Inputs: at each step a number, uniform in [0, 1), and 1 if it is marked, else 0. Target: the sum of two numbers.

    One number of the first ⌊length/2⌋ steps and one of the others are marked.

    Args:
        length: T ≥ 2, number of steps.
        batch_size, eval_batch_size, train_size, val_size, test_size, data_seed: see
            `gyral.tasks.data_module.GeneratedData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"length": 6}

    length: Annotated[int, Range(2)] = 100
    batch_size = 50
    train_size = 100_000
    val_size = 1000
    test_size = 10_000

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """Draw the numbers and, in two additional last columns, the marked steps: (size, length + 2)."""
        half = self.length // 2
        numbers = torch.rand(size, self.length, generator=generator)
        first = torch.randint(half, (size, 1), generator=generator)
        second = torch.randint(half, self.length, (size, 1), generator=generator)
        return torch.cat([numbers, first, second], dim=1)

    def assemble(self, rows: Tensor) -> Batch:
        numbers, marked = rows[:, :-2], rows[:, -2:].long()
        marks = torch.zeros_like(numbers).scatter_(1, marked, 1.0)
        return Batch(torch.stack([numbers, marks], dim=-1), (numbers * marks).sum(dim=1, keepdim=True))


class AddingTask(DataTask[AddingData]):
    """The adding problem (Hochreiter and Schmidhuber 1997, in the form of Le et al. 2015, arXiv:1504.00941).

    The model predicts the sum at the last step. A predictor without memory returns the expected sum, 1; its mean
    squared error is the variance of the sum, 1/6 ≈ 0.167.
    """

    data_class = AddingData

    @classmethod
    def arguments(cls, data: AddingData) -> dict[str, Any]:
        return {
            "input_size": 2,
            "objective": Regression(1),
            "readout": LastStep,
            "baseline": BASELINE,
            "max_writes": data.length,
        }

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        words: list[str] = []
        left_out = 0
        for step, (number, mark) in enumerate(batch.inputs[row].tolist()):
            if mark or step < SHOWN_AT_ENDS or step >= len(batch.inputs[row]) - SHOWN_AT_ENDS:
                words += [f"…{left_out}…"] * bool(left_out) + [f"{number:.2f}{'*' if mark else ''}"]
                left_out = 0
            else:
                left_out += 1
        return "\n".join(
            (
                f"input       {' '.join(words)}",
                f"target      {batch.targets[row].item():.2f}",
                f"prediction  {predicted[row].item():.2f}",
            )
        )
