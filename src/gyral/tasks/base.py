"""What all tasks share: the data module over splits, the training step, metrics, optimizer and schedule."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import torch
from pytorch_lightning import LightningDataModule, LightningModule
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torchmetrics import MeanMetric, Metric
from torchmetrics.classification import MulticlassAccuracy

from gyral.core.checks import check_boolean, check_choice, check_integer
from gyral.core.collectives import count, gather, rank, rows_of
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED, Batch, Batches, RepeatedBatches, ShuffledBatches, Stream, mix_seed
from gyral.models.attention import ReadoutFactory
from gyral.models.sequence import SequenceModel

SPLITS = ("train", "val", "test")


class ModelFactory(Protocol):
    """Makes a model for the sizes that a task has, with the readout that it asks for, if any."""

    def __call__(
        self, *, vocabulary_size: int, output_size: int, readout: ReadoutFactory | None = None
    ) -> nn.Module: ...


class SplitData(LightningDataModule, ABC):
    """Data in three splits: a stream of batches for training, the others in order.

    Attributes:
        overfit: train on the first batch of the stream alone.
    """

    overfit = False

    @abstractmethod
    def loader(self, split: str) -> Iterable[Any]:
        """Return the batches of a split in order, once, for evaluation."""

    @abstractmethod
    def stream(self) -> Stream[Any]:
        """Return the training stream, `steps()` batches long."""

    def steps(self) -> int:
        """Number of batches that the trainer's steps take."""
        assert self.trainer is not None, "the training stream is as long as a trainer's max_steps"
        return self.trainer.max_steps * self.trainer.accumulate_grad_batches

    def train_dataloader(self) -> Stream[Any]:
        stream = self.stream()
        return RepeatedBatches([next(iter(stream))], self.steps()) if self.overfit else stream

    def val_dataloader(self) -> Iterable[Any]:
        return self.loader("val")

    def test_dataloader(self) -> Iterable[Any]:
        return self.loader("test")


class GeneratedData(SplitData):
    """Train, validation and test rows drawn once from a seed, kept in memory in compact form.

    Each split has a random stream of its own, derived from the seed and the split's name.

    Args:
        batch_size: sequences a batch.
        train_size, val_size, test_size: sequences in each split.
        data_seed: what the splits and the order of training batches are drawn from.

    Raises:
        OptionError: a size below 1, a seed below 0, another type, or batches larger than the training split.
    """

    def __init__(self, *, batch_size: int, train_size: int, val_size: int, test_size: int, data_seed: int) -> None:
        super().__init__()
        self.batch_size = check_integer("batch_size", batch_size)
        self.sizes = {
            "train": check_integer("train_size", train_size),
            "val": check_integer("val_size", val_size),
            "test": check_integer("test_size", test_size),
        }
        if train_size < batch_size:
            raise OptionError(f"batch_size={batch_size}: must be at most train_size, {train_size}")
        self.data_seed = check_integer("data_seed", data_seed, minimum=0)
        self._rows: dict[str, Tensor] = {}

    @abstractmethod
    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """Draw `size` examples as compact rows (size, …)."""

    @abstractmethod
    def assemble(self, rows: Tensor) -> Batch:
        """Make a batch from rows that `draw` gave."""

    def rows(self, split: str) -> Tensor:
        """Return the rows of a split, drawn on first use."""
        if split not in self._rows:
            generator = torch.Generator().manual_seed(mix_seed(self.data_seed, split))
            self._rows[split] = self.draw(self.sizes[split], generator)
        return self._rows[split]

    def loader(self, split: str) -> Batches:
        """Return the rows of a split in order, for evaluation."""
        return Batches(self.rows(check_choice("split", split, SPLITS)), self.batch_size, self.assemble)

    def stream(self) -> ShuffledBatches:
        """Return the training stream: each pass over the rows in a new order."""
        seed = mix_seed(self.data_seed, "order")
        return ShuffledBatches(self.rows("train"), self.batch_size, self.assemble, seed=seed, length=self.steps())


Data = TypeVar("Data", bound=SplitData)


class Metrics(nn.Module):
    """Loss over all targets and accuracy over the answers.

    Attributes:
        names: of what `compute` returns.
    """

    names: tuple[str, ...] = ("loss", "accuracy")

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.loss = MeanMetric()
        self.accuracy: Metric = MulticlassAccuracy(classes, average="micro", validate_args=False)

    def update(self, logits: Tensor, batch: Any, loss: Tensor) -> None:
        """Add one batch: its logits (B, T, classes) and its mean loss."""
        self.loss.update(loss, weight=(batch.targets != IGNORED).sum())
        self.accuracy.update(logits.argmax(dim=-1)[batch.answers], batch.targets[batch.answers])

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics of everything added since the last call, and start again."""
        metrics = {name: metric for name, metric in self.named_children() if isinstance(metric, Metric)}
        values = {name: metric.compute() for name, metric in metrics.items()}
        for metric in metrics.values():
            metric.reset()
        return values


class SequenceMetrics(Metrics):
    """Those of `Metrics` and the share of sequences whose answers are all right."""

    names = (*Metrics.names, "sequence_accuracy")

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.sequence_accuracy = MeanMetric()

    def update(self, logits: Tensor, batch: Batch, loss: Tensor) -> None:
        super().update(logits, batch, loss)
        right = logits.argmax(dim=-1) == batch.targets
        self.sequence_accuracy.update((right | ~batch.answers).all(dim=1).float())


class SequenceTask(LightningModule, ABC, Generic[Data]):
    """A task on token sequences with one class predicted at each step.

    Args:
        model: makes the model from the task's sizes.
        data: the task's data module.
        vocabulary_size, output_size: number of input tokens and of predicted classes.
        baseline: loss of the best predictor without memory, in nats.
        optimizer, scheduler: make an optimizer from parameters, a schedule (stepped every step; on a plateau: every
            validation) from the optimizer. None: `configure_optimizers` must not be called; no schedule.
        monitor, mode: the metric that decides which checkpoint is best, and "min" or "max".
        overfit: train on the first batch alone, whose loss a working model brings near zero in time.
        metrics: what is measured; `SequenceMetrics` if None.

    Attributes:
        causal: whether later inputs tell what is to be predicted, so that a model must not read ahead.
        model_type: what the model must be.
        train_loss: mean training loss over the last logging interval, None before the first.

    Raises:
        OptionError: an unknown monitor or mode.
    """

    causal = False
    model_type: type[nn.Module] = SequenceModel

    def __init__(
        self,
        model: ModelFactory,
        data: Data,
        *,
        vocabulary_size: int,
        output_size: int,
        baseline: float,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        scheduler: Callable[..., LRScheduler] | None = None,
        monitor: str = "val/loss",
        mode: str = "min",
        overfit: bool = False,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__()
        self.data = data
        self.data.overfit = check_boolean("overfit", overfit)
        self.baseline = baseline
        self.model: Any = model(vocabulary_size=vocabulary_size, output_size=output_size)
        self.metrics = SequenceMetrics(output_size) if metrics is None else metrics
        self.monitor = check_choice("monitor", monitor, [f"val/{name}" for name in self.metrics.names])
        self.mode = check_choice("mode", mode, ("min", "max"))
        self.train_loss: float | None = None
        self._make_optimizer = optimizer
        self._make_scheduler = scheduler
        self._plateau: ReduceLROnPlateau | None = None
        self._plateau_state: dict[str, Any] | None = None
        self._losses: list[Tensor] = []
        self._weight = 1.0  # of this process's rows of the batch: over all processes, 1 on average

    def __setattr__(self, name: str, value: Any) -> None:
        # Lightning notes here which hook runs, 40 times a step, and a module looks long at what it is given
        if name == "_current_fx_name":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def constants(self) -> dict[str, float]:
        """Return what is logged beside the metrics of each evaluation."""
        return {"baseline": self.baseline}

    @abstractmethod
    def render(self, batch: Any, predicted: Tensor, row: int = 0) -> str:
        """Draw one example as lines of text: input, target, prediction (`predicted` (B, T): classes)."""

    def generators(self) -> list[Callable[..., Iterator[str]]]:
        """Return what this task can have its model write, for `src.generate`: none unless a task says so.

        Each takes keyword arguments, which are options of conf/generate.yaml where null stands for the argument's
        default, and yields text for standard output. The options that are given decide between several.
        """
        return []

    def forward(self, batch: Any) -> Tensor:
        """Return the logits (B, T, classes)."""
        return self.model(batch.inputs)[0]

    def predict(self, batch: Any) -> Tensor:
        """Return the likeliest classes (B, T), for `render`."""
        return self(batch).argmax(dim=-1)

    def targets(self, batch: Any) -> Tensor:
        """Return what is to be predicted, (B, …) classes, `IGNORED` where there is nothing."""
        return batch.targets

    def tokens(self, batch: Any) -> int:
        """Return how many tokens of a batch are read, those that fill it up among them."""
        return batch.inputs.numel()

    def loss(self, logits: Tensor, batch: Any) -> Tensor:
        """Return the cross-entropy averaged over all positions that have a target, in nats."""
        return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED)

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Take this process's rows of a batch, of which every process has the whole."""
        if count() == 1:
            return batch
        own = rows_of(batch, rank(), count())
        # the mean over processes of their weighted losses, and so of their gradients, is the one over all targets
        here, everywhere = ((self.targets(rows) != IGNORED).sum() for rows in (own, batch))
        self._weight = count() * (here / everywhere).item()
        return own

    def training_step(self, batch: Any, index: int) -> Tensor:
        logits = self(batch)
        # where there are no targets their mean is not a number
        loss = self.loss(logits, batch) * self._weight if self._weight else 0 * logits.sum()
        self._losses.append(loss.detach())
        if (self.global_step + 1) % self.trainer.log_every_n_steps == 0:
            # not by self.log, which Lightning would turn into a number again at every step for the progress bar
            self.train_loss = torch.tensor(self._losses_of_all()).mean().item()
            self._losses.clear()
            self.log_row({"train/loss": self.train_loss, "train/baseline": self.baseline}, self.global_step)
        return loss

    def _losses_of_all(self) -> list[float]:
        """Return the losses of the steps since the last logged one, over all processes."""
        losses = torch.stack(self._losses).tolist() if self._losses else []
        return [sum(ofs) / len(ofs) for ofs in zip(*gather(losses), strict=True)]

    def log_row(self, metrics: dict[str, float], step: int) -> None:
        """Log metrics at once. `self.log` would wait until a checkpoint of the same step is written, and a run that is
        killed in between would lose them."""
        for logger in self.trainer.loggers:
            logger.log_metrics(metrics=metrics, step=step)

    def validation_step(self, batch: Any, index: int) -> None:
        self._evaluate(batch)

    def test_step(self, batch: Any, index: int) -> None:
        self._evaluate(batch)

    def _evaluate(self, batch: Any) -> None:
        if not len(self.targets(batch)):  # fewer rows than processes
            return
        logits = self(batch)
        if self._weight:
            self.metrics.update(logits, batch, self.loss(logits, batch))

    def on_validation_epoch_end(self) -> None:
        values = {f"val/{name}": value for name, value in self.metrics.compute().items()}
        for name, value in values.items():
            self.log(name, value, prog_bar=name == self.monitor)
        self.log_dict({f"val/{name}": value for name, value in self.constants().items()})
        # stepped here and not by Lightning, which would forget this step when a checkpoint of this moment is resumed
        if self._plateau is not None:
            self._plateau.step(values[self.monitor])

    def on_test_epoch_end(self) -> None:
        values = {f"test/{name}": value for name, value in self.test_results().items()}
        self.log_dict(values, logger=False)  # for trainer.callback_metrics
        self.log_row(values, self.global_step)

    def test_results(self) -> dict[str, float]:
        """Return what a test measured, and the constants."""
        return {**{name: value.item() for name, value in self.metrics.compute().items()}, **self.constants()}

    def check_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check that what a checkpoint says besides weights fits this task, as far as `on_save_checkpoint` keeps it.

        Raises:
            OptionError: it does not.
        """

    def configure_optimizers(self) -> Any:
        assert self._make_optimizer is not None, "the task was built without an optimizer"
        optimizer = self._make_optimizer(self.parameters())
        if self._make_scheduler is None:
            return optimizer
        scheduler = self._make_scheduler(optimizer)
        if isinstance(scheduler, ReduceLROnPlateau):
            self._plateau = scheduler
            if self._plateau_state is not None:
                self._plateau.load_state_dict(self._plateau_state)
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["losses_since_logged"] = self._losses_of_all()
        if self._plateau is not None:
            checkpoint["plateau"] = self._plateau.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._losses = [torch.tensor(loss, device=self.device) for loss in checkpoint["losses_since_logged"]]
        self._plateau_state = checkpoint.get("plateau")
