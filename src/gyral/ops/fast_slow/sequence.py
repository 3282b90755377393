"""Networks of several recurrences per step, over a whole sequence: the fused path of `gyral.cells.fs_rnn`.

Each step runs its subcells one after another. The first subcell reads the inputs of the sequence, whose projections
are one product; a later subcell reads the outputs of an earlier one, or nothing. Subcells may share a state: one
updates it after the other, and the next step starts from the last update. A subcell is a recurrence of
`gyral.ops.gated` or of `gyral.ops.rum` with λ = 0. `gyral.ops.fast_slow.reference` has the loop in plain torch, which
also gives second derivatives.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gyral.ops import autograd, buffers, kernels
from gyral.ops.fast_slow import reference
from gyral.ops.fast_slow.arguments import (
    MODULES,
    Connections,
    FixedArguments,
    State,
    SubCell,
    Tensors,
    make_arguments,
    weight_gradients,
)


def unsupported_reason(tensor: Tensor) -> str | None:
    """Return the reason why no kernel supports the device and dtype of a tensor, or None if one does."""
    return kernels.unsupported_reason(MODULES, tensor)


def run(
    inputs: Tensor,
    subcells: Sequence[SubCell],
    connections: Connections,
    states: Sequence[State],
    lengths: Tensor | None,
    starts: Tensor | None = None,
) -> tuple[Tensor, list[State]]:
    """Run the subcells over inputs (T, B, X), under autocast in the dtype of the parameters.

    Args:
        inputs: (T, B, X), the inputs of the first subcell.
        subcells: In the order in which they run.
        connections: How they are connected.
        states: Before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets all states of the row to zero before the step.

    Returns:
        outputs (T, B, H) of the last subcell, and the states after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        TypeError: Inputs or states have another dtype than the parameters, outside autocast.
    """
    device, dtype = inputs.device.type, subcells[0].weight_hh.dtype
    leaves: list[Any] = [leaf for state in states for leaf in state]
    if torch.is_autocast_enabled(device):
        inputs = inputs.to(dtype)
        leaves = [None if leaf is None else leaf.to(dtype) for leaf in leaves]
    kernels.check_dtypes(dtype, inputs, *leaves)
    weights = [tensor for own in subcells for tensor in (own.weight_ih, own.bias, own.weight_hh, own.extra)]
    tensors = (inputs, *weights, *leaves)
    needs_gradient = autograd.needs_gradient(tensors)
    with torch.autocast(device, enabled=False):
        fixed = FixedArguments(connections, tuple(subcell.make_arguments for subcell in subcells), lengths, starts)
        outputs, *found = _Run.apply(fixed, needs_gradient, *tensors)
    final = list(zip(found[0 : len(leaves) : 2], found[1 : len(leaves) : 2], strict=True))
    for subcell, scalars in zip(subcells, found[len(leaves) :], strict=True):
        if subcell.cosines is not None:
            subcell.cosines.extend(scalars[..., 2].unbind(0))
    return outputs, final


def _reference_backward(ctx, *gradients):
    fixed: FixedArguments = ctx.fixed
    _, *tensors = ctx.saved_tensors
    states = len(set(fixed.connections.states))

    def run_reference(*given):
        return reference.run(fixed, Tensors.of(fixed.connections, given))

    return None, None, *autograd.differentiate(run_reference, tensors, gradients[: 1 + 2 * states])


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fixed, needs_gradient, *tensors):
        arguments, buffer = make_arguments(fixed, Tensors.of(fixed.connections, tensors))
        results = kernels.find(MODULES, buffer).forward(arguments)
        if needs_gradient:
            ctx.save_for_backward(arguments.outputs[-1], *tensors)
            # without the returned outputs, whose graph holds this context: that would be a reference cycle
            ctx.saved = arguments._replace(outputs=arguments.outputs[:-1]), results.scalars, buffer
            ctx.fixed = fixed
        else:
            buffers.release(buffer)
        scalars = [tensor for tensor in results.scalars if tensor is not None]
        ctx.mark_non_differentiable(*scalars)
        return arguments.outputs[-1], *(leaf for state in results.final for leaf in state), *results.scalars

    @staticmethod
    @autograd.differentiable_by(_reference_backward)
    def backward(ctx, grad_outputs, *grads):
        last_outputs, *saved = ctx.saved_tensors
        tensors = Tensors.of(ctx.fixed.connections, saved)
        # backward overwrites the saved values: a second backward over the same graph runs forward again
        saved_values, ctx.saved = ctx.saved, None
        if saved_values is None:
            arguments, buffer = make_arguments(ctx.fixed, tensors)
            scalars = kernels.find(MODULES, buffer).forward(arguments).scalars
        else:
            arguments, scalars, buffer = saved_values
            arguments = arguments._replace(outputs=(*arguments.outputs, last_outputs))
        module = kernels.find(MODULES, buffer)
        states = len(tensors.states)
        grad_states = tuple(zip(grads[0 : 2 * states : 2], grads[1 : 2 * states : 2], strict=True))
        gradients = module.backward(arguments, scalars, grad_outputs, grad_states)

        found: list[Tensor | None] = []
        for index in range(len(arguments.subcells)):
            found += weight_gradients(arguments, index, tensors.inputs)
            found.append(gradients.extra[index])
        found += [leaf for state in gradients.states for leaf in state]
        grad_inputs = None
        if ctx.needs_input_grad[2]:
            weight_ih = arguments.weights_ih[0]
            rows = arguments.subcells[0].parts.view(tensors.inputs.shape[:2].numel(), len(weight_ih))
            grad_inputs = (rows @ weight_ih).view(tensors.inputs.shape)
        buffers.release(buffer)
        return None, None, grad_inputs, *found
