"""Layers of attention within a sequence: equations, reach, padding, and steps against whole sequences."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.core.errors import OptionError
from gyral.models.self_attention import AverageAttention, SelfAttention
from gyral.nn.recurrent import reorder
from tests.helpers.loops import for_each

X, N, H, T, B = 6, 8, 2, 7, 3
LENGTHS = torch.tensor([T, 4, 1])
LAYERS: dict[str, Any] = {
    "self-attention": lambda: SelfAttention(X, N, heads=H),
    "limited": lambda: SelfAttention(X, N, heads=H, kernel_size=3),
    "average": lambda: AverageAttention(X, N),
}
every_layer = for_each("name", LAYERS)


def made(name: str) -> Any:
    torch.manual_seed(0)
    return LAYERS[name]().double().eval()


def inputs() -> Tensor:
    return torch.randn(T, B, X, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@for_each("name", ["self-attention", "limited"])
@for_each("centered", [False, True])
@torch.no_grad()
def test_the_equations_of_self_attention_by_hand(name: str, centered: bool) -> None:
    layer = made(name)
    found = layer.centered(inputs(), LENGTHS) if centered else layer(inputs())[0]
    queries, keys, values = F.linear(inputs(), layer.project.weight, layer.project.bias).split(N, dim=2)
    for row in range(B):
        length = int(LENGTHS[row]) if centered else T
        for time in range(length):
            first = 0 if name == "self-attention" else time - (1 if centered else 2)
            last = length - 1 if name == "self-attention" else time + 1
            steps = range(max(0, first), min(last, length - 1) + 1 if centered else time + 1)
            for head in (slice(0, N // H), slice(N // H, N)):
                scores = torch.stack([queries[time, row, head] @ keys[step, row, head] for step in steps])
                weights = (scores / (N / H) ** 0.5).softmax(dim=0)
                expected = sum(w * values[step, row, head] for w, step in zip(weights, steps, strict=True))
                torch.testing.assert_close(found[time, row, head], expected)
        assert found[length:, row].eq(0).all()


@torch.no_grad()
def test_an_average_in_half_precision_counts_beyond_256() -> None:
    layer, steps = made("average").to(torch.bfloat16), torch.ones(600, 1, X, dtype=torch.bfloat16)
    outputs, state = layer(steps[:500])
    for step in steps[500:]:
        outputs, state = layer(step[None], state)
    assert state[0].total.unique().tolist() == state[0].number.unique().tolist() == [600]
    assert outputs.dtype == torch.bfloat16


def test_the_equations_of_average_attention_by_hand() -> None:
    layer = made("average")
    found, whole = layer(inputs())[0], layer.centered(inputs(), LENGTHS)

    def expected(time: int, row: int, average: Tensor) -> Tensor:
        g = layer.contract(F.relu(layer.expand(average)))
        x = inputs()[time, row]
        i, f = torch.sigmoid(layer.gates(torch.cat((x, g)))).split(X)
        return i * x + f * g

    for row in range(B):
        for time in range(T):
            average = inputs()[: time + 1, row].mean(dim=0)
            torch.testing.assert_close(found[time, row], expected(time, row, average))
        length = int(LENGTHS[row])
        average = inputs()[:length, row].mean(dim=0)
        torch.testing.assert_close(whole[0, row], expected(0, row, average))
        assert whole[length:, row].eq(0).all()


@every_layer
@torch.no_grad()
def test_steps_with_reordered_rows_equal_the_whole_sequence(name: str) -> None:
    layer = made(name)
    rows = torch.tensor([2, 0, 1])
    whole, _ = layer(inputs()[:, rows])
    state = layer.init_state(B)
    begun, state = layer(inputs()[:3], state)
    state = reorder(state, rows)
    outputs = [begun[:, rows]]
    for time in range(3, T):
        output, state = layer(inputs()[time : time + 1, rows], state)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs), whole)
    if name == "limited":
        assert state[0].keys.shape == (B, 2, N)


@every_layer
def test_every_parameter_has_a_finite_gradient(name: str) -> None:
    layer = made(name).train()
    (layer.centered(inputs(), LENGTHS).sum() + layer(inputs())[0].sum()).backward()
    for parameter_name, parameter in layer.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


@every_layer
@torch.no_grad()
def test_autocast_changes_little(name: str) -> None:
    layer = made(name).float()
    given = inputs().float()
    with torch.autocast("cpu", torch.bfloat16):
        found, state = layer(given[:3], layer.init_state(B))
        rest, _ = layer(given[3:], state)
        whole = layer.centered(given, LENGTHS)
    torch.testing.assert_close(torch.cat((found, rest)).float(), layer(given)[0], rtol=0.05, atol=0.05)
    torch.testing.assert_close(whole.float(), layer.centered(given, LENGTHS), rtol=0.05, atol=0.05)


def test_weights_are_dropped_in_training_alone() -> None:
    torch.manual_seed(0)
    layer = SelfAttention(X, N, weight_dropout=0.5).double()
    first, second = layer(inputs())[0], layer(inputs())[0]
    assert not torch.equal(first, second)
    layer.eval()
    assert torch.equal(layer(inputs())[0], layer(inputs())[0])


@for_each(
    "given",
    [
        ({"heads": 3}, "heads=3: must divide hidden_size, 8"),
        ({"kernel_size": 1}, "kernel_size=1: must be an integer ≥ 2"),
        ({"weight_dropout": 1.0}, "weight_dropout=1.0"),
    ],
)
def test_options_that_do_not_fit_are_refused(given: tuple[dict[str, Any], str]) -> None:
    options, message = given
    with pytest.raises(OptionError, match=message):
        SelfAttention(X, N, **options)
    with pytest.raises(OptionError, match="kernel_size=4: must be odd for a centered window"):
        SelfAttention(X, N, kernel_size=4).check_centered()
