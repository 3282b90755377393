"""Gates that large inputs saturate: the fused paths lose no more digits in float32 than the readable loop.

1 − σ(x) of a saturated gate may be a subnormal number. It is lost where it follows from another number that is close to
1, or where a processor flushes it to zero.
"""

import copy

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from gyral.cells.base import RecurrentCell, State
from tests.cells import test_contract as contract

STEPS = 20  # more than a chunk of 16
SCALES = (1.0, 100.0, 1000.0)
ROUNDINGS = 5
EPS = torch.finfo(torch.float32).eps
# chaotic: each step multiplies an error, whichever path makes it. The state of SLiCE overflows
LEFT_OUT = {"slice", *(name for name in contract.CASES if name.startswith("fs_"))}
# one draw of errors that are of one size, by other orders of summation
LUCK = {"mamba3": 2.0, "rum lambd=1.0 layer_norm=true update_gate=false activation=tanh": 2.0}
# the delta rule, whose loop corrects at a step what it has rounded when the key was written before; a chunk adds up the
# changes of all its steps, with an error relative to the largest value among them, and the output is normalized
SUMS = ("delta_net", "delta_product", "gated_delta_net", "gated_delta_net2", "kda")
CASES = [pytest.param(case, id=case) for case in contract.CASES if case not in LEFT_OUT]


def cast(values: State, dtype: torch.dtype) -> State:
    return tree_map(lambda leaf: leaf.to(dtype) if leaf.is_floating_point() else leaf, values)


def results(cell: RecurrentCell, backend: str, inputs: Tensor, state: State) -> list[Tensor]:
    """Return outputs, final state and the gradients of inputs, state and parameters, in float64."""
    inputs, state = inputs.clone(), tree_map(Tensor.clone, state)
    for leaf in contract.floats(inputs, state):
        leaf.requires_grad_()
    values = contract.run_by(cell, backend)(inputs, (state,))
    found = *contract.floats(values), *contract.gradients(cell, values, inputs, state)
    return [tensor.detach().double() for tensor in found]


def allowed(truth: list[Tensor], others: list[list[Tensor]], values: int) -> list[float]:
    """Return the errors that are allowed of each result, the first `values` of which are not gradients.

    It is 4 times the largest error of the others, and a few roundings of the largest number. That of gradients is the
    largest of all: where steps erase the same key again and again, terms of a chunk cancel.
    """
    sizes = [float(one.abs().max()) if one.numel() else 0.0 for one in truth]
    errors = [
        max((float((found[index] - one).abs().max()) for found in others), default=0.0) if one.numel() else 0.0
        for index, one in enumerate(truth)
    ]
    largest = max(sizes[values:])
    return [
        4 * error + (3e-6 * size if index < values else 3e-6 * size + EPS * largest)
        for index, (error, size) in enumerate(zip(errors, sizes, strict=True))
    ]


@pytest.mark.named("min_gru", "min_lstm")
@pytest.mark.parametrize("case", CASES)
def test_fused_is_as_exact_as_the_loop(case: str) -> None:
    """An error of the loop may be luck, so changes by float32 rounding of the inputs in float64 count as well."""
    if (reason := contract.built(case).fused_unsupported_reason()) is not None:
        pytest.skip(f"no fused path: {reason}")
    cell = copy.deepcopy(contract.built(case)).float()
    exact, state = copy.deepcopy(cell).double(), cast(contract.random_state(contract.built(case)), torch.float32)
    wide = cast(state, torch.float64)
    for scale in SCALES:
        inputs = scale * torch.randn(STEPS, contract.BATCH, contract.INPUT_SIZE)
        truth = results(exact, "reference", inputs.double(), wide)
        rounded = [inputs.double() * (1 + EPS * (torch.rand(inputs.shape) - 0.5).double()) for _ in range(ROUNDINGS)]
        changed = [results(exact, "reference", each, wide) for each in rounded]
        for flushes in (False, True):
            torch.set_flush_denormal(flushes)
            try:
                plain, found = (results(cell, backend, inputs, state) for backend in ("reference", "fused"))
            finally:
                torch.set_flush_denormal(False)
            values = len(contract.floats(contract.run_by(exact, "reference")(inputs.double(), (wide,))))
            bounds = allowed(truth, [plain, *changed], values)
            for index, (one, expected, bound) in enumerate(zip(found, truth, bounds, strict=True)):
                error = float((one - expected).abs().max()) if one.numel() else 0.0
                bound += 0.02 * float(expected.abs().max()) if case in SUMS and scale > 1 else 0.0
                assert error <= LUCK.get(case, 1.0) * bound, (
                    f"tensor {index}, inputs × {scale:g}, flush_denormal={flushes}"
                )
