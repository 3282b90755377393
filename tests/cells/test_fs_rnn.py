"""Fast-slow networks: the composition written out by hand, dropout, options of the inner cells, parameter counts."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
import yaml
from omegaconf import OmegaConf
from torch import Tensor, nn

from gyral.cells.base import DropoutMasks, HiddenState, RecurrentCell
from gyral.cells.eurnn import EURNNCell
from gyral.cells.fs_rnn import FSRNNCell
from gyral.cells.goru import GORUCell
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.on_lstm import ONLSTMCell
from gyral.cells.rum import RUMCell
from gyral.core.errors import OptionError
from gyral.figures.landscape import phases_of
from gyral.models.sequence import SequenceModel
from gyral.nn.recurrent import Recurrent
from gyral.training import build
from tests.helpers.loops import for_each
from tests.helpers.running import SMALL_COPY, compose_config, invoke

X, N, SLOW, BATCH, STEPS = 3, 4, 6, 5, 7


class Choice(NamedTuple):
    """Fast and slow cells with the widths of their outputs."""

    name: str
    fast: Callable[..., RecurrentCell]
    slow: Callable[..., RecurrentCell]
    fast_width: int = N
    slow_width: int = SLOW


CHOICES = [
    Choice("lstm lstm", LSTMCell, LSTMCell),
    Choice("normalized", partial(LSTMCell, layer_norm=True), partial(LSTMCell, layer_norm=True)),
    Choice("lstm rum", LSTMCell, partial(RUMCell, lambd=1.0, eta=1.0)),
    Choice("gru complex eurnn", GRUCell, EURNNCell, slow_width=2 * SLOW),
    Choice("complex eurnn gru", EURNNCell, GRUCell, fast_width=2 * N),
    Choice("rum on-lstm", partial(RUMCell, lambd=1.0), partial(ONLSTMCell, chunk_size=2)),
    Choice("goru zoneout", partial(GORUCell, zoneout=0.3), partial(LSTMCell, zoneout=0.2, zoneout_cell=0.4)),
]
every_choice = for_each("choice", CHOICES)


def make(choice: Choice, num_fast: int = 2, **options: Any) -> FSRNNCell:
    return FSRNNCell(X, N, choice.fast, choice.slow, slow_size=SLOW, num_fast=num_fast, **options)


def random_state(state: Any) -> Any:
    """Return a state of the same shapes with random vectors; memories stay rotations."""
    if isinstance(state, Tensor):
        return state if state.dim() == 3 else torch.randn_like(state)
    return type(state)(*map(random_state, state))


@for_each("num_fast", [2, 4])
@every_choice
def test_a_step_is_the_composition_of_its_cells(choice: Choice, num_fast: int) -> None:
    cell = make(choice, num_fast).double().eval()
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    first, second, *others = cell.fast
    state = random_state(cell.init_state(BATCH))
    with torch.no_grad():
        outputs, (final,) = Recurrent(lambda _: cell, X).eval()(inputs, (state,))
        fast, slow = state
        for time in range(STEPS):
            up, fast = first(inputs[time], fast)
            down, slow = cell.slow(up, slow)
            output, fast = second(down, fast)
            for other in others:
                output, fast = other(torch.zeros(BATCH, 1, dtype=torch.float64), fast)
            torch.testing.assert_close(outputs[time], output, rtol=1e-12, atol=1e-12)
    assert type(final.fast) is type(fast)
    assert type(final.slow) is type(slow)
    for one, two in zip((*final.fast, *final.slow), (*fast, *slow), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


@every_choice
def test_widths_fit_any_output_size_of_a_cell(choice: Choice) -> None:
    cell = make(choice, 4)
    assert cell.output_size == choice.fast_width
    assert cell.slow.input_size == choice.fast_width
    assert [fast.input_size for fast in cell.fast] == [X, choice.slow_width, 1, 1]
    assert [fast.hidden_size for fast in cell.fast] == [N] * 4
    assert cell.slow.hidden_size == SLOW
    assert FSRNNCell(X, N, choice.fast, choice.slow).slow.hidden_size == N


def test_cells_have_separate_weights() -> None:
    cell = make(CHOICES[0], 4)
    weights = [fast.layer.weight_hh_l0 for fast in cell.fast]
    assert len({weight.data_ptr() for weight in weights}) == 4
    assert all(not torch.equal(weights[0], weight) for weight in weights[1:])


def test_later_fast_cells_get_a_zero() -> None:
    cell = make(CHOICES[0], 4).eval()
    inputs = torch.randn(STEPS, BATCH, X)
    outputs, _ = Recurrent(lambda _: cell, X)(inputs)
    outputs.sum().backward()
    for index in (2, 3):
        layer = cell.fast[index].layer
        assert (layer.weight_ih_l0.grad == 0).all()
        assert (layer.weight_hh_l0.grad != 0).any()
        assert (layer.bias_ih_l0.grad != 0).any()


# ---------------------------------------------------------------- dropout


class Echo(RecurrentCell):
    """Puts out ones and keeps what each of its steps is given."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.weight = nn.Parameter(torch.zeros(1))
        self.seen: list[Tensor] = []

    def init_state(self, batch_size: int) -> HiddenState:
        return HiddenState(self.zeros(batch_size, self.hidden_size))

    def project(self, inputs: Tensor) -> Tensor:
        return inputs

    def step(self, projected: Tensor, state: HiddenState, constants: DropoutMasks) -> tuple[Tensor, HiddenState]:
        self.seen.append(projected)
        return torch.ones_like(state.hidden), HiddenState(state.hidden + 1)


def echoes(dropout: float, training: bool, steps: int = 40, batch: int = 20, size: int = 10) -> list[Tensor]:
    """Return what F_1, S and F_2 are given and what is put out, each (T, B, N), of inputs that are ones."""
    cell = FSRNNCell(size, size, Echo, Echo, num_fast=3, dropout=dropout)
    outputs, (final,) = Recurrent(lambda _: cell, size).train(training)(torch.ones(steps, batch, size))
    first, second, third = (torch.stack(fast.seen) for fast in cell.fast)
    assert torch.equal(third, torch.zeros(steps, batch, 1))
    assert (final.fast.hidden == 3 * steps).all()
    assert (final.slow.hidden == steps).all()
    return [first, torch.stack(cell.slow.seen), second, outputs]


def test_dropout_is_on_all_that_goes_between_cells_in_training_only() -> None:
    for given in (*echoes(0.3, training=False), *echoes(0.0, training=True)):
        assert (given == 1).all()
    masks = echoes(0.3, training=True)
    for mask in masks:
        kept = mask != 0
        torch.testing.assert_close(mask[kept], torch.full_like(mask[kept], 1 / 0.7))
        assert abs(kept.float().mean() - 0.7) < 4 * (0.21 / mask.numel()) ** 0.5
        # drawn anew for each step, row and unit
        for dimension in range(3):
            assert (mask.diff(dim=dimension) != 0).any()
        assert len(set(map(tuple, mask.flatten(1).tolist()))) == len(mask)
    for index, mask in enumerate(masks):
        for other in masks[:index]:
            assert not torch.equal(mask, other)


def test_dropout_of_a_single_step() -> None:
    cell = FSRNNCell(10, 10, Echo, Echo, dropout=0.5)
    output, _ = cell(torch.ones(30, 10))
    for given in (output, *(part.seen[0] for part in (*cell.fast, cell.slow))):
        assert given.unique().tolist() == [0, 2]
    output, _ = cell.eval()(torch.ones(30, 10))
    assert (output == 1).all()


# ---------------------------------------------------------------- options of the inner cells


@for_each("part", ["fast", "slow"])
def test_zoneout_of_the_inner_cells_keeps_their_state_in_training(part: str) -> None:
    kept = partial(LSTMCell, zoneout=0.95, zoneout_cell=0.5)
    cell = FSRNNCell(X, 50, **{"fast": LSTMCell, "slow": LSTMCell} | {part: kept})
    state = random_state(cell.init_state(40))
    _, new = cell(torch.randn(40, X), state)
    turns = 2 if part == "fast" else 1
    for name in ("fast", "slow"):
        for leaf, probability in (("hidden", 0.95), ("cell", 0.5)):
            pair = (getattr(getattr(one, name), leaf) for one in (new, state))
            same = torch.isclose(*pair, rtol=0, atol=1e-6).double().mean().item()
            expected = probability**turns if name == part else 0.0
            assert abs(same - expected) <= 4 * (expected * (1 - expected) / 2000) ** 0.5 + 1e-3, (name, leaf)
    cell.eval()
    assert torch.equal(cell(torch.ones(2, X))[0], cell(torch.ones(2, X))[0])


def test_zoneout_masks_differ_from_step_to_step_and_from_cell_to_cell() -> None:
    cell = FSRNNCell(X, 50, partial(LSTMCell, zoneout=0.5), partial(LSTMCell, zoneout=0.5))
    constants = cell.sequence_constants(6, 4)
    masks = [part.masks.zoneout for part in (*constants.fast, constants.slow)]
    for mask in masks:
        assert mask.shape == (6, 4, 50)
        assert len(set(map(tuple, mask.flatten(1).tolist()))) == 6
    assert not any(torch.equal(one, two) for i, one in enumerate(masks) for two in masks[:i])


def test_angles_of_all_cells_are_reported() -> None:
    cell = make(Choice("", EURNNCell, GORUCell), 3)
    angles = {id(phase) for phase in phases_of(cell)}
    assert angles == {id(parameter) for name, parameter in cell.named_parameters() if ".eunn." in name}
    assert len(angles) == 3 * 3 + 1


@for_each("part", ["fast", "slow"])
def test_a_nested_hidden_size_is_refused_in_one_line(part: str) -> None:
    cells = {"fast": LSTMCell, "slow": LSTMCell} | {part: partial(LSTMCell, hidden_size=7)}
    option = {"fast": "hidden_size", "slow": "slow_size"}[part]
    with pytest.raises(OptionError, match=rf"^{part}\.hidden_size=7: .*{option}") as caught:
        FSRNNCell(X, N, **cells)
    assert "\n" not in str(caught.value)


@for_each(
    "given",
    [
        ("num_fast", 1),
        ("num_fast", 0),
        ("num_fast", 2.0),
        ("slow_size", 0),
        ("slow_size", "4"),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("hidden_size", 0),
        ("input_size", 0),
    ],
)
def test_bad_options_are_refused_in_one_line(given: tuple[str, Any]) -> None:
    name, value = given
    options = {"input_size": X, "hidden_size": N, "fast": LSTMCell, "slow": GRUCell, name: value}
    with pytest.raises(OptionError) as caught:
        FSRNNCell(**options)
    assert str(caught.value).startswith(f"{name}={value}: must be ")
    assert "\n" not in str(caught.value)


REFUSED = [
    ("fs_goru", "model.cell.slow.capacity=99"),
    ("fs_goru", "model.cell.slow.layer_norm=3"),
    ("fs_rum", "model.cell.slow.eta=0"),
    ("fs_eurnn", "model.cell.slow.capacity=fast"),
    ("fs_lstm", "model.cell.fast.zoneout_cell=1.0"),
    ("fs_lstm", "model.cell.slow.zoneout_cell=1.0"),
    ("fs_lstm", "model.cell.fast.initialization=xavier"),
    ("fs_lstm", "model.cell.slow.initialization=xavier"),
    ("fs_lstm", "model.cell.num_fast=1"),
    ("fs_lstm", "model.cell.slow_size=0"),
    ("fs_lstm", "model.cell.dropout=1.0"),
    ("fs_lstm", "+model.cell.fast.hidden_size=5"),
    ("fs_lstm", "+model.cell.slow.hidden_size=5"),
    ("fs_lstm", "+model.cell.slow.chunk_size=5"),
]


@for_each("given", REFUSED)
def test_nested_options_are_refused_by_their_whole_key(given: tuple[str, str]) -> None:
    model, override = given
    config = compose_config(f"model={model}", "model.cell.hidden_size=6")
    key, _, value = override.removeprefix("+").partition("=")
    OmegaConf.update(config, key, yaml.safe_load(value), force_add=override.startswith("+"))
    with pytest.raises(OptionError) as caught:
        build.build_task(config)
    said = str(caught.value)
    assert said.startswith(f"{override.removeprefix('+')}:"), said
    assert "\n" not in said


def test_a_nested_option_is_refused_in_one_line_on_the_command_line() -> None:
    error = invoke(*SMALL_COPY, "model=fs_goru", "model.cell.slow.capacity=99").error
    assert error.startswith("model.cell.slow.capacity=99: must be an integer from 1 to 8")


# ---------------------------------------------------------------- sizes of the papers

EMBEDDING, CHARACTERS = 128, 50


def lstm_parameters(inputs: int, size: int) -> int:
    """Weights, torch's two biases, and gains and biases of the normalizations of four gates and c."""
    return 4 * size * (inputs + size) + 2 * 4 * size + 2 * 5 * size


def rum_parameters(inputs: int, size: int) -> int:
    """Weights, biases, and gains and biases of the normalizations of target, gate and candidate."""
    return 3 * size * inputs + 2 * size * size + 3 * size + 2 * 3 * size


PAPERS = {
    "FS-LSTM-2": (700, 400, 2, LSTMCell, lstm_parameters, 7.2),
    "FS-LSTM-4": (500, 400, 4, LSTMCell, lstm_parameters, 6.5),
    "FS-RUM-2": (700, 1000, 2, partial(RUMCell, lambd=0.0, eta=1.0), rum_parameters, 11.2),
}


@for_each("name", PAPERS)
def test_parameter_counts_equal_the_papers(name: str) -> None:
    """In millions to one decimal, as the tables have them, which cut off the others: 6.57 is 6.5 there."""
    size, slow_size, num_fast, slow, slow_parameters, millions = PAPERS[name]
    with torch.device("meta"):
        model = SequenceModel(
            partial(
                FSRNNCell,
                hidden_size=size,
                fast=partial(LSTMCell, layer_norm=True),
                slow=partial(slow, layer_norm=True),
                slow_size=slow_size,
                num_fast=num_fast,
            ),
            CHARACTERS,
            CHARACTERS,
            embedding_size=EMBEDDING,
            backend="reference",
        )
    count = sum(parameter.numel() for parameter in model.parameters())
    fast = [lstm_parameters(inputs, size) for inputs in (EMBEDDING, slow_size, *[1] * (num_fast - 2))]
    head = (size + 1) * CHARACTERS
    assert count == EMBEDDING * CHARACTERS + sum(fast) + slow_parameters(size, slow_size) + head
    assert math.floor(count / 1e5) / 10 == millions
