"""Writes the last and the best checkpoint."""

import logging
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint

from gyral.core import collectives
from gyral.core.checks import check_integer
from gyral.core.errors import one_line
from gyral.core.files import link_or_copy, remove
from gyral.core.forms import FormError, check_number
from gyral.core.signals import Interrupted, stop
from gyral.ops.native import library
from gyral.runs.directory import BEST_CHECKPOINT, LAST_CHECKPOINT
from gyral.training import compat
from gyral.training.callbacks.finite_guard import NonFiniteError

log = logging.getLogger(__name__)


class Checkpoints(Checkpoint):
    """Writes last.ckpt, from which a run resumes bit-equal, and best.ckpt, chosen by the task's monitored metric.

    Both files are in the folder checkpoints/ of the run directory. The last checkpoint is written every `every` steps,
    at the end of training, and on Ctrl-C or SIGTERM, which stop the run after the current step (a second signal stops
    it at once). If a validation is due at the same step, the checkpoint is written after the validation, so that a
    resumed run neither repeats nor skips it. No checkpoint is written while a parameter is not finite. In a
    multi-process run the checkpoint has the random state of each process.

    What the end of a run changes is not in the checkpoint from which a longer run continues: the last checkpoint is
    written before the hooks of the end, in which callbacks may exchange weights; and if the run ends between two
    validations, the state before its last validation is kept as well, see `gyral.runs.before_end`.

    Args:
        every: number of steps between two checkpoints.

    A resumed run says that its last digits differ from those of an uninterrupted one if its kernels are compiled and
    those of the earlier start were not, or the other way round.

    Attributes:
        best_score: best value of the monitored metric, None before the first validation.
    """

    def __init__(self, every: int = 500) -> None:
        self.every = check_integer("every", every)
        self.best_score: float | None = None
        self._saved_step = 0
        self._random_states: list[dict[str, Any]] = []
        self._had_kernels: bool | None = None  # in the run that is resumed

    def state_dict(self) -> dict[str, Any]:
        numpy_state = np.random.get_state(legacy=False)
        assert isinstance(numpy_state, dict)
        numpy_state["state"]["key"] = numpy_state["state"]["key"].tolist()  # arrays do not load with weights_only
        return {
            "best_score": self.best_score,
            "has_kernels": not library.unavailable,
            "random": collectives.all_gather_object(
                {
                    "torch": torch.get_rng_state(),
                    "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
                    "numpy": numpy_state,
                    "python": random.getstate(),
                }
            ),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["best_score"] is not None:
            check_number("best_score", state["best_score"], math.inf)
        self.best_score = state["best_score"]
        self._random_states = state["random"]
        for own in self._random_states:  # generators of their own: those of the process continue until training starts
            with named_state("numpy"):
                np.random.RandomState().set_state(numpy_state(own))
            with named_state("python"):
                random.Random().setstate(python_state(own))
            with named_state("torch"):
                torch.Generator().set_state(own["torch"])
            with named_state("cuda"):
                for each in own["cuda"] if torch.cuda.is_available() else ():
                    torch.Generator("cuda").set_state(each)
        self._had_kernels = state.get("has_kernels")  # of an earlier version it is unknown

    def on_load_checkpoint(self, trainer: Trainer, task: LightningModule, checkpoint: dict[str, Any]) -> None:
        batches = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        if batches["is_last_batch"] and checkpoint["global_step"] < trainer.max_steps:  # the run is longer now
            compat.continue_epoch(checkpoint)

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        stop.deferrable = True
        states, self._random_states = self._random_states, []
        if collectives.rank() >= len(states):  # a new run, or a run that had fewer processes
            return
        state = states[collectives.rank()]
        torch.set_rng_state(state["torch"])
        if state["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda"])
        np.random.set_state(numpy_state(state))
        random.setstate(python_state(state))

    def on_train_batch_end(self, trainer: Trainer, task: LightningModule, outputs: Any, batch: Any, index: int) -> None:
        if self._had_kernels is not None:  # the first batch has needed all kernels
            if self._had_kernels is bool(library.unavailable):
                before, now = ("compiled kernels", "PyTorch alone")[:: 1 if self._had_kernels else -1]
                log.warning("The checkpoint is of %s and this process runs %s: last digits will differ", before, now)
            self._had_kernels = None
        if not ends_step(trainer, index):  # a checkpoint does not hold gradients accumulated for the next step
            return
        if not compat.validation_is_due(trainer):
            self._save_if_due(trainer)
        elif training_ends(trainer) and not compat.is_at_interval(trainer):
            self._save_before_end(trainer)

    def on_validation_end(self, trainer: Trainer, task: Any) -> None:
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        score = float(trainer.callback_metrics[task.monitor])
        sign = 1 if task.mode == "max" else -1
        if not math.isnan(score) and (self.best_score is None or sign * score > sign * self.best_score):
            self.best_score = score
            self._save(trainer, BEST_CHECKPOINT)
        self._save_if_due(trainer)

    def on_train_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:
        if trainer.global_step != self._saved_step:  # a callback has ended the training before a step
            self._save_last(trainer)

    def on_train_end(self, trainer: Trainer, task: LightningModule) -> None:
        stop.deferrable = False
        self._stop_if_asked()  # during the last validation or while the checkpoint was written

    def on_test_batch_end(self, *_: Any) -> None:
        self._stop_if_asked()  # only in the process that got it, a signal has stopped the test

    def _stop_if_asked(self) -> None:
        if collectives.any_process(stop.asked):
            raise Interrupted

    def _save_if_due(self, trainer: Trainer) -> None:
        # the signal may reach any of the processes; all of them stop after the same step
        is_stopping = collectives.any_process(stop.asked)
        if is_stopping or trainer.global_step % self.every == 0 or training_ends(trainer):
            self._save_last(trainer)
        if is_stopping:
            raise Interrupted

    def _save_last(self, trainer: Trainer) -> None:
        self._save(trainer, LAST_CHECKPOINT)
        self._saved_step = trainer.global_step

    def _save_before_end(self, trainer: Trainer) -> None:
        """Keep the last and the best checkpoint as they are before the validation with which the run ends."""
        from gyral.runs.before_end import folder_before_end  # now: most runs end with one of the interval

        directory = Path(trainer.default_root_dir)
        folder, best = folder_before_end(directory, trainer.global_step), directory / BEST_CHECKPOINT
        if collectives.rank() == 0:
            remove(folder)  # of an earlier start
            if self.best_score is not None and best.is_file():
                link_or_copy(best, folder / best.name)
        self._save(trainer, folder.relative_to(directory) / Path(LAST_CHECKPOINT).name)

    def _save(self, trainer: Trainer, name: str | Path) -> None:
        for parameter_name, parameter in trainer.lightning_module.named_parameters():
            if not parameter.isfinite().all():
                raise NonFiniteError(
                    f"parameter {parameter_name} is not finite after step {trainer.global_step};"
                    " the last good checkpoint is kept"
                )
        trainer.save_checkpoint(Path(trainer.default_root_dir) / name)


def numpy_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of NumPy's random generator in a checkpoint in the form that NumPy takes."""
    own = state["numpy"]
    check_integer("pos", own["state"]["pos"], 0, len(own["state"]["key"]))  # NumPy would read beyond the keys
    return {**own, "state": {**own["state"], "key": np.array(own["state"]["key"], dtype=np.uint32)}}


def python_state(state: dict[str, Any]) -> tuple[Any, ...]:
    """Return the state of Python's random generator in a checkpoint in the form that Python takes."""
    version, internal, gauss = state["python"]
    return version, tuple(internal), gauss


@contextmanager
def named_state(library: str) -> Iterator[None]:
    """Raise `FormError` with the name of a random generator for an error of its state, which may be of any type."""
    try:
        yield
    except Exception as error:
        raise FormError(f"the random state of {library} cannot be used ({one_line(error)})") from error


def training_ends(trainer: Trainer) -> bool:
    """Return whether the last optimizer step has been taken, or a callback has ended the training."""
    return trainer.should_stop or 0 <= trainer.max_steps <= trainer.global_step


def ends_step(trainer: Trainer, index: int) -> bool:
    """Return whether a batch, given by its index, is the last of those whose gradients a step uses."""
    return (index + 1) % trainer.accumulate_grad_batches == 0
