"""The floating-point operations that `torch.utils.flop_counter` counts: those of the loop in functions of torch."""

import sys

import pytest
import torch
from lightning_fabric.utilities.throughput import measure_flops
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import gyral
from docs.uses import LAYERS
from tests.helpers.loops import for_each
from tests.ops.contract import Contract, derivatives
from tests.ops.test_contract import CONTRACTS

T, B, X, N = 4, 2, 6, 8
# Fused over reference. Fused paths multiply with a matrix of many rotations as one, leave out edges of types that no
# step has, or compute what only first steps need only there.
FORWARD = {"EURNN": 3.67, "URNN": 3.67, "FullURNN": 2.04, "GORU": 1.24, "MAGEGRU": 0.86, "SLiCE": 0.83}
# Backward passes have a product less in the loop: the first step needs no gradient of the initial state. The loops of
# memories differentiate selections of slots. A layer of torch does not say which gradients are needed.
BACKWARD = (0.85, 1.45)


def count(layer: nn.Module, inputs: Tensor) -> tuple[int, int]:
    """Return the operations of a forward and of a backward pass."""
    with FlopCounterMode(display=False) as forward:
        outputs, _ = layer(inputs)
    with FlopCounterMode(display=False) as backward:
        outputs.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


@for_each("label", LAYERS)
def test_layers_count_like_their_loop(label: str) -> None:
    inputs = torch.randn(T, B, X)
    forward, backward = count(LAYERS[label].make(X, N), inputs)
    expected, expected_backward = count(LAYERS[label].make(X, N, backend="reference"), inputs)
    assert expected > 0
    assert forward / expected == pytest.approx(FORWARD.get(label, 1.0), rel=0.1 if label in FORWARD else 0)
    least, most = BACKWARD
    if FORWARD.get(label, 1) < 1.3:
        assert least <= backward / expected_backward <= most
    assert backward > 0


LOOPS = [contract for contract in CONTRACTS if contract.loops]


@pytest.mark.parametrize("contract", LOOPS, ids=lambda contract: contract.name)
def test_operators_count_like_their_loop(contract: Contract) -> None:
    for kind in contract.kinds:
        case, found = contract.case(contract.tiny, kind, ragged=False, resets=False), []
        for run in (contract.run, contract.plain):
            leaves = case.leaves()
            with FlopCounterMode(display=False) as forward:
                values = case.values(run, leaves)
            with FlopCounterMode(display=False) as backward:
                derivatives(values, list(leaves.values()))
            found.append((forward.get_total_flops(), backward.get_total_flops()))
        (forward_count, backward_count), expected = found
        # the loop of fast weights has no product in its update, and that of lie_access reads what it has forgotten
        tolerance = 0.35 if contract.name in ("fast_weights", "lie_access") else 0.0
        assert forward_count == pytest.approx(expected[0], rel=tolerance, abs=0), kind
        assert backward_count == pytest.approx(2 * forward_count, rel=0), kind


def test_counters_that_began_before_the_first_call_and_lightning_count(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, inputs = gyral.RUM(X, N, lambd=1.0), torch.randn(T, B, X)
    module = sys.modules["torch.utils.flop_counter"]
    monkeypatch.setattr(module, "flop_registry", {})
    forward, backward = count(layer, inputs)
    assert forward > 0
    assert measure_flops(layer, lambda: layer(inputs), lambda found: found[0].sum()) == forward + backward


def test_inference_counts() -> None:
    layer, inputs = gyral.GRU(X, N), torch.randn(T, B, X)
    expected, _ = count(layer, inputs)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(inputs)
    assert counter.get_total_flops() == expected
