"""Gyral: recurrent memory cells and layers, experiments and their reports.

The public names are the functions and classes below, all cells and their layers. Each is imported on first access, so
that `from gyral import RUM` imports neither Hydra nor Lightning, and `gyral.list_runs` and `gyral.compose` no torch.
"""

from importlib import import_module
from typing import Any

_MODULES = {
    "Edges": "gyral.core.edges",
    "LinkedInputs": "gyral.cells.inputs",
    "MaskedInputs": "gyral.cells.inputs",
    "Recurrent": "gyral.nn.recurrent",
    "RecurrentCell": "gyral.cells.base",
    "backends": "gyral.nn.backends",
    "build": "gyral.training.build",
    "compose": "gyral.config.composition",
    "fit": "gyral.train",
    "list_runs": "gyral.reports.frame",
    "load": "gyral.training.build",
    "plot": "gyral.reports.frame_plot",
}


def _modules() -> dict[str, str]:
    """Return the modules of the public names."""
    cells = import_module("gyral.cells")
    return _MODULES | cells.modules() | dict.fromkeys(cells.layers(), "gyral.nn.layers")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from gyral.core.commands import version

        return version()
    if name == "__all__":
        return sorted(_modules())
    if name not in _modules():
        raise AttributeError(f"module 'gyral' has no attribute '{name}'")
    from gyral.core.extras import import_framework

    globals()[name] = value = getattr(import_framework(_modules()[name], f"gyral.{name}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_modules()})
