"""The operator of the scan of channels; see `gyral.ops.channel_scan.naive`."""

from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from gyral.ops.channel_scan import naive
from gyral.ops.declaration import check_shape
from gyral.ops.native.kernels import Kernels, before_chunks, like
from gyral.ops.operator import Operator

CHUNK = 32  # steps between the states that are kept
TILE = 16  # channels of a tile; the kernel has the same number


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    _, batch, channels = check_shape("x", a.x, *a.x.shape[:2], "N")
    *_, size = check_shape("decay", a.decay, 2, channels, "P")
    check_shape("readout", a.readout, 2, channels, size)
    check_shape("h0", a.h0, batch, 2, channels, size)


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    steps, batch, channels = a.x.shape
    return {"steps": steps, "batch": batch, "channels": channels, "size": a.decay.shape[2], "chunk": CHUNK}


def pack(states: Tensor) -> Tensor:
    """Return (…, tiles, 2, P, 16) for (…, 2, N, P), with zeros for the channels beyond N."""
    channels = states.shape[-2]
    padded = F.pad(states.mT, (0, -channels % TILE)).unflatten(-1, (-1, TILE))  # (…, 2, P, tiles, 16)
    return padded.movedim(-2, -4).contiguous()


def unpack(packed: Tensor, like: Tensor) -> Tensor:
    """Return (…, 2, N, P) for the result of `pack`."""
    return packed.movedim(-4, -2).flatten(-2)[..., : like.shape[-2]].mT


def kept_states(a: Any) -> Tensor:
    """Return a tensor without values for the states before chunks, each (B, tiles, 2, P, 16)."""
    steps, batch, channels = a.x.shape
    return before_chunks(a.x, steps, CHUNK, batch, -(-channels // TILE), 2, a.decay.shape[2], TILE)


KERNELS = Kernels(
    Path(__file__).with_name("channel_scan.cpp"),
    sizes=sizes,
    results={"outputs": like("x"), "final": like("h0")},
    kept={"kept": kept_states},
    states={"h0": "final"},
    sums=("decay", "readout"),
    layouts=dict.fromkeys(("decay", "readout", "h0"), (pack, unpack)),
)
channel_scan = Operator(naive.channel_scan, {"cpu": KERNELS}, shapes=shapes)
