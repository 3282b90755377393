"""Collective operations between the processes of distributed training.

In a single process, each operation returns its input.
"""

from typing import Any

import torch
from torch import Tensor, distributed
from torch.utils._pytree import tree_map


def local_rows(batch: Any, rank: int, world_size: int) -> Any:
    """Return the rows of a global batch that one process trains on.

    The rows are split as evenly as possible. If there are fewer rows than processes, the last processes get none.

    Args:
        batch: a tensor, or any structure of tensors, whose first dimension is the rows.
        rank: number of the process, from 0.
        world_size: number of processes.
    """
    return tree_map(lambda leaf: leaf.tensor_split(world_size)[rank] if isinstance(leaf, Tensor) else leaf, batch)


def rank() -> int:
    """Return the number of this process among all processes, from 0."""
    return distributed.get_rank() if _is_distributed() else 0


def world_size() -> int:
    """Return the number of processes."""
    return distributed.get_world_size() if _is_distributed() else 1


def all_gather_object(value: Any) -> list[Any]:
    """Return the values of all processes, ordered by rank. Every process must call this function."""
    if not _is_distributed():
        return [value]
    values = [None] * world_size()
    distributed.all_gather_object(values, value)
    return values


def any_process(condition: bool) -> bool:
    """Return whether the condition is true in at least one process. Every process must call this function."""
    if not _is_distributed():
        return condition
    total = torch.tensor(float(condition), device="cuda" if distributed.get_backend() == "nccl" else "cpu")
    distributed.all_reduce(total)
    return bool(total)


def _is_distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized()
