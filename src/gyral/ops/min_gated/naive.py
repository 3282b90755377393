"""The recurrences of `gyral.ops.min_gated` in plain torch, as a diagonal scan.

The kernels compute the same, one step after the other. This code runs where there is no kernel, and gives the kernels'
second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.diagonal.naive import diagonal_scan


def min_gated(
    projected: Tensor, h0: Tensor, lengths: Tensor | None = None, starts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps.

    Args:
        projected: (T, B, 2N), rows [c; k] of a minGRU, or (T, B, 3N), rows [c; f; i] of a minLSTM.
        h0: (B, N), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.

    Returns:
        outputs (T, B, N), h_t, zero beyond the lengths, and the state (B, N) after the last step of each row.
    """
    decay, values = coefficients(projected, h0.shape[1])
    return diagonal_scan(values, decay, h0, lengths, starts, False)


def coefficients(projected: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return 1 − z and z ⊙ g(c), each (…, N), for the projected inputs (…, 2N) or (…, 3N)."""
    candidate, *gates = projected.split(size, dim=-1)
    gate = gates[0] if len(gates) == 1 else F.logsigmoid(gates[1]) - F.logsigmoid(gates[0])
    positive = torch.where(candidate >= 0, candidate + 0.5, torch.sigmoid(candidate))
    return torch.sigmoid(-gate), torch.sigmoid(gate) * positive
