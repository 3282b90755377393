"""The interface of the kernels of `gyral.ops.rum`, and the products before and after them."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from gyral.ops import buffers, kernels
from gyral.ops.rum.reference import FixedArguments, Options, Tensors

MODULES = {"cpu": "gyral.ops.rum.cpu", "cuda": "gyral.ops.rum.triton"}


class Arguments(NamedTuple):
    """The arguments of a kernel: contiguous tensors on one device, all but `lengths` and `starts` of one dtype.

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
        starts: (T, B) bool, or None. True resets the state to h = 0 and R = I before the step.
    """

    parts: Tensor
    weight_hh: Tensor
    hidden: Tensor
    memory: Tensor | None
    norms: Tensor | None
    keep: Tensor | float | None
    lengths: Tensor | None
    options: Options
    starts: Tensor | None = None


class Results(NamedTuple):
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

    def allocate(self, arguments: Arguments, resets: int) -> Results:
        """Return uninitialized results with room for `resets` saved memories; they share no memory with `arguments`."""

    def forward(self, arguments: Arguments) -> Results: ...

    def backward(
        self,
        arguments: Arguments,
        results: Results,
        grad_outputs: Tensor,
        grad_hidden: Tensor,
        grad_memory: Tensor | None,
    ) -> Gradients: ...


def find_kernels(fixed: FixedArguments, tensors: Tensors) -> tuple[Kernels, torch.dtype]:
    """Return the kernels, and the dtype of the products' factors: the autocast dtype if the kernels support it.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype.
    """
    found: Kernels = kernels.find(MODULES, tensors.weight_hh)
    wanted = fixed.autocast_dtype
    return found, wanted if wanted is not None and wanted in found.PRODUCT_DTYPES else tensors.weight_hh.dtype


def make_arguments(
    fixed: FixedArguments, tensors: Tensors, dtype: torch.dtype, parts: Tensor | None = None, pooled: bool = False
) -> Arguments:
    """Return the arguments for the arguments of `gyral.ops.rum.run`.

    Args:
        dtype: The dtype of the products' factors.
        parts: See `Arguments`; if None, the inputs of all steps are projected in one product.
        pooled: Whether the parts are a buffer of `gyral.ops.buffers`.
    """
    inputs, weight_ih, weight_hh, bias, hidden, memory, norms = tensors
    if parts is None:
        rows, weight, bias = inputs.flatten(0, 1).to(dtype), weight_ih.to(dtype), bias.to(dtype)
        out = buffers.acquire(len(rows) * len(bias), rows).view(len(rows), len(bias)) if pooled else None
        parts = torch.addmm(bias, rows, weight.T, out=out).view(
            *inputs.shape[:2], len(bias) // hidden.shape[1], hidden.shape[1]
        )
    keep, lengths, starts, options, _ = fixed
    given: Any = (parts, weight_hh.to(dtype), hidden, memory, norms, keep, lengths, options, starts)
    contiguous: Any = [value.contiguous() if isinstance(value, Tensor) else value for value in given]
    return Arguments(*contiguous)


def count_resets(arguments: Arguments) -> int:
    """Return the number of memories that resets replace, which backward needs; on a GPU the call waits for it."""
    return 0 if arguments.starts is None or arguments.memory is None else int(arguments.starts.sum())


def number_resets(arguments: Arguments, slots: Tensor) -> None:
    """Write to `slots` (T, B) the number of each reset, from 0."""
    if arguments.starts is not None:
        torch.cumsum(arguments.starts.flatten(), 0, out=slots.view(-1)).sub_(1)


def run_backward(
    found: Kernels,
    arguments: Arguments,
    results: Results,
    tensors: Tensors,
    gradients: Sequence[Tensor | None],
    *,
    needs_inputs: bool,
) -> tuple[Tensor, list[Tensor | None]]:
    """Run the kernels backward; return the gradients of the parts and of `tensors`."""
    inputs, weight_ih, weight_hh, *_ = tensors
    dtype = arguments.weight_hh.dtype
    grad_outputs, grad_hidden, grad_memory = gradients
    assert grad_outputs is not None
    assert grad_hidden is not None
    gradient = found.backward(arguments, results, grad_outputs, grad_hidden, grad_memory)
    parts = gradient.parts.flatten(2).to(dtype)
    recurrent = parts[..., : len(weight_hh)]
    first, later = arguments.hidden.to(dtype), results.outputs[:-1].to(dtype)
    if arguments.starts is not None:  # after a reset the product has read zeros
        first = first.masked_fill(arguments.starts[0].unsqueeze(-1), 0.0)
        later = later.masked_fill(arguments.starts[1:].unsqueeze(-1), 0.0)
    grad_weight_hh = recurrent[0].T @ first
    if len(parts) > 1:
        grad_weight_hh.addmm_(recurrent[1:].flatten(0, 1).T, later.flatten(0, 1))
    rows = parts.flatten(0, 1)
    grad_weight_ih = rows.T @ inputs.flatten(0, 1).to(dtype)
    grad_inputs = (rows @ weight_ih.to(dtype)).view(inputs.shape).to(inputs.dtype) if needs_inputs else None
    return gradient.parts, [
        grad_inputs,
        grad_weight_ih.to(weight_ih.dtype),
        grad_weight_hh.to(weight_hh.dtype),
        gradient.bias.flatten(),
        gradient.hidden,
        gradient.memory,
        gradient.norms,
    ]
