"""RUM over a whole sequence at once: projections and weight gradients as single products, the recurrence by kernels.

The kernels lie in `gyral.ops.kernels`, one module a kind of device, each with the two functions `forward` and `backward`
that `Kernels` describes. The readable loop over `gyral.cells.rum.RUMCell.step` is what they must agree with.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from gyral.ops import buffers, kernels
from gyral.ops.differentiation import first_derivative

MODULES = {"cpu": "gyral.ops.rum.cpu", "cuda": "gyral.ops.rum.triton"}  # imported when wanted


class Options(NamedTuple):
    """What decides the formulas of a step, besides the tensors: see `gyral.cells.rum.RUMCell`."""

    activation: str
    update_gate: bool
    eta: float | None


class Problem(NamedTuple):
    """What a kernel runs on; all but `lengths` of one floating dtype, contiguous, on one device.

    Attributes:
        parts: (T, B, G, N), the input's part of memory target, update gate (if there is one) and embedded input: G is
            3 with an update gate, 2 without.
            Consumed: kernels may overwrite it in both directions, and must in `backward`.
        weight_hh: ((G − 1) N, N), rows [target; gate].
        hidden: (B, N), the state before the first step.
        memory: (B, N, N), the associative memory before the first step, or None for λ = 0.
        norms: (3, 2, N), gains and biases of the layer normalizations of target, gate, candidate, or None.
        keep: zoneout: None, a mask (T, B, N) of 0 and 1, or the probability.
        lengths: (B,) int64 in [1, T], or None where every sequence has T steps. Steps beyond a sequence's length leave
            its state alone and put out zeros.
        options: what the formulas are.
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
    """What `forward` returns.

    Attributes:
        outputs: (T, B, N), h_t.
        hidden: (B, N), the state after each sequence's last step.
        memory: (B, N, N) after it, or None for λ = 0.
        cosines: (T, B), cos θ_t, the angle from ε̃_t to τ_t, 1 where either is zero; undefined beyond the lengths.
        saved: what else `backward` wants.
    """

    outputs: Tensor
    hidden: Tensor
    memory: Tensor | None
    cosines: Tensor
    saved: tuple[Any, ...]


class Gradients(NamedTuple):
    """What `backward` returns.

    Attributes:
        parts: (T, B, G, N) gradient of the parts as they were before `forward`, zero beyond the lengths. (A part of the
            target and the gate is added to the recurrent product, so this is the gradient of that product, too.)
        bias: (G, N), the sum of `parts` over time and batch.
        hidden, memory: gradients of the initial state.
        norms: (3, 2, N), or None.
    """

    parts: Tensor
    bias: Tensor
    hidden: Tensor
    memory: Tensor | None
    norms: Tensor | None


class Kernels(Protocol):
    """What a module of `gyral.ops.kernels` provides.

    Attributes:
        DTYPES: what the state and the parameters may be.
        PRODUCTS: what else the factors of products may be, under autocast: the problem's `parts` and `weight_hh`.
    """

    DTYPES: tuple[torch.dtype, ...]
    PRODUCTS: tuple[torch.dtype, ...]

    def prepare(self, device: torch.device) -> None:
        """Make sure that they run there; `KernelUnavailableError` says why they do not."""

    def forward(self, problem: Problem) -> Solution: ...

    def backward(
        self,
        problem: Problem,
        solution: Solution,
        grad_outputs: Tensor,
        grad_hidden: Tensor,
        grad_memory: Tensor | None,
    ) -> Gradients: ...


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
    """Return the problem of λ = 0 from what `gyral.ops.fast_slow.sequence.SubCell` has, parts (T, B, G·N) and norms as `extra`."""
    parts = parts.unflatten(-1, (-1, hidden.shape[1]))
    return Problem(parts, weight_hh, hidden, None, extra, keep, lengths, options)


def kernels_for(tensor: Tensor) -> Kernels:
    """Return the kernels for the device and dtype of a tensor, compiled at the first call.

    Raises:
        KernelUnavailableError: there are none, and why.
    """
    found: Kernels = kernels.find(MODULES, tensor)
    return found


def scan(
    kernels: Kernels,
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    hidden: Tensor,
    memory: Tensor | None,
    norms: Tensor | None,
    keep: Tensor | float | None,
    lengths: Tensor | None,
    options: Options,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Run RUM over inputs (T, B, X); differentiable once, in everything but `keep`.

    Under autocast the products have its type where the kernels can have it; all else has that of the parameters.

    Args:
        kernels: what runs on the inputs' device.
        inputs, weight_ih, weight_hh, bias: as in `gyral.cells.rum.RUMCell`.
        hidden, memory, norms, keep, lengths, options: as in `Problem`.

    Returns:
        outputs (T, B, N), the hidden state (B, N) and the memory (B, N, N) or None after each sequence's last step, and
        cos θ_t (T, B), which has no gradient.
    """
    device, products = inputs.device.type, weight_hh.dtype
    if torch.is_autocast_enabled(device):
        inputs, hidden, memory = (
            inputs.to(products),
            hidden.to(products),
            None if memory is None else memory.to(products),
        )
        if torch.get_autocast_dtype(device) in kernels.PRODUCTS:
            products = torch.get_autocast_dtype(device)
    others = [t.dtype for t in (inputs, hidden, memory) if t is not None and t.dtype != weight_hh.dtype]
    if others:
        raise TypeError(f"inputs and states must be of the parameters' type, {weight_hh.dtype}, not {others[0]}")
    tensors = inputs, weight_ih, weight_hh, bias, hidden, memory, norms
    wanted = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
    with torch.autocast(device, enabled=False):
        return _Scan.apply(kernels, products, keep, lengths, options, wanted, *tensors)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, kernels, products, keep, lengths, options, will_be_differentiated, *tensors):
        problem = _problem(None, products, keep, lengths, options, tensors)
        solution = kernels.forward(problem)
        mask, ctx.probability = (keep, None) if isinstance(keep, Tensor) else (None, keep)
        ctx.save_for_backward(mask, lengths, solution.outputs, solution.hidden, solution.memory, *tensors)
        ctx.kernels, ctx.products, ctx.options = kernels, products, options
        if will_be_differentiated:
            ctx.work = problem.parts, solution.saved
        else:
            buffers.give(problem.parts)
        ctx.mark_non_differentiable(solution.cosines)
        return solution.outputs, solution.hidden, solution.memory, solution.cosines

    @staticmethod
    @first_derivative
    def backward(ctx, grad_outputs, grad_hidden, grad_memory, _):
        mask, lengths, outputs, final_hidden, final_memory, *tensors = ctx.saved_tensors
        keep, products = ctx.probability if mask is None else mask, ctx.products
        # an earlier backward over the same graph has consumed it
        (parts, saved), ctx.work = ctx.work or (None, ()), None
        problem = _problem(parts, products, keep, lengths, ctx.options, tensors)
        if parts is None:
            solution = ctx.kernels.forward(problem)
        else:
            solution = Solution(outputs, final_hidden, final_memory, outputs.new_empty(0), saved)
        gradients = ctx.kernels.backward(problem, solution, grad_outputs, grad_hidden, grad_memory)

        inputs, weight_ih, weight_hh, _, hidden, *_ = tensors
        parts = gradients.parts.flatten(2).to(products)
        recurrent = parts[..., : len(weight_hh)]
        grad_weight_hh = recurrent[0].T @ hidden.to(products)
        if len(parts) > 1:
            grad_weight_hh.addmm_(recurrent[1:].flatten(0, 1).T, outputs[:-1].flatten(0, 1).to(products))
        rows = parts.flatten(0, 1)
        grad_weight_ih = rows.T @ inputs.flatten(0, 1).to(products)
        wants_inputs = ctx.needs_input_grad[6]
        grad_inputs = (rows @ weight_ih.to(products)).view(inputs.shape) if wants_inputs else None
        buffers.give(gradients.parts)
        return (
            *(None,) * 6,
            grad_inputs if grad_inputs is None else grad_inputs.to(inputs.dtype),
            grad_weight_ih.to(weight_ih.dtype),
            grad_weight_hh.to(weight_hh.dtype),
            gradients.bias.flatten(),
            gradients.hidden,
            gradients.memory,
            gradients.norms,
        )


def _problem(
    parts: Tensor | None,
    products: torch.dtype,
    keep: Tensor | float | None,
    lengths: Tensor | None,
    options: Options,
    tensors: Sequence[Any],
) -> Problem:
    """Return the problem; unless the parts are given, the inputs of all steps are projected in one product."""
    inputs, weight_ih, weight_hh, bias, hidden, memory, norms = tensors
    if parts is None:
        rows, weight, bias = (tensor.to(products) for tensor in (inputs.flatten(0, 1), weight_ih, bias))
        buffer = buffers.take(len(rows) * len(bias), rows)
        torch.addmm(bias, rows, weight.T, out=buffer.view(len(rows), -1))
        parts = buffer.view(*inputs.shape[:2], -1, hidden.shape[1])
    given: Any = (weight_hh.to(products), hidden, memory, norms, keep, lengths)
    weight_hh, hidden, memory, norms, keep, lengths = (t.contiguous() if isinstance(t, Tensor) else t for t in given)
    return Problem(parts, weight_hh, hidden, memory, norms, keep, lengths, options)
