"""Residual blocks around the layers of a stack, of both kinds, with any cell."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.cells.gru import GRUCell
from gyral.cells.lantm import LANTMCell
from gyral.cells.light_conv import LightConvCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.rum import RUMCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each
from tests.helpers.running import build_task

T, B, X, N = 5, 3, 2, 4
CELLS = {
    "gru": partial(GRUCell, hidden_size=N),
    "lstm": partial(LSTMCell, hidden_size=N),
    "rum": partial(RUMCell, hidden_size=N, lambd=1.0),
    "light_conv": partial(LightConvCell, hidden_size=N, kernel_size=3),
    "lantm": partial(LANTMCell, hidden_size=N, width=3, capacity=8),
}
every_cell = for_each("cell", CELLS.values())


def made(cell: Any = CELLS["gru"], **options: Any) -> Recurrent:
    torch.manual_seed(0)
    return Recurrent(cell, X, **{"num_layers": 2, "block": "prenorm", **options}).double().eval()


def inputs() -> Tensor:
    return torch.randn(T, B, X, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_hand(model: Recurrent, given: Tensor) -> Tensor:
    weights = dict(model.named_parameters())

    def linear(name: str, vectors: Tensor) -> Tensor:
        return F.linear(vectors, weights[f"block.{name}.weight"], weights.get(f"block.{name}.bias"))

    def norm(name: str, vectors: Tensor) -> Tensor:
        centered = vectors - vectors.mean(-1, keepdim=True)
        scaled = centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * weights[f"block.{name}.weight"] + weights[f"block.{name}.bias"]

    stream = linear("enter", given)
    for layer, cell in enumerate(model.cells):
        place = f"layers.{layer}"
        inner, _ = Recurrent(lambda _, cell=cell: cell, cell.input_size).eval()(norm(f"{place}.norm", stream))
        stream = stream + linear(f"{place}.output", inner)
        hidden = linear(f"{place}.feed_forward.expand", norm(f"{place}.feed_forward.norm", stream)).relu()
        stream = stream + linear(f"{place}.feed_forward.contract", hidden)
    return norm("norm", stream)


@every_cell
@torch.no_grad()
def test_the_equations_by_hand(cell: Any) -> None:
    model = made(cell)
    for parameter in model.block.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.1)
    torch.testing.assert_close(model(inputs())[0], by_hand(model, inputs()))


@torch.no_grad()
def test_the_equations_of_swiglu_by_hand() -> None:
    model = made(block="swiglu")
    for parameter in model.block.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.1)
    weights = {name.removeprefix("block."): tensor for name, tensor in model.named_parameters() if "block." in name}
    assert not any("bias" in name for name in weights)
    assert weights["layers.0.feed_forward.contract.weight"].shape == (N, 16)  # 8N/3 = 10⅔

    def norm(name: str, vectors: Tensor) -> Tensor:
        return vectors / (vectors.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weights[f"{name}.weight"]

    stream = inputs() @ weights["enter.weight"].T
    for layer, cell in enumerate(model.cells):
        place = f"layers.{layer}"
        inner, _ = Recurrent(lambda _, cell=cell: cell, cell.input_size).eval()(norm(f"{place}.norm", stream))
        stream = stream + inner @ weights[f"{place}.output.weight"].T
        place += ".feed_forward"
        gate, values = (norm(f"{place}.norm", stream) @ weights[f"{place}.expand.weight"].T).chunk(2, dim=-1)
        stream = stream + (gate * gate.sigmoid() * values) @ weights[f"{place}.contract.weight"].T
    torch.testing.assert_close(model(inputs())[0], norm("norm", stream))


@every_cell
@torch.no_grad()
def test_two_pieces_equal_one_whole(cell: Any) -> None:
    model = made(cell)
    whole, final = model(inputs())
    head, carried = model(inputs()[:2])
    tail, last = model(inputs()[2:], carried)
    torch.testing.assert_close((torch.cat([head, tail]), last), (whole, final))


@for_each("bidirectional", [False, True])
def test_lengths_and_starts(bidirectional: bool) -> None:
    model = made(bidirectional=bidirectional)
    lengths = torch.tensor([5, 2, 3])
    given = inputs().requires_grad_()
    outputs, final = model(given, lengths=lengths)
    assert outputs.shape == (T, B, model.output_size)
    for row, length in enumerate(lengths.tolist()):
        alone, last = model(given[:length, row : row + 1])
        torch.testing.assert_close(outputs[:length, row : row + 1], alone)
        assert outputs[length:, row].eq(0).all()
        for state, own in zip(final, last, strict=True):
            torch.testing.assert_close(state.hidden[row : row + 1], own.hidden)
    outputs.sum().backward()
    assert given.grad[2:, 1].eq(0).all()
    starts = torch.zeros(T, B, dtype=torch.bool)
    starts[3] = True
    packed = model(inputs(), starts=starts)[0]
    torch.testing.assert_close(packed, torch.cat([model(inputs()[:3])[0], model(inputs()[3:])[0]]))


def test_widths_and_options() -> None:
    assert made(bidirectional=True).output_size == 2 * N
    cells = [partial(GRUCell, hidden_size=size) for size in (4, 6, 3)]
    model = made(cells, num_layers=3)
    assert model(inputs())[0].shape == (T, B, 4)
    narrow = made(block_size=3, bidirectional=True)
    assert (narrow.output_size, narrow.cells[0].input_size, narrow.cells[0].hidden_size) == (3, 3, N)
    assert narrow(inputs())[0].shape == (T, B, 3)
    for options, fault in ({"block_size": 0}, "block_size=0: must be"), ({"block": None, "block_size": 3}, "no effect"):
        with pytest.raises(OptionError, match=fault):
            made(**options)
    same = Recurrent(CELLS["gru"], N, block="prenorm")
    assert not list(same.block.enter.parameters()), "no linear layer where none is needed"
    with pytest.raises(OptionError, match="block=postnorm: must be one of prenorm, swiglu"):
        made(block="postnorm")
    dropped = made(num_layers=1, dropout=0.5).train()
    assert not torch.equal(dropped(inputs())[0], dropped(inputs())[0])


def test_the_size_of_the_first_cell_draws_no_random_numbers() -> None:
    torch.manual_seed(3)
    plain = Recurrent(CELLS["gru"], N)
    torch.manual_seed(3)
    inside = Recurrent(CELLS["gru"], N, block="prenorm")
    for name, weight in plain.cells.state_dict().items():
        assert torch.equal(weight, inside.cells.state_dict()[name])
    again = {name: weight.clone() for name, weight in inside.block.state_dict().items()}
    inside.reset_parameters()
    drawn = inside.block.state_dict()
    assert any(not torch.equal(drawn[name], weight) for name, weight in again.items())


@for_each("model", ["gru", "dynamic_conv"])
def test_a_block_is_an_option_of_the_model(model: str) -> None:
    options = ("model.block=prenorm", "model.num_layers=2", "model.cell.hidden_size=8")
    task = build_task("task=copy", f"model={model}", *options)
    logits, _ = task.model(torch.randint(5, (2, 4)))
    assert logits.shape == (2, 4, 9)
    assert build_task("task=copy", f"model={model}", *options[1:]).model.recurrent.block is None
