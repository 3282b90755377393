"""Batches: of rows held in memory or of examples of different lengths; seeded, and resumable at the next batch."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError

BLOCK = 8  # training batches that are assembled at once: a call costs as much as a small batch
POOL = 100  # training batches whose examples are sorted by length together
IGNORED = -100  # a target that no loss is taken on, as torch.nn.functional.cross_entropy has it


class Batch(NamedTuple):
    """One batch of token sequences, all (B, T): inputs and targets are integers.

    `targets` is `IGNORED` where no loss is taken; `answers` is True where a symbol counts for the accuracy.
    """

    inputs: Tensor
    targets: Tensor
    answers: Tensor


BatchType = TypeVar("BatchType", covariant=True)


class Indexed(Protocol[BatchType]):
    """Batches that have numbers, from 0."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> BatchType: ...


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


class Stream(ABC, Generic[BatchType]):
    """Training batches with a position that outlives its iterators: it goes on where it stopped, or a saved one stood.

    Args:
        length: number of batches.

    Attributes:
        position: how many were served.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.position = 0

    def __len__(self) -> int:
        return self.length

    @abstractmethod
    def __iter__(self) -> Iterator[BatchType]: ...

    def state_dict(self) -> dict[str, int]:
        """Return the position: how many batches were served."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on at a saved position."""
        self.position = state["position"]


class RepeatedBatches(Stream[BatchType]):
    """Batches in their order, pass after pass.

    Args:
        batches: of one pass, at least one.
        length: number of batches in the stream.
    """

    def __init__(self, batches: Indexed[BatchType], length: int) -> None:
        super().__init__(length)
        self.batches = batches

    def __iter__(self) -> Iterator[BatchType]:
        while self.position < self.length:
            self.position += 1
            yield self.batches[(self.position - 1) % len(self.batches)]


class ShuffledBatches(Stream[Batch]):
    """Full batches, each pass over the rows in a new order; the order depends on the seed alone.

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
        super().__init__(length)
        self.rows = rows
        self.batch_size = batch_size
        self.assemble = assemble
        self.seed = seed

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


class Examples(Protocol[BatchType]):
    """Examples of different lengths, numbered from 0."""

    @property
    def lengths(self) -> np.ndarray:
        """(n,) steps of each."""

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray) -> BatchType:
        """Return the examples of these numbers, (B,), as one batch."""


class SortedBatches(Generic[BatchType]):
    """Every example once, the shortest first, those of one length in their order; the last batch may be smaller.

    Attributes:
        order: (n,) numbers of the examples, in the order in which they are served.
    """

    def __init__(self, examples: Examples[BatchType], batch_size: int) -> None:
        self.examples = examples
        self.batch_size = check_integer("batch_size", batch_size)
        self.order = np.argsort(examples.lengths, kind="stable")

    def __len__(self) -> int:
        return -(-len(self.order) // self.batch_size)

    def __iter__(self) -> Iterator[BatchType]:
        for start in range(0, len(self.order), self.batch_size):
            yield self.examples.batch(self.order[start : start + self.batch_size])


class BucketedBatches(Stream[BatchType]):
    """Batches of similar length, each pass over the examples in a new order.

    A pass has every example once. It is shuffled, sorted by length in pools of `POOL` batches, cut into batches, of
    which one may be smaller, and these are shuffled. The order depends on the seed and the pass alone.

    Args:
        examples: at least one.
        batch_size: examples a batch.
        seed: of the orders.
        length: number of batches in the stream.

    Raises:
        OptionError: `batch_size` below 1.
    """

    def __init__(self, examples: Examples[BatchType], batch_size: int, *, seed: int, length: int) -> None:
        super().__init__(length)
        self.examples = examples
        self.batch_size = check_integer("batch_size", batch_size)
        self.seed = seed

    def __iter__(self) -> Iterator[BatchType]:
        batches_a_pass = -(-len(self.examples) // self.batch_size)
        current_pass, batches = -1, list[np.ndarray]()
        while self.position < self.length:
            this_pass, index = divmod(self.position, batches_a_pass)
            if this_pass != current_pass:
                current_pass, batches = this_pass, self._pass(this_pass)
            self.position += 1
            yield self.examples.batch(batches[index])

    def _pass(self, number: int) -> list[np.ndarray]:
        generator = torch.Generator().manual_seed(mix_seed(self.seed, f"pass {number}"))
        order = torch.randperm(len(self.examples), generator=generator).numpy()
        pool = POOL * self.batch_size
        pools = [order[start : start + pool] for start in range(0, len(order), pool)]
        by_length = [rows[np.argsort(self.examples.lengths[rows], kind="stable")] for rows in pools]
        batches = list(
            chain.from_iterable(
                (rows[start : start + self.batch_size] for start in range(0, len(rows), self.batch_size))
                for rows in by_length
            )
        )
        return [batches[index] for index in torch.randperm(len(batches), generator=generator)]


def mix_seed(seed: int, purpose: str) -> int:
    """Derive a seed for one purpose, so that streams drawn for different purposes are independent."""
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose}".encode()).digest()[:7], "big")
