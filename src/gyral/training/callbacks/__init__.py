"""Callbacks of a training run. Every class is the `_target_` of a node in conf/callbacks."""

from gyral.training.callbacks.averaging import Averaging
from gyral.training.callbacks.checkpoints import Checkpoints
from gyral.training.callbacks.cosines import Cosines
from gyral.training.callbacks.early_stopping import EarlyStopping
from gyral.training.callbacks.examples import Examples
from gyral.training.callbacks.finite_guard import FiniteGuard, NonFiniteError
from gyral.training.callbacks.memory_trace import MemoryTraces
from gyral.training.callbacks.norms import Norms
from gyral.training.callbacks.positions import Positions
from gyral.training.callbacks.progress_bar import ProgressBar
from gyral.training.callbacks.pruning import Pruning
from gyral.training.callbacks.statistics import Statistics

__all__ = [
    "Averaging",
    "Checkpoints",
    "Cosines",
    "EarlyStopping",
    "Examples",
    "FiniteGuard",
    "MemoryTraces",
    "NonFiniteError",
    "Norms",
    "Positions",
    "ProgressBar",
    "Pruning",
    "Statistics",
]
