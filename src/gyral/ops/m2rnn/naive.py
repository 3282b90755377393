"""The recurrence of `gyral.ops.m2rnn` in plain torch, one step after the other."""

from typing import Any

import torch
from torch import Tensor


class ClipGradient(torch.autograd.Function):
    """The identity, whose gradient is cut to [−bound, bound]."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, bound: float) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.bound = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.clamp(-ctx.bound, ctx.bound), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return tangent.view_as(tangent)


def step(
    q: Tensor, k: Tensor, v: Tensor, forget: Tensor, weight: Tensor, memory: Tensor, clip: float | None
) -> tuple[Tensor, Tensor]:
    """Return the outputs (B, H, V) and the new memory (B, H, K, V) of one step; see `gyral.ops.m2rnn.m2rnn`."""
    keep = forget[..., None, None]
    candidate = torch.tanh((memory @ weight).to(memory.dtype) + k.unsqueeze(-1) * v.unsqueeze(-2))
    memory = keep * memory + (1 - keep) * candidate
    if clip is not None:
        memory = ClipGradient.apply(memory, clip)
    return (q.unsqueeze(-1) * memory).sum(-2), memory


def m2rnn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    forget: Tensor,
    weight: Tensor,
    s0: Tensor,
    clip: float | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps.

    T steps, B batch size, H heads, K and V the sizes of keys and values. The G heads of q and k are H, or 1 if all
    heads share them.

    Args:
        q, k: (T, B, G, K).
        v: (T, B, H, V).
        forget: (T, B, H), f_t in [0, 1].
        weight: (H, V, V), W of each head.
        s0: (B, H, K, V), the memory before the first step.
        clip: Number > 0. The gradient of the memory after each step is cut to [−clip, clip]. None: it is not.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: S_{t−1} counts as zero.

    Returns:
        outputs (T, B, H, V), y_t, zero beyond the lengths, and the memory (B, H, K, V) after the last step of each row.
    """
    memory, outputs = s0, []
    for time in range(len(v)):
        before = memory if starts is None else memory.masked_fill(starts[time][:, None, None, None], 0.0)
        output, new = step(q[time], k[time], v[time], forget[time], weight, before, clip)
        if lengths is not None:
            runs = (time < lengths)[:, None, None, None]
            output, new = output.masked_fill(~runs[..., 0], 0.0), torch.where(runs, new, memory)
        memory = new
        outputs.append(output)
    return torch.stack(outputs), memory
