"""The layers run their cells, in every form of input and state that `torch.nn.GRU` has."""

import doctest
import inspect
import itertools
import pickle
import warnings
from functools import partial
from typing import Any, Unpack

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_leaves, tree_map

import gyral
from gyral.cells.base import RecurrentCell
from gyral.cells.lstm import LSTMCell
from gyral.core.errors import OptionError, UserError
from gyral.nn import layers
from gyral.nn.layers.base import LayerOptions
from gyral.nn.recurrent import Recurrent, detach
from tests.helpers.found import at_least
from tests.helpers.loops import for_each

X, N, BATCH, STEPS = 3, 6, 4, 3
LAYERS = {name: getattr(layers, name) for name in at_least(42, layers.__all__) if name != "Layer"}
OPTIONS: dict[str, dict[str, Any]] = {
    "DNC": {"slots": 4, "width": 3, "read_heads": 2},
    "FSRNN": {"fast": partial(LSTMCell, layer_norm=True), "slow": LSTMCell, "num_fast": 3},
    "MLSTMLarge": {"heads": 2},  # the norm of one number is zero
    "NTM": {"slots": 4, "width": 3, "write_heads": 2},
    "ONLSTM": {"chunk_size": 2},
    "RUM": {"lambd": 1.0, "eta": 1.0},
}
TORCH = {"GRU": nn.GRU, "LSTM": nn.LSTM, "RNN": nn.RNN}
LENGTHS = torch.tensor([2, STEPS, 1, 2])
every_layer = for_each("name", LAYERS)
a_case_each = pytest.mark.parametrize("name", LAYERS)


def make(name: str, *sizes: int, **options: Any) -> layers.Layer:
    given = {"dtype": torch.float64, "backend": "reference", **OPTIONS.get(name, {}), **options}
    return LAYERS[name](*(sizes or (X, N)), **given)


def assert_same(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    for one, other in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@a_case_each
def test_a_layer_is_the_loop_over_its_cell(name: str) -> None:
    layer_class, options = LAYERS[name], OPTIONS.get(name, {})
    assert layer_class.cell_class.__name__ == f"{name}Cell"
    torch.manual_seed(1)
    size = {"num_layers": 2, "batch_first": True, "bidirectional": True}
    layer = layer_class(X, N, **size, dropout=0.3, backend="reference", **options)
    torch.manual_seed(1)
    factory = partial(layer_class.cell_class, hidden_size=N, **options)
    loop = Recurrent(factory, X, 2, True, 0.3, batch_first=True, backend="reference")
    assert all(torch.equal(*pair) for pair in zip(layer.parameters(), loop.parameters(), strict=True))
    inputs = torch.randn(BATCH, STEPS, X)
    torch.manual_seed(2)
    outputs, _ = layer(inputs)
    torch.manual_seed(2)
    assert torch.equal(outputs, loop(inputs)[0])
    assert outputs.shape == (BATCH, STEPS, layer.output_size)


def test_every_cell_but_the_external_one_and_a_controller_has_a_layer() -> None:
    classes, found = [RecurrentCell], set()
    while classes:
        classes += (parent := classes.pop()).__subclasses__()
        if parent.__module__.startswith("gyral.cells.") and not parent.__abstractmethods__:
            found.add(parent.__name__.removesuffix("Cell"))
    assert found - {"External", "Feedforward"} == set(LAYERS)


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match=r"^eta=0: must be a finite number > 0$"):
        layers.RUM(X, N, eta=0)
    with pytest.raises(OptionError, match=r"^backend=quick: must be one of "):
        layers.RUM(X, N, backend="quick")
    assert layers.LSTM(X, N, weight_drop=0.5).weight_drop == 0.5


# ---------------------------------------------------------------- inputs


@a_case_each
def test_inputs_and_states_have_the_forms_of_torch(name: str) -> None:
    # a second layer is one more cell: of layers with one vector or matrix as their state, and with several
    layer = make(name, X, N, 2 if name in ("GRU", "RUM", "FSRNN") else 1, bidirectional=True)
    if name in ("GRU", "LSTM", "RUM", "FSRNN", "DNC", "LightConv"):  # states of every form
        check_unbatched_inputs_are_a_batch_of_one(layer)
    check_an_empty_batch(layer)
    check_states_have_the_form_of_torch(layer)


def check_unbatched_inputs_are_a_batch_of_one(layer: layers.Layer) -> None:
    inputs, starts = torch.randn(STEPS, X, dtype=torch.float64), torch.tensor([0, 1, 0]).bool()
    with torch.no_grad():
        expected, last = layer(inputs.unsqueeze(1), None, None, starts.unsqueeze(1))
        outputs, state = layer(inputs, starts=starts)
        assert_same((outputs, state), (expected.squeeze(1), tree_map(lambda leaf: leaf.squeeze(1), last)))
        assert_same(layer(inputs, state)[0], layer(inputs.unsqueeze(1), last)[0].squeeze(1))
        layer.batch_first = True
        assert_same(layer(inputs, starts=starts), (outputs, state))
        with pytest.raises(ValueError, match=r"^lengths need inputs with a batch dimension$"):
            layer(inputs, lengths=[STEPS])
        with pytest.raises(ValueError, match=rf"^state has tensors of shapes .*, must have \({len(layer.cells)}, "):
            layer(inputs, last)
    layer.batch_first = False


@for_each("batch_first", [False, True])
@for_each("is_sorted", [False, True])
@for_each("name", ["GRU", "LSTM"])
def test_packed_sequences_as_in_torch(name: str, is_sorted: bool, batch_first: bool) -> None:
    layer = make(name, X, N, 2, bidirectional=True, batch_first=batch_first)
    other = TORCH[name](X, N, 2, bidirectional=True, batch_first=batch_first, dtype=torch.float64)
    layer.load_state_dict(other.state_dict())
    lengths = LENGTHS.sort(descending=True).values if is_sorted else LENGTHS
    shape = (BATCH, STEPS) if batch_first else (STEPS, BATCH)
    inputs = torch.randn(*shape, X, dtype=torch.float64)
    packed = pack_padded_sequence(inputs, lengths, batch_first, enforce_sorted=is_sorted)
    state = torch.randn(4, BATCH, N, dtype=torch.float64)
    given = (state, state.flip(0)) if name == "LSTM" else state
    with torch.no_grad():
        for initial in (None, given):
            outputs, last = layer(packed, initial)
            expected, expected_last = other(packed, initial)
            assert isinstance(outputs, PackedSequence)
            assert_same([*outputs, last], [*expected, expected_last])
        starts = torch.rand(shape) < 0.3
        outputs, last = layer(packed, given, starts=starts)
        padded = pad_packed_sequence(outputs, batch_first, total_length=STEPS)[0]
        assert_same((padded, last), layer(inputs, given, lengths, starts))
        with pytest.raises(ValueError, match=r"^a PackedSequence has its own lengths; lengths must be None$"):
            layer(packed, lengths=lengths)


def check_an_empty_batch(layer: layers.Layer) -> None:
    inputs = torch.randn(STEPS, 0, X, dtype=torch.float64, requires_grad=True)
    nothing = torch.zeros(0, dtype=torch.long)
    for lengths, starts in ((None, None), (nothing, torch.zeros(STEPS, 0, dtype=torch.bool))):
        outputs, state = layer(inputs, lengths=lengths, starts=starts)
        assert outputs.shape == (STEPS, 0, layer.output_size)
        assert {leaf.shape[:2] for leaf in tree_leaves(state)} == {(len(layer.cells), 0)}
        outputs.sum().backward()
        assert not any(parameter.grad.any() for parameter in layer.parameters() if parameter.grad is not None)


# ---------------------------------------------------------------- states


def check_states_have_the_form_of_torch(layer: layers.Layer) -> None:
    with torch.no_grad():  # some initial values leave nothing of the state to see at these sizes
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter))
    cell = layer.cells[0]
    initial = layer.init_state(BATCH)
    of_cell = tree_leaves(cell.init_state(BATCH))
    assert [leaf.shape for leaf in tree_leaves(initial)] == [(len(layer.cells), *leaf.shape) for leaf in of_cell]
    assert isinstance(initial, Tensor if len(of_cell) == 1 else type(cell.init_state(1)))
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    with torch.no_grad():
        outputs, state = layer(inputs)
        assert type(state) is type(initial)
        assert_same(layer(inputs, initial), (outputs, state), 0.0)
        again = layer(inputs, detach(state))
        assert_same(layer(inputs, tuple(tree_leaves(state))), again, 0.0)  # a plain tuple
        assert (again[0] - outputs).abs().max() > 1e-6
        own_cells = iter(layer.cells)
        cells = Recurrent(lambda _: next(own_cells), X, layer.num_layers, True, backend="reference")
        states = [tree_map(lambda leaf, own=index: leaf[own], state) for index in range(len(layer.cells))]
        expected, last = cells(inputs, [(own,) if isinstance(own, Tensor) else own for own in states])
        assert_same(again[0], expected, 0.0)
        for index, own in enumerate(last):
            assert_same([leaf[index] for leaf in tree_leaves(again[1])], own, 0.0)


@pytest.mark.parametrize(
    ("state", "given"),
    [
        (torch.zeros(1, BATCH, N), r"\(1, 4, 6\)"),
        ((torch.zeros(2, BATCH, N),), r"\(2, 4, 6\)"),
        ((torch.zeros(2, BATCH, N), torch.zeros(2, BATCH + 1, N)), r"\(2, 4, 6\), \(2, 5, 6\)"),
        ((torch.zeros(2, BATCH, N), None), r"\(2, 4, 6\), NoneType"),
        ((), "none"),
    ],
)
def test_wrong_states_are_refused_in_one_line(state: Any, given: str) -> None:
    layer = make("LSTM", X, N, 2, dtype=torch.float32)
    with pytest.raises(ValueError, match=rf"^state has tensors of shapes {given}, must have \(2, 4, 6\), \(2, 4, 6\)$"):
        layer(torch.randn(STEPS, BATCH, X), state)


# ---------------------------------------------------------------- as torch.nn


WITH_DROP: list[tuple[str, dict[str, Any]]] = [
    *((name, {"num_layers": 2, "bidirectional": True}) for name in TORCH),
    ("LSTM", {"proj_size": 2, "bias": False}),
]


@for_each("given", WITH_DROP)
def test_the_state_dict_of_torch_and_back_with_dropped_weights(given: tuple[str, dict[str, Any]]) -> None:
    """Their names are longer there; test_torch_words.py has the other layers."""
    name, options = given
    other = TORCH[name](X, N, dtype=torch.float64, **options)
    layer = make(name, X, N, **options, weight_drop=0.5).eval()
    whole, theirs = nn.Sequential(layer), nn.Sequential(other)
    saved = theirs.state_dict()
    whole.load_state_dict(saved)
    assert [*saved] == [*theirs.state_dict()], "the given dict stays as it is"
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    assert_same(layer(inputs), other(inputs))
    layer.reset_parameters()
    other.load_state_dict(layer.torch_state_dict())
    for key, weight in other.named_parameters():
        assert torch.equal(getattr(layer, key), weight)
    assert_same(layer(inputs), other(inputs))
    with pytest.raises(RuntimeError, match="Unexpected key"):
        layer.load_state_dict({**other.state_dict(), "weight_ih_l7": torch.zeros(1)})


def test_torch_has_no_layer_normalization() -> None:
    with pytest.raises(UserError, match=r"^GRU: torch\.nn\.GRU does not have the parameter .*norm_gates\.weight$"):
        gyral.GRU(X, N, layer_norm=True).torch_state_dict()


@for_each("backend", ["reference", "fused"])
@for_each("ragged", [False, True])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}], ids=str)
def test_projection_equals_that_of_torch(options: dict[str, Any], ragged: bool, backend: str) -> None:
    other = nn.LSTM(X, N, proj_size=2, dtype=torch.float64, **options)
    layer = make("LSTM", X, N, proj_size=2, backend=backend, **options)
    layer.load_state_dict(other.state_dict())
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64, requires_grad=True)
    results = []
    names = [name for name, _ in other.named_parameters()]
    for each in (layer, other):
        packed = pack_padded_sequence(inputs, torch.tensor([STEPS, 1, 3, 2]), enforce_sorted=False)
        outputs, (hidden, cell) = each(packed if ragged else inputs)
        outputs = pad_packed_sequence(outputs)[0] if ragged else outputs
        total = outputs.sin().sum() + hidden.cos().sum() + cell.exp().sum()
        gradients = torch.autograd.grad(total, [inputs, *(getattr(each, name) for name in names)])
        results.append([outputs, hidden, cell, *gradients])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


def test_projection_in_float32_does_not_warn() -> None:
    layer = gyral.LSTM(X, N, proj_size=2, bidirectional=True)
    assert layer.backend == "fused"
    outputs, (hidden, cell) = layer(torch.randn(STEPS, BATCH, X))
    shapes = [tuple(tensor.shape) for tensor in (outputs, hidden, cell)]
    assert shapes == [(STEPS, BATCH, 4), (2, BATCH, 2), (2, BATCH, N)]
    assert layer.output_size == 4
    for wrong in (N, -1, True):
        with pytest.raises(OptionError, match=rf"^proj_size={wrong}: must be an integer from 0 to {N - 1}$"):
            gyral.LSTM(X, N, proj_size=wrong)


def test_peepholes() -> None:
    """Gers and Schmidhuber 2000: i and f read the cell state before the step, o the one after it."""
    cell = gyral.LSTMCell(X, N, peepholes=True).double()
    assert cell.weight_peephole.shape == (3, N)
    assert cell.weight_peephole.abs().max() <= N**-0.5
    inputs, hidden, old = (torch.randn(BATCH, size, dtype=torch.float64) for size in (X, N, N))
    output, state = cell(inputs, cell.State(hidden, old))
    gates = inputs @ cell.layer.weight_ih_l0.T + hidden @ cell.layer.weight_hh_l0.T
    i, f, g, o = (gates + cell.layer.bias_ih_l0 + cell.layer.bias_hh_l0).chunk(4, dim=1)
    into, keep, out = cell.weight_peephole
    new = torch.sigmoid(f + keep * old) * old + torch.sigmoid(i + into * old) * torch.tanh(g)
    torch.testing.assert_close(state.cell, new)
    torch.testing.assert_close(output, torch.sigmoid(o + out * new) * torch.tanh(new))
    torch.testing.assert_close(
        cell.forget_gate(cell.project(inputs), cell.State(hidden, old)), torch.sigmoid(f + keep * old)
    )
    with pytest.raises(UserError, match=r"^LSTM: torch\.nn\.LSTM does not have the parameter .*weight_peephole$"):
        gyral.LSTM(X, N, peepholes=True).torch_state_dict()
    with pytest.raises(OptionError, match="kernels have no peepholes"):
        gyral.LSTM(X, N, peepholes=True, backend="fused")


def test_attributes_and_representation() -> None:
    layer = layers.RUM(10, 20, 2, bidirectional=True, batch_first=True, lambd=1.0, eta=None)
    assert repr(layer) == "RUM(10, 20, num_layers=2, batch_first=True, bidirectional=True, lambd=1.0)"
    assert repr(layers.GRU(10, 20)) == "GRU(10, 20)"
    shown = repr(layers.FSRNN(3, 4, fast=partial(LSTMCell, layer_norm=True), slow=LSTMCell, cell_dropout=0.2))
    assert shown == "FSRNN(3, 4, fast=partial(LSTMCell, layer_norm=True), slow=LSTMCell, cell_dropout=0.2)"
    for name in ("input_size", "hidden_size", "num_layers", "bidirectional", "batch_first"):
        other = nn.GRU(10, 20, 2, bidirectional=True, batch_first=True)
        assert getattr(layer, name) == getattr(other, name)
    layer.flatten_parameters()


@every_layer
def test_device_and_dtype(name: str) -> None:
    layer = make(name, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in layer.parameters()} == {torch.bfloat16}
    assert {parameter.device.type for parameter in make(name, device="meta").parameters()} == {"meta"}
    with pytest.raises(OptionError, match=r"^dtype=torch.int64: must be a floating-point dtype of torch$"):
        make(name, dtype=torch.int64)


# ---------------------------------------------------------------- options


@every_layer
def test_a_layer_has_the_arguments_of_torch_and_the_options_of_its_cell_with_their_defaults(name: str) -> None:
    layer_class = LAYERS[name]
    parameters = inspect.signature(layer_class).parameters
    positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    theirs = ["num_layers", "bias", "batch_first", "dropout", "bidirectional"]  # in the order of torch.nn.RNNBase
    further = {"RNN": (1, "nonlinearity", "tanh"), "LSTM": (5, "proj_size", 0)}.get(name)
    defaults = [inspect.signature(nn.RNNBase).parameters[t].default for t in theirs]
    if further is not None:
        theirs.insert(*further[:2])
        defaults.insert(further[0], further[2])
    assert [p.name for p in positional] == ["input_size", "hidden_size", *theirs]
    assert [p.default for p in positional[2:]] == defaults
    own = {n: (p.default, p.annotation) for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    of_cell = inspect.signature(layer_class.cell_class).parameters
    renamed = {"dropout": "cell_dropout"} if name == "FSRNN" else {}
    expected = [
        p for n, p in of_cell.items() if n not in ("input_size", "hidden_size", "bias", "nonlinearity", "proj_size")
    ]
    expected += [p for p in inspect.signature(layers.Layer).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert own == {renamed.get(p.name, p.name): (p.default, p.annotation) for p in expected}
    assert len(positional) + len(own) == len(parameters)
    assert [*inspect.signature(layer_class.__init__).parameters] == ["self", *parameters]


def test_the_options_of_all_layers_are_typed() -> None:
    typed = inspect.get_annotations(LayerOptions)
    parameters = inspect.signature(layers.Layer).parameters.values()
    assert typed == {p.name: p.annotation for p in parameters if p.kind is p.KEYWORD_ONLY}


@every_layer
def test_an_unknown_option_is_an_error_with_the_options_there_are(name: str) -> None:
    own = inspect.signature(LAYERS[name]).parameters
    common = [n for n, p in inspect.signature(layers.Layer).parameters.items() if p.kind is not p.VAR_KEYWORD]
    allowed = ", ".join([*common, *(n for n in own if n not in common)])
    with pytest.raises(OptionError) as raised:
        make(name, num_layer=1, backend="quick")
    reason = f"no such option of {name}; did you mean num_layers? allowed: {allowed}"
    assert str(raised.value) == f"num_layer=1: {reason}"


def test_a_similar_option_is_suggested() -> None:
    with pytest.raises(
        OptionError, match=r"^lamda=1\.0: no such option of RUM; did you mean lambd\? allowed: input_size, "
    ):
        gyral.RUM(X, N, lamda=1.0)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match=r"^cell_lambd=1\.0: no such option of RUM; allowed: "):
        gyral.RUM(X, N, cell_lambd=1.0)  # type: ignore[call-arg]


def test_a_cell_may_take_options_of_any_name() -> None:
    class AnyCell(LSTMCell):
        def __init__(self, input_size: int, hidden_size: int, dropout: float = 0.0, **options: Any) -> None:
            super().__init__(input_size, hidden_size, **options)
            self.dropout = dropout

    class Own(layers.Layer):
        cell_class = AnyCell

    assert [*inspect.signature(Own).parameters][-1] == "options"
    layer = Own(X, N, zoneout=0.5, cell_dropout=0.25)
    assert (layer.cells[0].zoneout, layer.cells[0].dropout) == (0.5, 0.25)
    assert repr(layer) == "Own(3, 6, cell_dropout=0.25, zoneout=0.5)"


@pytest.mark.named("FSRNN", "RUM", "NTM", "MAGE")
@a_case_each
def test_a_value_that_is_not_allowed_is_an_error_with_the_name_of_the_option(name: str) -> None:
    for option, value in itertools.product(inspect.signature(LAYERS[name]).parameters, ("no such", {"a": 1})):
        with pytest.raises(OptionError) as raised:
            LAYERS[name](**{"input_size": X, "hidden_size": N, **OPTIONS.get(name, {}), option: value})
        assert raised.value.option == option


@every_layer
def test_bias_is_an_option_of_the_cell_or_an_error_in_one_line(name: str) -> None:
    if "bias" in inspect.signature(LAYERS[name].cell_class).parameters:
        fewer, more = (len(list(make(name, bias=bias).parameters())) for bias in (False, True))
        assert fewer < more
    else:
        with pytest.raises(OptionError, match=rf"^bias=False: must be True: {name}Cell has no option bias$"):
            make(name, bias=False)


@every_layer
def test_the_example_in_the_docstring_runs(name: str) -> None:
    runner = doctest.DocTestRunner()
    [example] = doctest.DocTestFinder(recurse=False).find(LAYERS[name], name, globs={})
    assert example.examples
    assert runner.run(example).failed == 0


def test_an_option_with_the_name_of_one_of_the_layer_has_a_prefix() -> None:
    layer = make("FSRNN", num_layers=2, dropout=0.1, cell_dropout=0.2)
    assert (layer.dropout, layer.cells[0].dropout) == (0.1, 0.2)


def test_a_subclass_may_define_its_constructor() -> None:
    class Small(layers.GRU):
        def __init__(self, size: int, *, zoneout: float = 0.5, **options: Unpack[LayerOptions]) -> None:
            super().__init__(size, size, zoneout=zoneout, **options)

    assert repr(Small(3, weight_drop=0.1)) == "Small(3, 3, weight_drop=0.1, zoneout=0.5)"
    assert [*inspect.signature(Small).parameters] == ["size", "zoneout", "options"]
    assert inspect.signature(type("Same", (layers.GRU,), {})) == inspect.signature(layers.GRU)


def test_a_user_defined_layer_needs_only_the_class_of_its_cell() -> None:
    class Own(layers.Layer):
        cell_class = LSTMCell

    layer = Own(X, N, 2, False, zoneout=0.1)
    assert repr(layer) == "Own(3, 6, num_layers=2, bias=False, zoneout=0.1)"
    assert [cell.zoneout for cell in layer.cells] == [0.1, 0.1]
    assert inspect.signature(Own) == inspect.signature(layers.LSTM)
    with pytest.raises(OptionError, match=r"^zone_out=0\.1: no such option of Own; did you mean zoneout\? allowed: "):
        Own(X, N, zone_out=0.1)


def test_a_user_defined_layer_may_have_a_constructor_that_names_the_options() -> None:
    class Own(layers.Layer):
        """A layer as those of version 0.2."""

        cell_class = LSTMCell

        def __init__(
            self, input_size: int, hidden_size: int, *, zoneout: float = 0.2, **options: Unpack[LayerOptions]
        ) -> None:
            super().__init__(input_size, hidden_size, zoneout=zoneout, **options)

    layer = Own(X, N, weight_drop=0.5)
    assert repr(layer) == "Own(3, 6, weight_drop=0.5, zoneout=0.2)"
    assert [*inspect.signature(Own).parameters] == ["input_size", "hidden_size", "zoneout", "options"]
    with pytest.raises(OptionError, match=r"^zoneout=2: must be a finite number ≥ 0 and < 1$"):
        Own(X, N, zoneout=2)


def test_missing_and_surplus_arguments_are_an_error_of_the_layer() -> None:
    with pytest.raises(TypeError, match=r"^RUM\.__init__\(\) missing a required argument: 'hidden_size'$"):
        gyral.RUM(X)
    with pytest.raises(TypeError, match=r"^FSRNN\.__init__\(\) missing a required (keyword-only )?argument: 'fast'$"):
        gyral.FSRNN(X, N)
    with pytest.raises(TypeError, match=r"^GRU\.__init__\(\) too many positional arguments$"):
        gyral.GRU(X, N, 1, True, False, 0.0, False, "cpu")


def test_the_options_are_shown_in_the_order_of_the_cell() -> None:
    assert repr(gyral.RUM(X, N, eta=1.0, lambd=1.0)) == "RUM(3, 6, lambd=1.0, eta=1.0)"


@pytest.mark.parametrize(("name", "former"), [("RUM", "rotations"), ("GRU", "gated"), ("PDSSM", "state_tracking")])
def test_layers_that_version_0_2_pickled_name_another_module(name: str, former: str) -> None:
    layer = make(name)
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    saved = pickle.dumps(layer, 0)
    named = f"cgyral.nn.layers\n{name}\n".encode()
    assert named in saved
    again = pickle.loads(saved.replace(named, f"cgyral.nn.layers.{former}\n{name}\n".encode()))
    assert type(again) is LAYERS[name]
    assert_same(again(inputs), layer(inputs), 0.0)


def test_an_unknown_layer_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'gyral\.nn\.layers' has no attribute 'External'$"):
        _ = layers.External
    assert {*LAYERS, "Layer", "TorchWeights"} <= {*dir(layers)}


def test_a_state_that_is_a_dict_is_refused() -> None:
    layer, inputs = gyral.LSTM(3, 4), torch.randn(2, 5, 3)
    hidden, cell = layer(inputs)[1]
    for state in ({"hidden": hidden, "cell": cell}, (hidden, {"cell": cell})):
        with pytest.raises(
            ValueError, match=r"^state has tensors of shapes .*dict, must have \(1, 5, 4\), \(1, 5, 4\)$"
        ):
            layer(inputs, state)


def test_numbers_and_lengths_may_be_those_of_numpy() -> None:
    layer = gyral.RUM(np.int64(3), np.int32(4), np.int64(1), dropout=np.float32(0), eta=np.float32(1.5))
    inputs = torch.randn(6, 3, 3)
    lengths = np.array([2, 6, 3], dtype=np.int32)
    outputs, state = layer(inputs, lengths=lengths)
    wanted, final = layer(inputs, lengths=torch.from_numpy(lengths))
    assert torch.equal(outputs, wanted)
    assert torch.equal(state, final)
    with pytest.raises(OptionError, match=r"^hidden_size=2\.0: must be an integer"):
        gyral.RUM(3, np.float64(2))
    for bad in (np.array([2.0, 6, 3]), np.array([True, True, True]), np.array([2, 6])):
        with pytest.raises(ValueError, match="lengths must be 3 integers from 0 to 6"):
            layer(inputs, lengths=bad)


def test_dropout_with_one_layer_warns() -> None:
    with pytest.warns(UserWarning, match=r"^dropout=0\.5 has no effect with one layer") as found:
        gyral.RUM(3, 4, dropout=0.5)
    assert found[0].filename == __file__
    with pytest.warns(UserWarning, match=r"^dropout=0\.5 has no effect with one layer") as found:
        gyral.GRU(3, 4, dropout=0.5)
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gyral.RUM(3, 4, num_layers=2, dropout=0.5)


@for_each("name", ["RUM", "FastWeights", "WeiNet"])
def test_the_last_part_of_a_state_is_not_taken_for_the_hidden_vectors(name: str) -> None:
    outputs, state = LAYERS[name](3, 4, 2, **({"lambd": 1.0} if name == "RUM" else {}))(torch.randn(5, 2, 3))
    torch.testing.assert_close(state.hidden[-1], outputs[-1])
    hidden, memory = state
    assert state[0] is hidden
    assert state[1] is memory
    with pytest.raises(TypeError, match=r"^state\[-1\]: .* write state\.hidden\[-1\]$"):
        state[-1]
