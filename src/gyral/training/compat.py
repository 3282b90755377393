"""Changes to the private behaviour of Lightning, torch and wandb, and suppressed warnings, with their upstream issues.

Two more private methods are overridden where their class is subclassed: `DDPStrategy._configure_launcher` in
ddp/strategy.py (Lightning's launcher repeats the command line, which in a sweep runs the whole sweep: Lightning #2727,
#18175), and `EarlyStopping._evaluate_stopping_criteria` in callbacks/early_stopping.py. All are tested with the
versions in constraints.txt.
"""

import logging
import warnings
from contextlib import AbstractContextManager, nullcontext

import torch
from pytorch_lightning import Trainer
from pytorch_lightning.overrides.distributed import _sync_module_states
from pytorch_lightning.profilers import PassThroughProfiler


def silence_lightning() -> None:
    """Suppress tips and warnings of Lightning that do not apply here."""
    for name in ("pytorch_lightning", "lightning_fabric", "matplotlib"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        "treespec, LeafSpec",  # Lightning uses a deprecated class of torch (Lightning #21326)
        "does not have many workers",  # batches are made in this process, from tensors in memory
        "callbacks used to create the checkpoint",  # a run may resume with other callbacks
        "You have overridden `on_before_batch_transfer`",  # with DDP: the tasks take their rows in this hook
        "The `srun` command is available on your system but is not used",  # a run needs no srun where there is SLURM
        "It is recommended to use `self.log.*sync_dist",  # torchmetrics has reduced the values already
    ):
        warnings.filterwarnings("ignore", message=f".*{message}.*")


class NoProfiler(PassThroughProfiler):
    """Lightning's default profiler, without a new context manager for each of 50 hooks per step."""

    _context = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[None]:
        return self._context


def disable_signal_handlers(trainer: Trainer) -> None:
    """Keep Lightning from handling signals.

    On SIGTERM Lightning ends the process by a `SystemExit` without a code, that is, with exit status 0. In a run of
    several processes, its handler broadcasts to the others while they may be in another collective operation, which
    blocks all of them (Lightning #20806).
    """
    trainer._signal_connector.register_signal_handlers = lambda: None


def skip_wandb_launch() -> None:
    """Keep `wandb.init` from importing the client of W&B Launch, which takes 0.4 s, to look for inputs of a launch job.

    Only programs that call `wandb.sdk.launch.manage_config_file` or `manage_wandb_config` have such inputs.
    """
    from wandb.sdk.wandb_run import Run

    Run._detect_and_apply_job_inputs = lambda self: None  # type: ignore[method-assign]


def sync_module_states(module: torch.nn.Module) -> None:
    """Copy the parameters and buffers of the first process to all processes, as DistributedDataParallel does."""
    _sync_module_states(module)
