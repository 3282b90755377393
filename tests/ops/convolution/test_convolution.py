"""`gyral.ops.convolution` against the sum in numpy; test_contract.py has what every operator keeps."""

import numpy as np
import torch
from torch import Tensor

from gyral.ops import convolution
from tests.helpers.loops import for_each
from tests.ops.contract import FLAG, Contract, Named, choices


def drawn(
    steps: int,
    batch: int,
    channels: int,
    heads: int,
    kernel: int,
    *,
    dynamic: bool = False,
    centered: bool = False,
    masked: bool = False,
    softmax: bool = True,
) -> tuple[Named, Named]:
    """Return values, weights and history, and the options."""
    shape = (steps, batch, heads, kernel) if dynamic else (heads, kernel)
    tensors = {"values": torch.randn(steps, batch, channels).double(), "weights": torch.randn(shape).double()}
    if not centered:
        tensors["history"] = torch.randn(batch, kernel - 1, channels).double()
    mask = (torch.randn(shape) > 0).double() if dynamic and masked else None
    return tensors, {"back": kernel // 2 if centered else kernel - 1, "mask": mask, "softmax": softmax}


def in_numpy(
    values: Tensor,
    weights: Tensor,
    history: Tensor | None = None,
    *,
    back: int,
    mask: Tensor | None,
    softmax: bool,
    lengths: Tensor | None,
    starts: Tensor | None,
) -> np.ndarray:
    """Return the outputs: one product at a time."""
    steps, batch, channels = values.shape
    heads, kernel = weights.shape[-2:]
    own = weights.softmax(-1).numpy() if weights.dim() == 4 and softmax else weights.numpy()
    outputs = np.zeros_like(values)
    for row in range(batch):
        begin, end = -(kernel - 1), steps if lengths is None else int(lengths[row])
        for time in range(end):
            if starts is not None and starts[time, row]:
                begin = time
            for channel in range(channels):
                head = channel * heads // channels
                for place in range(kernel):
                    source = time - back + place
                    if not begin <= source < end or (source < 0 and history is None):
                        continue
                    weight = own[head, place] if own.ndim == 2 else own[time, row, head, place]
                    if mask is not None:
                        weight = weight * mask[time, row, head, place].item()
                    value = values[source, row, channel] if source >= 0 else history[row, source, channel].item()
                    outputs[time, row, channel] += weight * value
    return outputs


CONTRACT = Contract(
    run=convolution.convolution,
    draw=drawn,
    kinds=[{}, {"dynamic": True, "masked": True}, {"dynamic": True, "softmax": False}],
    sizes=[(6, 2, 5, heads, kernel) for heads in (1, 2, 5) for kernel in (2, 3, 5, 9)],  # T, B, N, H, K
    others=[((6, 2, 5, 2, 3), {"centered": True, "dynamic": dynamic}) for dynamic in (False, True)],
    random=choices(
        *(
            [1, 2, 5, 20, 130, 140],
            [1, 2, 9],
            [5, 8, 16, 20, 33],
            [1, 2, 5],
            [2, 3, 7, 8, 9, 31],
        ),  # a tile has 128 steps
        **dict.fromkeys(("dynamic", "centered", "masked", "softmax"), FLAG),
    ),
    few=24,
    small=(12, 19, 20, 5, 9),
    tiny=(4, 2, 4, 2, 3),
    states=["history"],
    truth=in_numpy,
    stride=3,
)


@for_each("dynamic", [False, True])
@for_each("kernel", [3, 9])
def test_values_outside_the_window_are_never_read(dynamic: bool, kernel: int) -> None:
    case = CONTRACT.case((12, 3, 20, 2, kernel), {"dynamic": dynamic}, False, False)
    (expected,) = case.values()
    case.tensors["values"][7:] = torch.nan
    torch.testing.assert_close(case.values()[0][:7], expected[:7], rtol=0, atol=0)
    case.options["lengths"] = torch.tensor([7, 3, 7])
    case.tensors["values"][3:, 1] = torch.nan
    found = case.results()
    assert all(found[name].isfinite().all() for name in ("result 0", "gradient of values"))
    assert found["result 0"][7:].eq(0).all()


@for_each("steps", [1, 3, 10])
@for_each("ragged", [False, True])
@for_each("resets", [False, True])
def test_the_window_holds_the_last_values(steps: int, ragged: bool, resets: bool) -> None:
    case = CONTRACT.case((steps, 5, 2, 1, 5), {}, ragged, resets)
    values, history = case.tensors["values"], case.tensors["history"]
    lengths, starts = case.options["lengths"], case.options["starts"]
    found = convolution.window(values, history, lengths, starts)
    for row in range(5):
        kept = list(history[row])
        for time in range(steps if lengths is None else int(lengths[row])):
            if starts is not None and starts[time, row]:
                kept = [torch.zeros(2).double() for _ in kept]
            kept = [*kept[1:], values[time, row]]
        torch.testing.assert_close(found[row], torch.stack(kept))
