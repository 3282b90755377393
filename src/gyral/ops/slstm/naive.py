"""The recurrence of `gyral.ops.slstm` in plain torch, one step after the other."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class State(NamedTuple):
    """Hidden vector y, cell c, normalizer n, and the logarithm m of the scale of c and n, each (B, N)."""

    hidden: Tensor
    cell: Tensor
    normalizer: Tensor
    scale: Tensor


def start(scale: Tensor) -> State:
    """Return the state before the first step, like m (B, N)."""
    zeros = torch.zeros_like(scale)
    return State(zeros, zeros, zeros, torch.full_like(scale, lowest_scale(scale.dtype)))


def lowest_scale(dtype: torch.dtype) -> float:
    """Return m before the first step: −10³⁰, which float16 does not have. Minus infinity would give NaN."""
    return max(-1e30, torch.finfo(dtype).min / 2)


def block_products(values: Tensor, weight: Tensor) -> Tensor:
    """Return the products (…, G N) of values (…, N) with G block-diagonal matrices, of blocks (H, G, d, d)."""
    heads = weight.shape[0]
    if heads == 1:  # in one call, which runtimes have an operator for
        return F.linear(values, weight.flatten(0, 2))
    return torch.einsum("...hj,hgij->...ghi", values.unflatten(-1, (heads, -1)), weight).flatten(-3)


def step(projected: Tensor, weight_hh: Tensor, state: State) -> State:
    """Return the state after a step with the projected inputs (B, 4N), rows [i; f; z; o], and R (H, 4, d, d)."""
    recurrent = block_products(state.hidden, weight_hh).to(projected.dtype)
    write, forget, values, output = (projected + recurrent).chunk(4, dim=1)
    kept = F.logsigmoid(forget) + state.scale
    scale = torch.maximum(kept, write)
    kept, write = torch.exp(kept - scale), torch.exp(write - scale)
    cell = kept * state.cell + write * torch.tanh(values)
    normalizer = kept * state.normalizer + write
    return State(torch.sigmoid(output) * cell / normalizer, cell, normalizer, scale)


def slstm(
    projected: Tensor,
    weight_hh: Tensor,
    hidden: Tensor,
    cell: Tensor,
    normalizer: Tensor,
    scale: Tensor,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run the recurrence over all steps.

    Args:
        projected: (T, B, 4N), rows [i; f; z; o].
        weight_hh: (H, 4, d, d) with N = H·d, the blocks of R of each head and gate.
        hidden, cell, normalizer, scale: (B, N), y, c, n and m before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: y, c and n count as zero, and m as −10³⁰.

    Returns:
        outputs (T, B, N), y_t, zero beyond the lengths, and y, c, n and m (B, N) after the last step of each row.
    """
    state, outputs = State(hidden, cell, normalizer, scale), []
    for time in range(len(projected)):
        before = state if starts is None else select(starts[time], start(scale), state)
        new = step(projected[time], weight_hh, before)
        if lengths is None:
            state = new
            outputs.append(new.hidden)
        else:
            runs = time < lengths
            state = select(runs, new, state)
            outputs.append(new.hidden * runs.unsqueeze(1))
    return torch.stack(outputs), *state


def select(is_one: Tensor, one: State, other: State) -> State:
    """Return the state with the rows of `one` where `is_one` (B,) is True, else of `other`."""
    condition = is_one.unsqueeze(1)
    return State(*(torch.where(condition, a, b) for a, b in zip(one, other, strict=True)))
