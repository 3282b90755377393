"""The recurrence of `gyral.ops.m2rnn` in plain torch, one step after the other."""

import math
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
    q: Tensor, k: Tensor, v: Tensor, forget: Tensor, weight: Tensor, memory: Tensor, clip: float
) -> tuple[Tensor, Tensor]:
    """Return the outputs (B, H, V) and the new memory (B, H, K, V) of one step; see `gyral.ops.m2rnn.m2rnn`."""
    keep = forget[..., None, None]
    candidate = torch.tanh((memory @ weight).to(memory.dtype) + k.unsqueeze(-1) * v.unsqueeze(-2))
    memory = keep * memory + (1 - keep) * candidate
    if clip < math.inf:
        memory = ClipGradient.apply(memory, clip)
    return (q.unsqueeze(-1) * memory).sum(-2), memory


def m2rnn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    forget: Tensor,
    weight: Tensor,
    s0: Tensor,
    clip: float,
    lengths: Tensor | None,
    starts: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return outputs (T, B, H, V) and final memory (B, H, K, V); see `gyral.ops.m2rnn.m2rnn`."""
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
