"""Zoneout of hidden states. Cells apply it at the end of a step, in `gyral.cells.base.RecurrentCell.apply_zoneout`."""

from torch import Tensor


def zoneout(new: Tensor, old: Tensor, keep: Tensor | float) -> Tensor:
    """Return new + keep ⊙ (old − new): units keep their old value at random (Krueger et al., ICLR 2017).

    Args:
        new, old: The vector (B, N) after and before the step.
        keep: In training a mask (B, N) of 0 and 1; in evaluation the zoneout probability, the mean of the mask.
    """
    return new + keep * (old - new)
