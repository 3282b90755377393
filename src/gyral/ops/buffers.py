"""Large buffers used again by the next call: to fault in fresh pages costs up to a sixth of a step."""

import torch
from torch import Tensor

MAX_SPARES = 8
_spares: list[Tensor] = []


def take(size: int, like: Tensor) -> Tensor:
    """Return `size` numbers, uninitialized: a spare buffer where one fits, and those that do not are let go."""
    while _spares:
        spare = _spares.pop()
        if (spare.dtype, spare.device) == (like.dtype, like.device) and size <= spare.numel() <= 2 * size:
            return spare[:size]
    with torch.inference_mode(False):  # what is made in that mode may not be written to outside, later
        return torch.empty(size, dtype=like.dtype, device=like.device)


def give(buffer: Tensor) -> None:
    """Keep a buffer that nothing uses any more as a spare; torch does so itself on a GPU."""
    if buffer.device.type == "cpu" and len(_spares) < MAX_SPARES:
        _spares.append(buffer.flatten())
