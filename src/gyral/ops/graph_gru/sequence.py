"""A GRU whose recurrent input is gathered along typed edges, over a whole sequence.

    p_t = W_ih x_t + b                                          (3N)
    g_t = [Σ h_{t'}^e over the edges (t', t) of type e, for e = 0, 1, …]
    q_t = W_hh g_t                                              (3N)
    r = σ(p_r + q_r)
    z = σ(p_z + q_z)
    n = tanh(p_n + r ⊙ q_n)
    h_t = (1 − z) ⊙ n + z ⊙ c_t

The gate order is that of torch: r, z, n. Type 0 is the edge from each step to the next, and h^e is the slice of h of
type e, or all of h. c_t is h_{t−1} or g_t. The equations are those of MAGE-GRU (Dhingra, Yang, Cohen and Salakhutdinov,
"Linguistic Knowledge as Memory for Recurrent Neural Networks", 2017) with at most one edge of each type into a step;
further ones are summed. `gyral.ops.graph_gru.reference` computes them in plain torch, for second derivatives.
"""

from typing import Any

import torch
from torch import Tensor

from gyral.ops import autograd, buffers, kernels
from gyral.ops.graph_gru import reference
from gyral.ops.graph_gru.arguments import (
    MODULES,
    FixedArguments,
    Tensors,
    make_arguments,
    run_backward,
    run_forward,
)
from gyral.ops.sequences import reachable_since


def unsupported_reason(tensor: Tensor) -> str | None:
    """Return the reason why no kernel supports the device and dtype of a tensor, or None if one does."""
    return kernels.unsupported_reason(MODULES, tensor)


def run(
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    memory: Tensor,
    earlier: Tensor | None,
    *,
    edge_types: int,
    edge_size: int | None,
    carry: str = "previous",
    capacity: int | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over inputs (T, B, X), under autocast in the dtype of the parameters.

    Args:
        inputs: (T, B, X).
        weight_ih: W_ih (3N, X).
        weight_hh: W_hh (3N, G), with G = N; or G = (E + 1) N if `edge_size` is None. Its columns are in the order of
            the types, from 0.
        bias: (3N,) or None.
        memory: (B, C, N) with C ≥ 1, the hidden vectors of the last C steps, the latest last. Those before the first
            step of a sequence are zeros.
        earlier: (T, B, E, D) integers, the distances of the steps that edges come from, 0: no edge. Edges from before
            the memory or before the last start count as absent. None: there are only edges of type 0.
        edge_types: E.
        edge_size: Width of the slice of each type from 1; type 0 has the first N − E · `edge_size` ≥ 1 units. None:
            the slice of every type is the whole hidden vector.
        carry: "previous": c_t = h_{t−1}. "linked": c_t = g_t, which needs an `edge_size`.
        capacity: C', the number of vectors in the returned memory; C if None.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the memory of the row to zeros before the step.

    Returns:
        outputs (T, B, N), zero beyond the lengths, and the memory (B, C', N) after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        TypeError: Inputs or memory have another dtype than the parameters, outside autocast.
        ValueError: `earlier` has another shape, or there is no `edge_size` for `carry`.
    """
    fixed, tensors = split_arguments(
        *(inputs, weight_ih, weight_hh, bias, memory, earlier), edge_types, edge_size, carry, capacity, lengths, starts
    )
    with torch.autocast(inputs.device.type, enabled=False):
        return _Run.apply(fixed, autograd.needs_gradient(tensors), *tensors)


def split_arguments(
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    memory: Tensor,
    earlier: Tensor | None,
    edge_types: int,
    edge_size: int | None,
    carry: str,
    capacity: int | None,
    lengths: Tensor | None,
    starts: Tensor | None,
) -> tuple[FixedArguments, Tensors]:
    """Return the arguments of `run`, without and with a gradient."""
    device, dtype, units = inputs.device.type, weight_hh.dtype, memory.shape[2]
    if torch.is_autocast_enabled(device):
        inputs, memory = inputs.to(dtype), memory.to(dtype)
    kernels.check_dtypes(dtype, inputs, memory)
    if carry == "linked" and edge_size is None:
        raise ValueError('carry="linked" needs an edge_size')
    if earlier is not None and earlier.shape[:3] != (*inputs.shape[:2], edge_types):
        raise ValueError(f"earlier must be {(*inputs.shape[:2], edge_types)} × D, not {tuple(earlier.shape)}")
    first_size = units if edge_size is None else units - edge_types * edge_size
    if earlier is None or earlier.shape[2] == 0:
        # the columns of the other types would only meet zeros
        earlier, weight_hh = None, weight_hh[:, :first_size]
    else:
        earlier = earlier.to(torch.int64).contiguous()
    if lengths is not None:
        lengths = lengths.contiguous()
    since = reachable_since(starts, memory.shape[1])
    if capacity is None:
        capacity = memory.shape[1]
    fixed = FixedArguments(earlier, first_size, edge_size, capacity, carry == "linked", lengths, since)
    return fixed, Tensors(inputs, weight_ih, bias, weight_hh, memory)


def _reference_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    def run_reference(*given: Any) -> tuple[Tensor, Tensor]:
        return reference.run(ctx.fixed, Tensors(*given))

    return None, None, *autograd.differentiate(run_reference, ctx.saved_tensors[1:], gradients)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fixed, needs_gradient, *tensors):
        ctx.set_materialize_grads(False)  # the memory is large, and its gradient is often zero
        arguments, buffer = make_arguments(fixed, Tensors(*tensors))
        results = run_forward(arguments)
        if needs_gradient:
            ctx.save_for_backward(results.outputs, *tensors)
            ctx.fixed, ctx.saved = fixed, (arguments, buffer)
        else:
            buffers.release(buffer)
        return tuple(results)

    @staticmethod
    @autograd.differentiable_by(_reference_backward)
    def backward(ctx, *gradients):
        outputs, *given = ctx.saved_tensors  # once: gradient checkpointing refuses to unpack them again
        tensors = Tensors(*given)
        # backward overwrites the saved values: a second backward over the same graph runs forward again
        saved, ctx.saved = ctx.saved, None
        arguments, buffer = saved or make_arguments(ctx.fixed, tensors)
        if saved is None:
            outputs = run_forward(arguments).outputs
        found = run_backward(arguments, outputs, tensors, gradients, ctx.needs_input_grad[2:])
        buffers.release(buffer)
        return None, None, *found
