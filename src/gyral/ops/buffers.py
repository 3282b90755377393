"""A pool of large buffers that later calls reuse: page faults of new memory take up to a sixth of a training step."""

import torch
from torch import Tensor

MAX_BUFFERS = 8
_pool: list[Tensor] = []


def acquire(size: int, like: Tensor) -> Tensor:
    """Return an uninitialized buffer with `size` elements, on the device and in the dtype of `like`.

    Reuses a buffer of the pool that fits; buffers that do not fit are freed.
    """
    while _pool:
        buffer = _pool.pop()
        if (buffer.dtype, buffer.device) == (like.dtype, like.device) and size <= buffer.numel() <= 2 * size:
            return buffer[:size]
    with torch.inference_mode(False):  # an inference tensor could not be written to outside inference mode later
        return torch.empty(size, dtype=like.dtype, device=like.device)


def release(*unused: Tensor | None) -> None:
    """Return buffers to the pool; torch pools the memory of a GPU itself."""
    for buffer in unused:
        if buffer is not None and buffer.device.type == "cpu" and len(_pool) < MAX_BUFFERS:
            _pool.append(buffer.flatten())
