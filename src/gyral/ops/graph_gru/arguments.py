"""The interface of the kernels of `gyral.ops.graph_gru`, and the products before and after them.

T steps, B batch size, X inputs, N units, E edge types, D edges of one type per step, C hidden vectors in the memory
before the first step and C' in that after the last one, G width of what a step gathers.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops import buffers, kernels
from gyral.ops.sequences import project

MODULES = {"cpu": "gyral.ops.graph_gru.cpu"}


class FixedArguments(NamedTuple):
    """The arguments of a sequence that have no gradient.

    Attributes:
        earlier: (T, B, E, D) int64, see `gyral.core.edges.Edges`, or None: there are only edges to the next step.
        first_size: Width of the slice of type 0.
        edge_size: Width of the slice of each other type; None: every slice is the whole vector.
        capacity: C'.
        linked: Whether the carried vector is the gathered one, not h_{t−1}.
        lengths: (B,) int64 in [1, T], or None.
        since: (T, B) int64: edges from before this step count as absent; negative ones are steps of the memory. Or
            None: nothing is out of reach.
    """

    earlier: Tensor | None
    first_size: int
    edge_size: int | None
    capacity: int
    linked: bool
    lengths: Tensor | None
    since: Tensor | None


class Tensors(NamedTuple):
    """The arguments of a sequence that have a gradient.

    Attributes:
        inputs: (T, B, X).
        weight_ih, bias: W_ih (3N, X) and b (3N,) or None.
        weight_hh: W_hh (3N, G).
        memory: (B, C, N), the hidden vectors of the last C steps, the latest last.
    """

    inputs: Tensor
    weight_ih: Tensor
    bias: Tensor | None
    weight_hh: Tensor
    memory: Tensor


class Arguments(NamedTuple):
    """The arguments of a kernel.

    Attributes:
        parts: (T, B, 3N), the projected inputs. `forward` overwrites them with values for `backward`, which overwrites
            them with their gradient.
        gathered: (T, B, G), uninitialized; after `forward` what each step has gathered, and zeros beyond the lengths.
        kept: (T, B, N), uninitialized; after `forward` the recurrent product of the candidate, after `backward` its
            gradient.
        history: (T, B, N), uninitialized; `backward` sums in it the gradients of the hidden vectors.
        weight_hh, memory: See `Tensors`.
        fixed: See `FixedArguments`.
    """

    parts: Tensor
    gathered: Tensor
    kept: Tensor
    history: Tensor
    weight_hh: Tensor
    memory: Tensor
    fixed: FixedArguments


class Results(NamedTuple):
    """The return value of `forward`.

    Attributes:
        outputs: (T, B, N), zero beyond the lengths.
        memory: (B, C', N), see `latest`.
    """

    outputs: Tensor
    memory: Tensor


class Gradients(NamedTuple):
    """The gradient of `memory` (B, C, N), or None; `backward` writes the other gradients to tensors of `Arguments`."""

    memory: Tensor | None


def latest(
    memory: Tensor, outputs: Tensor, capacity: int, lengths: Tensor | None = None, since: Tensor | None = None
) -> Tensor:
    """Return the memory (B, C', N) after the last step of each sequence: its last C' hidden vectors, the latest last.

    Args:
        memory: (B, C, N), before the first step; what came before it is zeros.
        outputs: (T, B, N).
        capacity: C'.
        lengths, since: See `FixedArguments`; hidden vectors from before the last start are zeros.
    """
    steps, batch, units = outputs.shape
    device = memory.device
    if memory.shape[1] < capacity:
        memory = F.pad(memory, (0, 0, capacity - memory.shape[1], 0))
    history = torch.cat((memory[:, memory.shape[1] - capacity :].transpose(0, 1), outputs))
    if lengths is None and since is None:
        return history[steps:].transpose(0, 1)
    if lengths is None:
        lengths = torch.full((batch,), steps, device=device)
    time = lengths.unsqueeze(1) + torch.arange(-capacity, 0, device=device)  # (B, C)
    rows = (time + capacity) * batch + torch.arange(batch, device=device).unsqueeze(1)
    found = history.flatten(0, 1).index_select(0, rows.flatten()).view(batch, capacity, units)
    if since is None:
        return found
    last = since.gather(0, lengths.unsqueeze(0) - 1).squeeze(0)
    return torch.where((time >= last.unsqueeze(1)).unsqueeze(2), found, 0.0)


def make_arguments(fixed: FixedArguments, tensors: Tensors) -> tuple[Arguments, Tensor]:
    """Project the inputs of all steps in one product; return the arguments, and the pooled buffer that it is in."""
    inputs, weight_ih, bias, weight_hh, memory = tensors
    steps, batch, _ = inputs.shape
    units = memory.shape[2]
    widths = [3 * units, weight_hh.shape[1], units, units]
    buffer = buffers.acquire(steps * batch * sum(widths), inputs)
    pieces = buffer.split([steps * batch * width for width in widths])
    parts, *others = (piece.view(steps, batch, width) for piece, width in zip(pieces, widths, strict=True))
    project(inputs, weight_ih, bias, out=parts)
    given: Any = (*others, weight_hh.contiguous(), memory.contiguous(), fixed)
    return Arguments(parts, *given), buffer


def run_forward(arguments: Arguments) -> Results:
    """Run the kernels forward."""
    results: Results = kernels.find(MODULES, arguments.parts).forward(arguments)
    return results


def run_backward(
    arguments: Arguments,
    outputs: Tensor,
    tensors: Tensors,
    gradients: tuple[Tensor | None, Tensor | None],
    needs: tuple[bool, ...],
) -> list[Tensor | None]:
    """Run the kernels backward; return the gradient of each of `tensors`.

    Args:
        arguments, outputs: As in `run_forward`. `backward` of the kernels overwrites tensors of the arguments.
        tensors: The arguments of the sequence.
        gradients: Gradients of the outputs and of the new memory, None stands for zeros.
        needs: Which of `tensors` need a gradient.
    """
    needed = dict(zip(Tensors._fields, needs, strict=True))
    found: Gradients = kernels.find(MODULES, arguments.parts).backward(arguments, outputs, gradients, needed["memory"])
    units = arguments.memory.shape[2]
    parts, gathered, kept = (tensor.flatten(0, 1) for tensor in (arguments.parts, arguments.gathered, arguments.kept))
    return [
        (parts @ tensors.weight_ih).view(tensors.inputs.shape) if needed["inputs"] else None,
        parts.T @ tensors.inputs.flatten(0, 1),
        None if tensors.bias is None else parts.sum(0),
        torch.cat((parts[:, : 2 * units].T @ gathered, kept.T @ gathered)),
        found.memory,
    ]
