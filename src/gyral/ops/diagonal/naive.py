"""The scan of `gyral.ops.diagonal` in plain torch, parallel over time.

The kernels compute the same, one step after the other. This code runs where there is no kernel, and gives the kernels'
second derivatives.
"""

import torch
from torch import Tensor

# of RG-LRU, see `gyral.ops.min_gated`, for which the kernels of diagonal scans compute a_t and b_t
SHARPNESS = 8.0  # c in log a
SMALLEST = 1000.0**-2  # of 4 (1 − a²) in the gradient of √(1 − a²), as the authors clip it


def diagonal_scan(
    values: Tensor,
    decay: Tensor,
    h0: Tensor,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    is_complex: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps.

    T steps, B batch size, N units. A vector of complex numbers has W = 2N entries: the N real parts, then the N
    imaginary parts. Otherwise W = N.

    Args:
        values: b_t, (T, B, W).
        decay: a_t, (T, B, W), or (W,) if it is the same at all steps.
        h0: (B, W), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.
        is_complex: Whether the numbers are complex.

    Returns:
        outputs (T, B, W), h_t, zero beyond the lengths, and the state (B, W) after the last step of each row.
    """
    # Two steps (a, b) and then (a', b') are one step (a' a, a' b + b'). Each pass doubles the number of steps that an
    # entry has composed, so that log₂ T passes give all outputs (Hillis and Steele 1986).
    steps, batch, _ = values.shape
    decay = decay.expand_as(values)
    has_start = None  # (T, B, 1), of the steps that an entry has composed
    if starts is not None:
        has_start = starts.unsqueeze(2)
        decay = decay.masked_fill(has_start, 0.0)
    added = multiply(decay[:1], h0, is_complex)
    outputs = torch.cat((select_unmarked(added, has_start) + values[:1], values[1:]))
    reach = 1
    while reach < steps:
        added = multiply(decay[reach:], outputs[:-reach], is_complex)
        outputs = torch.cat((outputs[:reach], outputs[reach:] + select_unmarked(added, has_start, reach)))
        decay = torch.cat((decay[:reach], multiply(decay[reach:], decay[:-reach], is_complex)))
        has_start = marked_within(has_start, reach)
        reach *= 2
    if lengths is None:
        return outputs, outputs[-1]
    final = outputs[lengths - 1, torch.arange(batch, device=values.device)]
    ended = torch.arange(steps, device=values.device).unsqueeze(1) >= lengths
    return outputs.masked_fill(ended.unsqueeze(2), 0.0), final


def select_unmarked(added: Tensor, marks: Tensor | None, first: int = 0) -> Tensor:
    """Return the terms added to the steps from `first` on, zero where they are marked: zero times infinity is NaN."""
    return added if marks is None else added.masked_fill(marks[first : first + len(added)], 0.0)


def marked_within(marks: Tensor | None, reach: int) -> Tensor | None:
    """Return whether one of the last 2 · `reach` steps is marked, given whether one of the last `reach` is: (T, …)."""
    return None if marks is None else torch.cat((marks[:reach], marks[reach:] | marks[:-reach]))


def multiply(a: Tensor, b: Tensor, is_complex: bool) -> Tensor:
    """Return the product of two vectors (…, W), entry by entry; complex ones are [real; imaginary]."""
    if not is_complex:
        return a * b
    (a_real, a_imag), (b_real, b_imag) = a.chunk(2, dim=-1), b.chunk(2, dim=-1)
    return torch.cat((a_real * b_real - a_imag * b_imag, a_real * b_imag + a_imag * b_real), dim=-1)
