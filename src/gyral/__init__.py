"""Gyral: recurrent memory cells and layers, experiments and their reports.

`__init__.pyi` has the public names, also for type checkers. Each is imported on first access, so
that `from gyral import RUM` imports neither Hydra nor Lightning, and `gyral.list_runs` and `gyral.compose` no torch.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_MODULE_OF = {
    alias.name: str(node.module)
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from gyral.core.commands import version

        return version()
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'gyral' has no attribute '{name}'")
    globals()[name] = value = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
