"""Lightning data modules with three splits."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
import torch
from pytorch_lightning import LightningDataModule
from torch import Tensor

from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError, UserError
from gyral.core.measures import SPLITS
from gyral.core.options import NonNegativeInt, Options, PositiveInt
from gyral.data.batching import (
    Batch,
    Batches,
    BucketedBatches,
    DrawnBatches,
    Examples,
    PrefetchedBatches,
    RepeatedBatches,
    ShuffledBatches,
    SortedBatches,
    Stream,
    mix_seed,
)

SMALLEST_EVALUATION = 32  # rows of a batch in evaluation, unless told otherwise: fewer only take longer


class SplitData(Options, LightningDataModule, ABC):
    """Data in three splits: a stream of batches for training, and one pass in order over the others.

    The annotated attributes of a class are its options, see `gyral.core.options.Options`.

    Attributes:
        overfit: whether training repeats the first batch of the stream.
        prefetch: number of training batches that a thread draws ahead; 0: none, without a thread.
        follows_training: whether training changes the batches of the stream, such as the level of a curriculum, so that
            they cannot be drawn ahead.
        counted: what `split_size` counts.
        small: the options of a tiny example, for debug=small and for tests. A class names its own, written out; those
            of its first base class are added.
    """

    overfit = False
    prefetch = 0
    follows_training = False
    counted = "examples"
    small: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    def loader(self, split: str) -> Iterable[Any]:
        """Return one pass over the batches of a split, in order, for evaluation."""

    @abstractmethod
    def stream(self) -> Stream[Any]:
        """Return the training stream, which has `steps()` batches."""

    def split_size(self, split: str) -> int | None:
        """Return the number of examples of a split, None if they are drawn anew or their number is not known."""
        return None

    def steps(self) -> int:
        """Return the number of batches that the trainer's steps use."""
        assert self.trainer is not None, "the length of the training stream is the trainer's max_steps"
        if self.trainer.max_steps < 0:
            raise UserError("Trainer(max_steps=-1): must be set; training reads one stream of batches without epochs")
        return self.trainer.max_steps * self.trainer.accumulate_grad_batches

    def train_dataloader(self) -> Stream[Any]:
        stream = self.stream()
        if self.overfit:
            return RepeatedBatches([next(iter(stream))], self.steps())
        return PrefetchedBatches(stream, self.prefetch) if self.prefetch else stream

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        if device.type == "cpu":  # where batches are made
            return batch
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    def val_dataloader(self) -> Iterable[Any]:
        return self.loader("val")

    def test_dataloader(self) -> Iterable[Any]:
        return self.loader("test")

    def predict_dataloader(self) -> Iterable[Any]:
        return self.loader("test")


class ExampleData(SplitData):
    """Examples of different lengths: training batches of similar lengths, one pass over the other splits.

    Args:
        batch_size, eval_batch_size: examples per batch, in training and in evaluation.
        data_seed: seed of the order of the training batches.

    Raises:
        OptionError: a batch size is below 1, the seed is below 0, or one has the wrong type.
    """

    batch_size: PositiveInt = 32
    eval_batch_size: PositiveInt = 32
    data_seed: NonNegativeInt = 0

    longest_first = False  # whether evaluation starts with the longest examples

    weights: np.ndarray | None = field(init=False, default=None)  # see `gyral.data.batching.BucketedBatches`

    @abstractmethod
    def examples(self, split: str) -> Examples[Any]:
        """Return the examples of a split."""

    def split_size(self, split: str) -> int:
        return len(self.examples(split))

    def loader(self, split: str) -> SortedBatches[Any]:
        """Return the examples of a split, sorted by length, for evaluation."""
        examples = self.examples(check_choice("split", split, SPLITS))
        return SortedBatches(examples, self.eval_batch_size, longest_first=self.longest_first)

    def stream(self) -> BucketedBatches[Any]:
        """Return the training stream, which reads the examples in a new order in each pass."""
        seed = mix_seed(self.data_seed, "order")
        examples = self.examples("train")
        return BucketedBatches(examples, self.batch_size, seed=seed, length=self.steps(), weights=self.weights)


class RowData(SplitData):
    """Rows of equal shape, kept in memory in compact form; batches are assembled when they are read.

    Args:
        batch_size: sequences per batch.
        data_seed: seed of the order of the training batches.
        eval_batch_size: sequences per batch in evaluation, on which the metrics do not depend. None: `batch_size`, but
            at least `SMALLEST_EVALUATION`.

    Raises:
        OptionError: a batch size is below 1, the seed is below 0, or one has the wrong type.
    """

    counted = "sequences"
    small: ClassVar = {"batch_size": 8}

    batch_size: PositiveInt = 64
    eval_batch_size: PositiveInt | None = None
    data_seed: NonNegativeInt = 0

    @abstractmethod
    def rows(self, split: str) -> Tensor:
        """Return the compact rows (n, …) of a split."""

    @abstractmethod
    def assemble(self, rows: Tensor) -> Batch:
        """Make a batch from compact rows."""

    def split_size(self, split: str) -> int:
        return len(self.rows(split))

    def loader(self, split: str) -> Batches:
        """Return the rows of a split in order, for evaluation."""
        size = size_of_evaluation(self.batch_size, self.eval_batch_size)
        return Batches(self.rows(check_choice("split", split, SPLITS)), size, self.assemble)

    def stream(self) -> ShuffledBatches:
        """Return the training stream, which reads the rows in a new order in each pass."""
        seed = mix_seed(self.data_seed, "order")
        return ShuffledBatches(self.rows("train"), self.batch_size, self.assemble, seed=seed, length=self.steps())


class GeneratedData(RowData):
    """Training, validation and test rows that are drawn once from a seed and kept in memory in compact form.

    Each split has its own random stream, derived from the seed and the name of the split.

    Args:
        batch_size, eval_batch_size: see `RowData`.
        train_size, val_size, test_size: sequences in each split.
        data_seed: seed of the splits and of the order of the training batches.

    Raises:
        OptionError: a size is below 1, the seed is below 0, an option has the wrong type, or a batch is larger than
            the training split.
    """

    small: ClassVar = {"train_size": 76, "val_size": 20, "test_size": 12}

    train_size: PositiveInt = 10_000
    val_size: PositiveInt = 500
    test_size: PositiveInt = 500

    def check(self) -> None:
        if self.train_size < self.batch_size:
            raise OptionError("batch_size", self.batch_size, f"must be at most train_size, {self.train_size}")

    def __post_init__(self) -> None:
        self.sizes = {"train": self.train_size, "val": self.val_size, "test": self.test_size}
        self._rows: dict[str, Tensor] = {}

    def split_size(self, split: str) -> int:
        return self.sizes[split]

    @abstractmethod
    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """Draw `size` examples as compact rows (size, …)."""

    def rows(self, split: str) -> Tensor:
        """Return the rows of a split; the first call draws them."""
        if split not in self._rows:
            generator = torch.Generator().manual_seed(mix_seed(self.data_seed, split))
            self._rows[split] = self.draw(self.sizes[split], generator)
        return self._rows[split]


class DrawnData(SplitData):
    """Batches that are drawn from a seed when they are read, so that training never repeats an example.

    Args:
        batch_size: sequences per batch.
        val_batches: batches of a validation; each validation uses the same batches.
        test_batches: batches of each test.
        data_seed: seed of all draws.
        eval_batch_size: sequences per batch of a validation or test, which are others for another size. None:
            `batch_size`.

    Attributes:
        tests: number of tests. The first test has the distribution of the validation.

    Raises:
        OptionError: a number is below 1, the seed is below 0, or an option has the wrong type.
    """

    tests = 1
    counted = "sequences"
    small: ClassVar = {"batch_size": 8, "val_batches": 3, "test_batches": 2}

    batch_size: PositiveInt = 64
    eval_batch_size: PositiveInt | None = None
    val_batches: PositiveInt = 20
    test_batches: PositiveInt = 20
    data_seed: NonNegativeInt = 0

    @abstractmethod
    def draw(self, generator: np.random.Generator, split: str, test: int) -> Batch:
        """Draw a batch of `size_of(split)` sequences.

        Args:
            generator: source of all random numbers.
            split: name of the split.
            test: number of the test, from 0; 0 in the other splits.
        """

    def size_of(self, split: str) -> int:
        """Return the number of sequences in a batch of a split."""
        return self.batch_size if split == "train" or self.eval_batch_size is None else self.eval_batch_size

    def split_size(self, split: str) -> int | None:
        return None if split == "train" else self.size_of(split) * len(self.loader(split))

    def loader(self, split: str) -> DrawnBatches[Batch]:
        """Return the batches of a split; for the training split, its first `val_batches` batches."""
        is_test = check_choice("split", split, SPLITS) == "test"
        return self._batches(split, self.tests * self.test_batches if is_test else self.val_batches)

    def stream(self) -> RepeatedBatches[Batch]:
        """Return the training stream, which repeats no batch."""
        return RepeatedBatches(self._batches("train", self.steps()), self.steps())

    def _batches(self, split: str, length: int) -> DrawnBatches[Batch]:
        def draw(generator: np.random.Generator, index: int) -> Batch:
            return self.draw(generator, split, index // self.test_batches if split == "test" else 0)

        return DrawnBatches(draw, seed=self.data_seed, name=split, length=length)


def size_of_evaluation(batch_size: int, eval_batch_size: int | None) -> int:
    """Return the number of rows of a batch in evaluation; None: that of training, but at least `SMALLEST_EVALUATION`.

    Raises:
        OptionError: it is not an integer ≥ 1.
    """
    size = max(batch_size, SMALLEST_EVALUATION) if eval_batch_size is None else eval_batch_size
    return check_integer("eval_batch_size", size)
