"""Modular arithmetic with brackets: read an expression, then answer with its value.

An example modulo 5 with 12 symbols; ^ begins the word and = ends it:

    input       ^ ( - 3 + ( 4 - ( 1 ) ) ) =
    target                                0

Each operation has its own brackets, so that none binds more tightly than another. The depth is not bounded, and no
finite automaton computes the value.
"""

from typing import Annotated

import numpy as np

from gyral.core.options import Range
from gyral.data.expressions import draw_expression
from gyral.tasks.tracking import TrackingData, TrackingTask

SIGNS = ("+", "-", "*")


class BracketsData(TrackingData):
    """Random expressions of n symbols, as in the code of Delétang et al. (2023).

    For n = 1, 2, 3 and 4 the expression is d, -d, (d) and (-d), with a uniform digit d. A longer one is (l∘r): the
    operator ∘ and the length of l, from 1 to n − 4, are uniform, and l and r are random expressions.

    Args:
        modulus: number of digits; values are modulo this number.
        multiplication: whether * is among the operators; else they are + and -.
        length, shortest, test_factors, test_range, bos: see `gyral.tasks.tracking.TrackingData`.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    modulus: Annotated[int, Range(2, 100)] = 5
    multiplication: bool = False

    def __post_init__(self) -> None:
        self.operators = 3 if self.multiplication else 2
        self.classes = tuple(map(str, range(self.modulus)))
        self.letters = (*self.classes, *SIGNS[: self.operators], "(", ")")
        super().__post_init__()

    def words(self, generator: np.random.Generator, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        words = np.zeros((len(lengths), lengths.max()), dtype=np.int64)
        values = np.empty(len(lengths), dtype=np.int64)
        # An expression with n symbols needs at most n random numbers.
        draws = generator.random((len(lengths), lengths.max())).tolist()
        for row, length in enumerate(lengths.tolist()):
            expression = draw_expression(length, iter(draws[row]), self.modulus, self.operators)
            words[row, :length], values[row] = expression
        return words, values

    def frequencies(self) -> np.ndarray:
        digits = np.arange(self.modulus)
        one, other = digits[:, None], digits
        values = np.stack([one + other, one - other, one * other])[: self.operators] % self.modulus
        found = np.full((self.longest + 1, self.modulus), 1 / self.modulus)
        for length in range(5, self.longest + 1) if self.operators == 3 else ():  # sums of uniform digits are uniform
            pairs = found[1 : length - 3].T @ found[length - 4 : 0 : -1] / (length - 4)  # of left and right values
            weights = np.broadcast_to(pairs / self.operators, values.shape)
            found[length] = np.bincount(values.ravel(), weights.ravel(), minlength=self.modulus)
        return found[1:]


class BracketsTask(TrackingTask[BracketsData]):
    """Modular arithmetic with brackets of Delétang et al. (2023), arXiv:2207.02098, deterministic context-free.

    In the paper, the modulus is 5, and in its code the operators are + and - unless multiplication is asked for.
    Without multiplication all values are equally likely: a predictor without memory has the loss ln 5 and the accuracy
    1/5. With it, both are computed by recursion over the length.
    """

    data_class = BracketsData
