"""Hooks of cells, and those that a layer cannot call."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from gyral.cells.base import RecurrentCell, State
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


def call(
    run: Callable[..., tuple[Tensor, State]], cell: RecurrentCell, inputs: Any, state: State, *further: Any
) -> tuple[Tensor, State]:
    """Return `run(cell, inputs, state, *further)`, and call the hooks of the cell as for any module.

    They see inputs (T, B, …) and the state, and outputs (T, B, output_size) and the state.
    """

    def sequence(inputs: Any, state: State) -> tuple[Tensor, State]:
        return run(cell, inputs, state, *further)

    result: tuple[Tensor, State] = cell(inputs, state, run=sequence)
    return result


def refuse_hooks(network: nn.Module, cells: list[RecurrentCell]) -> None:
    """Check that no hooks are registered whose absence would make values or gradients wrong.

    Raises:
        UserError: A module within a cell has a hook that computes a weight, or a module has hooks of opacus. The
            message names the replacement.
    """
    for module in network.modules():
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
            owner = getattr(hook, "__self__", None)
            if type(owner).__module__.partition(".")[0] == "opacus":
                name = type(network).__name__
                raise UserError(
                    f"{name}: layers do not support opacus, whose hooks compute gradients for each sample; "
                    "use torch.func.vmap of torch.func.grad"
                )
    for cell in cells:
        for module in cell.modules():
            if module is not cell:
                _refuse_computed_weights(module, cell)


def _refuse_computed_weights(module: nn.Module, cell: RecurrentCell) -> None:
    for hook in module._forward_pre_hooks.values():
        for kind, (name, replacement) in REPLACEMENTS.items():
            if isinstance(hook, kind):
                place = f"{type(module).__name__} within {type(cell).__name__}"
                raise UserError(f"{place}: layers do not support {name} there; use {replacement}")
