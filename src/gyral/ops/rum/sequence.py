"""RUM over a whole sequence: projections and weight gradients are single products, kernels run the recurrence.

`MODULES` names one module of kernels per device type, with the functions that `Kernels` describes. The reference of the
kernels is the loop over `gyral.cells.rum.RUMCell.step`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from gyral.ops import buffers, kernels
from gyral.ops.autograd import once_differentiable

MODULES = {"cpu": "gyral.ops.rum.cpu", "cuda": "gyral.ops.rum.triton"}


class Options(NamedTuple):
    """The options that determine the equations of a step; see `gyral.cells.rum.RUMCell`."""

    activation: str
    update_gate: bool
    eta: float | None


class Problem(NamedTuple):
    """The arguments of a kernel: contiguous tensors on one device, all but `lengths` of one floating dtype.

    Attributes:
        parts: (T, B, G, N), the input's contributions to memory target, update gate (if there is one) and embedded
            input: G is 3 with an update gate, 2 without. Kernels may overwrite it in `forward`, and `backward`
            overwrites it with its gradient.
        weight_hh: ((G − 1) N, N), rows [target; gate].
        hidden: (B, N), the state before the first step.
        memory: (B, N, N), the associative memory before the first step, or None for λ = 0.
        norms: (3, 2, N), gains and biases of the layer normalizations of target, gate and candidate, or None.
        keep: Zoneout: None, a mask (T, B, N) of 0 and 1, or the probability.
        lengths: (B,) int64 in [1, T], or None if every sequence has T steps. Steps beyond the length of a sequence do
            not change its state, and their outputs are zero.
        options: The options of the step.
    """

    parts: Tensor
    weight_hh: Tensor
    hidden: Tensor
    memory: Tensor | None
    norms: Tensor | None
    keep: Tensor | float | None
    lengths: Tensor | None
    options: Options


class Solution(NamedTuple):
    """The return value of `forward`.

    Attributes:
        outputs: (T, B, N), h_t.
        hidden: (B, N), the state after the last step of each sequence.
        memory: (B, N, N), the associative memory after it, or None for λ = 0.
        cosines: (T, B), cos θ_t for the angle from ε̃_t to τ_t, 1 where either is zero; undefined beyond the lengths.
        saved: Further values for `backward`.
    """

    outputs: Tensor
    hidden: Tensor
    memory: Tensor | None
    cosines: Tensor
    saved: tuple[Any, ...]


class Gradients(NamedTuple):
    """The return value of `backward`.

    Attributes:
        parts: (T, B, G, N), the gradient of the parts before `forward`, zero beyond the lengths. The parts of target
            and gate are added to the recurrent product, so that this is the gradient of that product as well.
        bias: (G, N), the sum of `parts` over time and batch.
        hidden, memory: Gradients of the initial state.
        norms: (3, 2, N), or None.
    """

    parts: Tensor
    bias: Tensor
    hidden: Tensor
    memory: Tensor | None
    norms: Tensor | None


class Kernels(Protocol):
    """The interface of a kernel module.

    Attributes:
        DTYPES: Supported dtypes of state and parameters.
        PRODUCT_DTYPES: Further dtypes that the factors of products, `parts` and `weight_hh`, may have under autocast.
    """

    DTYPES: tuple[torch.dtype, ...]
    PRODUCT_DTYPES: tuple[torch.dtype, ...]

    def prepare(self, device: torch.device) -> None:
        """Make the kernels ready to run on a device, or raise `KernelUnavailableError` with the reason."""

    def forward(self, problem: Problem) -> Solution: ...

    def backward(
        self,
        problem: Problem,
        solution: Solution,
        grad_outputs: Tensor,
        grad_hidden: Tensor,
        grad_memory: Tensor | None,
    ) -> Gradients: ...


def unsupported_reason(tensor: Tensor) -> str | None:
    """Return the reason why no kernel supports the device and dtype of a tensor, or None if one does."""
    return kernels.unsupported_reason(MODULES, tensor)


def subcell_problem(
    *,
    parts: Tensor,
    weight_hh: Tensor,
    extra: Tensor | None,
    hidden: Tensor,
    cell: None,
    lengths: Tensor | None,
    keep: Tensor | float | None,
    options: Options,
) -> Problem:
    """Return the problem for λ = 0 of a `gyral.ops.fast_slow.SubCell`: parts (T, B, G N), norms as `extra`."""
    parts = parts.unflatten(-1, (-1, hidden.shape[1]))
    return Problem(parts, weight_hh, hidden, None, extra, keep, lengths, options)


def run(
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    hidden: Tensor,
    memory: Tensor | None,
    norms: Tensor | None,
    *,
    keep: Tensor | float | None,
    lengths: Tensor | None,
    options: Options,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Run RUM over inputs (T, B, X); differentiable once, with respect to all tensors but `keep`.

    Under autocast the products use its dtype if the kernels support it; all other operations use the dtype of the
    parameters.

    Args:
        inputs, weight_ih, weight_hh, bias: See `gyral.cells.rum.RUMCell`.
        hidden, memory, norms, keep, lengths, options: See `Problem`.

    Returns:
        outputs (T, B, N), the hidden state (B, N) and the memory (B, N, N) or None after the last step of each
        sequence, and cos θ_t (T, B), which has no gradient.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        TypeError: Inputs or states have another dtype than the parameters, outside autocast.
    """
    found: Kernels = kernels.find(MODULES, weight_hh)
    device, product_dtype = inputs.device.type, weight_hh.dtype
    if torch.is_autocast_enabled(device):
        inputs, hidden = inputs.to(product_dtype), hidden.to(product_dtype)
        memory = None if memory is None else memory.to(product_dtype)
        if torch.get_autocast_dtype(device) in found.PRODUCT_DTYPES:
            product_dtype = torch.get_autocast_dtype(device)
    kernels.check_dtypes(weight_hh.dtype, inputs, hidden, memory)
    tensors = inputs, weight_ih, weight_hh, bias, hidden, memory, norms
    needs_gradient = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
    with torch.autocast(device, enabled=False):
        return _Run.apply(found, product_dtype, keep, lengths, options, needs_gradient, *tensors)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx, kernels, product_dtype, keep, lengths, options, needs_gradient, *tensors):
        problem = _problem(None, product_dtype, keep, lengths, options, tensors)
        solution = kernels.forward(problem)
        mask, ctx.probability = (keep, None) if isinstance(keep, Tensor) else (None, keep)
        ctx.save_for_backward(mask, lengths, solution.outputs, solution.hidden, solution.memory, *tensors)
        ctx.kernels, ctx.product_dtype, ctx.options = kernels, product_dtype, options
        if needs_gradient:
            ctx.saved = problem.parts, solution.saved
        else:
            buffers.release(problem.parts)
        ctx.mark_non_differentiable(solution.cosines)
        return solution.outputs, solution.hidden, solution.memory, solution.cosines

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_outputs, grad_hidden, grad_memory, _):
        mask, lengths, outputs, final_hidden, final_memory, *tensors = ctx.saved_tensors
        keep, product_dtype = ctx.probability if mask is None else mask, ctx.product_dtype
        # backward overwrites the saved values: a second backward over the same graph runs forward again
        (parts, saved), ctx.saved = ctx.saved or (None, ()), None
        problem = _problem(parts, product_dtype, keep, lengths, ctx.options, tensors)
        if parts is None:
            solution = ctx.kernels.forward(problem)
        else:
            solution = Solution(outputs, final_hidden, final_memory, outputs.new_empty(0), saved)
        gradients = ctx.kernels.backward(problem, solution, grad_outputs, grad_hidden, grad_memory)

        inputs, weight_ih, weight_hh, _, hidden, *_ = tensors
        parts = gradients.parts.flatten(2).to(product_dtype)
        recurrent = parts[..., : len(weight_hh)]
        grad_weight_hh = recurrent[0].T @ hidden.to(product_dtype)
        if len(parts) > 1:
            grad_weight_hh.addmm_(recurrent[1:].flatten(0, 1).T, outputs[:-1].flatten(0, 1).to(product_dtype))
        rows = parts.flatten(0, 1)
        grad_weight_ih = rows.T @ inputs.flatten(0, 1).to(product_dtype)
        grad_inputs = None
        if ctx.needs_input_grad[6]:
            grad_inputs = (rows @ weight_ih.to(product_dtype)).view(inputs.shape).to(inputs.dtype)
        buffers.release(gradients.parts)
        return (
            *(None,) * 6,
            grad_inputs,
            grad_weight_ih.to(weight_ih.dtype),
            grad_weight_hh.to(weight_hh.dtype),
            gradients.bias.flatten(),
            gradients.hidden,
            gradients.memory,
            gradients.norms,
        )


def _problem(
    parts: Tensor | None,
    product_dtype: torch.dtype,
    keep: Tensor | float | None,
    lengths: Tensor | None,
    options: Options,
    tensors: Sequence[Any],
) -> Problem:
    """Return the problem; if `parts` is None, project the inputs of all steps in one product."""
    inputs, weight_ih, weight_hh, bias, hidden, memory, norms = tensors
    if parts is None:
        rows, weight, bias = (tensor.to(product_dtype) for tensor in (inputs.flatten(0, 1), weight_ih, bias))
        buffer = buffers.acquire(len(rows) * len(bias), rows)
        torch.addmm(bias, rows, weight.T, out=buffer.view(len(rows), -1))
        parts = buffer.view(*inputs.shape[:2], -1, hidden.shape[1])
    given: Any = (weight_hh.to(product_dtype), hidden, memory, norms, keep, lengths)
    weight_hh, hidden, memory, norms, keep, lengths = (t.contiguous() if isinstance(t, Tensor) else t for t in given)
    return Problem(parts, weight_hh, hidden, memory, norms, keep, lengths, options)
