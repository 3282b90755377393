"""The scan of `gyral.ops.permutation_scan` in plain torch, parallel over time.

The kernels compute the same, one step after the other, without the scores of all steps. This code runs where there is
no kernel, and gives the kernels' second derivatives.
"""

import torch
from torch import Tensor

from gyral.ops.diagonal.naive import marked_within, multiply, select_unmarked


def permutation_scan(
    selection: Tensor,
    dictionary: Tensor,
    decay: Tensor,
    values: Tensor,
    h0: Tensor,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps.

    T steps, B batch size, N complex numbers, K matrices. Plain torch takes log₂ T passes of O(N) for each step, besides
    the scores.

    Args:
        selection: s_t, (T, B, K).
        dictionary: M, (K, N, N). Column j of P_t has its one in the row with the largest entry of Σ_k s_{t,k} M_k. The
            gradient is that of a softmax over the rows in place of P_t (straight-through estimator).
        decay: a_t, (T, B, 2N).
        values: b_t, (T, B, 2N).
        h0: (B, 2N), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.

    Returns:
        outputs (T, B, 2N), h_t, zero beyond the lengths, and the state (B, 2N) after the last step of each row.
    """
    if starts is not None:
        decay = decay.masked_fill(starts.unsqueeze(2), 0.0)
    scores = mix(selection, dictionary)
    rows = scores.argmax(-2)
    with torch.no_grad():  # the gradient of P_t needs the states, which do not depend on it
        states = compose(rows, decay, values, h0, starts)
        scaled = multiply(decay, torch.cat((h0.unsqueeze(0), states[:-1])), is_complex=True)
        scaled = select_unmarked(scaled, None if starts is None else starts.unsqueeze(2))
    outputs = compose(rows, decay, values + straight_through(scores, scaled), h0, starts)
    if lengths is None:
        return outputs, outputs[-1]
    final = outputs[lengths - 1, torch.arange(len(h0), device=outputs.device)]
    has_ended = torch.arange(len(outputs), device=outputs.device).unsqueeze(1) >= lengths
    return outputs.masked_fill(has_ended.unsqueeze(2), 0.0), final


def step(selection: Tensor, dictionary: Tensor, decay: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
    """Return h_t (B, 2N); see `gyral.ops.permutation_scan.permutation_scan` for the arguments, without T."""
    scores = mix(selection, dictionary)
    scaled = multiply(decay, hidden, is_complex=True)
    return send(scaled, scores.argmax(-2)) + straight_through(scores, scaled) + values


def mix(selection: Tensor, dictionary: Tensor) -> Tensor:
    """Return Σ_k s_k M_k (…, N, N)."""
    return (selection @ dictionary.flatten(1)).to(dictionary.dtype).unflatten(-1, dictionary.shape[1:])


def compose(rows: Tensor, decay: Tensor, values: Tensor, h0: Tensor, starts: Tensor | None) -> Tensor:
    """Return all states (T, B, 2N); `rows` (T, B, N) are the places to which P_t sends the numbers.

    Two steps (r, a, b) and then (r', a', b') are one step: j goes to r'[r[j]], times a[j] a'[r[j]], and b becomes
    P' (a' ⊙ b) + b'. Each pass doubles the number of steps that an entry has composed (Hillis and Steele 1986).
    """
    has_start = None if starts is None else starts.unsqueeze(2)  # of the steps that an entry has composed
    added = send(multiply(decay[:1], h0, is_complex=True), rows[:1])
    outputs = torch.cat((select_unmarked(added, has_start) + values[:1], values[1:]))
    reach = 1
    while reach < len(rows):
        first, second = slice(None, -reach), slice(reach, None)
        added = send(multiply(decay[second], outputs[first], is_complex=True), rows[second])
        outputs = torch.cat((outputs[:reach], outputs[second] + select_unmarked(added, has_start, reach)))
        composed = multiply(_both(decay[second]).gather(-1, _places(rows[first])).flatten(-2), decay[first], True)
        decay = torch.cat((decay[:reach], composed))
        rows = torch.cat((rows[:reach], rows[second].gather(-1, rows[first])))
        has_start = marked_within(has_start, reach)
        reach *= 2
    return outputs


def send(vector: Tensor, rows: Tensor) -> Tensor:
    """Return P v (…, 2N) for a vector (…, 2N) and the places `rows` (…, N) of its numbers."""
    parts = _both(vector)
    return torch.zeros_like(parts).scatter_add(-1, _places(rows), parts).flatten(-2)


def straight_through(scores: Tensor, scaled: Tensor) -> Tensor:
    """Return zeros (…, 2N) with the gradient of Q v, where Q is the softmax of scores (…, N, N) and v (…, 2N)."""
    soft = scores.softmax(-2)
    return ((soft - soft.detach()) @ _both(scaled).mT).mT.flatten(-2)


def _both(vector: Tensor) -> Tensor:
    """Return real and imaginary parts (…, 2, N)."""
    return vector.unflatten(-1, (2, -1))


def _places(rows: Tensor) -> Tensor:
    return rows.unsqueeze(-2).expand(*rows.shape[:-1], 2, rows.shape[-1])
