"""Modular arithmetic with brackets: read an expression, then answer with its value.

An example modulo 5 with 12 symbols; ^ begins the word and = ends it:

    input       ^ ( - 3 + ( 4 - ( 1 ) ) ) =
    target                                0

Each operation has its own brackets, so that none binds more tightly than another. The depth is not bounded, and no
finite automaton computes the value.
"""

from collections.abc import Sequence

import numpy as np

from gyral.core.checks import check_boolean, check_integer
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

    def __init__(
        self,
        *,
        modulus: int = 5,
        multiplication: bool = False,
        length: int = 24,
        shortest: int | None = None,
        test_factors: Sequence[int] = (1, 2, 4, 8),
        test_range: Sequence[int] | None = None,
        bos: bool = True,
        batch_size: int = 64,
        eval_batch_size: int | None = None,
        val_batches: int = 4,
        test_batches: int = 16,
        data_seed: int = 0,
    ) -> None:
        self.modulus = check_integer("modulus", modulus, minimum=2, maximum=100)
        self.operators = 3 if check_boolean("multiplication", multiplication) else 2
        digits = tuple(map(str, range(modulus)))
        super().__init__(
            letters=(*digits, *SIGNS[: self.operators], "(", ")"),
            classes=digits,
            length=length,
            shortest=shortest,
            test_factors=test_factors,
            test_range=test_range,
            labels="end",
            bos=bos,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            val_batches=val_batches,
            test_batches=test_batches,
            data_seed=data_seed,
        )

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
