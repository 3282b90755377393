"""The Triton kernels of gated recurrences against plain torch in float64: on a GPU, else under the interpreter."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from torch import Tensor

import gyral
from gyral.ops.gated import OPERATOR
from gyral.ops.gated.triton import launch
from gyral.ops.gated.triton.config import config_of
from tests.helpers.triton import DEVICE, MASKS, ON_GPU, KernelCase, kernels_of, launches_of
from tests.ops.gated.test_gated import ALL_KINDS, drawn

TOLERANCE = 2e-5 if ON_GPU else 2e-6
RESULTS = ("outputs", "final hidden", "final cell state")
# whether there are zoneout, a cell state of `starts`, dropout, and two biases
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"keep": "none", "keep_cell_state": "none", "drop": False, "fresh": False, "bias_hh": False},
    "masks": {"keep": "mask", "keep_cell_state": "mask", "drop": True, "fresh": True},
    "means": {"keep": "mean", "keep_cell_state": "mean", "drop": False, "fresh": True, "extra": False},
    "mixed": {"keep": "none", "keep_cell_state": "mask", "drop": True, "fresh": False, "bias": False},
}


@pytest.fixture(autouse=True)
def triton_kernels() -> Iterator[None]:
    with kernels_of(OPERATOR):
        yield


class Case(KernelCase):
    """Arguments, in float64 with values of float32: T, B, X, N."""

    operator, tolerance = OPERATOR, TOLERANCE
    names = RESULTS

    def __init__(self, *sizes: int, kind: str, masks: str = "none", **options: Any) -> None:
        given, others = drawn(*sizes, kind=kind, **options)
        if not MASKS[masks][1]:
            given["fresh"] = None
        tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
        absent = {name: None for name in ("b", "b_hh", "extra", "c0", "fresh") if name not in tensors}
        super().__init__(tensors, others | absent, *sizes[:2], masks)


@pytest.mark.named("plain-none-*", "masks-both-*")
@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("options", OPTIONS)
def test_kernels_equal_plain_torch(options: str, masks: str, kind: str) -> None:
    case = Case(3, 2, 2, 5, kind=kind, masks=masks, **OPTIONS[options])
    found = case.check()
    if MASKS[masks][0]:
        beyond = case.beyond
        assert not found["outputs"][beyond].any()
        assert not found["x"][beyond].any()


@pytest.mark.parametrize(("kind", "resident"), [("lstm", 0), ("complex_modrelu", 1), ("on_lstm", 0)])
def test_matrices_that_do_not_fit_are_read_in_each_step(
    kind: str, resident: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, changed = launch._settings, {"resident": resident, "early": resident > 0}
    monkeypatch.setattr(launch, "_settings", lambda *given: settings(*given) | changed)
    Case(3, 2, 2, 5, kind=kind, masks="both").check()


def test_large_batches_are_run_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def runs_rows(batch: int, size: int) -> bool:
        tensors, others = drawn(1, batch, 1, size, kind="gru")
        return launch.runs_rows(OPERATOR.Arguments(**tensors, **others, lengths=None, starts=None))

    assert ON_GPU or runs_rows(100, 100)
    monkeypatch.setattr(launch, "_processors", lambda device: 2)
    assert [runs_rows(8, 100), runs_rows(9, 100), runs_rows(32, 50), runs_rows(33, 50)] == [True, False, True, False]
    assert not runs_rows(1, 129)


def test_settings() -> None:
    def found(kind: str, size: int) -> list[Any]:
        tensors, others = drawn(1, 1, 1, size, kind=kind, chunk=10)
        config = config_of(OPERATOR.Arguments(**tensors, **others, lengths=None, starts=None))
        assert launch.fits(config) == (size <= 64 or (size <= 128 and kind != "on_lstm"))
        return [[launch._settings(way, config)[name] for name in ("resident", "num_warps")] for way in (True, False)]

    assert found("gru", 20) == [[3, 1], [3, 1]]
    assert found("gru", 50) == [[3, 4], [3, 4]]
    assert found("on_lstm", 50) == [[6, 8], [6, 8]]
    assert found("normalized_lstm", 65) == [[1, 8], [0, 8]]
    assert found("gru", 128) == [[3, 8], [1, 8]]
    assert found("lstm", 100) == [[2, 8], [1, 8]]
    assert found("rnn_tanh", 129) == [[1, 8], [1, 8]]


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy
def test_what_is_no_number_stays_in_its_row_and_ends_at_a_reset() -> None:
    case = Case(5, 2, 2, 3, kind="lstm", masks="both", keep="none", keep_cell_state="none")
    starts, lengths = case.others["starts"], case.others["lengths"]
    starts.zero_()[3, 1], lengths[:] = True, 4
    expected = case.by_kernels()
    case.tensors["x"][1, 1, 0] = torch.nan
    case.tensors["x"][4] = torch.nan
    found = case.by_kernels()
    assert torch.equal(found["outputs"][:, 0], expected["outputs"][:, 0])
    assert torch.equal(found["outputs"][[0, 3], 1], expected["outputs"][[0, 3], 1])
    assert found["outputs"][1:3, 1].isnan().any(1).all()
    assert torch.equal(found["x"][:, 0], expected["x"][:, 0])
    assert torch.equal(found["x"][3:], expected["x"][3:])


def test_a_master_gate_that_is_no_number_is_seen() -> None:
    case = Case(1, 1, 2, 3, kind="on_lstm")
    case.tensors["b"][0] = torch.nan
    assert case.by_kernels()["outputs"].isnan().all()


def test_results_without_a_gradient_have_that_of_zeros() -> None:
    case = Case(2, 1, 2, 2, kind="lstm", masks="starts", keep="none", keep_cell_state="none", bias_hh=False)
    given = case.arguments()
    needs = dict.fromkeys(given._fields, True)
    for index in range(3):
        results, saved = launch.forward(given)
        gradients: list[Tensor | None] = [None] * len(results)
        gradients[index] = results[index].cos()
        zeros = [torch.zeros_like(each) if by is None else by for each, by in zip(results, gradients, strict=True)]
        found, expected = (
            launch.backward(given, results, [each if each is None else each.clone() for each in saved], by, needs)
            for by in (gradients, zeros)
        )
        assert all(torch.equal(found[name], each) for name, each in expected.items() if each is not None)


def test_no_rows_and_one_launch_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(tensor.any() for tensor in Case(3, 0, 2, 2, kind="gru").by_kernels().values())
    launched = launches_of(monkeypatch, launch, "start")
    Case(2, 1, 2, 2, kind="gru").by_kernels()
    assert launched == [launch.forward_loop, launch.backward_loop]


LAYERS = {
    "gru": partial(gyral.GRU, zoneout=0.3, recurrent_dropout=0.2),
    "lstm": partial(gyral.LSTM, zoneout=0.3, zoneout_cell=0.2, recurrent_dropout=0.2),
    "normalized lstm": partial(gyral.LSTM, layer_norm=True),
    "rnn": partial(gyral.RNN, zoneout=0.3),
    "rnn with relu": partial(gyral.RNN, nonlinearity="relu", recurrent_dropout=0.2),
    "goru": partial(gyral.GORU, zoneout=0.3),
    "normalized goru": partial(gyral.GORU, layer_norm=True, recurrent_dropout=0.2),
    "eurnn": partial(gyral.EURNN, zoneout=0.3),
    "urnn": partial(gyral.URNN, learned_initial_state=True),
    "full_urnn": gyral.FullURNN,
    "exprnn": gyral.ExpRNN,
    "dtriv": gyral.DTRIV,
    "on_lstm": partial(gyral.ONLSTM, chunk_size=2, zoneout=0.3),
}


@pytest.mark.named("lstm-True", "goru-False", "eurnn-True", "urnn-True", "dtriv-False")
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_equal_their_reference(name: str, masked: bool) -> None:
    steps, batch = 3, 2
    torch.manual_seed(0)
    layer, reference = (LAYERS[name](3, 6, backend=backend).to(DEVICE) for backend in ("fused", "reference"))
    reference.load_state_dict(layer.state_dict())
    masks: dict[str, Any] = {}
    if masked:
        masks["lengths"] = torch.tensor([steps, 1], device=DEVICE)
        masks["starts"] = (torch.rand(steps, batch) < 0.3).to(DEVICE)
    inputs = torch.randn(steps, batch, 3, device=DEVICE)
    for is_training in (True, False):
        found = []
        for each in (layer, reference):
            each.train(is_training)
            torch.manual_seed(1)  # of random masks
            x = inputs.clone().requires_grad_()
            outputs, state = each(x, **masks)
            leaves = [outputs, *(state if isinstance(state, tuple) else [state])]
            wanted = [x, *each.parameters()]
            gradients = torch.autograd.grad(sum(leaf.sin().sum() for leaf in leaves), wanted)
            found.append([*leaves, *gradients])
        for one, other in zip(*found, strict=True):
            assert (one - other).norm() <= 10 * TOLERANCE * other.norm()


@pytest.mark.skipif(not ON_GPU, reason="the interpreter takes minutes")
@pytest.mark.parametrize("size", [20, 50, 100, 128])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_the_same_bits_again(kind: str, size: int) -> None:
    case = Case(40, 9, 4, size, kind=kind, masks="both", chunk=10, scale=0.5)
    case.check()
    case.check_repeats(but=[name for name in case.tensors if name.startswith("w")])
