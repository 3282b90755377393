"""Gated recurrences step by step in Triton, for large sizes, against plain torch in float64, here at small sizes."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from torch import Tensor

from benchmarks import launches
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.on_lstm import ONLSTMCell
from gyral.ops.gated import KINDS, OPERATOR
from gyral.ops.gated.triton import launch
from tests.helpers.loops import for_each
from tests.helpers.triton import DEVICE, ON_GPU, kernels_of
from tests.ops.contract import Case, Named, cast
from tests.ops.gated.test_gated import CONTRACT, LAYERS, ZONEOUT

TOLERANCE = 1e-5 if ON_GPU else 2e-6  # a GPU's exponential and division are not rounded correctly
NEEDS = dict.fromkeys(OPERATOR.Arguments._fields, True)
PLAIN: Named = {"keep": "none", "keep_cell_state": "none", "drop": False, "fresh": False}


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have all sizes run step by step, with uninitialized memory of NaN: nothing may read it."""
    monkeypatch.setattr(launch, "fits", lambda config: False)
    with kernels_of(OPERATOR):
        yield


def on_device(value: Any) -> Any:
    return value.to(DEVICE) if isinstance(value, Tensor) and value.dim() > 0 else value


def by_kernels(case: Case) -> dict[str, Tensor]:
    """Return results and gradients of the kernels in float32."""

    def run(**given: Any) -> list[Tensor]:
        results = CONTRACT.run(**{name: on_device(value) for name, value in given.items()})
        return [each.cpu() for each in results if each is not None]

    return case.results(run, torch.float32)


def check(case: Case) -> dict[str, Tensor]:
    """Compare the kernels with plain torch in float64; return their results."""
    # so that both compute with the same numbers
    case.tensors = {name: tensor.float().double() for name, tensor in case.tensors.items()}
    found, expected = by_kernels(case), case.results(CONTRACT.plain)
    for name, tensor in expected.items():
        error = (found[name] - tensor).norm().item()
        size = max(tensor.norm().item(), 0.1)  # where single numbers cancel, errors are those of the terms
        assert error <= TOLERANCE * size, f"{name}: {error / size:.1e}: {case}"
    return found


@for_each("kind", dict(zip(KINDS, KINDS, strict=True)))
def test_each_kind_equals_plain_torch(kind: str) -> None:
    case = CONTRACT.case((3, 2, 2, 5), {"kind": kind})
    case.options["lengths"] = torch.tensor([2, 3])
    case.options["starts"][:] = torch.tensor([[True, False], [False, True], [False, False]])
    found = check(case)
    assert not found["result 0"][case.beyond].any()
    assert not found["gradient of x"][case.beyond].any()


@for_each("kind", {kind: kind for kind in ("goru", "on_lstm", "rnn_relu", *LAYERS)})
def test_sequences_without_options(kind: str) -> None:
    check(CONTRACT.case((2, 2, 1, 17), {"kind": kind, **PLAIN}, False, False))


@pytest.mark.slow
@for_each("kind", {kind: kind for kind in (*KINDS, *LAYERS)})
def test_options_crossed(kind: str) -> None:
    sizes = (1, 1, 1, 1), (3, 2, 2, 16), (3, 1, 2, 33)
    masks = (False, False), (True, False), (False, True), (True, True)
    for index, size in enumerate(sizes):
        for number, mask in enumerate(masks):
            options = {
                "keep": ZONEOUT[(index + number) % 3],
                "keep_cell_state": ZONEOUT[(index + 2 * number) % 3],
                "drop": number % 2 == 0,
                "fresh": index % 2 == 0,
                "bias": (index + number) % 4 != 0,
                "bias_hh": number < 2,
                "chunk": 1 + index + number,
            }
            check(CONTRACT.case(size, {"kind": kind, **options}, *mask, seed=4 * index + number))


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
def test_only_a_row_depends_on_what_is_no_number() -> None:
    case = CONTRACT.case((4, 3, 2, 5), {"kind": "lstm"})
    case.options["lengths"], case.options["drop"] = torch.tensor([4, 2, 4]), None
    case.options["starts"][:] = False
    case.options["starts"][2, 0] = True
    expected = by_kernels(case)
    case.tensors["h0"][0] = torch.nan  # before the start of the first row
    case.tensors["x"][3, 1] = torch.inf  # beyond the length of the second row
    case.tensors["x"][3, 2, 0] = torch.nan
    found = by_kernels(case)
    assert found["result 0"][:2, 0].isnan().all()
    assert torch.equal(found["result 0"][2:, 0], expected["result 0"][2:, 0])
    assert torch.equal(found["result 0"][:, 1], expected["result 0"][:, 1])
    assert torch.equal(found["result 0"][:3, 2], expected["result 0"][:3, 2])
    for name in ("x", "h0", "c0"):
        gradient = found[f"gradient of {name}"]
        assert torch.equal(gradient[..., 1, :], expected[f"gradient of {name}"][..., 1, :])
    assert torch.equal(found["gradient of x"][2:, 0], expected["gradient of x"][2:, 0])


def test_gradients_of_some_results_alone() -> None:
    case = CONTRACT.case((2, 1, 2, 5), {"kind": "lstm"}, False)
    arguments = {"extra": None, **case.tensors, **case.options}
    arguments = {name: on_device(cast(each, torch.float32)) for name, each in arguments.items()}
    given = OPERATOR.Arguments(**arguments)
    results, _ = launch.forward(given)
    for index in range(3):
        gradients: list[Tensor | None] = [None, None, None]
        gradients[index] = results[index].cos()
        zeros = [torch.zeros_like(each) if by is None else by for each, by in zip(results, gradients, strict=True)]
        # the backward pass overwrites what forward has saved
        found, expected = (launch.backward(given, *launch.forward(given), by, NEEDS) for by in (gradients, zeros))
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items() if tensor is not None)


def test_no_rows() -> None:
    found = by_kernels(CONTRACT.case((3, 0, 2, 5), {"kind": "normalized_goru"}))
    assert not any(tensor.any() for tensor in found.values())


CELLS = {
    "lstm": lambda: LSTMCell(3, 5, layer_norm=True),
    "gru": lambda: GRUCell(3, 5, recurrent_dropout=0.1),
    "on_lstm": lambda: ONLSTMCell(3, 6, chunk_size=2),
}


@for_each("cell", CELLS)
def test_two_launches_a_step_and_no_values_on_the_host(cell: str) -> None:
    """A CUDA graph can record them. Without memory, on the device "meta", no operation can wait for values."""
    few, more = (launches.launches(CELLS[cell](), steps, "fused") for steps in (4, 8))
    forward, backward = ((b - a) / 4 for a, b in zip(few, more, strict=True))
    assert (forward, backward) == (2, 3 if cell == "gru" else 2)
