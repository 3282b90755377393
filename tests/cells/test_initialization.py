"""Initial values: those of the authors' codes, `reset_parameters`, and cells that are built without memory."""

import copy
import functools
import itertools
import math
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gyral.cells.base import RecurrentCell
from gyral.cells.dnc import DNCCell
from gyral.cells.dynamic_conv import DynamicConvCell
from gyral.cells.eurnn import EURNNCell
from gyral.cells.external import ExternalCell
from gyral.cells.fast_weights import FastWeightsCell
from gyral.cells.feedforward import Feedforward
from gyral.cells.fs_rnn import FSRNNCell
from gyral.cells.full_urnn import FullURNNCell
from gyral.cells.goru import GORUCell
from gyral.cells.gru import GRUCell
from gyral.cells.light_conv import LightConvCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.ntm import NTMCell
from gyral.cells.on_lstm import ONLSTMCell
from gyral.cells.rnn import RNNCell
from gyral.cells.rum import RUMCell
from gyral.cells.urnn import URNNCell
from gyral.cells.weinet import WeiNetCell
from gyral.core.errors import UserError
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each

X, N, BATCH, STEPS = 3, 6, 2, 4
DRAWS = 12  # of all weights, for their standard deviations
fast = functools.partial(LSTMCell, layer_norm=True, bias=False, initialization="joint_orthogonal")
MAKERS: dict[str, Callable[..., RecurrentCell]] = {
    "rum": functools.partial(RUMCell, layer_norm=True, lambd=1.0),
    "rum one_block": functools.partial(RUMCell, initialization="one_block"),
    "gru": functools.partial(GRUCell, layer_norm=True),
    "lstm": LSTMCell,
    "lstm orthogonal": functools.partial(LSTMCell, layer_norm=True, initialization="orthogonal"),
    "lstm glorot": functools.partial(LSTMCell, initialization="glorot"),
    "rnn": functools.partial(RNNCell, layer_norm=True),
    "goru": functools.partial(GORUCell, initialization="authors", layer_norm=True),
    "goru fft": functools.partial(GORUCell, capacity="fft"),
    "eurnn": functools.partial(EURNNCell, initialization="authors"),
    "eurnn real": functools.partial(EURNNCell, is_complex=False, capacity=5),
    "urnn": functools.partial(URNNCell, initialization="authors", learned_initial_state=True),
    "full_urnn": functools.partial(FullURNNCell, initialization="authors", learned_initial_state=True),
    "on_lstm": functools.partial(ONLSTMCell, chunk_size=4, initialization="authors", layer_norm=True),
    "weinet": WeiNetCell,
    "fast_weights": FastWeightsCell,
    "fs_rnn": functools.partial(FSRNNCell, fast=fast, slow=functools.partial(RUMCell, layer_norm=True), num_fast=3),
    "ntm": functools.partial(NTMCell, slots=4, width=30, initial_memory="random"),
    "ntm constant": functools.partial(NTMCell, slots=4, width=30, controller=Feedforward),
    "dnc": functools.partial(DNCCell, slots=4, width=3, read_heads=2),
    "external": ExternalCell,
    "light_conv": functools.partial(LightConvCell, heads=2, kernel_size=3, initialization="authors"),
    "dynamic_conv": functools.partial(DynamicConvCell, heads=2, kernel_size=3, initialization="authors"),
}
every_cell = for_each("make", MAKERS.values())


def run(cell: RecurrentCell, inputs: Tensor) -> tuple[Tensor, ...]:
    """Return the outputs, and the gradients of all parameters."""
    outputs, _ = Recurrent(lambda _: cell, X, backend="reference")(inputs)
    return outputs, *torch.autograd.grad(outputs.square().sum(), list(cell.parameters()), materialize_grads=True)


def poison(module: nn.Module) -> None:
    """Overwrite what `to_empty` leaves without values, all parameters and buffers."""
    with torch.no_grad():
        for tensor in itertools.chain(module.parameters(), module.buffers()):
            tensor.fill_(math.nan if tensor.is_floating_point() else tensor.numel() - 1)


@every_cell
def test_a_cell_that_is_emptied_and_loaded_is_the_same(make: Callable[..., RecurrentCell]) -> None:
    cell = make(X, N).double()
    saved, inputs = copy.deepcopy(cell.state_dict()), torch.randn(STEPS, BATCH, X).double()
    expected = run(cell, inputs)
    cell.to("meta")
    cell(torch.zeros(BATCH, X, device="meta", dtype=torch.float64))
    cell.to_empty(device="cpu")
    poison(cell)
    cell.load_state_dict(saved, strict=True)
    for one, other in zip(run(cell, inputs), expected, strict=True):
        assert torch.equal(one, other)


@every_cell
def test_a_cell_is_built_on_the_meta_device(make: Callable[..., RecurrentCell]) -> None:
    torch.manual_seed(5)
    usual = make(X, N)
    with torch.device("meta"):
        cell = make(X, N)
    assert all(tensor.is_meta for tensor in cell.state_dict().values())
    shapes = [{name: tensor.shape for name, tensor in one.state_dict().items()} for one in (cell, usual)]
    assert shapes[0] == shapes[1]
    inputs = torch.randn(STEPS, BATCH, X)
    expected = run(usual, inputs)
    cell.load_state_dict(usual.state_dict(), assign=True)
    for one, other in zip(run(cell, inputs), expected, strict=True):
        assert torch.equal(one, other)


@every_cell
def test_reset_parameters_draws_new_values(make: Callable[..., RecurrentCell]) -> None:
    cell = make(X, N)
    before = copy.deepcopy(cell.state_dict())
    with torch.device("meta"):
        emptied = make(X, N)
    emptied.to_empty(device="cpu")
    for one in (cell, emptied):
        poison(one)
        one.reset_parameters()
        for name, tensor in one.state_dict().items():
            drawn = before[name]
            is_constant = drawn.is_floating_point() and drawn.unique().numel() <= 3  # gains, biases, identities
            assert torch.equal(tensor, drawn) == is_constant, name
        assert all(value.isfinite().all() for value in run(one, torch.randn(STEPS, BATCH, X)))
    varied = [name for name, drawn in before.items() if not torch.equal(cell.state_dict()[name], drawn)]
    made = spreads((make(X, N) for _ in range(DRAWS)), varied)
    for one in (cell, emptied):
        for name, spread in spreads(resets(one), varied).items():
            # a skew-Hermitian generator follows from N random eigenvalues
            samples = DRAWS * (N if name == "generator" else before[name].numel())
            assert abs(math.log(spread / made[name])) < 4 / math.sqrt(samples), name


def resets(cell: RecurrentCell) -> Iterator[RecurrentCell]:
    for _ in range(DRAWS):
        cell.reset_parameters()
        yield cell


def spreads(cells: Iterable[RecurrentCell], names: list[str]) -> dict[str, float]:
    """Return the standard deviation of each tensor over all of its entries in all cells."""
    drawn = [{name: cell.state_dict()[name].to(torch.float64, copy=True) for name in names} for cell in cells]
    return {name: torch.stack([each[name] for each in drawn]).std().item() for name in names}


def test_a_network_resets_the_parameters_of_all_its_cells() -> None:
    with torch.device("meta"):
        model = Recurrent(lambda width: RUMCell(width, N), X, num_layers=2, bidirectional=True)
    model.to_empty(device="cpu")
    poison(model)
    model.reset_parameters()
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert model(torch.randn(STEPS, BATCH, X))[0].isfinite().all()


@every_cell
def test_cells_of_other_default_dtypes(make: Callable[..., RecurrentCell]) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        cell = make(X, N)
        assert all(parameter.dtype == torch.float64 for parameter in cell.parameters())
        assert all(value.isfinite().all() for value in run(cell, torch.randn(STEPS, BATCH, X)))
        torch.set_default_dtype(torch.bfloat16)
        cell = make(X, N)
        assert all(parameter.dtype == torch.bfloat16 for parameter in cell.parameters())
    finally:
        torch.set_default_dtype(torch.float32)


@for_each("make", [GORUCell, EURNNCell])
def test_indices_serve_inference_then_training_and_copies(make: Callable[..., RecurrentCell]) -> None:
    cell = make(X, N)
    with torch.inference_mode():
        cell(torch.randn(BATCH, X))
    assert not cell.eunn.pairing().partner.is_inference()
    cell(torch.randn(BATCH, X))[0].sum().backward()
    for other in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell))):
        assert torch.equal(other(torch.ones(BATCH, X))[0], cell(torch.ones(BATCH, X))[0])


@pytest.mark.slow
@pytest.mark.parametrize("make", [GORUCell, functools.partial(EURNNCell, is_complex=False)], ids=["goru", "eurnn"])
def test_a_cell_with_indices_is_traced_without_copies_of_them(make: Callable[..., RecurrentCell]) -> None:
    cell, inputs = make(X, N), torch.randn(BATCH, X)
    compiled = torch.compile(lambda x: cell(x)[0], backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(inputs), cell(inputs)[0])
    graph = torch.export.export(cell, (inputs,)).graph
    copied = [node for node in graph.nodes if node.op == "call_function" and "arange" in str(node.target)]
    assert not copied


@for_each("dtype", [torch.bfloat16, torch.float16])
@for_each("make", [EURNNCell, URNNCell, FullURNNCell])
def test_complex_cells_refuse_half_precision_in_one_line(
    make: Callable[..., RecurrentCell], dtype: torch.dtype
) -> None:
    name = str(dtype).removeprefix("torch.")
    message = rf"^\w+Cell is complex and supports the dtypes float32 and float64, not {name}$"
    model = Recurrent(lambda width: make(width, N), X).to(dtype)
    for call in (model, model.cells[0]):
        inputs = torch.randn(STEPS, BATCH, X, dtype=dtype)
        with pytest.raises(UserError, match=message):
            call(inputs if call is model else inputs[0])


# ---------------------------------------------------------------- values of the authors' codes


def assert_uniform(values: Tensor, bound: float) -> None:
    """Check that values are spread over ±bound."""
    values = values.detach()
    assert values.abs().max() <= bound * (1 + 1e-6)
    assert values.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


def test_eurnn_authors() -> None:
    for is_complex in (True, False):
        cell = EURNNCell(40, 60, is_complex=is_complex, initialization="authors")
        assert_uniform(cell.weight_ih, 0.01)
        assert cell.bias.count_nonzero() == 0
        assert_uniform(cell.eunn.theta, math.pi)


@for_each("make", [URNNCell, FullURNNCell])
def test_urnn_authors(make: type[URNNCell] | type[FullURNNCell]) -> None:
    cell = make(40, 300, initialization="authors", learned_initial_state=True)
    assert_uniform(cell.weight_ih, math.sqrt(6 / (40 + 600)))
    assert_uniform(cell.bias, 0.01)
    assert_uniform(cell.initial_state, math.sqrt(3 / 600))
    if isinstance(cell, URNNCell):
        assert_uniform(cell.axes, math.sqrt(6 / (2 + 600)))
    assert make(40, 300).initial_state is None
    assert "initial_state" not in make(40, 300).state_dict()


@for_each("backend", ["reference", "fused"])
@for_each("make", [URNNCell, FullURNNCell])
def test_a_learned_initial_state_is_trained(make: type[URNNCell] | type[FullURNNCell], backend: str) -> None:
    model = Recurrent(lambda width: make(width, N, learned_initial_state=True), X, backend=backend).double()
    cell, inputs = model.cells[0], torch.randn(STEPS, BATCH, X).double()
    (state,) = model.init_state(BATCH)
    assert torch.equal(state.hidden, cell.initial_state.expand(BATCH, -1))
    outputs, _ = model(inputs)
    torch.testing.assert_close(outputs, model(inputs, (state,))[0])
    (gradient,) = torch.autograd.grad(outputs.sum(), cell.initial_state)
    hidden = state.hidden.detach().requires_grad_()
    (of_rows,) = torch.autograd.grad(model(inputs, (type(state)(hidden),))[0].sum(), hidden)
    torch.testing.assert_close(gradient, of_rows.sum(0))
    assert gradient.abs().min() > 0


def test_goru_authors() -> None:
    cell = GORUCell(40, 300, initialization="authors")
    reset, update, candidate = cell.bias.chunk(3)
    assert (reset == 2).all()
    assert (candidate == 2).all()
    assert_uniform(update, math.sqrt(3 / 300))
    assert_uniform(cell.weight_ih, 0.01)


def test_on_lstm_authors() -> None:
    cell = ONLSTMCell(16, 100, initialization="authors")
    assert_uniform(cell.weight_ih, 1 / 4)
    assert_uniform(cell.weight_hh, 1 / 10)
    assert cell.bias.abs().max() <= 1 / 4 + 1 / 10
    assert cell.bias.std().item() == pytest.approx(math.sqrt((1 / 16 + 1 / 100) / 3), rel=0.1)


@for_each("initialization", ["default", "authors"])
def test_kernels_of_convolutions(initialization: str) -> None:
    size, heads, kernel = 60, 30, 20
    options: dict[str, Any] = {"heads": heads, "kernel_size": kernel, "initialization": initialization}
    light, dynamic = LightConvCell(X, size, **options), DynamicConvCell(X, size, **options)
    authors = initialization == "authors"
    assert_uniform(light.weight, math.sqrt(6 / (kernel + (heads * kernel if authors else heads))))
    assert_uniform(dynamic.weight, 1 / math.sqrt(size) if authors else math.sqrt(6 / (heads * kernel + size)))
    for cell in (light, dynamic):
        assert_uniform(cell.weight_ih, math.sqrt(6 / (X + 2 * size)))


@for_each("layer_norm", [False, True])
@for_each("initialization", ["joint_orthogonal", "glorot", "uniform"])
def test_lstm_kernels_of_all_gates_together(initialization: str, layer_norm: bool) -> None:
    size, width = 30, 40
    cell = LSTMCell(width, size, initialization=initialization, layer_norm=layer_norm)
    forget = torch.zeros(4, size).index_fill_(0, torch.tensor(1), 1.0)
    biases = cell.layer.bias_ih_l0 + cell.layer.bias_hh_l0
    assert torch.equal(cell.norm_gates.bias if layer_norm else biases.view(4, size), forget)
    assert not layer_norm or biases.count_nonzero() == 0
    for kernel in (cell.layer.weight_ih_l0, cell.layer.weight_hh_l0):
        if initialization == "joint_orthogonal":
            torch.testing.assert_close(kernel.T @ kernel, torch.eye(kernel.shape[1]), rtol=0, atol=1e-5)
        else:
            bound = 0.02 if initialization == "uniform" else math.sqrt(6 / (width + size + 4 * size))
            assert_uniform(kernel, bound)


def test_an_lstm_without_a_place_for_the_forget_bias_warns() -> None:
    with pytest.warns(UserWarning, match="initialization=orthogonal, bias=False and layer_norm=False has no forget"):
        LSTMCell(X, N, initialization="orthogonal", bias=False)
    LSTMCell(X, N, initialization="orthogonal", bias=False, layer_norm=True)
    LSTMCell(X, N, bias=False)


# ---------------------------------------------------------------- the epsilon of layer normalizations


@for_each("make", [RUMCell, GRUCell, LSTMCell, RNNCell, GORUCell, ONLSTMCell, WeiNetCell, FastWeightsCell])
def test_every_layer_normalization_has_the_epsilon(make: Callable[..., Any]) -> None:
    options = {} if make is FastWeightsCell else {"layer_norm": True}
    if make is ONLSTMCell:
        options["chunk_size"] = 2
    cell = make(X, N, layer_norm_eps=0.25, **options)
    assert cell.layer_norm_eps == 0.25
    assert make(X, N, **options).layer_norm_eps == 1e-5
    epsilons = [module.eps for module in cell.modules() if hasattr(module, "eps")]
    assert epsilons
    assert set(epsilons) == {0.25}
