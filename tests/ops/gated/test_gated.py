"""The kernels of `gyral.ops.gated` on the CPU against the loop over each cell's step."""

import copy
import ctypes
import functools
import gc
import logging
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from gyral.cells.base import RecurrentCell
from gyral.cells.eurnn import EURNNCell
from gyral.cells.full_urnn import FullURNNCell
from gyral.cells.goru import GORUCell
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.on_lstm import ONLSTMCell
from gyral.cells.rnn import RNNCell
from gyral.cells.urnn import URNNCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from gyral.ops import gated
from gyral.ops.gated import KINDS
from gyral.ops.gated import cpu as gated_cpu
from gyral.ops.native import library
from gyral.ops.operator import KernelUnavailableError
from tests.helpers.kernels import look_again, skip_without
from tests.helpers.loops import for_each
from tests.helpers.memory import poison
from tests.ops.float32 import check_float32

compiled = skip_without(gated_cpu.KERNEL.prepare)

FEW, MANY = 3, 500  # random cases of a kind in `make test` and in `make test-all`

LSTMS = ("lstm", "normalized_lstm")
GORUS = ("goru", "normalized_goru")
OF_TORCH = (*LSTMS, "gru", "rnn_tanh", "rnn_relu")  # kinds whose cells may run on torch's layer
DROPS_NOTHING = 1e-12  # of recurrent_dropout: an option that torch's layer has not, without an effect

# the two kinds of modReLU with a matrix of layers of rotations
LAYERS = {"modrelu_layers": "modrelu", "complex_modrelu_layers": "complex_modrelu"}

ALL_KINDS = (*KINDS, *LAYERS)
every_kind = for_each("kind", ALL_KINDS)
a_case_each = pytest.mark.parametrize("kind", ALL_KINDS)


class LayersEURNNCell(EURNNCell):
    """An EURNN whose matrix is never dense in the kernels."""

    MINIMUM_RATIO = 0


def make_cell(kind: str, inputs: int, hidden: int, pick: random.Random, **options: Any) -> RecurrentCell:
    """Return a cell that runs on a kind of kernel, with its own options drawn."""
    if kind == "on_lstm":
        return ONLSTMCell(inputs, hidden, chunk_size=options.pop("chunk", pick.randint(1, hidden - 1)), **options)
    if kind in LSTMS:
        drawn = {
            "bias": pick.random() < 0.7,
            "layer_norm": kind == "normalized_lstm",
            "zoneout_cell": pick.choice([0.0, 0.3]),
            "recurrent_dropout": pick.choice([DROPS_NOTHING, 0.4]),
        }
        return LSTMCell(inputs, hidden, **(drawn | options))
    if kind in OF_TORCH:
        drawn = {"bias": pick.random() < 0.7, "recurrent_dropout": pick.choice([DROPS_NOTHING, 0.4])}
        if kind == "gru":
            return GRUCell(inputs, hidden, **(drawn | options))
        return RNNCell(inputs, hidden, nonlinearity=kind.removeprefix("rnn_"), **(drawn | options))
    capacity = pick.choice(["fft", 1, hidden, max(1, hidden // 2)]) if hidden < 40 else 12
    if kind in LAYERS:
        return LayersEURNNCell(inputs, hidden, capacity=capacity, is_complex="complex" in kind, **options)
    if kind in GORUS:
        drawn = {"layer_norm": kind == "normalized_goru", "recurrent_dropout": pick.choice([0.0, 0.4])}
        return GORUCell(inputs, hidden, capacity=capacity, **(drawn | options))
    if kind == "modrelu":
        return EURNNCell(inputs, hidden, capacity=capacity, is_complex=False, **options)
    others = [URNNCell, FullURNNCell] if hidden < 40 else []
    made = pick.choice([functools.partial(EURNNCell, capacity=capacity), *others])
    return made(inputs, hidden, **options)


def undisturbed(kind: str) -> dict[str, Any]:
    """Return the options of a kind under which nothing is random, besides zoneout."""
    if kind in OF_TORCH:
        return {"recurrent_dropout": DROPS_NOTHING} | ({"zoneout_cell": 0.0} if kind in LSTMS else {})
    if kind in GORUS:
        return {"recurrent_dropout": 0.0}
    return {"chunk": 2} if kind == "on_lstm" else {}


class Case:
    """Random sizes and options of a kind, with weights, inputs, state and cotangents drawn in float64."""

    def __init__(self, kind: str, seed: int, **fixed: Any) -> None:
        pick = random.Random(f"{kind} {seed}")
        sizes = {
            "steps": pick.choice([1, 2, 3, 5, 9]),
            "batch": pick.choice([1, 2, 7, 8, 9, 16, 17]),
            "inputs": pick.choice([1, 2, 5, 11]),
            "hidden": pick.choice([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33]),
        }
        zoneout, ragged, training = pick.choice([0.0, 0.2, 0.7]), pick.random() < 0.4, pick.random() < 0.5
        self.sizes = {key: fixed.pop(key, value) for key, value in sizes.items()}
        if kind == "on_lstm":
            self.sizes["hidden"] = max(2, self.sizes["hidden"])  # an ON-LSTM has two chunks at least
        self.zoneout = fixed.pop("zoneout", zoneout)
        self.training = fixed.pop("training", training)
        ragged = fixed.pop("ragged", ragged)
        resets = fixed.pop("resets", None)  # the fraction of steps at which a row begins anew
        self.kind = kind
        generator = torch.Generator().manual_seed(seed)
        self.draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
        steps, batch, width, hidden = self.sizes.values()
        self.lengths = torch.randint(1, steps + 1, (batch,), generator=generator) if ragged else None
        self.starts = None if resets is None else torch.rand(steps, batch, generator=generator) < resets
        torch.manual_seed(seed)
        self.cell = make_cell(kind, width, hidden, pick, zoneout=self.zoneout, **fixed).double()
        for parameter in self.cell.parameters():  # biases that close units of modReLU and others that open them
            parameter.data += 0.3 * self.draw(parameter.shape)
        self.inputs = self.draw(steps, batch, width)
        self.state = tree_map(lambda leaf: self.draw(leaf.shape), self.cell.init_state(batch))
        shapes = [(steps, batch, self.cell.output_size), *(leaf.shape for leaf in self.state)]
        self.cotangents = [self.draw(shape) for shape in shapes]

    def __str__(self) -> str:
        names = ("chunk_size", "zoneout_cell", "recurrent_dropout")
        options = {name: getattr(self.cell, name) for name in names if hasattr(self.cell, name)}
        options |= {"zoneout": self.zoneout, "training": self.training}
        return f"{self.cell} {self.sizes} {options} ragged={self.lengths is not None} starts={self.starts}"

    @property
    def draws(self) -> bool:
        """Whether random masks are drawn, which float32 and float64 do differently."""
        return self.training and any(
            getattr(self.cell, name, 0) > DROPS_NOTHING for name in ("zoneout", "zoneout_cell", "recurrent_dropout")
        )

    def results(self, backend: str, dtype: torch.dtype) -> dict[str, Tensor]:
        """Return outputs, final state and every gradient, in float64."""
        cell = copy.deepcopy(self.cell).to(dtype)
        model = Recurrent(lambda _: cell, 1, backend=backend).train(self.training)
        inputs = self.inputs.to(dtype, copy=True).requires_grad_()
        state = tree_map(lambda leaf: leaf.to(dtype, copy=True).requires_grad_(), self.state)
        torch.manual_seed(7)  # of the zoneout masks
        outputs, (final,) = model(inputs, (state,), self.lengths, self.starts)
        values = [outputs, *final]
        leaves = {"inputs": inputs, **{f"initial {name}": leaf for name, leaf in state._asdict().items()}}
        leaves |= dict(cell.named_parameters())
        cotangents = [cotangent.to(dtype) for cotangent in self.cotangents]
        gradients = torch.autograd.grad(values, list(leaves.values()), cotangents, materialize_grads=True)
        found = dict(zip(["outputs", *(f"final {name}" for name in state._fields)], values, strict=True))
        found |= {f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
        return {name: tensor.detach().double() for name, tensor in found.items()}


def error(result: Tensor, truth: Tensor) -> float:
    """Return ‖result − truth‖ / ‖truth‖; a truth below 1e-3 counts as that, since some gradients are zero by nature."""
    return (result - truth).norm().item() / max(truth.norm().item(), 1e-3)


def check_against_float64(cases: Iterable[Case]) -> None:
    """Compare the fused path with the loop: in float64 case by case, in float32 by its typical error."""

    def compared() -> Iterator[tuple[Any, ...]]:
        for case in cases:
            truth = check_equal(case)
            if not case.draws:
                yield case, truth, *(case.results(backend, torch.float32) for backend in ("fused", "reference"))

    check_float32(compared(), error, {"outputs", "gradient of inputs", "gradient of initial hidden"})


def test_random_sizes_and_options() -> None:
    check_against_float64(Case(kind, seed) for kind in ALL_KINDS for seed in range(FEW))


@pytest.mark.slow
@a_case_each
def test_hundreds_of_random_sizes_and_options(kind: str) -> None:
    check_against_float64(Case(kind, seed) for seed in range(FEW, FEW + MANY))


def check_equal(case: Case) -> dict[str, Tensor]:
    """Compare the kernels with the loop over the step, in values and gradients; return those of the loop."""
    truth, fused = (case.results(backend, torch.float64) for backend in ("reference", "fused"))
    assert fused.keys() == truth.keys()
    for name, tensor in truth.items():
        assert error(fused[name], tensor) < 1e-9, f"{name} of {case}"
    return truth


@every_kind
def test_edges_of_the_blocks_and_vectors(kind: str) -> None:
    # N, and for on_lstm C, that miss and cross the vectors of every instruction set; batches around a block of 8 rows
    for hidden, batch, steps in ((1, 9, 3), (17, 1, 1), (17, 8, 3), (16, 17, 3)):
        check_equal(Case(kind, 1, steps=steps, batch=batch, hidden=hidden, ragged=steps == 3, zoneout=0.2))


@pytest.mark.slow
@a_case_each
@pytest.mark.parametrize("hidden", [1, 2, 3, 16, 17])
def test_all_edges_of_the_blocks_and_vectors(kind: str, hidden: int) -> None:
    for batch in (1, 7, 8, 9, 17):
        for steps in (1, 3):
            check_equal(Case(kind, 1, steps=steps, batch=batch, hidden=hidden, ragged=steps == 3, zoneout=0.2))


def test_every_chunk_size() -> None:
    for hidden in (2, 3, 7, 10):
        for chunk in range(1, hidden):
            check_equal(Case("on_lstm", 2, steps=3, batch=9, hidden=hidden, chunk=chunk, zoneout=0.0))


def large_case(kind: str) -> Case:
    """Return a case whose weights exceed 512 KiB in float64: all rows of a thread go through a step together."""
    hidden = {"modrelu": 257, "goru": 150, "normalized_goru": 150, "gru": 150, "rnn_tanh": 257, "rnn_relu": 257}
    case = Case(
        kind, 5, steps=3, batch=17, hidden=hidden.get(kind, 130), inputs=2, ragged=True, zoneout=0.3, training=False
    )
    for parameter in case.cell.parameters():
        parameter.data *= 0.2
    return case


def arguments_of(case: Case, dtype: torch.dtype) -> Any:
    """Return the arguments that a case hands to the kernels."""
    caught = []

    def catch(arguments: Any) -> Any:
        caught.append(arguments)
        return forward(arguments)

    forward = gated_cpu.forward
    gated_cpu.forward = catch
    try:
        case.results("fused", dtype)
    finally:
        gated_cpu.forward = forward
    return caught[0]


@every_kind
def test_weights_beyond_the_cache(kind: str) -> None:
    case = large_case(kind)
    arguments = arguments_of(case, torch.float64)
    assert (arguments.partner is not None) == (kind in LAYERS)
    assert kind in LAYERS or arguments.w_hh.numel() * 8 >= 2**19
    check_equal(case)


# ---------------------------------------------------------------- memory and threads


@torch.no_grad()
def solve(arguments: Any) -> list[Tensor]:
    """Return the results and gradients of the kernels; the cotangents depend on the sizes alone."""
    results, saved = gated_cpu.forward(arguments)
    generator = torch.Generator().manual_seed(3)
    cotangents = [
        None if value is None else torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.dtype)
        for value in results
    ]
    gradients = gated_cpu.backward(arguments, results, saved, cotangents, dict.fromkeys(arguments._fields, True))
    return [tensor for tensor in (*results, *gradients.values()) if tensor is not None]


@pytest.mark.parametrize(("dtype", "large"), [(torch.float32, False), (torch.float64, True)], ids=["small", "large"])
@every_kind
def test_any_number_of_threads_gives_the_same_bits(
    kind: str, dtype: torch.dtype, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = large_case(kind) if large else Case(kind, 5, steps=20, batch=37, hidden=21, ragged=True, zoneout=0.2)
    arguments = arguments_of(case, dtype)
    found, kernel = [], gated_cpu.KERNEL.run

    def run(**given: Any) -> None:  # the products of torch before and after it are not the kernel's
        torch.set_num_threads(threads)
        try:
            kernel(**given)
        finally:
            torch.set_num_threads(1)

    monkeypatch.setattr(gated_cpu.KERNEL, "run", run)
    for threads in (1, 3):  # noqa: B007 (`run` reads it)
        found.append(solve(arguments))
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


@pytest.mark.parametrize("size", ["whole", "lengths", "large"])
@every_kind
def test_uninitialized_memory_is_never_read(monkeypatch: pytest.MonkeyPatch, kind: str, size: str) -> None:
    sizes = {"steps": 7, "batch": 19, "hidden": 13, "inputs": 3}
    case = Case(kind, 11, **sizes, ragged=size == "lengths", zoneout=0.2, training=False, resets=0.2)
    if size == "large":
        case = large_case(kind)
    clean = case.results("fused", torch.float64)
    called = poison(monkeypatch)
    again = case.results("fused", torch.float64)
    assert set(called) == {"empty", "empty_like", "new_empty"}
    for name, tensor in clean.items():
        assert torch.equal(again[name], tensor), name


@every_kind
def test_steps_beyond_the_lengths_change_nothing(kind: str) -> None:
    case = Case(kind, 4, steps=6, batch=11, hidden=9, ragged=True, zoneout=0.3, training=True)
    first = case.results("fused", torch.float64)
    padding = torch.arange(6)[:, None] >= case.lengths
    assert padding.any()
    case.inputs[padding] = 1e3
    case.cotangents[0][padding] = 1e3
    second = case.results("fused", torch.float64)
    for name, tensor in first.items():
        assert error(second[name], tensor) < 1e-13, name
    assert (first["outputs"][padding] == 0).all()
    assert (first["gradient of inputs"][padding] == 0).all()


@every_kind
def test_nan_stays_visible(kind: str) -> None:
    for dtype in (torch.float32, torch.float64):
        sizes = {"steps": 5, "batch": 9, "inputs": 3, "hidden": 6}
        case = Case(kind, 6, **sizes, zoneout=0.0, ragged=False, **undisturbed(kind))
        case.inputs[2, 1, 0] = torch.nan
        case.inputs[1, 8, 2] = torch.inf
        cell = case.cell.to(dtype)
        models = [Recurrent(lambda _, cell=cell: cell, 3, backend=backend) for backend in ("reference", "fused")]
        with torch.no_grad():
            reference, fused = (model(case.inputs.to(dtype))[0] for model in models)
        assert fused[:, [0, 2, 3, 4, 5, 6, 7]].isfinite().all()
        assert fused[:2, 1].isfinite().all()
        assert fused[:1, 8].isfinite().all()
        assert fused[2:, 1].isnan().all()
        assert torch.equal(fused.isnan(), reference.isnan())


def test_a_nan_with_a_payload_stays_one() -> None:
    """Whatever the low bits of a NaN hold, as other programs may write them there."""
    cell = ONLSTMCell(3, 5, chunk_size=2)
    inputs = torch.randn(2, 1, 3)
    inputs.view(torch.int32)[0, 0, 0] = 0x7FC00001
    outputs, _ = Recurrent(lambda _: cell, 3, backend="fused")(inputs)
    assert outputs.isnan().all()


def small(kind: str, dtype: torch.dtype = torch.float32) -> RecurrentCell:
    return make_cell(kind, 3, 5, random.Random(1), **undisturbed(kind)).to(dtype)


@pytest.mark.named("complex_modrelu")
@a_case_each
def test_nothing_leaks(kind: str) -> None:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("no /proc to read the size of this process from")
    cell = make_cell(kind, 8, 16, random.Random(1), **({"chunk": 10} if kind == "on_lstm" else {}))
    model = Recurrent(lambda _: cell, 8, backend="fused")
    inputs = torch.randn(10, 256, 8)

    def call(times: int) -> None:
        for _ in range(times):
            outputs, _ = model(inputs)
            outputs.sum().backward()
            model.zero_grad()
            with torch.no_grad():
                model(inputs)

    def resident() -> int:
        gc.collect()
        return int(statm.read_text(encoding="utf-8").split()[1]) * 4096

    call(10)
    before = resident()
    call(40)
    # the outputs of one call take at least 160 KiB
    assert resident() - before < 4e6


# ---------------------------------------------------------------- autograd


@every_kind
def test_a_second_backward_over_the_same_graph_gives_the_same(kind: str) -> None:
    model = Recurrent(lambda _: small(kind), 3, backend="fused")
    inputs = torch.randn(6, 9, 3, requires_grad=True)
    other = torch.randn(6, 9, 3)
    outputs, (final,) = model(inputs)
    values = [outputs, *final]
    cotangents = [torch.randn_like(value) for value in values]
    leaves = [inputs, *model.parameters()]
    first = torch.autograd.grad(values, leaves, cotangents, retain_graph=True, materialize_grads=True)
    for _ in range(2):
        model(other)[0].sum().backward()
        again = torch.autograd.grad(values, leaves, cotangents, retain_graph=True, materialize_grads=True)
        for one, two in zip(first, again, strict=True):
            assert torch.equal(one, two)


@every_kind
def test_two_graphs_at_once_do_not_share_memory(kind: str) -> None:
    model = Recurrent(lambda _: small(kind), 3, backend="fused")
    batches = [torch.randn(6, 4, 3, requires_grad=True) for _ in range(3)]
    alone = [torch.autograd.grad(model(batch)[0].sin().sum(), batch)[0] for batch in batches]
    together = [model(batch)[0].sin().sum() for batch in batches]
    for batch, total, expected in zip(batches, together, alone, strict=True):
        assert torch.equal(torch.autograd.grad(total, batch)[0], expected)


@every_kind
def test_each_value_may_be_differentiated_alone(kind: str) -> None:
    cell = small(kind, torch.float64)
    inputs = torch.randn(4, 3, 3, dtype=torch.float64)
    for index in range(1 + len(cell.init_state(1))):
        found = []
        for backend in ("reference", "fused"):
            x = inputs.clone().requires_grad_()
            outputs, (final,) = Recurrent(lambda _: cell, 3, backend=backend)(x)
            total = (outputs, *final)[index].sum()  # its gradient is one number that lies in memory once
            found.append(torch.autograd.grad(total, [x, *cell.parameters()], materialize_grads=True))
        for one, two in zip(*found, strict=True):
            torch.testing.assert_close(two, one, rtol=1e-9, atol=1e-9)


@every_kind
def test_without_a_graph_the_values_are_the_same(kind: str) -> None:
    model = Recurrent(lambda _: small(kind), 3, backend="fused")
    inputs = torch.randn(6, 9, 3)
    outputs, (final,) = model(inputs)
    assert outputs.requires_grad
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            others, (last,) = model(inputs)
            again, _ = model(inputs, (last,))
        assert not others.requires_grad
        assert again.isfinite().all()
        for one, two in zip((outputs, *final), (others, *last), strict=True):
            assert torch.equal(one, two)
        # a graph can be made afterwards
        model(inputs)[0].sum().backward()


@every_kind
def test_frozen_parameters_and_inputs_get_no_gradient(kind: str) -> None:
    cell = small(kind, torch.float64)
    model = Recurrent(lambda _: cell, 3, backend="fused")
    inputs = torch.randn(4, 3, 3, dtype=torch.float64)
    model(inputs)[0].sum().backward()
    weight = next(parameter for name, parameter in cell.named_parameters() if "weight_ih" in name)
    expected = weight.grad.clone()
    model.zero_grad()
    for parameter in cell.parameters():
        parameter.requires_grad_(parameter is weight)
    model(inputs)[0].sum().backward()
    torch.testing.assert_close(weight.grad, expected, rtol=1e-12, atol=1e-12)
    assert all(parameter.grad is None for parameter in cell.parameters() if parameter is not weight)


@for_each("inside", [False, True])
@every_kind
def test_autocast_leaves_the_state_in_the_type_of_the_parameters(kind: str, inside: bool) -> None:
    cell = small(kind)
    model = Recurrent(lambda _: cell, 3, backend="fused")
    inputs = torch.randn(6, 4, 3).bfloat16()
    found = []
    for half in (True, False):
        x = inputs.clone().requires_grad_() if half else inputs.float().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            _, carried = model(x.detach())
            outputs, (final,) = model(x, carried)
        assert outputs.dtype == torch.float32
        assert all(leaf.dtype == torch.float32 for leaf in final)
        with torch.autocast("cpu", torch.bfloat16, enabled=half and inside):
            gradients = torch.autograd.grad(outputs.sum(), [x, *cell.parameters()], materialize_grads=True)
        found.append([outputs, *gradients])
    assert found[0][1].dtype == torch.bfloat16
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype))


# ---------------------------------------------------------------- what is handed in


@every_kind
def test_tensors_may_have_any_memory_layout(kind: str) -> None:
    cell = small(kind, torch.float64)
    model = Recurrent(lambda _: cell, 3, backend="fused")
    inputs = torch.randn(6, 9, 3, dtype=torch.float64)
    state = tree_map(torch.randn_like, cell.init_state(9))
    lengths = torch.randint(1, 7, (9,))

    def run(scatter: bool) -> list[Tensor]:
        def place(tensor: Tensor) -> Tensor:
            placed = tensor.mT.contiguous().mT if scatter else tensor.clone()
            assert placed.is_contiguous() is not scatter
            return placed.requires_grad_()

        x, start = place(inputs), tree_map(place, state)
        outputs, (final,) = model(x, (start,), torch.stack((lengths, lengths), 1)[:, 0] if scatter else lengths)
        values = [outputs, *final]
        cotangents = [place(value.detach().cos()).detach() for value in values]
        gradients = torch.autograd.grad(values, [x, *start, *cell.parameters()], cotangents, materialize_grads=True)
        return [*values, *gradients]

    for one, other in zip(run(False), run(True), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@every_kind
def test_lengths_may_have_any_integer_dtype(kind: str) -> None:
    model = Recurrent(lambda _: small(kind), 3, backend="fused")
    inputs, lengths = torch.randn(6, 8, 3), torch.tensor([2, 6, 1, 4, 5, 6, 3, 1])
    with torch.no_grad():
        outputs, (final,) = model(inputs, None, lengths)
        for dtype in (torch.int32, torch.int16, torch.uint8):
            others, (last,) = model(inputs, None, lengths.to(dtype))
            for one, two in zip((outputs, *final), (others, *last), strict=True):
                assert torch.equal(one, two), dtype


WRONG = {
    "one row for all": lambda leaf: leaf[:1],
    "too many rows": lambda leaf: torch.cat((leaf, leaf)),
    "too narrow": lambda leaf: leaf[:, :2],
    "too wide": lambda leaf: torch.cat((leaf, leaf), dim=1),
    "of another type": lambda leaf: leaf.double(),
}


@every_kind
def test_a_state_that_does_not_fit_never_reaches_the_kernels(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """They would read and write beyond its end."""
    cell = small(kind)
    model = Recurrent(lambda _: cell, 3, backend="fused")
    reached = []

    def forward(arguments: Any) -> Any:
        reached.append((arguments.h0.shape, arguments.h0.dtype))
        raise RuntimeError("the kernels were called")

    monkeypatch.setattr(gated_cpu, "forward", forward)
    for change in WRONG.values():
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            model(torch.randn(6, 4, 3), (tree_map(change, cell.init_state(4)),))
    assert reached == [], "states of another shape or type than (4, H) and that of the parameters"


# ---------------------------------------------------------------- the library


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the kernels fail to compile."""

    def load(source: Path) -> ctypes.CDLL:
        raise KernelUnavailableError(f"no compiler for {source.name}")

    monkeypatch.setattr(library, "load", load)
    look_again(monkeypatch)


@pytest.mark.usefixtures("no_compiler")
@every_kind
def test_without_a_compiler_the_reference_runs_and_logs_the_reason(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    name, reason = type(small(kind)).__name__, small(kind).fused_unsupported_reason()
    assert reason.endswith("no compiler for gated.cpp")
    caplog.clear()
    with caplog.at_level(logging.INFO, "gyral"):
        model = Recurrent(lambda _: small(kind), 3)
        assert model.backend == "reference"
    (record,) = caplog.records
    assert record.getMessage() == (f"{name} runs on the reference backend (requested: auto; {reason})")
    outputs, _ = model(torch.randn(4, 2, 3))
    assert outputs.isfinite().all()
    with pytest.raises(OptionError, match=r"^backend=fused: .*no compiler for gated\.cpp; allowed here: .*$") as told:
        Recurrent(lambda _: small(kind), 3, backend="fused")
    assert "\n" not in str(told.value)


@every_kind
def test_half_precision_has_no_kernels_on_the_cpu(kind: str) -> None:
    reason = small(kind, torch.bfloat16).fused_unsupported_reason()
    assert reason.endswith("there are no kernels for torch.bfloat16 on cpu")
    assert small(kind).fused_unsupported_reason() is None


@pytest.mark.parametrize(
    "option", [{"recurrent_dropout": 0.1}, {"layer_norm": True}], ids=lambda option: next(iter(option))
)
def test_options_without_kernels_are_named(option: dict[str, Any]) -> None:
    cell = make_cell("on_lstm", 3, 5, random.Random(1), chunk=2, **option)
    assert next(iter(option)) in str(cell.fused_unsupported_reason())


def test_kinds_without_kernels_are_refused() -> None:
    meta = torch.empty(3, device="meta")
    assert gated.unsupported_reason(meta) == "there are no kernels for meta"
