"""RUM over a whole sequence at once: projections and weight gradients as single products, the recurrence by kernels.

The kernels lie in `src.ops.kernels`, one module a kind of device, each with the two functions `forward` and `backward`
that `Kernels` describes. The readable loop over `src.cells.rum.RUMCell.step` is what they must agree with.
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from src.ops.kernels import UnavailableError

# of the kernels' rows, G = 3 with an update gate, 2 without: [memory target, (update gate,) embedded input]


class Options(NamedTuple):
    """What decides the formulas of a step, besides the tensors: see `src.cells.rum.RUMCell`."""

    activation: str
    update_gate: bool
    eta: float | None


class Problem(NamedTuple):
    """What a kernel runs on; all but `lengths` of one floating dtype, contiguous, on one device.

    Attributes:
        parts: (T, B, G, N), the input's part of memory target, update gate (if there is one) and embedded input.
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
    """What a module of `src.ops.kernels` provides. DTYPES: what the state and the parameters may be."""

    DTYPES: tuple[torch.dtype, ...]

    def prepare(self) -> None:
        """Make sure that they run; `UnavailableError` says why they do not."""

    def forward(self, problem: Problem) -> Solution: ...

    def backward(
        self,
        problem: Problem,
        solution: Solution,
        grad_outputs: Tensor,
        grad_hidden: Tensor,
        grad_memory: Tensor | None,
    ) -> Gradients: ...


def kernels_for(tensor: Tensor) -> Kernels:
    """Return the kernels for the device and dtype of a tensor, compiled at the first call.

    Raises:
        UnavailableError: there are none, and why.
    """
    kind = tensor.device.type
    if kind == "cpu":
        from src.ops.kernels import rum_cpu

        kernels: Kernels = rum_cpu
    elif kind == "cuda":
        try:
            from src.ops.kernels import rum_triton
        except ImportError as error:
            raise UnavailableError("triton is not installed") from error
        kernels = rum_triton
    else:
        raise UnavailableError(f"there are no kernels for {kind}")
    if tensor.dtype not in kernels.DTYPES:
        raise UnavailableError(f"there are no kernels for {tensor.dtype} on {kind}")
    kernels.prepare()
    return kernels


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

    Args:
        kernels: what runs on the inputs' device.
        inputs, weight_ih, weight_hh, bias: as in `src.cells.rum.RUMCell`.
        hidden, memory, norms, keep, lengths, options: as in `Problem`.

    Returns:
        outputs (T, B, N), the hidden state (B, N) and the memory (B, N, N) or None after each sequence's last step, and
        cos θ_t (T, B), which has no gradient.
    """
    return _Scan.apply(kernels, inputs, weight_ih, weight_hh, bias, hidden, memory, norms, keep, lengths, options)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, kernels, inputs, weight_ih, weight_hh, bias, hidden, memory, norms, keep, lengths, options):
        tensors = inputs, weight_ih, weight_hh, bias, hidden, memory, norms, keep, lengths
        problem = _problem(*tensors, options)
        solution = kernels.forward(problem)
        ctx.kernels, ctx.options = kernels, options
        is_mask = isinstance(keep, Tensor)
        ctx.keep_mean = None if is_mask else keep
        ctx.save_for_backward(*tensors[:7], keep if is_mask else None, lengths, *solution[:3])
        ctx.work = problem.parts, solution.saved
        ctx.mark_non_differentiable(solution.cosines)
        return solution[:4]

    @staticmethod
    def backward(ctx, grad_outputs, grad_hidden, grad_memory, _):
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError("the fused path of RUM has no second derivative; backend=reference has")
        *tensors, keep, lengths, outputs, final_hidden, final_memory = ctx.saved_tensors
        inputs, weight_ih, weight_hh, _, hidden, memory, norms = tensors
        keep = ctx.keep_mean if keep is None else keep
        kernels = ctx.kernels
        if ctx.work is None:  # an earlier backward over the same graph has consumed it
            problem = _problem(*tensors, keep, lengths, ctx.options)
            solution = kernels.forward(problem)
        else:
            (parts, saved), ctx.work = ctx.work, None
            problem = Problem(parts, weight_hh, hidden, memory, norms, keep, lengths, ctx.options)
            solution = Solution(outputs, final_hidden, final_memory, None, saved)
        gradients = kernels.backward(problem, solution, grad_outputs, grad_hidden, grad_memory)

        steps, batch, _ = outputs.shape
        parts = gradients.parts.view(steps * batch, -1)
        recurrent = parts.view(steps, batch, -1)[..., : weight_hh.shape[0]]
        grad_weight_hh = recurrent[0].T @ hidden
        if steps > 1:
            grad_weight_hh.addmm_(recurrent[1:].flatten(0, 1).T, outputs[:-1].flatten(0, 1))
        wants_inputs = ctx.needs_input_grad[1]
        return (
            None,
            (parts @ weight_ih).view_as(inputs) if wants_inputs else None,
            parts.T @ inputs.flatten(0, 1),
            grad_weight_hh,
            gradients.bias.flatten(),
            gradients.hidden,
            gradients.memory,
            gradients.norms,
            None,
            None,
            None,
        )


def _problem(inputs, weight_ih, weight_hh, bias, hidden, memory, norms, keep, lengths, options) -> Problem:
    """Project the inputs of all steps in one product."""
    size = hidden.shape[1]
    parts = torch.addmm(bias, inputs.flatten(0, 1), weight_ih.T).view(*inputs.shape[:2], -1, size)
    tensors = (weight_hh, hidden, memory, norms, keep, lengths)
    return Problem(parts, *(t.contiguous() if isinstance(t, Tensor) else t for t in tensors), options)
