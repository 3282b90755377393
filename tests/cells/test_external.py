"""Cells of other libraries: torch's against ours, one of one's own, those that cannot be called, torchrecurrent's."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gyral.cells.base import RecurrentCell
from gyral.cells.external import ExternalCell
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.rnn import RNNCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each
from tests.helpers.running import build_task

X, N, BATCH, STEPS = 3, 5, 4, 6

TWINS: dict[str, tuple[type[RecurrentCell], dict[str, Any]]] = {
    "torch.nn.GRUCell": (GRUCell, {}),
    "torch.nn.LSTMCell": (LSTMCell, {}),
    "torch.nn.RNNCell": (RNNCell, {"nonlinearity": "relu"}),
}


@for_each("bias", [True, False])
@for_each("name", TWINS)
def test_torchs_cells_are_ours(name: str, bias: bool) -> None:
    made, options = TWINS[name]
    own = made(X, N, bias=bias, **options).double()
    other = ExternalCell(X, N, cell=name, options={"bias": bias, **options}).double()
    weights = own.layer.state_dict()
    other.cell.load_state_dict({key.removesuffix("_l0"): tensor for key, tensor in weights.items()})
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    state = [torch.randn_like(leaf) for leaf in own.init_state(BATCH)]
    assert other.output_size == N
    found = []
    for cell in (own, other):
        x, leaves = inputs.clone().requires_grad_(), [leaf.clone().requires_grad_() for leaf in state]
        start = own.State(*leaves) if cell is own else other.State(leaves[0], tuple(leaves[1:]))
        outputs, (final,) = Recurrent(lambda _, cell=cell: cell, X, backend="reference")(x, (start,))
        last = list(final) if cell is own else [final.hidden, *final.others]
        total = outputs.sin().sum() + sum(leaf.cos().sum() for leaf in last)
        found.append([outputs, *last, *torch.autograd.grad(total, [x, *leaves, *cell.parameters()])])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-12, atol=1e-12)


class Leaky(nn.Module):
    """A cell of one's own: a hidden vector of another width than N, a trace (B, 2, N) beside it, other names."""

    def __init__(self, width: int, size: int, rate: float = 0.5, *, bias: bool = True) -> None:
        super().__init__()
        self.rate, self.size = rate, size
        self.linear = nn.Linear(width + 2 * size, 2 * size, bias=bias)
        self.drop = nn.Dropout(0.5)
        self.modes: list[bool] = []

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        self.modes.append(self.training)
        if state is None:
            state = x.new_zeros(len(x), 2 * self.size), x.new_zeros(len(x), 2, self.size)
        hidden, trace = state
        new = torch.tanh(self.linear(torch.cat((self.drop(x), hidden + trace.flatten(1)), dim=1)))
        return new, self.rate * trace + new.unflatten(1, (2, self.size))


OWN = f"{__name__}.Leaky"


def test_a_user_defined_cell() -> None:
    cell = ExternalCell(X, N, cell=OWN, options={"rate": 0.25, "bias": False}).double().eval()
    assert cell.cell.rate == 0.25
    assert cell.cell.linear.bias is None
    assert cell.output_size == 2 * N
    state = cell.init_state(BATCH)
    assert [leaf.shape for leaf in (state.hidden, *state.others)] == [(BATCH, 2 * N), (BATCH, 2, N)]
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    with torch.no_grad():
        outputs, (final,) = Recurrent(lambda _: cell, X).eval()(inputs)
        carried = None
        for time in range(STEPS):
            carried = cell.cell(inputs[time], carried)
            torch.testing.assert_close(outputs[time], carried[0], rtol=0, atol=0)
    assert torch.equal(final.hidden, carried[0])
    assert torch.equal(final.others[0], carried[1])


def test_the_cell_has_the_training_mode_of_its_parent() -> None:
    cell = ExternalCell(X, N, cell=OWN)
    assert cell.cell.training
    assert cell.cell.drop.training
    cell.cell.modes.clear()
    cell(torch.zeros(1, X))
    cell.eval()(torch.zeros(1, X))
    assert cell.cell.modes == [True, False]


def test_making_the_cell_draws_no_more_random_numbers_than_its_class() -> None:
    torch.manual_seed(1)
    alone = Leaky(X, N)
    expected = torch.rand(3)
    torch.manual_seed(1)
    cell = ExternalCell(X, N, cell=OWN)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(cell.cell.linear.weight, alone.linear.weight)


def test_zoneout_and_dropout_act_on_the_hidden_vector() -> None:
    plain = ExternalCell(X, 40, cell="torch.nn.LSTMCell")
    inputs = torch.randn(50, X)
    state = plain.State(torch.randn(50, 40), (torch.randn(50, 40),))
    with torch.no_grad():
        new, (_, (carried,)) = plain(inputs, state)
        for training in (True, False):
            cell = ExternalCell(X, 40, cell="torch.nn.LSTMCell", zoneout=0.3).train(training)
            cell.load_state_dict(plain.state_dict())
            output, (hidden, (other,)) = cell(inputs, state)
            assert torch.equal(output, hidden)
            assert torch.equal(other, carried), "zoneout is that of h alone"
            if training:
                kept = torch.isclose(hidden, state.hidden, rtol=0, atol=1e-6)
                assert abs(kept.float().mean() - 0.3) < 4 * (0.21 / 2000) ** 0.5
                torch.testing.assert_close(hidden[~kept], new[~kept])
            else:
                torch.testing.assert_close(hidden, 0.3 * state.hidden + 0.7 * new)
        cell = ExternalCell(X, 40, cell="torch.nn.LSTMCell", recurrent_dropout=0.3)
        cell.load_state_dict(plain.state_dict())
        masks = cell.sequence_constants(50)
        dropped, _ = cell.step(inputs, state, masks)
        expected, _ = plain(inputs, state._replace(hidden=state.hidden * masks.recurrent_dropout.value))
        assert torch.equal(dropped, expected)


# ---------------------------------------------------------------- what is refused


class Sized(nn.Module):
    """Takes one size only, as it says itself."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        raise ValueError(f"input_size must equal\nhidden_size, got {input_size} and {hidden_size}")


class Called(nn.Module):
    """Called with something else than inputs and state."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, hidden_size)

    def forward(self, x: Tensor, state: Tensor, time: Tensor) -> Tensor:
        return self.linear(x) + state + time


class Listed(Called):
    """Returns no tuple of tensors."""

    def forward(self, x: Tensor, state: Any = None) -> Any:
        return [self.linear(x)]


class Nested(Called):
    """Returns the output beside the state."""

    def forward(self, x: Tensor, state: Any = None) -> Any:
        out = self.linear(x)
        return out, (out, out)


class Nothing(Called):
    """Returns an empty state."""

    def forward(self, x: Tensor, state: Any = None) -> Any:
        return ()


class Flat(Called):
    """Returns a hidden vector without width."""

    def forward(self, x: Tensor, state: Any = None) -> Any:
        return self.linear(x).sum(1)


function = torch.tanh

REFUSED = {
    "no module": {"cell": "no.such.module.Cell"},
    "no member": {"cell": "torch.nn.NoSuchCell"},
    "no dotted name": {"cell": "GRUCell"},
    "empty": {"cell": ""},
    "ends in a dot": {"cell": "torch.nn."},
    "begins with a dot": {"cell": ".GRUCell"},
    "a module": {"cell": "torch.nn"},
    "a function": {"cell": f"{__name__}.function"},
    "no module class": {"cell": "torch.Tensor"},
    "the base of modules": {"cell": "torch.nn.Module"},
    "no state": {"cell": "torch.nn.Linear"},
    "no parameters": {"cell": "torch.nn.Identity"},
    "a layer": {"cell": "torch.nn.GRU"},
    "a layer of pairs": {"cell": "torch.nn.LSTM"},
    "another call": {"cell": f"{__name__}.Called"},
    "a list": {"cell": f"{__name__}.Listed"},
    "a nested state": {"cell": f"{__name__}.Nested"},
    "an empty state": {"cell": f"{__name__}.Nothing"},
    "a state without width": {"cell": f"{__name__}.Flat"},
    "sizes": {"cell": f"{__name__}.Sized"},
}


@for_each("case", REFUSED)
def test_a_class_that_is_no_cell_is_refused_in_one_line(case: str) -> None:
    with pytest.raises(OptionError) as caught:
        ExternalCell(X, N, **REFUSED[case])
    assert str(caught.value).startswith(f"cell={REFUSED[case]['cell']}: ")
    assert "\n" not in str(caught.value)


@for_each(
    "given",
    [
        ("torch.nn.GRUCell", {"layer_norm": True}),
        ("torch.nn.GRUCell", {"hidden_size": 4}),
        ("torch.nn.GRUCell", {"input_size": 4}),
        (OWN, {"rates": 0.5}),
        ("torch.nn.RNNCell", {"nonlinearity": "sine"}),
    ],
)
def test_options_that_a_cell_does_not_take_are_refused_in_one_line(given: tuple[str, dict[str, Any]]) -> None:
    cell, options = given
    with pytest.raises(OptionError) as caught:
        ExternalCell(X, N, cell=cell, options=options)
    said = str(caught.value)
    assert said.startswith((f"options={options}: ", f"cell={cell}: "))
    assert cell in said
    assert "\n" not in said


@for_each("override", ["model.cell.cell=torch.nn.Nope", "model.cell.cell=Nope", "model.cell.cell=torch.tanh"])
def test_names_are_refused_by_their_whole_key(override: str) -> None:
    with pytest.raises(OptionError) as caught:
        build_task("model=external", override)
    assert str(caught.value).startswith(f"{override}: ")
    assert "\n" not in str(caught.value)


def test_options_from_the_command_line_arrive() -> None:
    cell = build_task("model=external", "model.cell.cell=torch.nn.RNNCell", "model.cell.options={bias: false}")
    (made,) = cell.model.recurrent.cells
    assert isinstance(made.cell, nn.RNNCell)
    assert not made.cell.bias


# ---------------------------------------------------------------- torchrecurrent

# They return (output, state) with an output that is no part of the state: another call than that of torch.nn.LSTMCell.
OUTPUT_BESIDE_STATE = {"IntersectionRNNCell", "MCLSTMCell", "TLSTMCell"}


def test_every_cell_of_torchrecurrent_runs() -> None:
    package = pytest.importorskip("torchrecurrent")
    names = [name for name in dir(package) if name.endswith("Cell")]
    assert len(names) >= 30
    for name in names:
        path = f"torchrecurrent.{name}"
        if name in OUTPUT_BESIDE_STATE:
            with pytest.raises(OptionError, match=f"^cell={path}: "):
                ExternalCell(N, N, cell=path)  # the first wants equal sizes
            continue
        cell = ExternalCell(X, N, cell=path).double()
        model = Recurrent(lambda _, cell=cell: cell, X)
        inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64, requires_grad=True)
        outputs, (final,) = model(inputs)
        assert outputs.shape == (STEPS, BATCH, cell.output_size), name
        alone = cell.cell(inputs[0])
        torch.testing.assert_close(outputs[0], alone if isinstance(alone, Tensor) else alone[0], msg=name)
        gradients = torch.autograd.grad(outputs.sum(), [inputs, *cell.parameters()])
        assert all(tensor.isfinite().all() for tensor in (outputs, *gradients)), name
        assert (gradients[0] != 0).flatten(1).any(dim=1).all(), name  # some have ReLUs that may all be shut
        for cut in (1, 4):
            head, carried = model(inputs[:cut])
            tail, (last,) = model(inputs[cut:], carried)
            torch.testing.assert_close(torch.cat((head, tail)), outputs, rtol=1e-12, atol=1e-12, msg=name)
            torch.testing.assert_close(last.hidden, final.hidden, rtol=1e-12, atol=1e-12, msg=name)
