"""The errors of kernels in float32 over many random cases: that of one case is mostly luck."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

Results = dict[str, Tensor]


def check_float32(
    cases: Iterable[tuple[Any, Results, Results, Results]],
    error: Callable[[Tensor, Tensor], float],
    always: set[str],
    typical: float = 2.0,
) -> None:
    """Compare the errors of kernels with those of the loop.

    The geometric mean of their ratios, for each tensor that at least 12 cases have, is bounded. In one case an error
    may be 50 times the largest of the loop: where digits are lost, which tensor loses them depends on the processor.

    Args:
        cases: A description, the truth in float64, and the float32 results of the kernels and of the loop.
        error: The error of a result relative to the truth.
        always: Names of tensors that at least 12 cases must have.
        typical: Bound of the mean.
    """
    ratios: dict[str, list[float]] = {}
    smallest = torch.finfo(torch.float32).eps / 2
    for case, truth, found, plain in cases:
        own, allowed = (
            {name: max(error(results[name], tensor), smallest) for name, tensor in truth.items()}
            for results in (found, plain)
        )
        largest = max(allowed.values())
        for name in truth:
            assert own[name] <= 50 * largest, f"{name} in float32: error {own[name]:.1e}, {largest:.1e}: {case}"
            ratios.setdefault(name, []).append(own[name] / allowed[name])
    compared = {name: values for name, values in ratios.items() if len(values) >= 12}
    assert always <= compared.keys()
    for name, values in compared.items():
        assert torch.tensor(values).log().mean().exp() <= typical, name
