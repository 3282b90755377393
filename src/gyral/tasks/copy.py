"""Copying memory: repeat symbols after a long delay.

An example with 3 symbols of an alphabet of 8 and a delay of 5, where · is the blank and ? the marker:

    input       3 1 7 · · · · ? · · ·
    target      · · · · · · · · 3 1 7
"""

import math
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from gyral.core.options import PositiveInt, Range
from gyral.data.batching import Batch
from gyral.tasks.data_module import GeneratedData
from gyral.tasks.data_task import DataTask

BLANK = 0


class CopyData(GeneratedData):
    """Inputs: `recalled` data symbols, delay − 1 blanks, the marker, `recalled` blanks. Targets: blanks, then the data.

    Tokens: 0 blank, 1 … `symbols` data, `symbols` + 1 marker. Length delay + 2 · recalled.

    Args:
        delay: T ≥ 1, steps from the last data symbol to the first answer.
        symbols: size of the alphabet, from 2 to 200.
        recalled: number of data symbols to remember, ≥ 1.
        batch_size, eval_batch_size, train_size, val_size, test_size, data_seed: see
            `gyral.tasks.data_module.GeneratedData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"delay": 4, "recalled": 3}

    delay: PositiveInt = 10
    symbols: Annotated[int, Range(2, 200)] = 8
    recalled: PositiveInt = 8
    train_size = 50_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.marker = self.symbols + 1
        self.length = self.delay + 2 * self.recalled

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """Draw the data symbols (size, recalled)."""
        return torch.randint(1, self.symbols + 1, (size, self.recalled), generator=generator, dtype=torch.uint8)

    def assemble(self, rows: Tensor) -> Batch:
        inputs = torch.zeros(len(rows), self.length, dtype=torch.long)
        inputs[:, : self.recalled] = rows
        inputs[:, self.recalled + self.delay - 1] = self.marker
        targets = torch.zeros_like(inputs)
        targets[:, -self.recalled :] = rows
        answers = torch.zeros_like(inputs, dtype=torch.bool)
        answers[:, -self.recalled :] = True
        return Batch(inputs, targets, answers)


class CopyTask(DataTask[CopyData]):
    """The copying memory task (Hochreiter and Schmidhuber 1997; protocol of Dangovski et al., TACL 2019, section 4.1).

    In the paper, the delay is 500, 10 symbols are to be remembered, and a batch has 128 sequences.

    The loss is averaged over all delay + 2 · recalled positions. A predictor without memory
    knows the blanks and guesses the data: its loss is recalled · ln(symbols) / length.
    """

    data_class = CopyData

    @classmethod
    def arguments(cls, data: CopyData) -> dict[str, Any]:
        return {
            "vocabulary_size": data.symbols + 2,
            "output_size": data.symbols + 1,
            "baseline": data.recalled * math.log(data.symbols) / data.length,
            "max_writes": data.length,
        }

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        marker = self.data.marker
        show = {BLANK: "·", marker: "?"}
        # The middle of a long delay is left out.
        head, tail = self.data.recalled + 2, self.data.recalled + 2
        width = len(str(self.data.symbols))
        lines = []
        for name, tokens in (("input", batch.inputs), ("target", batch.targets), ("prediction", predicted)):
            words = [show.get(token, str(token)).rjust(width) for token in tokens[row].tolist()]
            if len(words) > head + tail + 1:
                words = [*words[:head], f"…{len(words) - head - tail}…", *words[-tail:]]
            lines.append(f"{name:<11} {' '.join(words)}")
        return "\n".join(lines)
