"""Layers with the interface of `torch.nn.GRU`, one per cell: `RUM(input_size, hidden_size)`.

A layer is made of its cell on first access, `RUM` of `gyral.cells.rum.RUMCell`: its name, options and docstring are
those of the cell.
"""

import sys
from importlib import import_module
from typing import Any

from gyral import cells
from gyral.cells.torch_layer import TorchLayerCell
from gyral.nn.layers.base import Layer
from gyral.nn.layers.torch_weights import TorchWeights

# Layers that version 0.2 has pickled name these modules.
for _former in ("convolution", "delta", "fast_slow", "fast_weights", "gated", "graph", "linear_attention", "memory",
                "nonlinear", "rotations", "scans", "state_tracking", "unitary"):  # fmt: skip
    sys.modules[f"{__name__}.{_former}"] = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return ["Layer", *cells.layers()]
    if name not in cells.layers():
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    cell = cells.layers()[name]
    cell_class = getattr(import_module(cells.modules()[cell]), cell)
    bases = (TorchWeights, Layer) if issubclass(cell_class, TorchLayerCell) else (Layer,)
    # of two threads, the first one decides: a pickled layer must be of the class that this module has
    return globals().setdefault(name, type(name, bases, {"__module__": __name__, "cell_class": cell_class}))


def __dir__() -> list[str]:
    return sorted({*globals(), *cells.layers()})
