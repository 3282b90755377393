"""Operations between the processes that train one model together; without others, each is the identity."""

from typing import Any

import torch
from torch import Tensor, distributed
from torch.utils._pytree import tree_map


def rows_of(batch: Any, rank: int, count: int) -> Any:
    """Return the rows of a batch, or of any structure with tensors that begin with its rows, that a process takes.

    As even as can be; where there are fewer rows than processes the last ones have none.
    """
    return tree_map(lambda leaf: leaf.tensor_split(count)[rank] if isinstance(leaf, Tensor) else leaf, batch)


def rank() -> int:
    """Return the number of this process among all of the job."""
    return distributed.get_rank() if _several() else 0


def count() -> int:
    """Return the number of processes of the job."""
    return distributed.get_world_size() if _several() else 1


def gather(value: Any) -> list[Any]:
    """Return what each process calls this with, in order; all processes have to call it."""
    if not _several():
        return [value]
    values = [None] * count()
    distributed.all_gather_object(values, value)
    return values


def any_of_all(decision: bool) -> bool:
    """Return whether one of the processes calls this with True; all processes have to call it."""
    if not _several():
        return decision
    vote = torch.tensor(float(decision), device="cuda" if distributed.get_backend() == "nccl" else "cpu")
    distributed.all_reduce(vote)
    return bool(vote)


def _several() -> bool:
    return distributed.is_available() and distributed.is_initialized()
