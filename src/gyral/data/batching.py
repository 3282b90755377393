"""Batches of equally long rows and of examples of different lengths; seeded and resumable."""

import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError

BLOCK = 8  # training batches per call of `assemble`, whose overhead is as large as the cost of a small batch
POOL = 100  # training batches that are sorted by length together
IGNORED = -100  # target without loss, the default `ignore_index` of torch.nn.functional.cross_entropy


class Batch(NamedTuple):
    """A batch of B sequences of T steps, with a target per step or one per sequence.

    Attributes:
        inputs: tokens, integers (B, T), or (B, T, W) with up to W tokens per step, padded with 0; or real vectors
            (B, T, X).
        targets: classes, integers (B, T) or (B,), `IGNORED` where there is no target; or real vectors (B, T, Y) or
            (B, Y), NaN where there is no target; or classes at a few steps alone, integers (B, K), see `steps`.
        answers: True for targets that count in the accuracy, in the shape of the targets; None: all targets.
        lengths: (B,) integers in [1, T], number of steps of each sequence before its padding; None: T for all.
        write: (B, T) bool, True where a cell may write to its external memory; None: everywhere.
        categories: (B, C) bool, the categories that each row belongs to. The rows of the first category count in the
            metrics of the split; a test also reports the metrics of each other category. None: one category.
        steps: (B, K) integers in [0, T), the steps that `targets` belong to. A model predicts at these steps alone,
            which is faster if there are many classes. None: at every step, or once per sequence.
    """

    inputs: Tensor
    targets: Tensor
    answers: Tensor | None = None
    lengths: Tensor | None = None
    write: Tensor | None = None
    categories: Tensor | None = None
    steps: Tensor | None = None


BatchType = TypeVar("BatchType", covariant=True)


class Indexed(Protocol[BatchType]):
    """A sequence of batches."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> BatchType: ...


class Batches:
    """One pass over the rows in order; the last batch may be smaller."""

    def __init__(self, rows: Tensor, batch_size: int, assemble: Callable[[Tensor], Batch]) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.assemble = assemble

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for rows in self.rows.split(self.batch_size):
            yield self.assemble(rows)


class DrawnBatches(Generic[BatchType]):
    """A sequence of batches, each drawn when it is read. Batch i depends only on the seed, the name and i.

    Args:
        draw: draws a batch from a random generator and the index of the batch.
        seed: seed of all draws.
        name: name of the sequence, such as a split. Sequences with different names have independent random streams.
        length: number of batches.
    """

    def __init__(
        self, draw: Callable[[np.random.Generator, int], BatchType], *, seed: int, name: str, length: int
    ) -> None:
        self.draw = draw
        self.seed = seed
        self.name = name
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> BatchType:
        return self.draw(np.random.default_rng(mix_seed(self.seed, f"{self.name} {index}")), index)

    def __iter__(self) -> Iterator[BatchType]:
        return map(self.__getitem__, range(self.length))


class Stream(ABC, Generic[BatchType]):
    """Training batches with a position. A new iterator continues at the position, which can be saved and restored.

    Args:
        length: number of batches.

    Attributes:
        position: number of batches yielded so far.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.position = 0

    def __len__(self) -> int:
        return self.length

    @abstractmethod
    def __iter__(self) -> Iterator[BatchType]: ...

    def state_dict(self) -> dict[str, int]:
        """Return the position."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue at a saved position."""
        self.position = state["position"]


class PrefetchedBatches(Stream[BatchType]):
    """The batches of another stream, which a thread draws ahead.

    The position is that of the last batch that was yielded: a resumed run draws again what was drawn but not used.
    An exception in the thread is raised by the iterator. The thread ends with the iterator or when another one begins.

    Args:
        stream: the other stream. Its batches depend on nothing that changes during training.
        ahead: number of batches that are drawn ahead, ≥ 1.
    """

    def __init__(self, stream: Stream[BatchType], ahead: int) -> None:
        super().__init__(len(stream))
        self.stream = stream
        self.ahead = ahead
        self._drawing: tuple[Thread, SimpleQueue[bool]] | None = None

    def __iter__(self) -> Iterator[BatchType]:
        self._end_thread()  # of an iterator that was left open: both would draw from the same stream
        self.stream.load_state_dict(self.state_dict())
        requests: SimpleQueue[bool] = SimpleQueue()
        drawn: SimpleQueue[Any] = SimpleQueue()
        for _ in range(self.ahead):
            requests.put(True)
        # A daemon, so that the process can end while an iterator is left open.
        thread = Thread(target=_draw, args=(iter(self.stream), requests, drawn), name="prefetch", daemon=True)
        self._drawing = thread, requests
        thread.start()
        try:
            while self.position < self.length:
                batch = drawn.get()
                if isinstance(batch, BaseException):
                    raise batch
                requests.put(True)
                self.position += 1
                yield batch
        finally:
            if self._drawing is not None and self._drawing[0] is thread:
                self._end_thread()

    def _end_thread(self) -> None:
        if self._drawing is not None:
            thread, requests = self._drawing
            self._drawing = None
            requests.put(False)
            if not sys.is_finalizing():  # otherwise the thread has been suspended for ever
                thread.join()


def _draw(batches: Iterator[Any], requests: "SimpleQueue[bool]", drawn: "SimpleQueue[Any]") -> None:
    """Draw a batch for each request until one is False or an exception occurs, such as the end of the batches."""
    try:
        while requests.get():
            drawn.put(next(batches))
        drawn.put(RuntimeError("another iterator of these batches has begun"))
    except BaseException as error:
        drawn.put(error)


class RepeatedBatches(Stream[BatchType]):
    """Batches in a fixed order, repeated.

    Args:
        batches: batches of one pass, at least one.
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
    """Full batches, in a new random order in each pass over the rows. The order depends only on the seed.

    The remainder of a pass, which is less than a batch, is dropped in that pass. Several batches are assembled together
    and are views of the result.

    Args:
        rows: (n, …), n ≥ `batch_size`.
        batch_size: rows per batch.
        assemble: builds a batch from its rows. It must treat rows independently, because it is called with the rows of
            several batches and the result is split.
        seed: seed of the orders.
        length: number of batches in the stream.

    Raises:
        OptionError: there are fewer rows than `batch_size`.
    """

    def __init__(
        self, rows: Tensor, batch_size: int, assemble: Callable[[Tensor], Batch], *, seed: int, length: int
    ) -> None:
        if len(rows) < batch_size:
            reason = f"must be at most the number of training examples, {len(rows)}"
            raise OptionError("batch_size", batch_size, reason)
        super().__init__(length)
        self.rows = rows
        self.batch_size = batch_size
        self.assemble = assemble
        self.seed = seed

    def __iter__(self) -> Iterator[Batch]:
        batches_per_pass = len(self.rows) // self.batch_size
        current_pass, order = -1, torch.empty(0, dtype=torch.long)
        while self.position < self.length:
            this_pass, index = divmod(self.position, batches_per_pass)
            if this_pass != current_pass:
                generator = torch.Generator().manual_seed(mix_seed(self.seed, f"pass {this_pass}"))
                current_pass, order = this_pass, torch.randperm(len(self.rows), generator=generator)
            count = min(BLOCK, batches_per_pass - index, self.length - self.position)
            block = self.assemble(self.rows[order[index * self.batch_size : (index + count) * self.batch_size]])
            parts = [repeat(None) if field is None else field.split(self.batch_size) for field in block]
            for _, *fields in zip(range(count), *parts, strict=False):  # not strict: `repeat` has no end
                self.position += 1
                yield Batch(*fields)


class Examples(Protocol[BatchType]):
    """Examples of different lengths."""

    @property
    def lengths(self) -> np.ndarray:
        """(n,) number of steps of each example."""

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray) -> BatchType:
        """Return the examples with the given indices, (B,), as one batch."""


class SortedBatches(Generic[BatchType]):
    """One pass over all examples, sorted by length (stable); the last batch may be smaller.

    Args:
        examples: the examples.
        batch_size: examples per batch.
        longest_first: whether the first batch has the longest examples, rather than the shortest.

    Attributes:
        order: (n,) indices of the examples in the order of the pass.
    """

    def __init__(self, examples: Examples[BatchType], batch_size: int, *, longest_first: bool = False) -> None:
        self.examples = examples
        self.batch_size = check_integer("batch_size", batch_size)
        self.order = np.argsort(-examples.lengths if longest_first else examples.lengths, kind="stable")

    def __len__(self) -> int:
        return -(-len(self.order) // self.batch_size)

    def __iter__(self) -> Iterator[BatchType]:
        for start in range(0, len(self.order), self.batch_size):
            yield self.examples.batch(self.order[start : start + self.batch_size])


class BucketedBatches(Stream[BatchType]):
    """Batches of examples of similar length, in a new random order in each pass.

    A pass contains every example once. The examples are shuffled, sorted by length in pools of `POOL` batches, and
    split into batches; one batch may be smaller. Then the batches are shuffled. The order depends only on the seed
    and the number of the pass.

    Args:
        examples: at least one example.
        batch_size: examples per batch.
        seed: seed of the orders.
        length: number of batches in the stream.
        weights: (n,) weights with which the examples of a pass are drawn, with replacement, as those of
            `torch.utils.data.WeightedRandomSampler`. None: each example is drawn once.

    Raises:
        OptionError: `batch_size` is below 1.
    """

    def __init__(
        self,
        examples: Examples[BatchType],
        batch_size: int,
        *,
        seed: int,
        length: int,
        weights: np.ndarray | None = None,
    ) -> None:
        super().__init__(length)
        self.weights = None if weights is None else torch.from_numpy(np.cumsum(weights, dtype=np.float64))
        self.examples = examples
        self.batch_size = check_integer("batch_size", batch_size)
        self.seed = seed

    def __iter__(self) -> Iterator[BatchType]:
        batches_per_pass = -(-len(self.examples) // self.batch_size)
        current_pass, batches = -1, list[np.ndarray]()
        while self.position < self.length:
            this_pass, index = divmod(self.position, batches_per_pass)
            if this_pass != current_pass:
                current_pass, batches = this_pass, self._pass(this_pass)
            self.position += 1
            yield self.examples.batch(batches[index])

    def _pass(self, number: int) -> list[np.ndarray]:
        generator = torch.Generator().manual_seed(mix_seed(self.seed, f"pass {number}"))
        count = len(self.examples)
        if self.weights is None:
            order = torch.randperm(count, generator=generator).numpy()
        else:
            places = torch.rand(count, dtype=torch.float64, generator=generator) * self.weights[-1]
            order = torch.searchsorted(self.weights, places, right=True).clamp(max=count - 1).numpy()
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


def pad_rows(rows: Sequence[Sequence[int] | np.ndarray], padding: int = 0, dtype: type = np.int64) -> np.ndarray:
    """Return rows of different lengths as one array (n, longest), padded at the end."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), lengths.max()), padding, dtype=dtype)
    padded[np.arange(lengths.max()) < lengths[:, None]] = np.concatenate([np.asarray(row, dtype=dtype) for row in rows])
    return padded


def mix_seed(seed: int, purpose: str) -> int:
    """Derive the seed for one purpose, so that random streams for different purposes are independent."""
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose}".encode()).digest()[:7], "big")
