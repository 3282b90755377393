"""External memories with slots, those of NTM and DNC, and a controller, over a whole sequence.

    h_t = controller([x_t; r_{t−1}])
    r_t, memory_t = step(W h_t + b, memory_{t−1})
    output = [h_t; r_t]

`ntm` and `dnc` have the steps of the memories in plain torch, and `naive` has the loop, for second derivatives.
"""

from typing import Any

import torch
from torch import Tensor

from gyral.ops import autograd, buffers, kernels
from gyral.ops.slot_memory import naive
from gyral.ops.slot_memory.arguments import CONTROLLERS, FixedArguments, Memory, Tensors, flatten, unflatten
from gyral.ops.slot_memory.dnc import DNCMemory
from gyral.ops.slot_memory.ntm import NTMMemory

__all__ = ["CONTROLLERS", "MODULES", "DNCMemory", "Memory", "NTMMemory", "run", "unsupported_reason"]

MODULES = {"cpu": "gyral.ops.slot_memory.cpu"}


def unsupported_reason(tensor: Tensor) -> str | None:
    """Return the reason why no kernel supports the device and dtype of a tensor, or None if one does."""
    return kernels.unsupported_reason(MODULES, tensor)


def run(
    inputs: Tensor,
    weight_ih: Tensor,
    bias: Tensor | None,
    weight_hh: Tensor | None,
    interface_weight: Tensor,
    interface_bias: Tensor,
    state: tuple[Tensor, ...],
    memory: Memory,
    *,
    controller: str = "lstm",
    write: Tensor | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    fresh: tuple[Tensor, ...] | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run a memory with its controller over inputs (T, B, X), under autocast in the dtype of the parameters.

    Args:
        inputs: (T, B, X).
        weight_ih: (G, X + R · W), of the input and of the read vectors; G = 4N of an LSTM, rows [i; f; g; o], or N.
        bias: (G,) or None.
        weight_hh: (4N, N) of an LSTM, else None.
        interface_weight, interface_bias: (K, N) and (K,), K = `memory.outputs_size`.
        state: Before the first step: h and c (B, N) of an LSTM, the read vector (B, R · W), and the tensors of the
            state of the memory.
        memory: The kind and the sizes of the memory.
        controller: "lstm", or the activation of a feedforward controller, "tanh" or "relu".
        write: (T, B) bool: where the memory may be written. None: everywhere.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row to `fresh` before the step.
        fresh: A state for a batch of one; needed with `starts`.

    Returns:
        outputs (T, B, N + R · W), and the state after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        TypeError: Inputs or states have another dtype than the parameters, outside autocast.
    """
    device, dtype, hidden_size = inputs.device.type, weight_ih.dtype, interface_weight.shape[1]
    if torch.is_autocast_enabled(device):
        inputs, state = inputs.to(dtype), tuple(leaf.to(dtype) for leaf in state)
    kernels.check_dtypes(dtype, inputs, *state)
    with torch.autocast(device, enabled=False):
        weight_x, weight = weight_ih.tensor_split([inputs.shape[2]], dim=1)
        if weight_hh is not None:
            weight = torch.cat((weight_hh, weight), dim=1)
        given = Tensors(
            inputs,
            weight_x,
            bias,
            weight,
            interface_weight,
            interface_bias,
            flatten(state, controller),
            None if starts is None or fresh is None else flatten(fresh, controller)[0],
        )
        fixed = FixedArguments(memory, controller, write, lengths, starts)
        outputs, final = _Run.apply(fixed, autograd.needs_gradient(given), *given)
        return outputs, unflatten(final, memory, controller, hidden_size)


def _naive_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    def run_naive(*given: Any) -> list[Tensor]:
        return naive.run(ctx.fixed, Tensors(*given))

    return None, None, *autograd.differentiate(run_naive, ctx.saved_tensors[1:], gradients)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fixed, needs_gradient, *given):
        ctx.set_materialize_grads(False)  # the state is large, and its gradient is often zero
        ctx.fixed = FixedArguments(*fixed[:2], *(None if mask is None else mask.contiguous() for mask in fixed[2:]))
        outputs, final, saved = _forward(ctx.fixed, given, keep=needs_gradient)
        if needs_gradient:
            ctx.save_for_backward(outputs, *given)
            ctx.saved = saved
        else:
            buffers.release(saved.buffer)
        return outputs, final

    @staticmethod
    @autograd.differentiable_by(_naive_backward)
    def backward(ctx, *gradients):
        outputs, *given = ctx.saved_tensors  # once: gradient checkpointing refuses to unpack them again
        # backward overwrites the saved values: a second backward over the same graph runs forward again
        saved, ctx.saved = ctx.saved, None
        if saved is None:
            outputs, _, saved = _forward(ctx.fixed, given, keep=True)
        tensors = _contiguous(given)
        found = kernels.find(MODULES, outputs).backward(ctx.fixed, tensors, saved, outputs, gradients)
        parts, seen, interface = (part.flatten(0, 1) for part in (saved.parts, saved.seen, saved.interface))
        hidden = outputs[..., : tensors.interface_weight.shape[1]].flatten(0, 1)
        inputs = tensors.inputs
        products = [
            (parts @ tensors.weight_x).view(inputs.shape) if ctx.needs_input_grad[2] else None,
            (inputs.flatten(0, 1).T @ parts).T,  # twice as fast as the transposed product
            None if tensors.bias is None else parts.sum(0),
            parts.T @ seen,
            interface.T @ hidden,
            interface.sum(0),
        ]
        buffers.release(saved.buffer)
        return None, None, *products, *found


def _contiguous(given: Any) -> Tensors:
    tensors: Any = (None if tensor is None else tensor.contiguous() for tensor in given)
    return Tensors(*tensors)


def _forward(fixed: FixedArguments, given: Any, keep: bool) -> Any:
    tensors = _contiguous(given)
    return kernels.find(MODULES, tensors.inputs).forward(fixed, tensors, keep)
