"""`gyral.ops.short_convolution` against a window of each step; test_contract.py has what every operator keeps."""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.short_convolution import short_convolution
from tests.ops.contract import Contract, Named, each


def drawn(steps: int, batch: int, kernel: int, *parts: int, has_bias: bool) -> tuple[Named, Named]:
    channels = sum(parts)
    shapes = {
        "values": (steps, batch, channels),
        "weight": (channels, kernel),
        "history": (batch, kernel - 1, channels),
    }
    if has_bias:
        shapes["bias"] = (channels,)
    return {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}, {"sizes": parts}


def of_each_step(
    values: Tensor,
    weight: Tensor,
    history: Tensor,
    bias: Tensor | None = None,
    *,
    sizes: tuple[int, ...],
    lengths: Tensor | None,
    starts: Tensor | None,
) -> tuple[Tensor, ...]:
    outputs, inside = [], history
    for time, value in enumerate(values):
        if starts is not None:
            inside = inside.masked_fill(starts[time, :, None, None], 0.0)
        inside = torch.cat((inside, value.unsqueeze(1)), dim=1)
        output = F.silu(torch.einsum("bkc,ck->bc", inside, weight) + (0 if bias is None else bias))
        outputs.append(output if lengths is None else output.masked_fill((time >= lengths).unsqueeze(1), 0.0))
        inside = inside[:, 1:]
    return torch.stack(outputs).split(sizes, dim=2)


CONTRACT = Contract(
    run=short_convolution,
    draw=drawn,
    kinds=each(has_bias=[True, False]),
    # T, B, K and the sizes of the parts: a single number, fewer steps than a window, several blocks of 8 rows, sizes
    # around those of a vector, windows of other sizes than 4
    sizes=[(1, 1, 4, 1), (2, 9, 4, 16, 33), (20, 3, 4, 5, 16, 8), (17, 2, 2, 3, 40), (9, 17, 7, 19)],
    small=(12, 19, 4, 3, 18, 4),
    tiny=(3, 2, 3, 2, 1),
    states=["history"],
    truth=of_each_step,
)


def test_a_window_that_is_too_long_for_the_kernel() -> None:
    case = CONTRACT.case((5, 2, 40, 3), {"has_bias": False})
    given = case.tensors, case.options
    torch.testing.assert_close(short_convolution(**given[0], **given[1]), of_each_step(**given[0], **given[1]))
