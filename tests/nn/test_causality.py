"""NaN and infinity in the inputs of one step reach later steps of their row, and nothing else.

Zero times NaN is NaN. So a product of whole matrices whose masked entries are zero carries it backwards in time, to
other rows, or beyond a start, where finite inputs show nothing.
"""

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from docs.uses import LAYERS
from gyral.core.errors import OptionError
from gyral.ops.operator import Operator

T, X, N = 24, 3, 4
TIMES = (0, 1, 3, 6, 17, 22, 23)  # in the first and the second chunk of 16 steps, at all places of a tile of 4
ROWS = [None, *((time, value) for value in (torch.nan, torch.inf) for time in TIMES), None]
CLEAN = [row for row, spoiled in enumerate(ROWS) if spoiled is None]
# one layer of each kind of chunk: with one decay of a memory, of each channel, several micro-steps, rotations
FEW = ("DeltaNet", "KDA", "DeltaProduct", "RotationScan")


def spoiled(inputs: Tensor) -> Tensor:
    """Return the inputs (T, B, X) with a value that is not finite at a step of most rows."""
    inputs = inputs.clone()
    for row, place in enumerate(ROWS):
        if place is not None:
            inputs[place[0], row, -1] = place[1]
    return inputs


def marks(*, after: int) -> Tensor:
    """Return starts (T, B) that many steps behind the spoiled ones."""
    starts = torch.zeros(T, len(ROWS), dtype=torch.bool)
    for row, place in enumerate(ROWS):
        if place is not None and place[0] + after < T:
            starts[place[0] + after, row] = True
    return starts


def assert_same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def check(name: str, backend: str) -> None:
    try:
        layer = LAYERS[name].make(X, N, backend=backend, dtype=torch.float64).eval()
    except OptionError as error:
        pytest.skip(str(error))
    inputs = torch.randn(T, 1, X, dtype=torch.float64).repeat(1, len(ROWS), 1)

    # earlier steps, and other rows
    given = inputs.clone().requires_grad_(), spoiled(inputs).requires_grad_()
    expected, found = (layer(each)[0] for each in given)
    for row, place in enumerate(ROWS):
        time = T if place is None else place[0]
        assert_same(found[:time, row], expected[:time, row])
        assert place is None or not torch.allclose(found[time:, row], expected[time:, row]), "the value has no effect"
    slopes = [torch.autograd.grad(values.sum(), each)[0] for values, each in zip((expected, found), given, strict=True)]
    assert_same(slopes[1][:, CLEAN], slopes[0][:, CLEAN])

    with torch.no_grad():  # values beyond the end of a row, and behind a start
        lengths = torch.tensor([T if place is None else place[0] for place in ROWS])
        (expected, final), (found, last) = (layer(each, lengths=lengths) for each in given)
        assert_same(found, expected)
        for mine, theirs in zip(tree_leaves(last), tree_leaves(final), strict=True):
            assert_same(mine, theirs)
        starts = marks(after=1)
        (expected, _), (found, _) = (layer(each, starts=starts) for each in given)
        for row in starts.any(0).nonzero().flatten().tolist():
            begin = int(starts[:, row].nonzero())
            assert_same(found[begin:, row], expected[begin:, row])


@pytest.mark.named(*FEW)
@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in LAYERS])
def test_of_the_fused_path(name: str) -> None:
    check(name, "fused")


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_of_the_readable_loop(name: str) -> None:
    check(name, "reference")


@pytest.mark.named("DeltaNet", "RotationScan")
@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in LAYERS])
def test_of_the_parallel_form_in_plain_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs where there are no kernels, and is the fused path of many layers there."""
    monkeypatch.setattr(Operator, "unsupported_reason", lambda *arguments: "not in this test")
    check(name, "fused")


def test_second_derivatives_are_numbers_at_steps_of_zeros_in_the_padding_and_at_starts() -> None:
    lengths, starts = torch.tensor([3, 6, 1]), torch.arange(18).view(6, 3) % 4 == 0
    inputs = torch.randn(6, 3, X, dtype=torch.float64)
    inputs[::4] = 0
    for name, made in LAYERS.items():
        layer = made.make(X, N, dtype=torch.float64)
        weights = [*layer.parameters()]
        outputs, _ = layer(inputs, lengths=lengths, starts=starts)
        first = torch.autograd.grad(outputs.sin().sum(), weights, create_graph=True, materialize_grads=True)
        loss = torch.stack([gradient.square().sum() for gradient in first]).sum()
        second = torch.autograd.grad(loss, weights, materialize_grads=True)
        assert all(gradient.isfinite().all() for gradient in (*first, *second)), name
