"""Which backend each layer uses on this machine, and why."""

import inspect
from typing import NamedTuple

import torch

from gyral.nn import layers
from gyral.nn.choice import FUSED_GRAPH
from gyral.ops.native import library

SIZES = 4, 20  # of the input and of the hidden state: no backend depends on them


class Backend(NamedTuple):
    """The backend of a layer with its default options.

    Attributes:
        layer: Its name.
        backend: The one that `backend="auto"` chooses; "fused (graph)" is "fused", recorded as a CUDA graph.
        reason: Why it is not "fused" with kernels; else empty.
    """

    layer: str
    backend: str
    reason: str


class Backends(list[Backend]):
    """The backends of all layers; printed as a table."""

    def __repr__(self) -> str:
        width = max(len(row.layer) for row in self)
        lines = [f"{row.layer:{width}}  {row.backend:{len(FUSED_GRAPH)}}  {row.reason}".rstrip() for row in self]
        return "\n".join([*lines, f"The kernels for the CPU are {library.origin()}."])


def backends(device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Backends:
    """Return the backend of each layer on this machine, with its default options.

    Args:
        device: Of the layers.
        dtype: Of the layers.

    Example:
        >>> import gyral
        >>> gyral.backends()[-1].layer
        'WeiNet'
    """
    found = Backends()
    for name in sorted(set(layers.__all__) - {"Layer"}):
        layer_class = getattr(layers, name)
        required = [
            parameter.name
            for parameter in inspect.signature(layer_class).parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        ]
        if required:
            found.append(Backend(name, "–", f"depends on {' and '.join(required)}"))
            continue
        layer = layer_class(*SIZES, device=device, dtype=dtype)
        choice = layer.choice(layer.cells[0])
        found.append(Backend(name, choice.name, choice.reason or ""))
    return found
