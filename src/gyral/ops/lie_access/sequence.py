"""A Lie-access memory with an LSTM as controller, over a whole sequence: the fused path of `gyral.cells.lantm`.

`gyral.cells.lantm.LANTMCell` has the equations. `gyral.ops.lie_access.reference` computes them in plain torch, for
second derivatives.
"""

from typing import Any

import torch
from torch import Tensor

from gyral.ops import autograd, buffers, kernels
from gyral.ops.lie_access import reference
from gyral.ops.lie_access.arguments import (
    GROUPS,
    MODULES,
    FixedArguments,
    MemoryState,
    Options,
    Results,
    Tensors,
    Weights,
    make_arguments,
    run_backward,
    run_forward,
)
from gyral.ops.lie_access.groups import Group


def unsupported_reason(tensor: Tensor, group: Group) -> str | None:
    """Return the reason why no kernel supports the device and dtype of a tensor, or the group; None if one does."""
    if type(group) not in GROUPS:
        return f"there are no kernels for {type(group).__name__}"
    return kernels.unsupported_reason(MODULES, tensor)


def run(
    inputs: Tensor,
    weights: Weights,
    state: MemoryState,
    options: Options,
    *,
    write: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None = None,
    fresh: MemoryState | None = None,
) -> tuple[Tensor, MemoryState]:
    """Run a memory with its controller over inputs (T, B, X), under autocast in the dtype of the parameters.

    Args:
        inputs: (T, B, X).
        weights: Of the controller and of the heads.
        state: Before the first step. Its C slots are the capacity; the slots behind `count` are not read.
        options: Of the memory.
        write: (T, B) bool: at False nothing is written, and the write head does not move. None: everywhere.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row to `fresh` with an empty memory before the step.
        fresh: A state for a batch of one, whose memory is not read; needed with `starts`.

    Returns:
        outputs (T, B, N), h after each step, and the state after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        TypeError: Inputs or states have another dtype than the parameters, outside autocast.
        UserError: A vector is written to a full memory that forgets nothing.
    """
    device, dtype, hidden_size = inputs.device.type, weights.weight_hh.dtype, weights.weight_hh.shape[1]
    if torch.is_autocast_enabled(device):
        inputs = inputs.to(dtype)
        leaves: Any = (*(leaf.to(dtype) for leaf in state[:-1]), state.count)
        state = MemoryState(*leaves)
    kernels.check_dtypes(dtype, inputs, *state[:-1])
    with torch.autocast(device, enabled=False):
        weight_x, weight_read = weights.weight_ih.split([inputs.shape[2], state.read_vector.shape[1]], dim=1)
        tensors = Tensors(
            inputs,
            weight_x,
            weights.bias,
            torch.cat((weights.weight_hh, weight_read), dim=1),
            weights.head_weight,
            weights.head_bias,
            state.flatten(),
            state.keys,
            state.vectors,
            state.strengths,
            None if starts is None or fresh is None else fresh.flatten()[0],
        )
        fixed = FixedArguments(options, state.count, write, lengths, starts)
        outputs, flat_state, *memory = _Run.apply(fixed, autograd.needs_gradient(tensors), *tensors)
        return outputs, MemoryState.of(flat_state, hidden_size, tuple(memory))


def _reference_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors[6:]

    def run_reference(*given: Any) -> list[Tensor]:
        return reference.run(ctx.fixed, Tensors(*given))

    return None, None, *autograd.differentiate(run_reference, tensors, gradients[:5])


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fixed, needs_gradient, *tensors):
        ctx.set_materialize_grads(False)  # the memory is large, and its gradient is often zero
        arguments, buffer = make_arguments(fixed, Tensors(*tensors))
        results = run_forward(arguments)
        if needs_gradient:
            ctx.save_for_backward(*results[:6], *tensors)
            ctx.fixed, ctx.saved = fixed, (arguments, results.windows, buffer)
        else:
            buffers.release(buffer)
        ctx.mark_non_differentiable(results.count)
        return results[:6]

    @staticmethod
    @autograd.differentiable_by(_reference_backward)
    def backward(ctx, *gradients):
        given = ctx.saved_tensors  # once: gradient checkpointing refuses to unpack them again
        final, tensors = given[:6], Tensors(*given[6:])
        # backward overwrites the saved values: a second backward over the same graph runs forward again
        saved, ctx.saved = ctx.saved, None
        if saved is None:
            arguments, buffer = make_arguments(ctx.fixed, tensors)
            results = run_forward(arguments)
        else:
            arguments, windows, buffer = saved
            values: Any = (*final, windows, False)
            results = Results(*values)
        found = run_backward(arguments, results, gradients[:5], ctx.needs_input_grad[2:])
        buffers.release(buffer)
        return None, None, *found
