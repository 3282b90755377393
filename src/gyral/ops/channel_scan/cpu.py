"""The kernels of `gyral.ops.channel_scan` for the CPU: channel_scan.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.native import library

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("channel_scan.cpp"))
prepare = KERNEL.prepare
CHUNK = 32  # steps between the states that are kept
TILE = 16  # channels of a tile; the kernel has the same number


def pack(states: Tensor) -> Tensor:
    """Return (…, tiles, 2, P, 16) for (…, 2, N, P), with zeros for the channels beyond N."""
    channels = states.shape[-2]
    padded = F.pad(states.mT, (0, -channels % TILE)).unflatten(-1, (-1, TILE))  # (…, 2, P, tiles, 16)
    return padded.movedim(-2, -4).contiguous()


def unpack(packed: Tensor, channels: int) -> Tensor:
    """Return (…, 2, N, P) for the result of `pack`."""
    return packed.movedim(-4, -2).flatten(-2)[..., :channels].mT.contiguous()


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs (T, B, N) and final state (B, 2, N, P); and packed states before some of the steps."""
    steps, batch, channels = a.x.shape
    tiles = -(-channels // TILE)
    kept = a.x.new_empty(-(-steps // CHUNK), batch, tiles, 2, a.decay.shape[2], TILE)
    return [torch.empty_like(a.x), torch.empty_like(a.h0)], [kept]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    outputs, final = results
    hidden = pack(a.h0)  # the kernel overwrites it
    _run(a, saved[0], backward=False, hidden=hidden, outputs=outputs)
    final.copy_(unpack(hidden, a.x.shape[2]))
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    channels = a.x.shape[2]
    grad_outputs, grad_final = gradients
    grad_hidden = pack(torch.zeros_like(a.h0) if grad_final is None else grad_final)
    grad_x = torch.zeros_like(a.x)
    # partial sums for each row: they do not depend on the number of threads
    sums = {"grad_decay": torch.zeros_like(grad_hidden), "grad_readout": torch.zeros_like(grad_hidden)}
    grad_outputs = torch.zeros_like(a.x) if grad_outputs is None else grad_outputs
    _run(a, saved[0], backward=True, grad_outputs=grad_outputs, grad_hidden=grad_hidden, grad_x=grad_x, **sums)
    decay, readout = (unpack(partial.sum(0), channels) for partial in sums.values())
    return {"x": grad_x, "decay": decay, "readout": readout, "h0": unpack(grad_hidden, channels)}


def _run(a: Any, kept: Tensor, *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    steps, batch, channels = a.x.shape
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch,
        channels=channels,
        size=a.decay.shape[2],
        chunk=CHUNK,
        x=a.x,
        decay=pack(a.decay),
        readout=pack(a.readout),
        lengths=a.lengths,
        starts=a.starts,
        kept=kept,
        **further,
    )
