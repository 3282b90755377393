"""What happens along training besides training: checkpoints, guarding against bad numbers, timing, examples."""

import logging
import math
import random
import resource
import sys
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint, TQDMProgressBar, WeightAveraging
from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves, tree_map_only

from gyral import runs
from gyral.cells.base import RecurrentCell
from gyral.core import collectives as processes
from gyral.core.checks import check_integer, check_real
from gyral.core.errors import OptionError
from gyral.core.signals import Interrupted, stop
from gyral.data.batching import Batch
from gyral.nn.recurrent import Recurrent
from gyral.sweeps import optuna as tune
from gyral.training.loggers import MetricsFile

log = logging.getLogger(__name__)


class NonFiniteError(ArithmeticError):
    """A loss or gradient became infinite or not a number."""


class Checkpoints(Checkpoint):
    """Keeps last.ckpt, from which a run continues bit by bit, and best.ckpt, by the task's monitored metric.

    The last checkpoint is written every `every` steps, at the end, and on Ctrl-C or SIGTERM, which stop the run after
    the step under way (a second one stops it at once). Where a validation is due at the same step it is written after
    it, so that a continued run repeats nothing and leaves nothing out. Nothing is written while a parameter is not
    finite. Both lie in the folder checkpoints/ of the run directory. Where several processes train together, the
    random state of each is kept.

    Args:
        every: steps between two checkpoints.
    """

    def __init__(self, every: int = 500) -> None:
        self.every = check_integer("every", every)
        self.best_score: float | None = None
        self._saved_step = 0
        self._random_states: list[dict[str, Any]] = []
        self._stopping = False

    def state_dict(self) -> dict[str, Any]:
        numpy_state = np.random.get_state(legacy=False)
        assert isinstance(numpy_state, dict)
        numpy_state["state"]["key"] = numpy_state["state"]["key"].tolist()  # arrays do not load with weights_only
        return {
            "best_score": self.best_score,
            "random": processes.gather(
                {
                    "torch": torch.get_rng_state(),
                    "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
                    "numpy": numpy_state,
                    "python": random.getstate(),
                }
            ),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best_score = state["best_score"]
        self._random_states = state["random"]

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        stop.deferrable = True
        states, self._random_states = self._random_states, []
        if processes.rank() >= len(states):  # a fresh start, or a process that was not there before
            return
        state = states[processes.rank()]
        torch.set_rng_state(state["torch"])
        if state["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda"])
        state["numpy"]["state"]["key"] = np.array(state["numpy"]["state"]["key"], dtype=np.uint32)
        np.random.set_state(state["numpy"])
        version, internal, gauss = state["python"]
        random.setstate((version, tuple(internal), gauss))

    def on_train_batch_end(self, trainer: Trainer, task: LightningModule, *_: Any) -> None:
        if not self._is_due(trainer):  # first, since the trainer is slow to tell whether there is a validation
            return
        interval = trainer.val_check_batch
        validation_due = trainer.enable_validation and interval is not None and trainer.global_step % interval == 0
        if not validation_due:
            self._save_if_due(trainer)

    def on_validation_end(self, trainer: Trainer, task: Any) -> None:
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        score = float(trainer.callback_metrics[task.monitor])
        sign = 1 if task.mode == "max" else -1
        if not math.isnan(score) and (self.best_score is None or sign * score > sign * self.best_score):
            self.best_score = score
            self._save(trainer, runs.BEST_CHECKPOINT)
        self._save_if_due(trainer)

    def _is_due(self, trainer: Trainer) -> bool:
        # any process may be asked; all stop after the same step
        self._stopping = processes.any_of_all(stop.asked)
        return self._stopping or trainer.global_step % self.every == 0

    def _save_if_due(self, trainer: Trainer) -> None:
        if self._is_due(trainer):
            self._save_last(trainer)
        if self._stopping:
            raise Interrupted

    def on_train_end(self, trainer: Trainer, task: LightningModule) -> None:
        stop.deferrable = False
        if trainer.global_step != self._saved_step:
            self._save_last(trainer)

    def _save_last(self, trainer: Trainer) -> None:
        self._save(trainer, runs.LAST_CHECKPOINT)
        self._saved_step = trainer.global_step

    def _save(self, trainer: Trainer, name: str) -> None:
        for parameter_name, parameter in trainer.lightning_module.named_parameters():
            if not parameter.isfinite().all():
                raise NonFiniteError(
                    f"parameter {parameter_name} is not finite after step {trainer.global_step};"
                    " the last good checkpoint is kept"
                )
        trainer.save_checkpoint(Path(trainer.default_root_dir) / name)


class FiniteGuard(Callback):
    """Stops the run before a step that a non-finite loss or gradient would spoil, and names what went first.

    The loss and the gradients' norm are looked at every `every` steps (1: every step, which makes a GPU wait).
    """

    def __init__(self, every: int = 1) -> None:
        self.every = check_integer("every", every)
        self._batch: Batch
        self._loss: Tensor

    def on_train_batch_start(self, trainer: Trainer, task: LightningModule, batch: Batch, index: int) -> None:
        self._batch = batch

    def on_before_backward(self, trainer: Trainer, task: LightningModule, loss: Tensor) -> None:
        self._loss = loss.detach()

    def on_before_optimizer_step(self, trainer: Trainer, task: LightningModule, optimizer: Optimizer) -> None:
        if trainer.global_step % self.every:
            return
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        norms = torch._foreach_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        # one tensor and one question to it, which is a third of the time that asking each takes
        if not torch.stack((self._loss.float(), *norms)).isfinite().all():
            first = first_non_finite(task, self._batch)
            raise NonFiniteError(
                f"step {trainer.global_step + 1}: the loss is {self._loss.item():g} and the largest gradient norm"
                f" {torch.stack(norms).max().item():g}; first to go: {first}"
            )


@torch.no_grad()
def first_non_finite(task: LightningModule, batch: Batch) -> str:
    """Return which tensor of a training step is the first that is not finite, in the order of computation."""
    for name, parameter in task.named_parameters():
        if not parameter.isfinite().all():
            return f"parameter {name}"

    found: list[str] = []

    def watch(name: str, module: nn.Module) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            if not found and isinstance(tensor, Tensor) and not tensor.isfinite().all():
                found.append(f"output of {name}")

        return module.register_forward_hook(hook)

    hooks = [watch(name, module) for name, module in task.named_modules() if name]
    try:
        logits = task(batch)
        loss = task.loss(logits, batch)
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        return found[0]
    if not loss.isfinite():
        return "the loss"
    # parameters are listed input to output; the backward pass reaches them the other way round
    for name, parameter in reversed(list(task.named_parameters())):
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            return f"gradient of {name}"
    return "nothing that a second forward pass shows (dropout or zoneout drew another mask)"


class Solved(Callback):
    """Ends the run at the first validation whose monitored metric is as good as `at`; it is tested and DONE as ever.

    Unlike Lightning's EarlyStopping it keeps in the checkpoint that the run has ended: one that is killed between its
    last step and its test is not trained further when it is continued.

    Args:
        at: the least value that will do, or with the task's mode "min" the greatest; None never ends a run.
    """

    def __init__(self, at: float | None = None) -> None:
        self.at = None if at is None else check_real("at", at)
        self.solved = False

    def state_dict(self) -> dict[str, Any]:
        return {"solved": self.solved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.solved = state["solved"]

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        trainer.should_stop = trainer.should_stop or self.solved

    def on_validation_end(self, trainer: Trainer, task: Any) -> None:
        if trainer.state.fn != "fit" or self.at is None:
            return
        score = float(trainer.callback_metrics[task.monitor])
        if score >= self.at if task.mode == "max" else score <= self.at:
            self.solved = trainer.should_stop = True
            log.info("Solved after step %d: %s is %.6g", trainer.global_step, task.monitor, score)


class EarlyStopping(Callback):
    """Ends the run once the task's monitored metric has not been better for a number of validations in a row.

    The best checkpoint is tested and the run is DONE as ever. Its state is in the checkpoint, that the run has ended,
    too, for the reason that `Solved` tells. A metric that is not a number is never better.

    Args:
        patience: validations; None never ends a run.
    """

    def __init__(self, patience: int | None = None) -> None:
        self.patience = None if patience is None else check_integer("patience", patience)
        self.best: float | None = None
        self.waited = 0  # validations since the best one
        self.stopped = False

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited, "stopped": self.stopped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best, self.waited, self.stopped = state["best"], state["waited"], state["stopped"]

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        trainer.should_stop = trainer.should_stop or self.stopped

    def on_validation_end(self, trainer: Trainer, task: Any) -> None:
        if trainer.state.fn != "fit" or self.patience is None:
            return
        score = float(trainer.callback_metrics[task.monitor])
        sign = 1 if task.mode == "max" else -1
        if not math.isnan(score) and (self.best is None or sign * score > sign * self.best):
            self.best, self.waited = score, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            self.stopped = trainer.should_stop = True
            told = "never was a number" if self.best is None else f"was {self.best:.6g} {self.waited} validations ago"
            log.info("Stopped early after step %d: at its best %s %s", trainer.global_step, task.monitor, told)


class Pruning(Callback):
    """Tells the search that a run is a trial of about each validation, and ends the run if it is not worth going on.

    It is tested and DONE as ever. A run that is no trial is left alone. That it was ended is in the checkpoint, for the
    reason that `Solved` tells.
    """

    def __init__(self) -> None:
        self.pruned = False
        self._reporter: tune.Reporter | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"pruned": self.pruned}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.pruned = state["pruned"]

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        trainer.should_stop = trainer.should_stop or self.pruned
        self._reporter = tune.reporter()  # only in the first of several processes

    def on_validation_end(self, trainer: Trainer, task: Any) -> None:
        if trainer.state.fn != "fit":
            return
        score = float(trainer.callback_metrics[task.monitor])
        worthless = self._reporter is not None and self._reporter.should_prune(trainer.global_step, score)
        if processes.any_of_all(worthless):
            self.pruned = trainer.should_stop = True
            log.info("Pruned after step %d: %s is %.6g", trainer.global_step, task.monitor, score)


class Statistics(Callback):
    """Logs speed and peak memory, and once the number of parameters and the size of the recurrent state.

    Speed is seconds a step and tokens a second; on a CPU also two shares of a step's time: what is spent outside of
    forward pass, backward pass and update (data, logging, callbacks), and outside of the recurrence's own two passes.
    A GPU would have to wait for such times to be taken.

    Attributes:
        seconds: median seconds a step over the logging intervals, None before the first; validation does not count.
    """

    def __init__(self) -> None:
        self._intervals: list[float] = []
        self._started = 0.0
        self._steps = 0
        self._tokens = 0
        self._spent = {"step": 0.0, "recurrence": 0.0}
        self._since: dict[str, float] = {}
        self._hooks: list[Any] = []

    @property
    def seconds(self) -> float | None:
        return float(np.median(self._intervals)) if self._intervals else None

    def on_train_start(self, trainer: Trainer, task: Any) -> None:
        sizes = {
            "parameters": count_parameters(task),
            "state_size": task.model.state_size(),
        }
        for logger in trainer.loggers:
            logger.log_hyperparams(sizes)
        if task.device.type == "cpu" and hasattr(task.model, "recurrent"):
            self._hooks = self._watch(task.model.recurrent)
        self._restart()

    def on_train_end(self, trainer: Trainer, task: LightningModule) -> None:
        for hook in self._hooks:
            hook.remove()

    def _watch(self, recurrent: nn.Module) -> list[Any]:
        """Take the time of the recurrence's forward pass, and of its backward pass up to that of the whole model."""

        def before(module: nn.Module, _: Any) -> None:
            self._since["recurrence"] = time.perf_counter()

        def after(module: nn.Module, _: Any, result: Any) -> None:
            self._stop("recurrence")
            if module.training and result[0].requires_grad:
                result[0].register_hook(lambda _: before(module, None))

        return [recurrent.register_forward_pre_hook(before), recurrent.register_forward_hook(after)]

    def _stop(self, what: str) -> None:
        if what in self._since:
            self._spent[what] += time.perf_counter() - self._since.pop(what)

    def _restart(self) -> None:
        self._started, self._steps, self._tokens = time.perf_counter(), 0, 0
        self._spent = dict.fromkeys(self._spent, 0.0)
        self._since.clear()

    def on_train_batch_start(self, trainer: Trainer, task: Any, batch: Any, index: int) -> None:
        self._tokens += task.tokens(batch) * trainer.world_size
        self._since["step"] = time.perf_counter()

    def on_after_backward(self, trainer: Trainer, task: LightningModule) -> None:
        self._stop("recurrence")

    def on_train_batch_end(self, trainer: Trainer, task: Any, *_: Any) -> None:
        self._stop("step")
        self._steps += 1
        if trainer.global_step % trainer.log_every_n_steps == 0:
            elapsed = time.perf_counter() - self._started
            self._intervals.append(elapsed / self._steps)
            figures = {
                "train/seconds_a_step": elapsed / self._steps,
                "train/tokens_a_second": self._tokens / elapsed,
                "train/peak_memory_mb": peak_memory(),
            }
            if self._hooks:
                shares = {f"train/share_outside_{what}": 1 - spent / elapsed for what, spent in self._spent.items()}
                figures.update(shares)
            task.log_row(figures, trainer.global_step - 1)
            self._restart()

    def on_validation_end(self, trainer: Trainer, task: LightningModule) -> None:
        self._restart()


def summarize(trainer: Trainer) -> dict[str, float | None]:
    """Return the figures of a training that ended: the monitored metric at its best, size, speed, memory, steps."""
    task = trainer.lightning_module
    found = {type(callback): callback for callback in trainer.callbacks}
    last = trainer.callback_metrics.get(task.monitor)
    return {
        "monitor": found[Checkpoints].best_score if Checkpoints in found else last and last.item(),
        "parameters": count_parameters(task),
        "state_size": task.model.state_size(),
        "seconds_a_step": found[Statistics].seconds if Statistics in found else None,
        "peak_memory_mb": peak_memory(),
        "steps": trainer.global_step,
    }


def count_parameters(module: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def peak_memory() -> float:
    """Return the peak memory of the process so far, or of the GPU if one is in use, in MB."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


class Averaging(WeightAveraging):
    """Evaluates, and keeps in checkpoints, the mean of the weights of all steps since a start, by torch's swa_utils.

    The start is a step (ASGD), or the first validation whose monitored metric is worse than the best of those that lie
    more than `patience` validations back (NT-ASGD, Merity et al., ICLR 2018). Training goes on with its own weights,
    which the checkpoint has, too. Give the optimizer sgd a constant learning rate for what the papers do.

    Args:
        start: optimizer steps taken before the first that counts, None for the other rule.
        patience: validations.
    """

    def __init__(self, start: int | None = None, patience: int = 5) -> None:
        super().__init__()
        self.start = None if start is None else check_integer("start", start, minimum=0)
        self.patience = check_integer("patience", patience)
        self._scores: list[float] = []
        self._triggered = False

    @property
    def averages(self) -> int:
        """Number of steps whose weights the mean is of, 0 before the start."""
        return 0 if self._average_model is None else int(self._average_model.n_averaged)

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        return step_idx is not None and (self._triggered if self.start is None else step_idx >= self.start)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "scores": self._scores, "triggered": self._triggered}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._scores, self._triggered = state["scores"], state["triggered"]

    def on_validation_epoch_start(self, trainer: Trainer, task: LightningModule) -> None:
        if self.averages:
            super().on_validation_epoch_start(trainer, task)

    def on_validation_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:
        if self.averages:
            super().on_validation_epoch_end(trainer, task)

    def on_validation_end(self, trainer: Trainer, task: Any) -> None:
        if trainer.state.fn != "fit" or self.start is not None or self._triggered:
            return
        score = float(trainer.callback_metrics[task.monitor]) * (-1 if task.mode == "max" else 1)
        earlier = self._scores[: -self.patience]
        self._scores.append(score)
        if earlier and score > min(earlier):
            self._triggered = True
            log.info("Averaging the weights from step %d on", trainer.global_step)

    def on_train_end(self, trainer: Trainer, task: LightningModule) -> None:
        if self.averages:
            super().on_train_end(trainer, task)

    def on_save_checkpoint(self, trainer: Trainer, task: LightningModule, checkpoint: dict[str, Any]) -> None:
        if not self.averages and self._average_model is not None:
            self._average_model.module.load_state_dict(task.state_dict())
        super().on_save_checkpoint(trainer, task, checkpoint)


class AfterValidation(Callback, ABC):
    """Does something with the first batch of each validation in training, once that is over."""

    def __init__(self) -> None:
        self._batch: Any = None

    @abstractmethod
    def look(self, trainer: Trainer, task: Any, batch: Any) -> None:
        """Look at the model and a batch."""

    def on_validation_batch_start(
        self, trainer: Trainer, task: LightningModule, batch: Any, index: int, dataloader_idx: int = 0
    ) -> None:
        if index == 0:
            self._batch = batch

    def on_validation_end(self, trainer: Trainer, task: LightningModule) -> None:
        if trainer.state.fn == "fit" and self._batch is not None:
            self.look(trainer, task, self._batch)


class Examples(AfterValidation):
    """After each validation, appends one rendered example to examples.txt and logs it as text where loggers can."""

    @torch.no_grad()
    def look(self, trainer: Trainer, task: Any, batch: Any) -> None:
        drawn = task.render(batch, task.predict(batch))
        with (Path(trainer.default_root_dir) / runs.EXAMPLES).open("a") as file:
            file.write(f"step {trainer.global_step}\n{drawn}\n\n")
        for logger in trainer.loggers:
            if hasattr(logger, "log_text"):  # Weights & Biases
                logger.log_text("example", columns=["step", "example"], data=[[trainer.global_step, drawn]])
            elif hasattr(logger.experiment, "add_text"):  # TensorBoard
                logger.experiment.add_text("example", f"<pre>{drawn}</pre>", trainer.global_step)


class ProgressBar(TQDMProgressBar):
    """Lightning's bar for training alone: evaluations of a second need none of their own.

    It is drawn by the clock: drawing takes a millisecond, and a step a few milliseconds or some seconds.

    Args:
        seconds: least time between two drawings, ≥ 0.
        refresh_rate: least number of steps between two drawings, ≥ 1.
    """

    def __init__(self, seconds: float = 0.5, refresh_rate: int = 1) -> None:
        super().__init__(refresh_rate=check_integer("refresh_rate", refresh_rate))
        self.seconds = check_real("seconds", seconds, minimum=0)
        self._drawn = -math.inf

    def on_train_batch_end(self, trainer: Trainer, task: LightningModule, outputs: Any, batch: Any, index: int) -> None:
        now = time.monotonic()
        if now - self._drawn >= self.seconds or index + 1 == self.total_train_batches:
            self._drawn = now
            super().on_train_batch_end(trainer, task, outputs, batch, index)

    def init_validation_tqdm(self) -> Tqdm:
        return Tqdm(disable=True)

    def init_test_tqdm(self) -> Tqdm:
        return Tqdm(disable=True)

    def on_train_start(self, *_: Any) -> None:
        super().on_train_start()
        self._begin()

    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        super().on_train_epoch_start(trainer)
        self._begin()

    def _begin(self) -> None:
        """Say what the bar counts, also where a run is continued and Lightning starts no epoch."""
        self.train_progress_bar.total = self.total_train_batches
        self.train_progress_bar.set_description("training")

    def get_metrics(self, trainer: Trainer, task: Any) -> dict[str, Any]:
        metrics = super().get_metrics(trainer, task)
        metrics.pop("v_num", None)  # a version of the logger, which says nothing about the run
        return metrics if task.train_loss is None else {"train/loss": task.train_loss, **metrics}


class Positions(Callback):
    """After each validation, appends to positions.csv the mean loss, in nats, at each position of a window.

    A row is a validation: `step`, the index of the last optimizer step taken, from 0, then the positions from 0. A
    state that is carried along makes them equal; one that starts afresh shows at the first. A run that is continued
    goes on with the file as metrics.csv does.

    Raises (when training starts):
        OptionError: the task has no windows.
    """

    FILE = "positions.csv"

    def __init__(self) -> None:
        self._file: MetricsFile

    def on_train_start(self, trainer: Trainer, task: Any) -> None:
        if not hasattr(task.metrics, "position_loss"):
            raise OptionError(f"callbacks.positions: {type(task).__name__} has no windows, TextTask has")
        self._file = MetricsFile(Path(trainer.default_root_dir) / self.FILE, trainer.global_step)

    def on_validation_epoch_end(self, trainer: Trainer, task: Any) -> None:  # comes before the task's own
        if trainer.state.fn == "fit":
            losses = task.metrics.position_loss.compute().tolist()
            self._file.log_metrics({str(place): loss for place, loss in enumerate(losses)}, trainer.global_step - 1)


class Cosines(AfterValidation):
    """After each validation, appends to cosines.csv how cos θ_t is spread when its first batch is run once more.

    A row is a validation: `step`, the index of the last optimizer step taken, from 0, then for each of `BINS` equal
    bins on [−1, 1], named by its centre, its share of all sequences' time steps, of all cells that have
    `record_cosines`. A run that is continued goes on with the file as metrics.csv does.

    Raises (when training starts, and by a backend that records nothing, at the first validation):
        OptionError: no cell of the model records cosines.
    """

    FILE = "cosines.csv"
    BINS = 50

    def __init__(self) -> None:
        super().__init__()
        self._cells: list[Any] = []
        self._file: MetricsFile

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        self._cells = [module for module in task.modules() if hasattr(module, "record_cosines")]
        if not self._cells:
            names = {type(module).__name__ for module in task.modules() if isinstance(module, RecurrentCell)}
            raise OptionError(f"callbacks.cosines: {', '.join(sorted(names))} records no cosines, RUMCell does")
        self._file = MetricsFile(Path(trainer.default_root_dir) / self.FILE, trainer.global_step)

    @torch.no_grad()
    def look(self, trainer: Trainer, task: Any, batch: Any) -> None:
        with ExitStack() as stack:
            recorded = [stack.enter_context(cell.record_cosines()) for cell in self._cells]
            task(batch)
        steps = [cosines for cell in recorded for cosines in cell]
        if not steps:  # the replay of a CUDA graph runs no Python
            raise OptionError("callbacks.cosines: model.backend=graph records none; allowed: reference, fused, compile")
        # clamped because rounding takes some beyond ±1, where histc would leave them out
        counts = torch.cat(steps).float().cpu().clamp(-1, 1).histc(self.BINS, -1, 1).double()
        centres = (2 * bin / self.BINS - 1 + 1 / self.BINS for bin in range(self.BINS))
        shares = zip(centres, (counts / counts.sum()).tolist(), strict=True)
        self._file.log_metrics({f"{centre:.3g}": share for centre, share in shares}, trainer.global_step - 1)


class Norms(AfterValidation):
    """Logs the norms of figure 6 of Dangovski et al. (TACL 2019), of any model.

    With each logged step: `train/gradient_norm`, of the loss's gradient before clipping, and `train/hidden_norm`, the
    mean over the batch of that of the last hidden vector, over all layers and directions that read the input.

    After each validation a row of step_gradients.csv: `step`, the index of the last optimizer step taken, from 0, then
    `<cell>/<t>`, the norm of the gradient of the loss of its first batch with respect to all hidden vectors (B, N) of
    step t, counted from 0 as the cell takes them: a cell that reads backwards begins at the end. The batch is run once
    more for it, step by step, whatever the backend. A run that is continued goes on with the file as metrics.csv does.

    Raises (when training starts):
        OptionError: a cell whose state has no vector.
    """

    FILE = "step_gradients.csv"

    def __init__(self) -> None:
        super().__init__()
        self._cells: dict[str, RecurrentCell] = {}
        self._hidden: list[Tensor] = []
        self._figures: dict[str, float] = {}
        self._hooks: list[Any] = []
        self._file: MetricsFile

    def on_train_start(self, trainer: Trainer, task: Any) -> None:
        cells = {name: module for name, module in task.model.named_modules() if isinstance(module, RecurrentCell)}
        # not those within another
        self._cells = {name: cells[name] for name in cells if not any(name.startswith(f"{cell}.") for cell in cells)}
        for name, cell in self._cells.items():
            if not any(leaf.dim() == 2 for leaf in tree_leaves(cell.init_state(1))):
                raise OptionError(f"callbacks.norms: the state of {type(cell).__name__} ({name}) has no vector")
        recurrents = [module for module in task.model.modules() if isinstance(module, Recurrent)]
        self._hooks = [module.register_forward_hook(self._keep) for module in recurrents]
        self._file = MetricsFile(Path(trainer.default_root_dir) / self.FILE, trainer.global_step)

    def on_train_end(self, trainer: Trainer, task: Any) -> None:
        for hook in self._hooks:
            hook.remove()

    def _keep(self, module: nn.Module, _: Any, result: tuple[Tensor, Any]) -> None:
        if module.training:
            self._hidden = [hidden_of(state).detach() for state in result[1]]

    def on_before_optimizer_step(self, trainer: Trainer, task: Any, optimizer: Optimizer) -> None:
        if (trainer.global_step + 1) % trainer.log_every_n_steps:
            return
        gradients = [parameter.grad for parameter in task.parameters() if parameter.grad is not None]
        self._figures = {
            "train/gradient_norm": torch.stack(torch._foreach_norm(gradients)).norm().item(),
            "train/hidden_norm": torch.stack([hidden.float().norm(dim=1).mean() for hidden in self._hidden])
            .mean()
            .item(),
        }

    def on_train_batch_end(self, trainer: Trainer, task: Any, *_: Any) -> None:
        if self._figures:
            task.log_row(self._figures, trainer.global_step - 1)
            self._figures = {}

    def look(self, trainer: Trainer, task: Any, batch: Any) -> None:
        # what was made in inference mode cannot be differentiated
        with torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:
            batch = tree_map_only(Tensor, torch.clone, batch)
            recorded = {name: stack.enter_context(cell.record_states()) for name, cell in self._cells.items()}
            loss = task.loss(task(batch), batch)
            hidden = {
                f"{name}/{step}": hidden_of(state)
                for name, states in recorded.items()
                for step, state in enumerate(states)
            }
            # of a state that nothing reads, the gradient is None
            gradients = torch.autograd.grad(loss, list(hidden.values()), allow_unused=True)
        norms = (0.0 if gradient is None else gradient.norm().item() for gradient in gradients)
        self._file.log_metrics(dict(zip(hidden, norms, strict=True)), trainer.global_step - 1)


def hidden_of(state: Any) -> Tensor:
    """Return the first of a state's vectors (B, N), its hidden one.

    Raises:
        StopIteration: it has none.
    """
    return next(leaf for leaf in tree_leaves(state) if leaf.dim() == 2)
