"""Weights that hooks of `torch.nn.utils` compute, and hooks that nothing would call."""

from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from gyral.cells.base import RecurrentCell

# their pre-hooks replace a weight before each call of its module
COMPUTING = (BasePruningMethod, SpectralNorm, WeightNorm)


def has_computed_weights(cell: RecurrentCell) -> bool:
    """Return whether `prune`, or the legacy `spectral_norm` or `weight_norm`, computes a weight of the cell."""
    # hooks are in private attributes only
    return any(isinstance(hook, COMPUTING) for module in cell.modules() for hook in module._forward_pre_hooks.values())


def compute_weights(cell: RecurrentCell) -> None:
    """Compute the weights of modules within a cell that `prune`, `spectral_norm` or `weight_norm` determines.

    The step of a cell reads these weights without a call of their module, which would compute them.

    Raises:
        RuntimeError: A cell within the cell has another hook, which would never be called.
    """
    for module in cell.modules():
        if module is cell or not (module._forward_pre_hooks or module._forward_hooks):
            continue
        hooks = list(module._forward_pre_hooks.values())
        for hook in hooks:
            if isinstance(hook, COMPUTING):
                hook(module, ())
        others = sum(not isinstance(hook, COMPUTING) for hook in hooks) + len(module._forward_hooks)
        if others and isinstance(module, RecurrentCell):
            outer, inner = type(cell).__name__, type(module).__name__
            raise RuntimeError(f"hooks of {inner} within {outer} are never called; register them on the {outer}")
