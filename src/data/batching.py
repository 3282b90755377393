"""Batches of rows held in memory: vectorized, seeded, and resumable at the next batch."""

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from src.checks import OptionError

BLOCK = 8  # training batches that are assembled at once: a call costs as much as a small batch
IGNORED = -100  # a target that no loss is taken on, as torch.nn.functional.cross_entropy has it


class Batch(NamedTuple):
    """One batch of token sequences, all (B, T): inputs and targets are integers.

    `targets` is `IGNORED` where no loss is taken; `answers` is True where a symbol counts for the accuracy.
    """

    inputs: Tensor
    targets: Tensor
    answers: Tensor


class Batches:
    """The rows in order, once; the last batch may be smaller."""

    def __init__(self, rows: Tensor, batch_size: int, assemble: Callable[[Tensor], Batch]) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.assemble = assemble

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for rows in self.rows.split(self.batch_size):
            yield self.assemble(rows)


class ShuffledBatches:
    """A stream of full batches, each pass over the rows in a new order; the order depends on the seed alone.

    The stream has a position that outlives its iterators: it goes on where it stopped, and where a saved one stood.
    What is left at the end of a pass, less than a batch, is left out of that pass. Batches are assembled some at a time
    and are views of what that gave.

    Args:
        rows: (n, …), n ≥ `batch_size`.
        batch_size: rows a batch.
        assemble: makes a batch from its rows, each row by itself: what it makes of several batches' rows is cut apart.
        seed: of the orders.
        length: number of batches in the stream.

    Raises:
        OptionError: fewer rows than a batch has.
    """

    def __init__(
        self, rows: Tensor, batch_size: int, assemble: Callable[[Tensor], Batch], *, seed: int, length: int
    ) -> None:
        if len(rows) < batch_size:
            raise OptionError(f"batch_size={batch_size}: must be at most the number of training examples, {len(rows)}")
        self.rows = rows
        self.batch_size = batch_size
        self.assemble = assemble
        self.seed = seed
        self.length = length
        self.position = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        batches_a_pass = len(self.rows) // self.batch_size
        current_pass, order = -1, torch.empty(0, dtype=torch.long)
        while self.position < self.length:
            this_pass, index = divmod(self.position, batches_a_pass)
            if this_pass != current_pass:
                generator = torch.Generator().manual_seed(mix_seed(self.seed, f"pass {this_pass}"))
                current_pass, order = this_pass, torch.randperm(len(self.rows), generator=generator)
            count = min(BLOCK, batches_a_pass - index, self.length - self.position)
            block = self.assemble(self.rows[order[index * self.batch_size : (index + count) * self.batch_size]])
            for parts in zip(*(tensor.split(self.batch_size) for tensor in block), strict=True):
                self.position += 1
                yield Batch(*parts)

    def state_dict(self) -> dict[str, int]:
        """Return the position: how many batches were served."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on at a saved position."""
        self.position = state["position"]


def mix_seed(seed: int, purpose: str) -> int:
    """Derive a seed for one purpose, so that streams drawn for different purposes are independent."""
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose}".encode()).digest()[:7], "big")
