"""Cells of a user that do not keep the contract: one line with the method, what it must return and what it returned."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import gyral
from gyral.cells.base import HiddenState, RecurrentCell
from gyral.core.errors import OptionError, UserError
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each

X, N = 4, 6


class OwnCell(RecurrentCell):
    """A cell that keeps the contract, with dropout and batch normalization of its own."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.linear = nn.Linear(input_size, hidden_size)
        self.norm = nn.BatchNorm1d(hidden_size)
        self.dropout = nn.Dropout(0.5).eval()

    def init_state(self, batch_size: int) -> Any:
        return HiddenState(self.zeros(batch_size, self.hidden_size))

    def project(self, inputs: Tensor) -> Any:
        return self.linear(inputs)

    def step(self, projected: Tensor, state: Any, constants: Any) -> Any:
        hidden = torch.tanh(projected + self.dropout(self.norm(state.hidden)))
        return hidden, HiddenState(hidden)


class Memory(NamedTuple):
    """A state with two tensors."""

    hidden: Tensor
    memory: Tensor


def with_method(name: str, method: Callable[..., Any]) -> type[OwnCell]:
    return type("OwnCell", (OwnCell,), {name: method})


def step(change: Callable[[Tensor], Any]) -> Callable[..., Any]:
    """Return a step that returns something else than the cell, made of its hidden vector."""
    return lambda cell, projected, state, constants: change(OwnCell.step(cell, projected, state, constants)[0])


OUTPUT = r"an output \(B, output_size\), here a float32 tensor \(3, 6\)"
STATE = r"a state as init_state does, here HiddenState\(a float32 tensor \(3, 6\)\)"
INITIAL = r"a NamedTuple of tensors \(B, …\), here B = 3"
PROJECTED = r"tensors \(T, B, …\) for inputs \(T, B, X\), here \(2, 3, …\)"
CONSTANTS = r"tensors \(T, …\), here \(2, …\), and gyral.ops.scan.Shared for what all steps share"
FAULTS: list[tuple[str, Callable[..., Any], str, str]] = [
    ("step", step(lambda h: (h.mean(-1, keepdim=True), HiddenState(h))), OUTPUT, r"a float32 tensor \(3, 1\)"),
    ("step", step(lambda h: (h.mean(-1), HiddenState(h))), OUTPUT, r"a float32 tensor \(3,\)"),
    ("step", step(lambda h: (h.double(), HiddenState(h))), OUTPUT, r"a float64 tensor \(3, 6\)"),
    ("step", step(lambda h: (None, HiddenState(h))), OUTPUT, "NoneType"),
    ("step", step(lambda h: (h, HiddenState(h[:, :1]))), STATE, r"HiddenState\(a float32 tensor \(3, 1\)\)"),
    ("step", step(lambda h: h), r"\(output, state\), here \(Tensor, HiddenState\)", "Tensor"),
    ("init_state", lambda cell, rows: cell.zeros(rows, N), INITIAL, r"a float32 tensor \(3, 6\)"),
    ("init_state", lambda cell, rows: None, INITIAL, "NoneType"),
    ("init_state", lambda cell, rows: HiddenState(cell.zeros(N)), INITIAL, r"HiddenState\(a float32 tensor \(6,\)\)"),
    ("init_state", lambda cell, rows: Memory(cell.zeros(rows, N), None), INITIAL, r"Memory\(a .*, NoneType\)"),
    ("project", lambda cell, inputs: cell.linear(inputs).mean(0), PROJECTED, r"a float32 tensor \(3, 6\)"),
    ("project", lambda cell, inputs: cell.linear(inputs).mean(1), PROJECTED, r"a float32 tensor \(2, 6\)"),
    ("sequence_constants", lambda cell, *shape: cell.linear.bias, CONSTANTS, r"a float32 tensor \(6,\)"),
]


@for_each("given", FAULTS)
def test_what_a_method_of_a_cell_returns_is_checked_when_a_network_is_built(
    given: tuple[str, Callable[..., Any], str, str],
) -> None:
    name, method, must, found = given
    line = method.__code__.co_firstlineno
    said = rf"^\S*{Path(__file__).name}:{line}: OwnCell\.{name} must return {must}; it returned {found}$"
    with pytest.raises(UserError, match=said):
        Recurrent(partial(with_method(name, method), hidden_size=N), X)


NETWORKS: dict[str, Callable[[Any], Any]] = {
    "stack": lambda cell: Recurrent(partial(cell, hidden_size=N), X, num_layers=2),
    "blocks": lambda cell: Recurrent(partial(cell, hidden_size=N), X, block="prenorm"),
    "fast": lambda cell: gyral.FSRNN(X, N, fast=cell, slow=gyral.LSTMCell),
    "slow": lambda cell: gyral.FSRNN(X, N, fast=gyral.LSTMCell, slow=cell),
    "controller": lambda cell: gyral.NTM(X, N, controller=cell),
    "edges": lambda cell: gyral.MAGE(X, N, cell=cell),
}


@for_each("network", NETWORKS)
def test_every_network_that_is_given_a_cell_checks_it(network: str) -> None:
    make = NETWORKS[network]
    wrong = with_method("step", step(lambda hidden: (hidden[:, :1], HiddenState(hidden))))
    with pytest.raises(UserError, match=r"OwnCell\.step must return an output \(B, output_size\)"):
        make(wrong)
    with pytest.raises(UserError, match=r"^torch\S*\.GRUCell must be a subclass of gyral\.cells\.base\.RecurrentCell"):
        make(nn.GRUCell)
    assert torch.isfinite(make(OwnCell)(torch.randn(5, 3, X))[0]).all()


def test_a_cell_in_place_of_its_class_is_refused() -> None:
    said = r"=LSTMCell: must be a class of cells or a function that makes a cell, such as functools\.partial\(gyral\."
    with pytest.raises(OptionError, match=f"^controller{said}"):
        gyral.NTM(X, N, controller=gyral.LSTMCell(X, N))
    with pytest.raises(OptionError, match=f"^cell_factory{said}"):
        Recurrent(gyral.LSTMCell(X, N), X)
    with pytest.raises(OptionError, match=r"^cell_factory=3: must be a class of cells"):
        Recurrent(3, X)  # type: ignore[arg-type]


def test_the_check_leaves_no_trace() -> None:
    cell = OwnCell(X, N)
    before = torch.get_rng_state()
    Recurrent(lambda _: cell, X)
    assert torch.equal(torch.get_rng_state(), before)
    assert cell.training
    assert not cell.dropout.training
    assert cell.norm.num_batches_tracked == 0


def test_errors_of_a_cell_itself_are_not_hidden_or_reported_early() -> None:
    """Inputs may be any structure, which the check does not know."""

    def project(cell: OwnCell, inputs: Any) -> Tensor:
        projected: Tensor = cell.linear(inputs["vectors"])
        return projected

    network = Recurrent(partial(with_method("project", project), hidden_size=N), X)
    assert network({"vectors": torch.randn(5, 3, X)})[0].shape == (5, 3, N)
    with pytest.raises((IndexError, TypeError), match="indices"):
        network(torch.randn(5, 3, X))


def test_a_cell_without_parameters_is_refused() -> None:
    class Sum(OwnCell):
        def __init__(self, input_size: int, hidden_size: int) -> None:
            RecurrentCell.__init__(self, input_size, hidden_size)

    with pytest.raises(
        UserError, match=r"^\S*\.Sum has no parameters; a cell needs at least one, which determines its "
    ):
        Recurrent(partial(Sum, hidden_size=X), X)


def test_an_attribute_under_its_old_name_is_refused() -> None:
    """It would have no effect: parameters of the memory would decay, and inputs with a mask would be refused."""
    for old, value, new in (("dynamics", ("rate",), "no_decay_parameters"), ("understands", tuple, "input_types")):
        cell = type("OwnCell", (OwnCell,), {old: value})
        with pytest.raises(UserError, match=rf"^\S*\.OwnCell\.{old} has another name now, .*; rename it to {new}$"):
            Recurrent(partial(cell, hidden_size=N), X)


def test_a_cell_may_be_built_without_memory() -> None:
    assert Recurrent(partial(OwnCell, hidden_size=N), X, device="meta", dtype=torch.bfloat16).output_size == N
