"""`gyral.ops.gated_norm` against its equations; test_contract.py has what every operator keeps."""

from typing import Any

import pytest
import torch
from torch import Tensor

from gyral.core.errors import InputError
from gyral.ops.gated_norm import gated_norm
from tests.ops.contract import Contract, Named


def drawn(
    steps: int,
    batch: int,
    heads: int,
    value: int,
    *,
    together: int = 1,
    gains: int = 0,
    parts: str = "",
    **options: Any,
) -> tuple[Named, Named]:
    """Return the arguments: `gains` in multiples of the size that is normalized, and the parts "gate" and "skip"."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    size = together * value
    found = {
        "values": normal(steps, batch, heads, value),
        "gain": normal(gains * size) if gains else None,
        "gate": normal(steps, batch, heads * value) if "gate" in parts else None,
        "skip": normal(steps, batch, heads, value) if "skip" in parts else None,
        "weight": normal(heads) if "skip" in parts else None,
    }
    return found, {"size": size, **options}


def run(starts: Tensor | None = None, **given: Any) -> Tensor:
    """Run the operator, which has no state that a start could reset."""
    return gated_norm(**given)


def equations(
    values: Tensor,
    gain: Tensor | None = None,
    gate: Tensor | None = None,
    skip: Tensor | None = None,
    weight: Tensor | None = None,
    *,
    lengths: Tensor | None,
    starts: Tensor | None,
    size: int,
    activation: str = "silu",
    gate_first: bool = False,
) -> Tensor:
    steps, batch, heads, value = values.shape
    x = values if weight is None else values + weight[:, None] * skip
    x = x.reshape(steps, batch, heads * value)
    opened = 1.0 if gate is None else 1 / (1 + (-gate).exp()) * (gate if activation == "silu" else 1)
    x = x * opened if gate_first else x
    if gain is not None:
        groups = x.reshape(steps, batch, -1, size)
        norm = (groups.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        x = (groups / norm).reshape(x.shape) * gain.repeat(heads * value // len(gain))
    x = x if gate_first else x * opened
    if lengths is not None:
        x = x * (torch.arange(steps)[:, None, None] < lengths[:, None])
    return x


CONTRACT = Contract(
    run=run,
    draw=drawn,
    kinds=[
        {"gains": 1},
        {"gains": 1, "parts": "gate", "activation": "sigmoid"},
        {"gains": 2, "parts": "gate skip"},
        {"gains": 1, "together": 2, "parts": "gate skip", "gate_first": True},
        {"parts": "gate skip"},
    ],
    # T, B, H, V: a single number of a head, sizes around those of a vector
    sizes=[(1, 1, 2, 1), (3, 5, 4, 16), (9, 17, 2, 33), (2, 3, 4, 7)],
    small=(12, 19, 4, 3),
    tiny=(3, 2, 2, 2),
    truth=equations,
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 3}, "multiple of V"),
        ({"activation": "tanh"}, "activation"),
        ({"weight": torch.ones(2)}, "both be given"),
    ],
)
def test_wrong_arguments(options: Named, message: str) -> None:
    with pytest.raises((InputError, ValueError), match=message):
        gated_norm(torch.ones(2, 3, 2, 4), torch.ones(4), **{"size": 4, **options})
