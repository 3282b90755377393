"""The methods of a task that Lightning calls: steps, evaluation, logging, and the state that checkpoints hold."""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from pytorch_lightning import LightningModule
from torch import Tensor
from torch.utils._pytree import tree_map

from gyral.core.collectives import all_gather_object, local_rows, rank, world_size
from gyral.core.errors import UserError
from gyral.core.forms import FormError, check_number
from gyral.core.measures import Remark
from gyral.data.batching import Stream
from gyral.tasks.metrics import Metrics
from gyral.tasks.objective import Objective
from gyral.tasks.optimization import Optimization


class Steps(LightningModule):
    """The steps of training and evaluation of a task. `gyral.tasks.base.Task` derives from it and sets its attributes.

    Attributes:
        objective, metrics, monitor, baseline, remarks, lr, train_loss: as for `Task`.
        optimization: the optimizer and the learning-rate schedule.
        tested: the split that a test evaluates.
    """

    objective: Objective
    metrics: Metrics
    monitor: str
    baseline: float
    optimization: Optimization
    remarks: tuple[Remark, ...] = ()
    tested = "test"

    def __init__(self) -> None:
        super().__init__()
        self.train_loss: float | None = None
        self.lr: float | None = None
        self._losses: list[Tensor] = []
        self._heard: list[Any] = []  # the modules that hear of each step of the optimizer, as training starts
        self._weight = 1.0  # of this process's rows of the batch; the mean over all processes is 1

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_current_fx_name":  # Lightning sets it 44 times a step; `nn.Module` would look for parameters first
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def data_metrics(self, split: str = "test") -> dict[str, float]:
        """Return numbers that describe a split, such as the baseline; each evaluation logs them with its metrics."""
        return {"baseline": self.baseline_of(split)}

    def targets(self, batch: Any) -> Tensor:
        """Return the targets: classes (B, …), or real values (B, …, Y); see `gyral.data.batching.Batch`."""
        return batch.targets

    def loss(self, outputs: Tensor, batch: Any) -> Tensor:
        """Return the mean loss over all targets: the cross-entropy in nats, or the mean squared error."""
        return self.objective.loss(outputs, self.targets(batch))

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Turn off dropout and gradients within the context."""
        training = self.training
        try:
            with torch.no_grad():
                self.eval()
                yield
        finally:
            self.train(training)

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Return the rows of a batch that this process computes. Every process loads whole batches."""
        if world_size() == 1:
            return batch
        own = local_rows(batch, rank(), world_size())
        self.weigh(*(self.objective.count(self.targets(rows)) for rows in (own, batch)))
        return own

    def weigh(self, own_count: Tensor, count: Tensor) -> None:
        """Set the weight of this process's rows in the loss.

        With this weight, the mean of the gradients over processes is the gradient of the mean over all targets.

        Args:
            own_count, count: `Objective.count` of this process's targets and of those of the whole batch.
        """
        self._weight = world_size() * (own_count / count).item() if count else 0.0

    def on_train_epoch_start(self) -> None:
        self._heard = [module for module in self.modules() if hasattr(module, "after_optimizer_step")]
        stream: Any = self.trainer.train_dataloader
        if isinstance(stream, Stream) and stream.position >= len(stream):  # the trainer would run empty epochs for ever
            reason = f"the training stream has ended after {self.global_step} of {self.trainer.max_steps} steps"
            raise UserError(f"{reason}; set Trainer(accumulate_grad_batches=…), which must not change during training")

    def training_step(self, batch: Any, index: int) -> Tensor:
        outputs = self(batch)
        # A process whose rows have no targets skips the loss: others may have some.
        loss = self.loss(outputs, batch) if self._weight else 0 * outputs.sum()
        if self._weight != 1:
            loss = loss * self._weight
        self._losses.append(loss.detach())
        updates = (index + 1) % self.trainer.accumulate_grad_batches == 0
        interval = self.trainer.log_every_n_steps  # 0: a trainer that logs nothing
        if updates and interval and (self.global_step + 1) % interval == 0:
            # Not self.log: Lightning would convert the tensor to a number at every step, for the progress bar.
            self.train_loss = torch.tensor(self._unlogged_losses()).mean().item()
            self._losses.clear()
            self.log_row({"train/loss": self.train_loss, "train/baseline": self.baseline}, self.global_step)
        return loss

    def _unlogged_losses(self) -> list[float]:
        """Return the losses of the steps since the last logged one, as means over all processes."""
        losses = torch.stack(self._losses).tolist() if self._losses else []
        return [sum(of_step) / len(of_step) for of_step in zip(*all_gather_object(losses), strict=True)]

    def recent_loss(self) -> float | None:
        """Return the mean training loss of this process since the last logged one, or else that; None: no step yet."""
        return torch.stack(self._losses).mean().item() if self._losses else self.train_loss

    def log_row(self, metrics: dict[str, float], step: int) -> None:
        """Log metrics immediately.

        `self.log` would wait until the checkpoint of the same step is written. A run that is killed in between would
        lose the metrics.
        """
        for logger in self.trainer.loggers:
            logger.log_metrics(metrics=metrics, step=step)

    def on_validation_epoch_start(self) -> None:
        self.metrics.reset()

    def on_test_epoch_start(self) -> None:
        self.metrics.reset()

    def validation_step(self, batch: Any, index: int) -> None:
        self._evaluate(batch)

    def test_step(self, batch: Any, index: int) -> None:
        self._evaluate(batch)

    def _evaluate(self, batch: Any) -> None:
        if not len(self.targets(batch)):  # The batch has fewer rows than there are processes.
            return
        outputs = tree_map(_in_single_precision, self(batch))
        if self._weight:
            self.metrics.update(outputs, batch, self.loss(outputs, batch))

    def on_validation_epoch_end(self) -> None:
        values = {f"val/{name}": value for name, value in self.metrics.compute().items()}
        for name, value in values.items():
            self.log(name, value, prog_bar=name == self.monitor)
        self.log_dict({f"val/{name}": value for name, value in self.data_metrics("val").items()})
        self.step_validation(values[self.monitor])

    def step_validation(self, monitored: Tensor) -> None:
        """Update the learning-rate schedule after a validation; a task may update more.

        Args:
            monitored: value of the monitored metric in the validation that has ended.
        """
        self.optimization.step_plateau(monitored)

    def on_test_epoch_end(self) -> None:
        values = {f"test/{name}": value for name, value in self.test_results().items()}
        # This fills trainer.callback_metrics and, without loggers, the results of trainer.test. Loggers get the metrics
        # from `log_row`, because Lightning's step differs in a run that was trained before.
        self.log_dict(values, logger=False if self.trainer.loggers else None)
        self.log_row(values, self.global_step)

    def test_results(self) -> dict[str, float]:
        """Return the metrics of a test, including those of categories of rows, and `data_metrics` of `tested`."""
        categories = self.metrics.compute_categories()  # first: `compute` resets
        metrics = {**self.metrics.compute(), **categories}
        return {**{name: value.item() for name, value in metrics.items()}, **self.data_metrics(self.tested)}

    def configure_optimizers(self) -> Any:
        return self.optimization.configure(self, self.lr)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Take a step of the optimizer, then call `after_optimizer_step(steps, optimizer)` of modules that have it."""
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        for module in self._heard:
            module.after_optimizer_step(self.global_step + 1, optimizer)  # Lightning counts the step afterwards

    def substitutes(self) -> dict[str, float]:
        """Return the metrics of `remarks`, which are not zero if the data are other data than the configuration names.

        Which data these are depends on the files that the data folder has. Checkpoints contain the metrics, so that no
        checkpoint is evaluated or trained on generated data in place of published data, or the other way round.
        """
        metrics = self.data_metrics() if self.remarks else {}
        return {remark.name: float(metrics[remark.name]) for remark in self.remarks if remark.name in metrics}

    def symbols(self) -> Sequence[str]:
        """Return the symbols that the model reads and predicts as indices, in the order of the indices.

        Tasks whose data decide on the symbols override this method; in this base class, there are none.
        """
        return ()

    @cached_property
    def _digest_of_symbols(self) -> str:
        return hashlib.sha256(json.dumps(self.symbols()).encode()).hexdigest()

    def check_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check that the contents of a checkpoint other than weights belong to this task: its symbols are the same.

        Tasks whose `on_save_checkpoint` saves more of such contents extend this method.

        Raises:
            UserError: the contents belong to another task.
        """
        if checkpoint.get("symbols", self._digest_of_symbols) != self._digest_of_symbols:  # older versions saved none
            raise FormError(
                f"was trained with other symbols than the {len(self.symbols()):,} of the data here, or with the same "
                "in another order: use the data, and their sizes, that it was trained with"
            )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["substitutes"] = self.substitutes()
        checkpoint["symbols"] = self._digest_of_symbols
        checkpoint["losses_since_logged"] = self._unlogged_losses()
        self.optimization.save(checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        for loss in checkpoint["losses_since_logged"]:
            check_number("losses_since_logged", loss, math.inf)
        self._losses = [torch.tensor(loss, device=self.device) for loss in checkpoint["losses_since_logged"]]
        self.optimization.load(checkpoint)


def _in_single_precision(output: Any) -> Any:
    """Return an output in float32 if it is a tensor in half precision, in which losses have two or three digits."""
    is_half = isinstance(output, Tensor) and output.dtype in (torch.bfloat16, torch.float16)
    return output.float() if is_half else output
