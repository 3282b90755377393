"""Recurrences whose state is a hidden vector h and a matrix A: fast weights and WeiNet, over a whole sequence.

`gyral.cells.fast_weights` and `gyral.cells.weinet` have the equations. `naive` computes them step by step in plain
torch, which also gives second derivatives; `cpu` calls the kernels.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.ops import autograd, buffers, kernels

MODULES = {"cpu": "gyral.ops.fast_weights.cpu"}

KINDS = ("relu", "tanh", "weinet")  # in the order of fast_weights.cpp: fast weights by their activation, and WeiNet


class Options(NamedTuple):
    """The arguments that have no gradient; see `run`."""

    kind: str
    keep: Tensor | float | None
    drop: Tensor | None
    lengths: Tensor | None
    starts: Tensor | None
    epsilon: float
    decay: float
    rate: float
    inner_steps: int


class Tensors(NamedTuple):
    """The arguments that have a gradient; see `run`."""

    x: Tensor
    w_ih: Tensor
    bias: Tensor
    w_hh: Tensor
    norm: Tensor | None
    h0: Tensor
    a0: Tensor


def unsupported_reason(tensor: Tensor) -> str | None:
    """Return the reason why no kernel supports the device and dtype of a tensor, or None if one does."""
    return kernels.unsupported_reason(MODULES, tensor)


def run(
    kind: str,
    x: Tensor,
    w_ih: Tensor,
    bias: Tensor,
    w_hh: Tensor,
    norm: Tensor | None,
    h0: Tensor,
    a0: Tensor,
    *,
    keep: Tensor | float | None = None,
    drop: Tensor | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    epsilon: float = 1e-5,
    decay: float = 0.0,
    rate: float = 0.0,
    inner_steps: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a recurrence over a sequence, under autocast in the dtype of the parameters.

    T steps, B batch size, X inputs, N units, G = N for fast weights and 7N for WeiNet.

    Args:
        kind: One of `KINDS`.
        x: (T, B, X).
        w_ih, bias: (G, X) and (G,).
        w_hh: (N, N), for WeiNet (4N, N).
        norm: Gain and bias (2, N) of the layer normalization; None for WeiNet without it.
        h0, a0: (B, N) and (B, N, N) before the first step.
        keep: Zoneout: a mask (T, B, N) in training, the probability in evaluation, or None.
        drop: Recurrent dropout: factors (B, N) of the hidden vector in the product with W_hh, or None.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets h and A of a row to zero before the step.
        epsilon: What layer normalization adds to the variance.
        decay, rate, inner_steps: λ, η and S of fast weights.

    Returns:
        outputs (T, B, N), and h (B, N) and A (B, N, N) after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        TypeError: Inputs or states have another dtype than the parameters, outside autocast.
    """
    device, dtype = x.device.type, w_hh.dtype
    if torch.is_autocast_enabled(device):
        x, h0, a0 = x.to(dtype), h0.to(dtype), a0.to(dtype)
    kernels.check_dtypes(dtype, x, h0, a0)
    keep, drop, lengths, starts = map(_contiguous, (keep, drop, lengths, starts))
    options = Options(kind, keep, drop, lengths, starts, epsilon, decay, rate, inner_steps)
    tensors = Tensors(*map(_contiguous, (x, w_ih, bias, w_hh, norm, h0, a0)))
    with torch.autocast(device, enabled=False):
        found: tuple[Tensor, Tensor, Tensor] = _Run.apply(options, autograd.needs_gradient(tensors), *tensors)
    return found


def _contiguous(given: Any) -> Any:
    return given.contiguous() if isinstance(given, Tensor) else given


def _naive_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    from gyral.ops.fast_weights.naive import naive

    def function(*tensors: Any) -> tuple[Tensor, Tensor, Tensor]:
        return naive(ctx.options, Tensors(*tensors))

    return None, None, *autograd.differentiate(function, ctx.saved_tensors[1:], gradients)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options, needs_gradient, *given):
        ctx.set_materialize_grads(False)  # that of A is large, and often zero
        tensors = Tensors(*given)
        results, saved = kernels.find(MODULES, tensors.w_hh).forward(options, tensors, needs_gradient)
        if needs_gradient:
            ctx.save_for_backward(results[0], *given)
            ctx.options, ctx.saved = options, saved
        else:
            buffers.release(saved.buffer)
        return results

    @staticmethod
    @autograd.differentiable_by(_naive_backward)
    def backward(ctx, *gradients):
        outputs, *given = ctx.saved_tensors
        tensors = Tensors(*given)
        module = kernels.find(MODULES, tensors.w_hh)
        # backward overwrites the saved values: a second backward over the same graph runs forward again
        saved, ctx.saved = ctx.saved, None
        if saved is None:
            _, saved = module.forward(ctx.options, tensors, True)
        found = module.backward(ctx.options, tensors, outputs, saved, gradients, ctx.needs_input_grad[2:])
        buffers.release(saved.buffer)
        return None, None, *found
