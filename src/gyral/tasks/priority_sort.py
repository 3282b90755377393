"""Priority sort: read binary vectors with priorities, then write the vectors of the highest priorities in order.

An example with 4 vectors of 3 bits and the 2 highest priorities; ? is the flag that ends the input:

    priority    0.31 -0.72 0.94 -0.15   ?   ·   ·
    bits         101   011  110   001   ·   ·   ·
    target                                110 101
"""

import math
from typing import Annotated, Any, ClassVar

import numpy as np
from torch import Tensor

from gyral.core.checks import check_integer
from gyral.core.options import PositiveInt, Range
from gyral.data.batching import Batch
from gyral.data.drawn import answer_batch
from gyral.tasks.data_module import DrawnData
from gyral.tasks.data_task import DataTask
from gyral.tasks.objective import Bits
from gyral.tasks.rendering import align, describe_bits


class PrioritySortData(DrawnData):
    """Binary vectors with priorities that are uniform in [−1, 1), and the vectors of the highest priorities.

    Inputs (B, items + 1 + highest, bits + 2): the bits, the priority, and the flag that ends the input.

    Args:
        items: number of vectors; 20 in the paper.
        highest: number of vectors in the answer, at most `items`; 16 in the paper.
        bits: size of a vector; 8 in the paper.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"items": 5, "highest": 3}

    items: PositiveInt = 20
    highest: PositiveInt = 16
    bits: Annotated[int, Range(1, 10_000)] = 8
    batch_size = 16

    def check(self) -> None:
        check_integer("highest", self.highest, maximum=self.items)

    def draw(self, generator: np.random.Generator, split: str, test: int) -> Batch:
        rows = self.size_of(split)
        questions = np.zeros((rows, self.items + 1, self.bits + 2), dtype=np.float32)
        vectors, priorities = questions[:, :-1, : self.bits], questions[:, :-1, self.bits]
        vectors[:] = generator.integers(0, 2, vectors.shape)
        priorities[:] = generator.uniform(-1, 1, priorities.shape)
        questions[:, -1, -1] = 1
        order = np.argsort(-priorities, axis=1, kind="stable")[:, : self.highest]
        answers = np.take_along_axis(vectors, order[..., None], axis=1)
        return answer_batch(questions, np.full(rows, self.items + 1), answers, np.full(rows, self.highest), 0)


class PrioritySortTask(DataTask[PrioritySortData]):
    """The priority sort task of Graves et al. (2014), arXiv:1410.5401, section 4.5.

    The loss is the cross-entropy per bit over the answer. A predictor without memory guesses: its loss is ln 2.
    """

    data_class = PrioritySortData

    @classmethod
    def arguments(cls, data: PrioritySortData) -> dict[str, Any]:
        return {
            "input_size": data.bits + 2,
            "objective": Bits(data.bits),
            "baseline": math.log(2),
            "max_writes": data.items + 1,
        }

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        bits = self.data.bits
        read = batch.inputs[row, : self.data.items].tolist()
        lines = {"input": [f"{describe_bits(vector[:bits])} {vector[bits]:.2f}" for vector in read]}
        for name, values in (("target", batch.targets[row]), ("prediction", predicted[row])):
            lines[name] = [describe_bits(vector) for vector in values[-self.data.highest :].tolist()]
        return align(lines)
