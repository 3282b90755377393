"""The choice of the backend of each cell of a network, and its reasons."""

import logging
import math
from typing import Any, NamedTuple, NoReturn
from weakref import WeakKeyDictionary

import torch
from torch import nn

from gyral.cells.base import RecurrentCell
from gyral.cells.masks import first_parameter, options_version
from gyral.core.compat import assume_constant_result
from gyral.core.errors import OptionError
from gyral.ops.compiler import is_eager, kernels_unsupported_reason, transform_is_active

log = logging.getLogger("gyral.nn.recurrent")  # of all messages of a network
BACKENDS = ("auto", "reference", "fused", "compile", "graph")
FUSED_GRAPH = "fused (graph)"  # the name of the fused backend where a CUDA graph records it
# Numbers of the outputs of a sequence, up to which the host may take longer than kernels. A training step of LRU takes
# the host 1.9 ms and an H100 0.24 ms at 8 x 1024 x 128, and 1.15 ms at 128 x 150 x 250.
SHORT = 2**23


class Choice(NamedTuple):
    """A backend, and why the next better one is none; the reason is None for the best one.

    The fused backend has a reason where functions of torch take the place of kernels. A CUDA graph records them on a
    GPU, and kernels for short sequences.

    Attributes:
        recorded: The largest number of outputs for which a CUDA graph records the fused backend; 0 if none does.
    """

    backend: str
    reason: str | None = None
    recorded: float = 0

    @property
    def name(self) -> str:
        """The name of the backend for a reader."""
        return FUSED_GRAPH if self.backend == "fused" and self.reason is not None else self.backend


class _Choices(NamedTuple):
    """The choices for a cell, by what they depend on besides its options, which have had this version."""

    version: int
    found: dict[Any, Choice]


# No part of the cell, because copies of a cell must not share them.
_CHOICES: "WeakKeyDictionary[nn.Module, _Choices]" = WeakKeyDictionary()


class ChoosesBackends(nn.Module):
    """The part of a recurrent network that chooses the backend of each cell.

    Attributes:
        cells: The cells.
        requested_backend: One of `BACKENDS`.
        weight_drop: See `gyral.nn.recurrent.RecurrentBase`.
    """

    cells: nn.ModuleList
    requested_backend: str
    weight_drop: float
    _logged: set[str]
    _backend = ""  # the one in use; none before the first choice

    @property
    def backend(self) -> str:
        """The backend in use, never "auto"; that of the current device before the first call."""
        if not self._backend:
            self._choose_backend(next(iter(self.cells)))  # type: ignore[arg-type]
        return self._backend

    def choice(self, cell: Any, starts: bool = False) -> Choice:
        """Return the choice for a cell on its current device, for sequences with or without starts.

        Raises:
            OptionError: The requested backend does not support the cell.
        """
        if not is_eager():
            return self._choose(cell, starts)
        parameter, version = first_parameter(cell), options_version()
        key = (
            *(self.requested_backend, self.weight_drop, starts, parameter.device, parameter.dtype),
            torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"),
        )
        own = _CHOICES.get(cell)
        if own is None or own.version != version:
            own = _CHOICES[cell] = _Choices(version, {})
        found = own.found.get(key)
        if found is None:
            found = own.found[key] = self._choose(cell, starts)
        return found

    def _choose_backend(self, cell: RecurrentCell, starts: bool = False) -> Choice:
        """Return the choice for a cell, and log it if it has changed."""
        found = self.choice(cell, starts)
        if found.backend != self._backend and not torch.compiler.is_compiling():
            self._backend = found.backend
            name, requested = type(cell).__name__, self.requested_backend
            note = "" if found.reason is None else f"; {found.reason}"
            message = f"{name} runs on the {found.name} backend (requested: {requested}{note})"
            if message not in self._logged:
                self._logged.add(message)
                log.info(message, extra={"is_expected": found.reason is None and requested == "auto"})
        return found

    def _choose(self, cell: RecurrentCell, starts: bool) -> Choice:
        requested = self.requested_backend
        if requested == "graph" and (reason := self._graph_unsupported_reason(cell)) is not None:
            refuse("graph", reason)
        if requested not in ("auto", "fused"):
            return Choice(requested)
        reason = fused_unsupported_reason(cell, starts)
        records = is_on_gpu(cell) and self._graph_unsupported_reason(cell) is None
        if reason is None:
            missing = cell.kernels_unsupported_reason() if records or torch.compiler.is_exporting() else None
            if not records or not cell.is_fused_recordable(starts):
                return Choice("fused", missing)
            return Choice("fused", missing, SHORT if missing is None else math.inf)
        if requested == "fused":
            refuse("fused", reason)
        return Choice("graph" if records else "reference", reason)

    def _graph_unsupported_reason(self, cell: RecurrentCell) -> str | None:
        """Return the reason why a CUDA graph does not support this network, or None if it does."""
        if self.weight_drop > 0:  # a graph would reuse the entries that were dropped when it was recorded
            return "does not support weight_drop"
        if transform_is_active():
            return "does not support transforms of torch.func"
        if next((cell.holder or cell).parameters(), None) is None:  # graphs know parameters by their place
            return "does not support replicas of torch.nn.DataParallel"
        for part in cell.modules():
            if isinstance(part, RecurrentCell) and (reason := part.graph_unsupported_reason()) is not None:
                return reason
        return None if torch.cuda.is_available() else "there is no GPU"


def is_on_gpu(cell: RecurrentCell) -> bool:
    """Return whether the parameters of a cell are on a GPU that has CUDA graphs."""
    return first_parameter(cell).device.type == "cuda"


def fused_unsupported_reason(cell: RecurrentCell, starts: bool) -> str | None:
    """Return the reason why the fused path of a cell does not support this call, or None if it does."""
    return kernels_unsupported_reason() or cell.fused_unsupported_reason(starts=starts)


@assume_constant_result  # compilers cannot trace the constructor of OptionError
def refuse(backend: str, reason: str) -> NoReturn:
    """Raise the error of a backend that does not support a call."""
    others = ", ".join(other for other in BACKENDS if other != backend)
    raise OptionError("backend", backend, f"{reason}; allowed here: {others}")
