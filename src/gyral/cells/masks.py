"""Zoneout and recurrent dropout, the options that almost all cells have."""

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gyral.core.checks import check_real
from gyral.core.errors import InputError
from gyral.ops.dropout import bernoulli_mask, dropout_mask, zoneout
from gyral.ops.scan import Shared


class DropoutMasks(NamedTuple):
    """The random masks of a sequence (T, B) or of one step (B,).

    Attributes:
        zoneout: (…, B, output_size), 1 where a unit keeps its old value; None without zoneout and in evaluation.
        recurrent_dropout: (B, output_size), one mask for all steps; None without dropout and in evaluation.
    """

    zoneout: Tensor | None
    recurrent_dropout: Shared | None


NO_MASKS = DropoutMasks(None, None)
_version = 0


class MaskedModule(nn.Module):
    """The options zoneout and recurrent dropout of `gyral.cells.base.RecurrentCell`.

    Args:
        hidden_size: N.
        zoneout, recurrent_dropout: See `gyral.cells.base.RecurrentCell`.

    Attributes:
        units: Number of units of the hidden vector that have a mask; N unless a cell sets another number.
        holder: The layer that holds weights of the cell as its own, no part of the cell; None for most cells.
    """

    holder: nn.Module | None = None

    def __init__(self, hidden_size: int, zoneout: float, recurrent_dropout: float) -> None:
        super().__init__()
        self.hidden_size = self.units = hidden_size
        self.zoneout = check_real("zoneout", zoneout, minimum=0, below=1)
        self.recurrent_dropout = check_real("recurrent_dropout", recurrent_dropout, minimum=0, below=1)

    def __setattr__(self, name: str, value: Any) -> None:
        global _version
        _version += 1
        super().__setattr__(name, value)

    def zeros(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return zeros on the cell's device, in the dtype of its parameters if it is None."""
        parameter = first_parameter(self)
        return torch.zeros(shape, dtype=dtype or parameter.dtype, device=parameter.device)

    def draw_masks(self, *shape: int) -> DropoutMasks:
        """Draw the masks for a sequence of shape (T, B), or for a step of shape (B,)."""
        if not self.training:
            return NO_MASKS
        recurrent = None
        if self.recurrent_dropout > 0:
            mask = dropout_mask(self.zeros(shape[-1], self.units), self.recurrent_dropout)
            recurrent = Shared(self.expand_mask(mask))
        return DropoutMasks(self.draw_zoneout_mask(*shape), recurrent)

    def draw_zoneout_mask(self, *shape: int) -> Tensor | None:
        """Draw a mask (*shape, output_size); return None in evaluation and without zoneout."""
        if not self.training or self.zoneout == 0:
            return None
        return self.expand_mask(bernoulli_mask(self.zeros(*shape, self.units), self.zoneout))

    def draw_mask(self, probability: float, *shape: int) -> Tensor | None:
        """Draw a mask of a shape; return None in evaluation and if the probability is zero."""
        return bernoulli_mask(self.zeros(*shape), probability) if self.training and probability > 0 else None

    def expand_mask(self, mask: Tensor) -> Tensor:
        """Return the mask (…, output_size) of the hidden vector for a mask (…, units) of its units; here they equal."""
        return mask

    def draw_fused_zoneout(self, *shape: int) -> Tensor | None:
        """Return zoneout in the form that kernels take; see `kernel_zoneout`."""
        return kernel_zoneout(self.draw_zoneout_mask(*shape), self.zoneout) if self.zoneout > 0 else None

    def kernel_masks(self, masks: DropoutMasks) -> dict[str, Any]:
        """Return zoneout and recurrent dropout as kernels take them, `keep` and `drop`."""
        keep, dropped = masks
        if keep is None and self.zoneout > 0:
            keep = kernel_zoneout(keep, self.zoneout)
        return {"keep": keep, "drop": None if dropped is None else dropped.value}

    def apply_recurrent_dropout(self, hidden: Tensor, masks: DropoutMasks) -> Tensor:
        """Return the hidden vector (B, N) for the products with the recurrent weights."""
        return hidden if masks.recurrent_dropout is None else hidden * masks.recurrent_dropout.value

    def apply_zoneout(self, new: Tensor, old: Tensor, masks: DropoutMasks) -> Tensor:
        """Return the hidden vector (B, N) after zoneout."""
        if self.zoneout == 0:
            return new
        return zoneout(new, old, self.zoneout if masks.zoneout is None else masks.zoneout)


def options_version() -> int:
    """Return a number that differs from that of an earlier call if an attribute of any cell was set in between."""
    return _version


def _first_parameter(module: nn.Module) -> Tensor | None:
    # as `next(module.parameters())`, in a tenth of the time
    for parameter in module._parameters.values():
        if parameter is not None:
            return parameter
    for part in module._modules.values():
        if part is not None and (found := _first_parameter(part)) is not None:
            return found
    return None


def first_parameter(module: nn.Module) -> Tensor:
    """Return the first parameter of a module, or the first weight where parameters are replaced by plain tensors.

    A replica of `torch.nn.DataParallel` has no parameters by name, either.

    Raises:
        InputError: There is none.
    """
    for parameter in module._parameters.values():  # most cells have some of their own
        if parameter is not None:
            return parameter
    module = getattr(module, "holder", None) or module
    found = _first_parameter(module)
    if found is not None:
        return found
    replicated = (each for part in module.modules() for each in vars(part).get("_former_parameters", {}).values())
    # weights that another network computes are plain tensors or buffers
    computed = (
        each
        for part in module.modules()
        for each in (*vars(part).values(), *part._buffers.values())
        if isinstance(each, Tensor) and (each.is_floating_point() or each.is_complex())
    )
    found = next(itertools.chain(replicated, computed), None)
    if found is None:
        raise InputError(f"{type(module).__name__} has no parameters")
    return found


def kernel_zoneout(mask: Tensor | None, probability: float) -> Tensor | None:
    """Return zoneout in the form that kernels take: the mask in training, the probability () in evaluation, or None."""
    if mask is None and probability > 0:
        # without dimensions, it does not change the dtype of a product
        return torch.tensor(probability, dtype=torch.float64, device="cpu")
    return mask
