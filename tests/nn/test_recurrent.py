"""The time loop: called as torch.nn.GRU is, and equal to it; lengths equal running each sequence alone."""

import copy
import functools
import logging
import shutil
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_flatten, tree_map

import gyral
from gyral.cells.base import DropoutMasks, RecurrentCell
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.rnn import RNNCell
from gyral.cells.rum import RUMCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent, detach, reorder
from gyral.ops.sequences import reverse
from tests.helpers.loops import for_each

X, N, BATCH, STEPS = 3, 4, 5, 6
LENGTHS = torch.tensor([3, STEPS, 1, 4, 3])

Factory = Callable[[int], RecurrentCell]
FACTORIES: dict[str, Factory] = {
    "gru": functools.partial(GRUCell, hidden_size=N),
    "lstm": functools.partial(LSTMCell, hidden_size=N),
    "rnn": functools.partial(RNNCell, hidden_size=N),
    "rum": functools.partial(RUMCell, hidden_size=N),
    "rum with memory": functools.partial(RUMCell, hidden_size=N, lambd=1.0, eta=1.0),
}


RUNS = [(name, backend) for name in FACTORIES if name != "rnn" for backend in ("reference", "fused")]
every_run = pytest.mark.parametrize(("name", "backend"), RUNS, ids=[" ".join(run) for run in RUNS])
# for what the loop over layers and directions does, whatever the cell
some_runs = pytest.mark.parametrize(
    ("name", "backend"), [("lstm", "reference"), ("gru", "fused"), ("rum with memory", "fused")]
)


def make(name: str, backend: str = "reference", **options: Any) -> Recurrent:
    if backend == "fused" and (reason := FACTORIES[name](X).double().fused_unsupported_reason()):
        pytest.skip(reason)
    return Recurrent(FACTORIES[name], X, backend=backend, **options).double()


def random_state(model: Recurrent, batch: int = BATCH) -> tuple[Any, ...]:
    """Return states that a short sequence reaches: a memory stays a rotation."""
    with torch.no_grad():
        shape = [(cell, torch.randn(3, batch, cell.input_size, dtype=torch.float64)) for cell in model.cells]
        return tuple(Recurrent(lambda _, c=cell: c, cell.input_size)(inputs)[1][0] for cell, inputs in shape)


def leaves_of(tree: Any) -> list[Tensor]:
    return tree_flatten(tree)[0]


def assert_same(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    for one, other in zip(leaves_of(actual), leaves_of(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def rows(state: Any, picked: Any) -> Any:
    return tree_map(lambda leaf: leaf[picked], state)


def copy_from_torch(model: Recurrent, layer: nn.RNNBase) -> None:
    """Give a stack of layer cells the weights of torch's layer."""
    directions = ["", "_reverse"][: model.directions]
    suffixes = [f"_l{index}{direction}" for index in range(layer.num_layers) for direction in directions]
    with torch.no_grad():
        for cell, suffix in zip(model.cells, suffixes, strict=True):
            for name, parameter in cell.layer.named_parameters():
                parameter.copy_(getattr(layer, name.removesuffix("_l0") + suffix))


# ---------------------------------------------------------------- as torch.nn


@for_each("backend", ["reference", "fused"])
@for_each("ragged", [False, True])
@for_each("bidirectional", [False, True])
@for_each("kind", ["gru", "lstm"])
def test_equals_torchs_layer(kind: str, bidirectional: bool, ragged: bool, backend: str) -> None:
    batch_first = bidirectional
    torch_class = {"gru": nn.GRU, "lstm": nn.LSTM}[kind]
    options = {"num_layers": 2, "bidirectional": bidirectional, "batch_first": batch_first}
    layer = torch_class(X, N, **options).double()
    model = make(kind, backend, **options)
    copy_from_torch(model, layer)
    shape = (BATCH, STEPS, X) if batch_first else (STEPS, BATCH, X)
    inputs = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    state = random_state(model)
    stacked = tuple(torch.stack(leaves) for leaves in zip(*state, strict=True))
    initial = stacked if len(stacked) > 1 else stacked[0]

    if ragged:
        packed = pack_padded_sequence(inputs, LENGTHS, batch_first=batch_first, enforce_sorted=False)
        expected, last = layer(packed, initial)
        expected, _ = pad_packed_sequence(expected, batch_first=batch_first, total_length=STEPS)
    else:
        expected, last = layer(inputs, initial)
    outputs, final = model(inputs, state, LENGTHS if ragged else None)
    assert_same(outputs, expected)
    last = last if isinstance(last, tuple) else (last,)
    assert_same([torch.stack(leaves) for leaves in zip(*final, strict=True)], list(last))
    assert outputs.shape[-1] == model.output_size == N * (2 if bidirectional else 1)

    cotangents = [torch.randn_like(outputs), *(torch.randn_like(leaf) for leaf in last)]
    (expected_gradient,) = torch.autograd.grad([expected, *last], inputs, cotangents)
    own_last = [torch.stack(leaves) for leaves in zip(*final, strict=True)]
    (gradient,) = torch.autograd.grad([outputs, *own_last], inputs, cotangents)
    assert_same(gradient, expected_gradient)


@some_runs
def test_batch_first_transposes_inputs_and_outputs_alone(name: str, backend: str) -> None:
    time_first = make(name, backend, num_layers=2, bidirectional=True)
    batch_first = make(name, backend, num_layers=2, bidirectional=True, batch_first=True)
    batch_first.load_state_dict(time_first.state_dict())
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    with torch.no_grad():
        outputs, final = time_first(inputs, lengths=LENGTHS)
        transposed, same = batch_first(inputs.transpose(0, 1), lengths=LENGTHS)
    assert_same((transposed.transpose(0, 1), same), (outputs, final))


@some_runs
def test_layers_are_stacked_and_directions_concatenated(name: str, backend: str) -> None:
    model = make(name, backend, num_layers=2, bidirectional=True)
    assert [cell.input_size for cell in model.cells] == [X, X, 2 * N, 2 * N]
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    state = random_state(model)
    with torch.no_grad():
        expected, expected_final = inputs, []
        for layer in range(2):
            halves = []
            for direction in range(2):
                index = 2 * layer + direction
                single = Recurrent(lambda _, i=index: model.cells[i], X, backend=backend)
                ordered = expected.flip(0) if direction else expected
                half, (last,) = single(ordered, (state[index],))
                halves.append(half.flip(0) if direction else half)
                expected_final.append(last)
            expected = torch.cat(halves, dim=-1)
        outputs, final = model(inputs, state)
    assert_same((outputs, final), (expected, tuple(expected_final)))


@every_run
def test_state_goes_in_and_comes_out(name: str, backend: str) -> None:
    model = make(name, backend, num_layers=2)
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    with torch.no_grad():
        whole, final = model(inputs)
        assert_same((whole, final), model(inputs, model.init_state(BATCH)), 0.0)
        head, carried = model(inputs[:3])
        tail, last = model(inputs[3:], carried)
        assert_same((torch.cat([head, tail]), last), (whole, final))
        other, _ = model(inputs, random_state(model))
    assert (other - whole).abs().max() > 1e-3
    assert [type(one) for one in final] == [type(one) for one in model.init_state(BATCH)]


# ---------------------------------------------------------------- dropout


@some_runs
def test_dropout_acts_between_layers_in_training_alone(name: str, backend: str) -> None:
    plain = make(name, backend, num_layers=2)
    model = make(name, backend, num_layers=2, dropout=0.5)
    model.load_state_dict(plain.state_dict())
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    with torch.no_grad():
        expected, expected_final = plain.train()(inputs)
        assert_same(model.eval()(inputs), (expected, expected_final), 0.0)
        outputs, final = model.train()(inputs)
        # the first layer's state is before the dropout, the second layer's outputs come after it
        assert_same(final[0], expected_final[0])
        assert (outputs - expected).abs().max() > 1e-3
        assert (model(inputs)[0] - outputs).abs().max() > 1e-3

        between = []
        handle = model.sequence_dropout.register_forward_hook(lambda _, given, made: between.append((given[0], made)))
        last, _ = model(inputs)
        handle.remove()
    ((given, dropped),) = between
    assert_same(dropped, torch.where(dropped == 0, 0.0, given / 0.5))
    assert 0.2 < (dropped == 0).double().mean() < 0.95
    assert_same(last, Recurrent(lambda _: model.cells[1], N, backend=backend)(dropped)[0])


@some_runs
def test_one_layer_has_nothing_to_drop(name: str, backend: str) -> None:
    model = make(name, backend, dropout=0.5).train()
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    assert_same(model(inputs), model(inputs), 0.0)


# ---------------------------------------------------------------- lengths


@every_run
def test_lengths_equal_running_each_sequence_alone(name: str, backend: str) -> None:
    model = make(name, backend, num_layers=2, bidirectional=True)
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    with torch.no_grad():
        for state in (None, random_state(model)):
            outputs, final = model(inputs, state, LENGTHS)
            assert outputs.shape == (STEPS, BATCH, model.output_size)
            for row, length in enumerate(LENGTHS.tolist()):
                own = slice(row, row + 1)
                alone, last = model(inputs[:length, own], None if state is None else rows(state, own))
                assert_same(outputs[:length, own], alone)
                assert outputs[length:, row].count_nonzero() == 0
                assert_same(rows(final, own), last)


@every_run
def test_padding_has_no_gradient_and_no_influence(name: str, backend: str) -> None:
    model = make(name, backend, num_layers=2, bidirectional=True)
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64, requires_grad=True)
    padding = torch.arange(STEPS).unsqueeze(1) >= LENGTHS
    outputs, final = model(inputs, lengths=LENGTHS)
    leaves = [outputs, *leaves_of(final)]
    (gradient,) = torch.autograd.grad(leaves, inputs, [torch.randn_like(leaf) for leaf in leaves])
    assert gradient[padding].count_nonzero() == 0
    assert (gradient[~padding].abs().amax(-1) > 0).all()

    changed = inputs.detach().clone()
    changed[padding] = 1e3
    with torch.no_grad():
        assert_same(model(changed, lengths=LENGTHS), (outputs.detach(), detach(final)))


@some_runs
def test_full_lengths_change_nothing(name: str, backend: str) -> None:
    model = make(name, backend, num_layers=2, bidirectional=True)
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    with torch.no_grad():
        assert_same(model(inputs, lengths=torch.full((BATCH,), STEPS)), model(inputs))


def test_nan_in_the_padding_reaches_nothing_on_any_backend() -> None:
    for name, backend in RUNS:
        model = make(name, backend, num_layers=2, bidirectional=True)
        inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
        expected, final = model(inputs, lengths=LENGTHS)
        gradients = torch.autograd.grad(expected.sin().sum(), list(model.parameters()))
        inputs[torch.arange(STEPS).unsqueeze(1) >= LENGTHS] = torch.nan
        outputs, last = model(inputs, lengths=LENGTHS)
        assert_same((outputs, last), (expected, final))
        assert_same(torch.autograd.grad(outputs.sin().sum(), list(model.parameters())), gradients)


WRONG_LENGTHS = [
    [True, True, True, False, True],
    [1, 2, 3],
    [-1, 1, 2, 3, 4],
    [1, 2, 3, 4, STEPS + 1],
    [[1, 2, 3, 4, 5]],
    [1, 2, -1, 3, 4],
    [1.5, 2.0, 3.0, 4.0, 5.0],
]


@for_each("lengths", WRONG_LENGTHS)
@for_each("backend", ["reference", "fused"])
def test_wrong_lengths_are_refused(backend: str, lengths: list[Any]) -> None:
    model = make("gru", backend)
    with pytest.raises(ValueError, match=f"^lengths must be {BATCH} integers from 0 to {STEPS}$"):
        model(torch.randn(STEPS, BATCH, X, dtype=torch.float64), lengths=torch.tensor(lengths))
    with pytest.raises(ValueError, match=f"^lengths must be {BATCH} integers from 0 to {STEPS}$"):
        model(torch.randn(STEPS, BATCH, X, dtype=torch.float64), lengths=lengths)


def test_lengths_that_are_a_number_are_refused() -> None:
    with pytest.raises(ValueError, match=f"^lengths must be {BATCH} integers from 0 to {STEPS}$"):
        make("gru", "fused")(torch.randn(STEPS, BATCH, X, dtype=torch.float64), lengths=STEPS)


@for_each("kind", [list, tuple, lambda lengths: torch.tensor(lengths, dtype=torch.int32)])
def test_lengths_may_have_any_integer_dtype(kind: Callable[[list[int]], Any]) -> None:
    model = make("gru")
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    with torch.no_grad():
        assert_same(model(inputs, lengths=kind(LENGTHS.tolist())), model(inputs, lengths=LENGTHS), 0.0)


# ---------------------------------------------------------------- starts


def starts_of(batch: int = BATCH) -> Tensor:
    starts = torch.rand(STEPS, batch) < 0.3
    starts[0, 0], starts[-1, 1] = True, True  # at the ends
    return starts


@pytest.mark.named("*-lengths", "lstm reference-whole", "rum with memory fused-whole")
@pytest.mark.parametrize("ragged", [False, True], ids=["whole", "lengths"])
@every_run
def test_starts_equal_running_each_segment_alone(name: str, backend: str, ragged: bool) -> None:
    model = make(name, backend, bidirectional=True)
    inputs, starts = torch.randn(STEPS, BATCH, X, dtype=torch.float64), starts_of()
    lengths = LENGTHS if ragged else torch.full((BATCH,), STEPS)
    state = random_state(model)
    with torch.no_grad():
        outputs, final = model(inputs, state, lengths if ragged else None, starts)
        for row, length in enumerate(lengths.tolist()):
            own = slice(row, row + 1)
            begins = [0, *(time for time in range(1, length) if starts[time, row])]
            for begin, end in zip(begins, [*begins[1:], length], strict=True):
                # the forward direction continues from the state at the start of the row, the backward one at its end
                given = [*model.init_state(1)]
                if begin == 0 and not starts[0, row]:
                    given[0] = rows(state[0], own)
                if end == length:
                    given[1] = rows(state[1], own)
                alone, last = model(inputs[begin:end, own], given)
                assert_same(outputs[begin:end, own], alone)
                if end == length:
                    assert_same(rows(final[0], own), last[0])
                if begin == 0:
                    assert_same(rows(final[1], own), last[1])


def test_starts_without_a_start_change_nothing_and_batch_first_transposes_them() -> None:
    for name, backend in RUNS:
        model = make(name, backend, bidirectional=True)
        inputs, starts = torch.randn(STEPS, BATCH, X, dtype=torch.float64), starts_of()
        with torch.no_grad():
            assert_same(model(inputs, None, LENGTHS, torch.zeros_like(starts)), model(inputs, None, LENGTHS))
            outputs, final = model(inputs, None, LENGTHS, starts)
            model.batch_first = True
            transposed, same = model(inputs.transpose(0, 1), None, LENGTHS, starts.T)
        assert_same((transposed.transpose(0, 1), same), (outputs, final), 0.0)


@every_run
def test_gradients_through_starts_equal_the_reference(name: str, backend: str) -> None:
    reference, model = (
        make(name, num_layers=2, bidirectional=True),
        make(name, backend, num_layers=2, bidirectional=True),
    )
    model.load_state_dict(reference.state_dict())
    data = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    state, starts = random_state(model), starts_of()
    found = []
    for one in (reference, model):
        inputs, given = data.clone().requires_grad_(), tree_map(lambda leaf: leaf.clone().requires_grad_(), state)
        outputs, final = one(inputs, given, LENGTHS, starts)
        wanted = [inputs, *leaves_of(given), *one.parameters()]
        total = sum((leaf.sin() * leaf).sum() for leaf in (outputs, *leaves_of(final)))
        found.append(torch.autograd.grad(total, wanted))
    assert_same(*found, tolerance=1e-10)
    # rows that start at their first step do not depend on the state that is passed in
    ignored = starts[0]
    for leaf in found[0][1 : 1 + len(leaves_of(state[0]))]:
        assert not leaf[ignored].any()


def test_wrong_starts_are_refused() -> None:
    model = make("gru")
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    allowed = rf"must be a bool tensor of shape \({STEPS}, {BATCH}\)$"
    for starts, given in (
        (
            torch.zeros(BATCH, STEPS, dtype=torch.bool),
            rf"starts is a torch.bool tensor of shape \({BATCH}, {STEPS}\), ",
        ),
        (torch.zeros(STEPS, BATCH), rf"starts is a torch.float32 tensor of shape \({STEPS}, {BATCH}\), "),
        ([[True]], "starts is a list, "),
    ):
        with pytest.raises(ValueError, match=f"^{given}{allowed}"):
            model(inputs, starts=starts)


# ---------------------------------------------------------------- arguments


@for_each("backend", ["reference", "fused"])
def test_inputs_of_another_form_are_refused_in_one_line(backend: str) -> None:
    model = make("rum", backend)
    for shape in ((STEPS, X), (STEPS, BATCH, X + 1), (X,), (1, STEPS, BATCH, X)):
        shown = str(shape).replace("(", r"\(").replace(")", r"\)")
        with pytest.raises(ValueError, match=rf"^inputs have shape {shown}, must have \(T, B, 3\)$"):
            model(torch.randn(shape, dtype=torch.float64))
    with pytest.raises(
        TypeError, match=r"^inputs have dtype torch.float32, must have that of the parameters, torch.fl"
    ):
        model(torch.randn(STEPS, BATCH, X))
    with pytest.raises(
        TypeError, match=r"^states have dtype torch.float32, must have that of the initial state, torch.fl"
    ):
        model(torch.randn(STEPS, BATCH, X, dtype=torch.float64), ((torch.zeros(BATCH, N),),))
    model.float()
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.randn(STEPS, BATCH, X, dtype=torch.bfloat16))


@some_runs
def test_states_may_be_plain_tuples(name: str, backend: str) -> None:
    model = make(name, backend, num_layers=2)
    inputs, state = torch.randn(STEPS, BATCH, X, dtype=torch.float64), random_state(model)
    with torch.no_grad():
        expected = model(inputs, state)
        outputs, final = model(inputs, [tuple(leaves_of(own)) for own in state])
        assert_same((outputs, final), expected, 0.0)
        assert [type(own) for own in final] == [type(own) for own in state]
    leaves = [[*leaves_of(own)] for own in state]
    leaves[0].append(leaves[0][0])
    with pytest.raises(ValueError, match=r"^state has tensors of shapes .*, must have "):
        model(inputs, leaves)
    with pytest.raises(ValueError, match=r"^state is a Tensor, must be a tuple with one state for each cell$"):
        model(inputs, torch.zeros(2, BATCH, N))


def test_a_shared_cell_is_refused() -> None:
    cell = GRUCell(X, X)
    with pytest.raises(
        ValueError, match=r"^cell_factory returned the same cell twice, must return a new cell at each "
    ):
        Recurrent(lambda _: cell, X, num_layers=2)


@pytest.mark.parametrize(("name", "backend"), [("lstm", "fused"), ("rum", "fused"), ("rum with memory", "reference")])
def test_transforms_of_torch_func(name: str, backend: str) -> None:
    model, automatic = make(name, backend), make(name, "auto")
    automatic.load_state_dict(model.state_dict())
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    parameters = dict(automatic.named_parameters())

    def loss(parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return torch.func.functional_call(automatic, parameters, (inputs,))[0].sin().sum()

    gradients = torch.func.grad(loss)(parameters, inputs)
    expected = torch.autograd.grad(loss(parameters, inputs), list(parameters.values()))
    assert_same(list(gradients.values()), expected, 1e-10)
    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 1))(parameters, inputs.unsqueeze(2))
    assert_same([gradient.sum(0) for gradient in per_sample.values()], expected, 1e-10)
    batched = torch.func.vmap(lambda one: automatic(one)[0])(inputs.expand(2, -1, -1, -1))
    assert_same(batched[1], model(inputs)[0])
    if backend == "fused":
        with pytest.raises(OptionError, match=r"^backend=fused: transforms of torch.func and forward"):
            torch.func.grad(lambda given: model(given)[0].sum())(inputs)


@for_each("entries", [0, 1, 3])
def test_a_state_of_the_wrong_length_is_refused(entries: int) -> None:
    model = make("gru", num_layers=2)
    state = model.init_state(BATCH)[:1] * entries
    with pytest.raises(ValueError, match=f"^state has {entries} entries, must have one for each of 2 cells$"):
        model(torch.randn(STEPS, BATCH, X, dtype=torch.float64), state)


# ---------------------------------------------------------------- backends


@pytest.mark.parametrize("name", FACTORIES)
def test_auto_takes_the_fused_path_where_there_is_one(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gyral.nn.recurrent"):
        model = Recurrent(FACTORIES[name], X)
        assert not caplog.records  # a model that is about to move to another device needs no kernels of this one
        backend = model.backend
    cell = model.cells[0]
    assert backend == ("reference" if cell.fused_unsupported_reason() else "fused")
    (record,) = caplog.records
    assert record.getMessage() == f"{type(cell).__name__} runs on the {model.backend} backend (requested: auto)"


BAD_ARGUMENTS: list[tuple[str, Any]] = [
    ("backend", "cuda"),
    ("backend", None),
    ("num_layers", 0),
    ("num_layers", 1.0),
    ("bidirectional", "true"),
    ("batch_first", 1),
    ("dropout", 1.0),
    ("dropout", -0.5),
    ("input_size", 0),
]


@for_each("given", BAD_ARGUMENTS)
def test_bad_arguments_are_refused_in_one_line(given: tuple[str, Any]) -> None:
    name, value = given
    arguments = {"cell_factory": FACTORIES["gru"], "input_size": X, name: value}
    with pytest.raises(OptionError) as caught:
        Recurrent(**arguments)
    assert str(caught.value).startswith(f"{name}={value}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="no C++ compiler")
@pytest.mark.parametrize("name", ["gru", "rum with memory"])
def test_compiled_equals_reference(name: str) -> None:
    reference = make(name)
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    state, starts = random_state(reference), starts_of()

    def results(model: Recurrent) -> list[Tensor]:
        own_inputs = inputs.clone().requires_grad_()
        own_state = tree_map(lambda leaf: leaf.clone().requires_grad_(), state)
        outputs, final = model(own_inputs, own_state, LENGTHS, starts)
        torch.manual_seed(1)
        values = [outputs, *leaves_of(final)]
        cotangents = [torch.randn_like(value) for value in values]
        wanted = [own_inputs, *leaves_of(own_state), *model.parameters()]
        return [*values, *torch.autograd.grad(values, wanted, cotangents)]

    with warnings.catch_warnings():
        # torch's compiler uses what torch has deprecated, and looks at the .grad of every tensor it traces
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf", UserWarning)
        compiled = make(name, "compile")
        compiled.load_state_dict(reference.state_dict())
        actual = results(compiled)
        copied = copy.deepcopy(compiled)
        with torch.no_grad():
            for parameter in copied.parameters():
                parameter.mul_(0.5)
        of_copy = copied(inputs)[0]
        reference_of_copy = make(name)
        reference_of_copy.load_state_dict(copied.state_dict())
    assert_same(actual, results(reference), 1e-10)
    assert_same([of_copy], [reference_of_copy(inputs)[0]], 1e-10)


# ---------------------------------------------------------------- any cell: structured inputs, any state


class TapeState(NamedTuple):
    """A summary, a preallocated tape (B, 4, N) and how many of its places are filled (B,), an integer."""

    summary: Tensor
    tape: Tensor
    filled: Tensor


class TapeCell(RecurrentCell):
    """Writes a vector where its input allows, to the next place of a tape; puts out three values.

    Inputs are {"value": (…, B, X), "write": (…, B) bool}: a phase flag as memories have, and of another type.
    """

    places = 4

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size, output_size=3)
        self.write = nn.Linear(input_size, hidden_size)
        self.read = nn.Linear(2 * hidden_size, 3)

    def init_state(self, batch_size: int) -> TapeState:
        summary = self.zeros(batch_size, self.hidden_size)
        tape = self.zeros(batch_size, self.places, self.hidden_size)
        return TapeState(summary, tape, torch.zeros(batch_size, dtype=torch.long))

    def project(self, inputs: dict[str, Tensor] | Tensor) -> dict[str, Tensor | None]:
        if isinstance(inputs, Tensor):  # a second layer gets what the first one put out
            return {"value": self.write(inputs), "write": inputs.new_ones(inputs.shape[:-1]).bool(), "unused": None}
        return {"value": self.write(inputs["value"]), "write": inputs["write"], "unused": None}

    def step(
        self, projected: dict[str, Tensor | None], state: TapeState, constants: DropoutMasks
    ) -> tuple[Tensor, TapeState]:
        assert projected["unused"] is None
        allowed = projected["write"] & (state.filled < self.places)
        place = torch.nn.functional.one_hot(state.filled.clamp(max=self.places - 1), self.places)
        place = (place * allowed.unsqueeze(1)).unsqueeze(2).to(state.tape.dtype)
        tape = state.tape + place * torch.tanh(projected["value"]).unsqueeze(1)
        summary = torch.tanh(0.5 * state.summary + tape.sum(1))
        output = self.read(torch.cat([summary, projected["value"]], dim=-1))
        return output, TapeState(summary, tape, state.filled + allowed.long())


def tape_inputs() -> dict[str, Tensor]:
    value = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    return {"value": value, "write": torch.rand(STEPS, BATCH) < 0.7}


def slice_of(inputs: dict[str, Tensor], steps: slice, picked: slice) -> dict[str, Tensor]:
    return {name: leaf[steps, picked] for name, leaf in inputs.items()}


@for_each("bidirectional", [False, True])
@for_each("num_layers", [1, 2])
def test_structured_inputs_and_states(num_layers: int, bidirectional: bool) -> None:
    factory = functools.partial(TapeCell, hidden_size=N)
    model = Recurrent(factory, X, num_layers, bidirectional).double()
    assert model.backend == "reference"
    assert model.output_size == (6 if bidirectional else 3)
    inputs = tape_inputs()
    everything = slice(None)
    with torch.no_grad():
        outputs, final = model(inputs)
        assert outputs.shape == (STEPS, BATCH, model.output_size)
        if not bidirectional:
            head, carried = model(slice_of(inputs, slice(0, 3), everything))
            tail, last = model(slice_of(inputs, slice(3, None), everything), carried)
            assert_same((torch.cat([head, tail]), last), (outputs, final))
        assert final[0].filled.dtype == torch.long
        assert torch.equal(final[0].filled, inputs["write"].sum(0).clamp(max=TapeCell.places))

        ragged, ragged_final = model(inputs, lengths=LENGTHS)
        for row, length in enumerate(LENGTHS.tolist()):
            own = slice(row, row + 1)
            alone, last = model(slice_of(inputs, slice(0, length), own))
            assert_same(ragged[:length, own], alone)
            assert ragged[length:, row].count_nonzero() == 0
            assert_same(rows(ragged_final, own), last)

        batch_first = Recurrent(factory, X, num_layers, bidirectional, batch_first=True).double()
        batch_first.load_state_dict(model.state_dict())
        transposed, same = batch_first({name: leaf.transpose(0, 1) for name, leaf in inputs.items()}, lengths=LENGTHS)
        assert_same((transposed.transpose(0, 1), same), (ragged, ragged_final))


def test_fused_is_refused_for_a_cell_without_it() -> None:
    with pytest.raises(OptionError, match=r"^backend=fused: TapeCell has no fused path; allowed here: "):
        Recurrent(functools.partial(TapeCell, hidden_size=N), X, backend="fused")
    with pytest.raises(NotImplementedError, match="TapeCell has no fused path"):
        TapeCell(X, N).fused(torch.zeros(1, 1, X), TapeCell(X, N).init_state(1), None, None)


# ---------------------------------------------------------------- state helpers


def test_detach_cuts_every_leaf() -> None:
    model = make("rum with memory", num_layers=2)
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64, requires_grad=True)
    _, final = model(inputs)
    cut = detach(final)
    assert all(leaf.requires_grad for leaf in leaves_of(final))
    assert not any(leaf.requires_grad for leaf in leaves_of(cut))
    assert [type(one) for one in cut] == [type(one) for one in final]
    assert_same(cut, final, 0.0)
    outputs, _ = model(inputs[:2].detach(), cut)
    outputs.sum().backward()
    assert inputs.grad is None
    # of a state with integers, and of none at all
    state = TapeCell(X, N).init_state(2)
    assert_same(detach(state), state, 0.0)


def test_reorder_picks_rows_of_every_leaf() -> None:
    model = make("rum with memory", num_layers=2)
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    picked = torch.tensor([4, 0, 0])  # beams may double and die
    with torch.no_grad():
        _, state = model(inputs)
        chosen = reorder(state, picked)
        assert [type(one) for one in chosen] == [type(one) for one in state]
        assert_same(chosen, rows(state, picked), 0.0)
        expected, _ = model(inputs, state)
        outputs, _ = model(inputs[:, picked], chosen)
    assert_same(outputs, expected[:, picked])
    tape = TapeState(torch.randn(2, N), torch.randn(2, 4, N), torch.tensor([3, 1]))
    assert reorder(tape, torch.tensor([1, 0])).filled.tolist() == [1, 3]


def test_reverse_keeps_padding_where_it_is() -> None:
    time = torch.arange(STEPS).unsqueeze(1).expand(STEPS, BATCH)
    assert torch.equal(reverse(time, None), time.flip(0))
    reversed_time = reverse({"a": time, "b": (time.double().unsqueeze(2),)}, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        expected = [*reversed(range(length)), *range(length, STEPS)]
        assert reversed_time["a"][:, row].tolist() == expected
        assert reversed_time["b"][0][:, row, 0].tolist() == expected
    back = reverse(reversed_time, LENGTHS)
    assert torch.equal(back["a"], time)


@pytest.mark.parametrize("name", ["MinGRU", "LRU", "Mamba", "MLSTM", "SLSTM", "LightConv"])
def test_steps_without_gradients_are_those_of_the_cell_and_equal_the_whole_sequence(name: str) -> None:
    layer = getattr(gyral, name)(3, 8).eval()
    called: list[int] = []
    layer.cells[0].register_forward_hook(lambda *_: called.append(1))
    inputs, state, found = torch.randn(5, 2, 3), None, []
    with torch.no_grad():
        whole, final = layer(inputs)
        for step in inputs.split(1):
            outputs, state = layer(step, state)
            found.append(outputs)
    torch.testing.assert_close(torch.cat(found), whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state, final, rtol=1e-4, atol=1e-5)
    assert len(called) == 6
