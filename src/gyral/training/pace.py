"""Measures how long a run takes, on a few of its steps."""

import gc
import logging
import tempfile
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from omegaconf import DictConfig, open_dict
from pytorch_lightning import Callback, Trainer

from gyral.core.pace import Pace, count_validations
from gyral.runs.directory import resolve
from gyral.training import build
from gyral.training.callbacks.statistics import count_parameters

WARM_UP, STEPS, BATCHES = 1, 10, 3  # steps that are not measured, and most steps and batches of validation that are


class Stopwatch(Callback):
    """Measures steps and batches of validation, and ends training after the last one.

    Args:
        seconds: time after which no other step is measured; two are in any case.
    """

    def __init__(self, seconds: float) -> None:
        self.limit = seconds
        self.steps: list[float] = []
        self.batches: list[float] = []

    def on_train_start(self, trainer: Trainer, task: Any) -> None:
        self.begun = self.last = now(task)

    def on_train_batch_end(self, trainer: Trainer, task: Any, *_: Any) -> None:
        self.steps.append(self._lap(task))
        count = len(self.steps) - WARM_UP
        if count >= STEPS or (count >= 2 and self.last - self.begun >= self.limit):
            trainer.should_stop = True

    def on_validation_start(self, trainer: Trainer, task: Any) -> None:
        self.last = now(task)

    def on_validation_batch_end(self, trainer: Trainer, task: Any, *_: Any) -> None:
        self.batches.append(self._lap(task))

    def _lap(self, task: Any) -> float:
        """Return the seconds since the last call."""
        started, self.last = self.last, now(task)
        return self.last - started


def now(task: Any) -> float:
    """Return the time at which the device of a task has done its work."""
    if task.device.type == "cuda":
        torch.cuda.synchronize(task.device)
    return time.monotonic()


def measure_pace(config: DictConfig, seconds: float) -> Pace | None:
    """Return how long the parts of a run take, measured on a few steps in this process, without a run directory.

    The steps are those with which the run starts, without its callbacks, and a few batches of its validation follow.
    The test takes as long per batch as the validation.

    Args:
        config: the configuration of the run.
        seconds: time after which no other step is measured.

    Returns:
        None if the run uses several processes or has nothing to train.
    """
    config = resolve(config)
    trainer_options = config.trainer
    if trainer_options.get("num_nodes", 1) != 1 or trainer_options.get("strategy", "auto") != "auto":
        return None
    with open_dict(config):
        config.callbacks = None
        config.trainer.limit_val_batches = BATCHES
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)  # the job itself logs the same
    try:
        with tempfile.TemporaryDirectory() as folder, build.configured_process(config):
            started = time.monotonic()
            task = build.build_task(config)
            watch = Stopwatch(seconds)
            trainer = build.build_trainer(config, Path(folder), [watch])
            if trainer.world_size != 1 or not count_parameters(task):
                return None
            start = time.monotonic() - started
            trainer.fit(task, datamodule=task.data)
            batches = {split: len(task.data.loader(split)) for split in ("val", "test")}
    finally:
        logging.disable(disabled)
        gc.collect()  # a trainer and its callbacks refer to each other
    steps = watch.steps[WARM_UP:] or watch.steps
    evaluated = fmean(watch.batches[1:] or watch.batches)  # the first one draws the data
    total = int(config.trainer.max_steps)
    validations = count_validations(0, total, int(config.trainer.val_check_interval))
    seconds = start + total * median(steps) * trainer.accumulate_grad_batches
    seconds += evaluated * (validations * batches["val"] + batches["test"])
    return Pace(seconds, len(steps), spent=time.monotonic() - started)
