"""Light and dynamic convolutions: their window, weights and dropout, and what a window cannot remember."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.cells.convolution import ConvolutionCell
from gyral.cells.dynamic_conv import DynamicConvCell
from gyral.cells.light_conv import LightConvCell
from gyral.core.errors import OptionError
from gyral.models.sequence import SequenceModel
from gyral.nn.recurrent import Recurrent
from gyral.tasks.copy import CopyData
from tests.helpers.loops import for_each

CELLS = [LightConvCell, DynamicConvCell]
T, B, X, N, K, H = 9, 2, 3, 5, 3, 2

every_cell = pytest.mark.parametrize("cell_class", CELLS)


def made(cell_class: Any, **options: Any) -> ConvolutionCell:
    torch.manual_seed(0)
    return cell_class(X, N, **{"kernel_size": K, "heads": H, **options}).double().eval()


def inputs() -> Tensor:
    return torch.randn(T, B, X, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_hand(cell: ConvolutionCell, given: Tensor, ahead: int = 0) -> Tensor:
    """Return the outputs (T, B, N), one product at a time; the first head has one channel more."""
    gated = F.linear(given, cell.weight_ih, cell.bias)
    values = gated[..., :N] * torch.sigmoid(gated[..., N:])
    outputs = torch.zeros(T, B, N, dtype=torch.float64)
    for time in range(T):
        for channel, head in enumerate((0, 0, 0, 1, 1)):
            scores = cell.weight if isinstance(cell, LightConvCell) else values[time] @ cell.weight.T
            weights = scores.view(-1, H, K)[:, head]
            weights = weights.softmax(dim=-1) if cell.softmax else weights
            for place in range(K):
                source = time + ahead - (K - 1) + place
                if 0 <= source < T:
                    outputs[time, :, channel] += weights[:, place] * values[source, :, channel]
    return outputs


@every_cell
@for_each("softmax", [True, False])
@torch.no_grad()
def test_the_equations_by_hand(cell_class: Any, softmax: bool) -> None:
    cell = made(cell_class, softmax=softmax)
    torch.testing.assert_close(Recurrent(lambda _: cell, X)(inputs())[0], by_hand(cell, inputs()))
    torch.testing.assert_close(cell.centered(inputs()), by_hand(cell, inputs(), ahead=K // 2))


@every_cell
@torch.no_grad()
def test_an_output_depends_on_the_last_inputs_alone(cell_class: Any) -> None:
    cell = made(cell_class)
    for backend in ("reference", "fused"):
        model = Recurrent(lambda _: cell, X, backend=backend)
        before = model(inputs())[0]
        changed = inputs()
        changed[2] += 1.0
        differs = (model(changed)[0] != before).flatten(1).any(dim=1)
        assert differs.tolist() == [2 <= time < 2 + K for time in range(T)]


@every_cell
@torch.no_grad()
def test_a_centered_window_ends_with_the_sequence(cell_class: Any) -> None:
    cell = made(cell_class)
    lengths = torch.tensor([T, 4])
    found = cell.centered(inputs(), lengths)
    torch.testing.assert_close(found[:4, 1:], cell.centered(inputs()[:4, 1:]))
    assert found[4:, 1].eq(0).all()
    with pytest.raises(OptionError, match="kernel_size=4: must be odd for a centered window"):
        made(cell_class, kernel_size=4).centered(inputs())


@every_cell
def test_weights_are_dropped_after_the_softmax(cell_class: Any) -> None:
    torch.manual_seed(0)
    steps, kernel = 60, 4
    cell = cell_class(1, 1, kernel_size=kernel, heads=1, weight_dropout=0.5).double()
    with torch.no_grad():
        cell.weight_ih.zero_()
        cell.bias.copy_(torch.tensor([1.0, 50.0]))  # all values are 1
        cell.weight.zero_()  # all weights are 1 / K
    for backend in ("reference", "fused"):
        model = Recurrent(lambda _: cell, 1, backend=backend).train()
        outputs = torch.stack([model(torch.zeros(steps, 1, 1).double())[0][kernel:, 0, 0] for _ in range(20)])
        quarters = outputs * 2  # a sum of four weights that are 0 or 1 / 4, times 2
        torch.testing.assert_close(quarters, quarters.round())
        if cell_class is LightConvCell:
            assert (outputs == outputs[:, :1]).all(), "the same weights at all steps"
        else:
            assert outputs.mean().item() == pytest.approx(1, abs=0.08)
        torch.testing.assert_close(
            model.eval()(torch.zeros(6, 1, 1).double())[0][kernel:], torch.ones(2, 1, 1).double()
        )


@every_cell
def test_sizes_that_do_not_fit(cell_class: Any) -> None:
    with pytest.raises(OptionError, match="heads=6: must be at most hidden_size, 5"):
        made(cell_class, heads=6)
    with pytest.raises(OptionError, match="kernel_size=1"):
        made(cell_class, kernel_size=1)


@pytest.mark.slow
@every_cell
def test_copying_fails_beyond_the_window(cell_class: Any) -> None:
    # the answer is the input of five steps before: in a window of six steps, out of one of five
    def accuracy(kernel_size: int) -> float:
        torch.manual_seed(0)
        sizes = {"batch_size": 64, "train_size": 6400, "val_size": 200, "test_size": 8, "data_seed": 0}
        data = CopyData(delay=2, symbols=8, recalled=3, **sizes)
        model = SequenceModel(partial(cell_class, hidden_size=32, kernel_size=kernel_size), 10, 9)
        optimizer = torch.optim.Adam(model.parameters(), 0.02)
        rows = data.rows("train")
        for step in range(300):
            first = step % 100 * 64
            batch = data.assemble(rows[first : first + 64])
            loss = F.cross_entropy(model(batch.inputs)[0].flatten(0, 1), batch.targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        batch = data.assemble(data.rows("val"))
        with torch.no_grad():
            right = model(batch.inputs)[0].argmax(dim=-1) == batch.targets
        return right[batch.answers].double().mean().item()

    assert accuracy(kernel_size=6) > 0.99
    # two symbols of the three at most are in reach of some answers, never the one that is asked for
    assert accuracy(kernel_size=5) < 0.3
