"""Patches and private functions of Lightning and Hydra, and suppressed warnings, with reasons and upstream issues.

What is private in torch itself is in `gyral.core.compat`, which the library can import. Private methods are overridden
where their class is subclassed: `DDPStrategy._configure_launcher` in ddp/strategy.py (Lightning's launcher repeats the
command line, which in a sweep runs the whole sweep: Lightning #2727, #18175), and
`EarlyStopping._evaluate_stopping_criteria` in callbacks/early_stopping.py. One private function is imported elsewhere:
Hydra's parser of flags in config/words.py, which this package is above. wandb_run.py ends the process of W&B, for
which there is no public way either. Some are for speed alone: `NoProfiler` and `skip_empty_hooks`, 0.1 ms of each step,
measured together with other changes, and `skip_compiler`, two seconds of each command. All is tested with the versions
in constraints.txt.
"""

import logging
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.overrides.distributed import _sync_module_states
from pytorch_lightning.profilers import PassThroughProfiler
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torchmetrics.utilities.prints import rank_zero_only as torchmetrics_rank_zero_only

STEP_HOOKS = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
)

# callbacks of Lightning that would change nothing in a run or end it, by the names of their classes
UNSUITABLE = {
    "BackboneFinetuning": "a task here has no part named backbone",
    "BatchSizeFinder": "the batch size is an option of the task, which the configuration of the run has to name",
    "GradientAccumulationScheduler": "a run is one epoch; set trainer.accumulate_grad_batches",
    "ModelPruning": "it prunes weights at the ends of epochs, and a run is one epoch",
    "SpikeDetection": "Lightning 2.6 itself fails in it; callbacks.finite_guard ends a run whose loss is not finite",
    "StochasticWeightAveraging": "it averages over epochs, and a run is one epoch; use callbacks=averaging",
}


class NoProfiler(PassThroughProfiler):
    """Lightning's profiler that measures nothing, without its 60 generators per training step."""

    _context = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[None]:
        return self._context


def skip_empty_hooks(owner: Callback | LightningModule) -> None:
    """Keep Lightning from calling the empty hooks of a training step that a callback or a task inherits.

    Lightning skips a hook that is not callable; each of the others costs a profiler context. The default callbacks have
    more than 20 of them, and a task has up to six.
    """
    base = Callback if isinstance(owner, Callback) else LightningModule
    for name in STEP_HOOKS:
        if getattr(type(owner), name) is getattr(base, name):
            vars(owner)[name] = None


def skip_compiler(optimizer: type) -> None:
    """Let a class of optimizers of torch do without `torch._dynamo` until something else imports it.

    Their methods import it, which takes two seconds, to mark for `torch.compile` where it has to stop. Without it,
    nothing is being compiled.
    """
    for kind in optimizer.__mro__:
        for name, method in list(vars(kind).items()):
            decorator = getattr(getattr(method, "__code__", None), "co_qualname", "").partition(".")[0]
            if decorator == "_disable_dynamo":  # which keeps what it has made of the method in this attribute
                vars(method.__wrapped__).setdefault("__dynamo_disable", method.__wrapped__)
            elif decorator == "_use_grad_for_differentiable":
                setattr(kind, name, _until_compiling(method))


def _until_compiling(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method `step` of optimizers, without marks for `torch.compile` until `torch._dynamo` is imported."""
    plain: Callable[..., Any] = step.__wrapped__  # type: ignore[attr-defined]

    @wraps(step)
    def run(self: torch.optim.Optimizer, *arguments: Any, **options: Any) -> Any:
        if "torch._dynamo" in sys.modules:
            return step(self, *arguments, **options)
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return plain(self, *arguments, **options)

    return run


def silence_lightning() -> None:
    """Suppress tips and warnings of Lightning that do not apply here."""
    for name in ("pytorch_lightning", "lightning_fabric", "matplotlib"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("profilers", "callbacks"):  # reports that the user has asked for
        logging.getLogger(f"pytorch_lightning.{name}").setLevel(logging.INFO)
    for message in (
        "treespec, LeafSpec",  # Lightning uses a deprecated class of torch (Lightning #21326)
        "does not have many workers",  # batches are made in this process, from tensors in memory
        "callbacks used to create the checkpoint",  # a run may resume with other callbacks
        "You have overridden `on_before_batch_transfer`",  # with DDP: the tasks take their rows in this hook
        "The `srun` command is available on your system but is not used",  # a run needs no srun where there is SLURM
        "without a model. The last model of the previous",  # by OnExceptionCheckpoint, of runs that resume nothing
        "there is no last checkpoint available",
        "It is recommended to use `self.log.*sync_dist",  # torchmetrics has reduced the values already
    ):
        warnings.filterwarnings("ignore", message=f".*{message}.*")


def disable_signal_handlers(trainer: Trainer) -> None:
    """Keep Lightning from handling signals.

    On SIGTERM Lightning ends the process by a `SystemExit` without a code, that is, with exit status 0. In a run of
    several processes, its handler broadcasts to the others while they may be in another collective operation, which
    blocks all of them (Lightning #20806).
    """
    trainer._signal_connector.register_signal_handlers = lambda: None


def validate_at_end(trainer: Trainer) -> None:
    """Let training end with a validation, also if the number of steps is not a multiple of the interval.

    Lightning validates at multiples of the interval alone, or at the ends of epochs, of which a run here has one.
    """
    loop = trainer.fit_loop.epoch_loop
    at_interval = loop._should_check_val_fx

    def is_due(fetcher: Any) -> bool:
        # most steps end here: Lightning's function looks for methods of the task and of its data, twice a step
        is_end = trainer.should_stop or loop.batch_progress.is_last_batch or loop._is_training_done
        if not is_end and isinstance(trainer.val_check_batch, int) and not is_at_interval(trainer):
            return False
        return at_interval(fetcher) or (loop._is_training_done and loop._should_check_val_epoch())

    loop._should_check_val_fx = is_due


def validation_is_due(trainer: Trainer) -> bool:
    """Return whether a validation follows the training batch that has just ended."""
    return trainer.fit_loop.epoch_loop._should_check_val_fx(None)


def is_at_interval(trainer: Trainer) -> bool:
    """Return whether the number of training batches is a multiple of the interval of validations."""
    interval = trainer.val_check_batch
    return interval is not None and (trainer.fit_loop.total_batch_idx + 1) % interval == 0


def continue_epoch(checkpoint: dict[str, Any]) -> None:
    """Change the state of Lightning's loops in a checkpoint of the last step to one of a step within a longer run.

    The checkpoint says that the only epoch has ended. It becomes that of the end of the last training batch.
    """
    loops = checkpoint["loops"]["fit_loop"]
    for progress in (loops["epoch_progress"]["total"], loops["epoch_progress"]["current"]):
        progress.update(processed=0, completed=0)
    batches = loops["epoch_loop.batch_progress"]
    batches["is_last_batch"] = False
    for progress in (batches["total"], batches["current"]):
        progress["completed"] = progress["processed"] - 1
    loops["epoch_loop.state_dict"]["_batches_that_stepped"] = checkpoint["global_step"] - 1


def set_rank(rank: int) -> None:
    """Tell Lightning and torchmetrics the rank of this process, on which loggers and warnings depend.

    When they are imported, they take it from variables of torchrun and SLURM, which other processes have, too: one of
    several runs in a job of SLURM would write no metrics.
    """
    for decorator in (rank_zero_only, torchmetrics_rank_zero_only):
        vars(decorator)["rank"] = rank


def sync_module_states(module: torch.nn.Module) -> None:
    """Copy the parameters and buffers of the first process to all processes, as DistributedDataParallel does.

    Lightning's strategy wraps the model to do so, and here only the gradients are averaged; see ddp/strategy.py.
    """
    _sync_module_states(module)
