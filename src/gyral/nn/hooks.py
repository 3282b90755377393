"""Refuses hooks of cells: a layer calls the functions of its cells, and not the cells, so it would ignore the hooks."""

from torch import nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from gyral.cells.base import RecurrentCell
from gyral.core.errors import UserError

# what computes a weight in a hook, and the parametrization that takes its place
REPLACEMENTS = {
    SpectralNorm: ("spectral_norm of torch.nn.utils", "torch.nn.utils.parametrizations.spectral_norm"),
    WeightNorm: ("weight_norm of torch.nn.utils", "torch.nn.utils.parametrizations.weight_norm"),
    BasePruningMethod: (
        "prune of torch.nn.utils",
        "torch.nn.utils.parametrize.register_parametrization with a module that multiplies by the mask",
    ),
}


def refuse_hooks(cell: RecurrentCell) -> None:
    """Check that a cell and the modules in it have no hooks.

    Raises:
        UserError: There is one; the message names the replacement.
    """
    _refuse_hooks(cell, cell)


def _refuse_hooks(module: nn.Module, cell: RecurrentCell) -> None:
    if module._forward_pre_hooks or module._forward_hooks or module._backward_hooks or module._backward_pre_hooks:
        for hook in module._forward_pre_hooks.values():
            for kind, (name, replacement) in REPLACEMENTS.items():
                if isinstance(hook, kind):
                    raise UserError(f"{type(cell).__name__}: layers do not support {name}; use {replacement}")
        inner = "" if module is cell else f" within {type(cell).__name__}"
        raise UserError(
            f"{type(module).__name__}{inner}: a layer calls no hooks of its cells; register them on the layer"
        )
    for part in module._modules.values():  # `modules()` takes several times as long
        if part is not None:
            _refuse_hooks(part, cell)
