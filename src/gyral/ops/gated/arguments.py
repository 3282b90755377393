"""The interface of the kernels of `gyral.ops.gated`, and the products before and after them."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.ops import buffers, kernels
from gyral.ops.sequences import project

MODULES = {"cpu": "gyral.ops.gated.cpu"}

# In the order of their numbers in gated.hpp.
KINDS = (
    "modrelu",  # h = modReLU(z; b), real: G = H = N
    "complex_modrelu",  # the same for N complex numbers, real parts before imaginary parts: G = H = 2N
    "goru",  # `gyral.cells.goru`: G = 3N, rows [W_r; W_g; U]
    "on_lstm",  # `gyral.cells.on_lstm`: G = 2D + 4N, with a cell state
    "weinet",  # `gyral.cells.weinet`: G = 7N, W (4N, N); the cell state (N²) is the memory
    "lstm",  # `gyral.cells.lstm`: G = 4N, rows [i; f; g; o], with a cell state
    "normalized_lstm",  # the same with layer normalization
    "gru",  # `gyral.cells.gru`: G = 3N, rows [r; z; n]
    "rnn_tanh",  # `gyral.cells.rnn`: G = N
    "rnn_relu",  # the same with another nonlinearity
)
# Kinds whose last N columns of the product are not only added to the last columns of P_t; backward needs them.
KEEPS_PRODUCT = ("goru", "gru")


class Arguments(NamedTuple):
    """The arguments of a kernel.

    T steps, B batch size, H width of the hidden vector, C width of the cell state, N units, G width of the parts.

    Attributes:
        kind: One of `KINDS`.
        parts: (T, B, G), P_t. `forward` overwrites it with values for `backward`, which overwrites it with its
            gradient.
        weight_hh: W (R, H) with R ≤ G: the product is added to the first R columns of the parts. With `partner`: own
            and other (2, L, H) of L ≥ 1 layers of plane rotations whose product is W; complex numbers have real parts
            before imaginary parts.
        extra: Further parameters or None: the biases of modReLU (N,); gain and bias of a normalization (2, N); for
            normalized_lstm (10N,) the concatenation of gains (4N) and biases (4N) of the gates, gain (N) and bias (N)
            of c; for gru the bias (N,) of the recurrent product in the candidate.
        hidden, cell_state: (B, H) and (B, C) before the first step; `cell_state` is None without a cell state.
        keep: Zoneout of the hidden vector: a mask (T, B, H) in training, the probability in evaluation, or None.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        units: N.
        chunk: Number of units that share an entry of a master gate, for on_lstm.
        keep_cell_state: Zoneout of the cell state (T, B, C), as `keep`, only for LSTMs.
        drop: Recurrent dropout: factors (B, H) of the hidden vector in the product, or None.
        starts: (T, B) bool, or None. True resets the row to `fresh`, with a cell state of zeros, before the step.
        fresh: (H,), or None stands for zeros.
        epsilon: What layer normalization adds to the variance.
        partner: (L, N) int64, see `gyral.ops.unitary.Rotations`, for the two kinds of modReLU; None for a dense W.
    """

    kind: str
    parts: Tensor
    weight_hh: Tensor
    extra: Tensor | None
    hidden: Tensor
    cell_state: Tensor | None
    keep: Tensor | float | None
    lengths: Tensor | None
    units: int
    chunk: int
    keep_cell_state: Tensor | float | None
    drop: Tensor | None
    starts: Tensor | None = None
    fresh: Tensor | None = None
    epsilon: float = 1e-5
    partner: Tensor | None = None


class Results(NamedTuple):
    """The return value of `forward`.

    Attributes:
        outputs: (T, B, H).
        hidden, cell_state: (B, H) and (B, C) after the last step of each sequence; `cell_state` is None for kinds
            without one.
        cell_states: (T, B, C), the cell states of all steps, for `backward`.
        kept: (T, B, N), the part of the product that `KEEPS_PRODUCT` describes, for `backward`.
    """

    outputs: Tensor
    hidden: Tensor
    cell_state: Tensor | None
    cell_states: Tensor | None
    kept: Tensor | None


class Gradients(NamedTuple):
    """Gradients of P (T, B, G), the kept part of the product (T, B, N), the initial state, `extra` and `fresh`.

    `weight_hh` is None for a dense matrix; `weight_gradient` computes its gradient.
    """

    parts: Tensor
    kept: Tensor | None
    hidden: Tensor
    cell_state: Tensor | None
    extra: Tensor | None
    fresh: Tensor | None
    weight_hh: Tensor | None


class FixedArguments(NamedTuple):
    """The arguments of a sequence that have no gradient; see `Arguments`."""

    kind: str
    keep: Tensor | float | None
    lengths: Tensor | None
    units: int
    chunk: int
    keep_cell_state: Tensor | float | None
    drop: Tensor | None
    starts: Tensor | None
    epsilon: float
    partner: Tensor | None


class Tensors(NamedTuple):
    """The arguments of a sequence that have a gradient: inputs (T, B, X), W_ih (G, X), b (G,); see `Arguments`."""

    inputs: Tensor
    weight_ih: Tensor
    bias: Tensor | None
    weight_hh: Tensor
    extra: Tensor | None
    hidden: Tensor
    cell_state: Tensor | None
    fresh: Tensor | None


def make_arguments(fixed: FixedArguments, tensors: Tensors, parts: Tensor | None = None) -> Arguments:
    """Return the arguments; if `parts` is None, project the inputs of all steps in one product."""
    if parts is None:
        shape = *tensors.inputs.shape[:2], len(tensors.weight_ih)
        parts = buffers.acquire(math.prod(shape), tensors.inputs).view(shape)
        project(tensors.inputs, tensors.weight_ih, tensors.bias, out=parts)
    given: Any = fixed._asdict() | {
        name: getattr(tensors, name) for name in ("weight_hh", "extra", "hidden", "cell_state", "fresh")
    }
    given = {name: t.contiguous() if isinstance(t, Tensor) else t for name, t in given.items()}
    return Arguments(parts=parts, **given)


def run_forward(arguments: Arguments) -> Results:
    """Run the kernels forward."""
    results: Results = kernels.find(MODULES, arguments.parts).forward(arguments)
    return results


def run_backward(
    arguments: Arguments,
    results: Results,
    tensors: Tensors,
    gradients: tuple[Tensor, Tensor, Tensor | None],
    needs_inputs: bool,
) -> list[Tensor | None]:
    """Run the kernels backward; return the gradient of each of `tensors`.

    Args:
        arguments, results: `backward` of the kernels overwrites the parts and the kept part of the product.
        tensors: The arguments of the sequence.
        gradients: Gradients of the outputs, the final hidden vector and the final cell state.
        needs_inputs: Whether to compute the gradient of the inputs; else it is None.
    """
    found = kernels.find(MODULES, arguments.parts).backward(arguments, results, *gradients)
    parts: Tensor = found.parts
    rows = parts.flatten(0, 1)
    # the gradient of the product equals the gradient of the parts, except in the kept part
    grad_weight_hh = found.weight_hh
    if grad_weight_hh is None:
        reads = arguments.hidden, results.outputs, arguments.drop, arguments.starts, arguments.fresh
        added = len(arguments.weight_hh) - (0 if found.kept is None else arguments.units)
        grad_weight_hh = weight_gradient(parts[..., :added], *reads)
        if found.kept is not None:
            grad_weight_hh = torch.cat((grad_weight_hh, weight_gradient(found.kept, *reads)))
    return [
        (rows @ tensors.weight_ih).view(tensors.inputs.shape) if needs_inputs else None,
        rows.T @ tensors.inputs.flatten(0, 1),
        None if tensors.bias is None else rows.sum(0),
        grad_weight_hh,
        found.extra,
        found.hidden,
        found.cell_state,
        found.fresh,
    ]


def weight_gradient(
    grad_products: Tensor,
    hidden: Tensor,
    outputs: Tensor,
    drop: Tensor | None = None,
    starts: Tensor | None = None,
    fresh: Tensor | None = None,
) -> Tensor:
    """Return the gradient (R, H) of W.

    Args:
        grad_products: Gradients (T, B, R) of the products; overwritten during the call.
        hidden, outputs: The hidden vectors (B, H) before the first step and (T, B, H) after each step.
        drop, starts, fresh: See `Arguments`.
    """
    if drop is not None:
        hidden, outputs = hidden * drop, outputs * drop
    if starts is not None:  # these few products read `fresh`
        begins = starts.nonzero(as_tuple=True)
        apart = grad_products[begins]
        grad_products[begins] = 0.0
    gradient = grad_products[0].T @ hidden
    if len(grad_products) > 1:
        gradient.addmm_(grad_products[1:].flatten(0, 1).T, outputs[:-1].flatten(0, 1))
    if starts is not None:
        grad_products[begins] = apart
        if fresh is not None:
            gradient.addmm_(apart.T, fresh.expand(len(apart), -1) if drop is None else fresh * drop[begins[1]])
    return gradient
