"""Measures learning rate, gradient norm, speed, memory and sizes."""

import resource
import sys
import time
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.optim import Optimizer


class Statistics(Callback):
    """Logs each logged step's learning rate and gradient norm, speed and peak memory, and once the model's sizes.

    `train/learning_rate` is the learning rate of the step (of the optimizer's first parameter group), and
    `train/gradient_norm` the norm of the gradient of all parameters before clipping. Under gradient accumulation and in
    distributed training, it is the gradient with which the optimizer updates the parameters: accumulated, and averaged
    over processes.

    Speed is logged as seconds per step and tokens per second, or examples per second for a task without sequences. On a
    CPU, two shares of the time of a step are logged too: the share outside of forward pass, backward pass and update
    (data, logging, callbacks), and the share outside of the recurrence's forward and backward pass. On a GPU these
    measurements would need a synchronization.

    Attributes:
        seconds: median of the seconds per step over the logging intervals, None before the first one. The time of
            validations is not included.
    """

    def __init__(self) -> None:
        self._intervals: list[float] = []
        self._started = 0.0
        self._steps = 0
        self._amount = 0  # tokens, or examples of a task without sequences
        self._spent = {"step": 0.0, "recurrence": 0.0}
        self._since: dict[str, float] = {}
        self._hooks: list[Any] = []
        self._due = False

    @property
    def seconds(self) -> float | None:
        return float(np.median(self._intervals)) if self._intervals else None

    def on_train_start(self, trainer: Trainer, task: Any) -> None:
        sizes = {
            "parameters": count_parameters(task),
            "state_size": task.state_size(),
        }
        for logger in trainer.loggers:
            logger.log_hyperparams(sizes)
        if task.device.type == "cpu" and hasattr(task.model, "recurrent"):
            self._hooks = self._time_passes(task.model.recurrent)
        self._restart()

    def on_train_end(self, trainer: Trainer, task: LightningModule) -> None:
        for hook in self._hooks:
            hook.remove()

    def _time_passes(self, recurrent: nn.Module) -> list[Any]:
        """Measure the recurrence's forward pass, and its backward pass up to the end of the whole backward pass."""

        def before(module: nn.Module, _: Any) -> None:
            if "step" in self._since:  # other callbacks run the model between steps
                self._since["recurrence"] = time.perf_counter()

        def after(module: nn.Module, _: Any, result: Any) -> None:
            self._stop("recurrence")
            if module.training and result[0].requires_grad:
                result[0].register_hook(lambda _: before(module, None))

        return [recurrent.register_forward_pre_hook(before), recurrent.register_forward_hook(after)]

    def _stop(self, section: str) -> None:
        if section in self._since:
            self._spent[section] += time.perf_counter() - self._since.pop(section)

    def _restart(self) -> None:
        self._started, self._steps, self._amount = time.perf_counter(), 0, 0
        self._spent = dict.fromkeys(self._spent, 0.0)
        self._since.clear()

    def on_train_batch_start(self, trainer: Trainer, task: Any, batch: Any, index: int) -> None:
        self._amount += task.batch_size_in_units(batch) * trainer.world_size
        self._since["step"] = time.perf_counter()

    def on_after_backward(self, trainer: Trainer, task: LightningModule) -> None:
        self._stop("recurrence")

    def on_before_optimizer_step(self, trainer: Trainer, task: Any, optimizer: Optimizer) -> None:
        self._steps += 1
        self._due = (trainer.global_step + 1) % trainer.log_every_n_steps == 0
        if self._due:
            # Logged now, not with the speed: a run that is killed after the checkpoint of this step would lose it.
            norm = gradient_norm(trainer, optimizer).item()
            rate = float(optimizer.param_groups[0]["lr"])
            task.log_row({"train/learning_rate": rate, "train/gradient_norm": norm}, trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, task: Any, *_: Any) -> None:
        self._stop("step")
        if self._due:
            self._due = False
            elapsed = time.perf_counter() - self._started
            self._intervals.append(elapsed / self._steps)
            metrics = {
                "train/seconds_a_step": elapsed / self._steps,
                f"train/{task.unit}_a_second": self._amount / elapsed,
                "train/peak_memory_mb": peak_memory(),
            }
            if self._hooks:
                metrics |= {f"train/share_outside_{name}": 1 - spent / elapsed for name, spent in self._spent.items()}
            task.log_row(metrics, trainer.global_step - 1)
            self._restart()

    def on_validation_end(self, trainer: Trainer, task: LightningModule) -> None:
        self._restart()


def gradient_norm(trainer: Trainer, optimizer: Optimizer) -> Tensor:
    """Return the norm of the gradient of an optimizer's parameters, in a hook before the optimizer step."""
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients, foreach=None)
    scaler = getattr(trainer.precision_plugin, "scaler", None)  # of float16
    if scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
        norm = norm / scaler.get_scale()  # fused optimizers undo the scaling in their own step
    return norm


def count_parameters(module: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def peak_memory() -> float:
    """Return the peak memory of this process so far, or of the GPU if one is in use, in MB."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
