"""Networks of several recurrences per step, over a whole sequence: the fused path of `gyral.cells.fs_rnn`.

Each step runs its subcells one after another. The first subcell reads the inputs of the sequence, whose projections
are one product; a later subcell reads the outputs of an earlier one, or nothing. Subcells may share a state: one
updates it after the other, and the next step starts from the last update. A subcell is a recurrence of
`gyral.ops.gated` or of `gyral.ops.rum` with λ = 0. `run` is differentiable once; its reference is the loop over
`gyral.cells.fs_rnn.FSRNNCell.step`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.ops import buffers, gated, kernels, rum
from gyral.ops.autograd import once_differentiable

MODULES = {"cpu": "gyral.ops.fast_slow.cpu"}

SubCellProblem = gated.Problem | rum.Problem


class SubCell(NamedTuple):
    """A cell within the step of another cell. X input size, H width of the hidden vector, G width of the parts.

    Attributes:
        problem: Returns the problem of `gyral.ops.gated` or `gyral.ops.rum`, given parts (T, B, G), weight_hh, extra,
            hidden, cell and lengths.
        weight_ih: (G, X).
        bias: (G,) of the parts, or None.
        weight_hh, extra: See the problem; for RUM `extra` is its norms.
        cosines: The list to which each step appends the cosines (B,) of RUM's rotations, or None.
    """

    problem: Callable[..., SubCellProblem]
    weight_ih: Tensor
    bias: Tensor | None
    weight_hh: Tensor
    extra: Tensor | None
    cosines: list[Tensor] | None = None


class Connections(NamedTuple):
    """How the subcells of a step are connected; one entry per subcell, in the order in which they run.

    Attributes:
        sources: Index of the earlier subcell whose outputs a subcell reads, or -1 for none.
        states: Index of the subcell's state; states are numbered in the order of their first subcells.
        masks: Factors (T, B, X) of the outputs that a subcell reads from its source, or None.
    """

    sources: tuple[int, ...]
    states: tuple[int, ...]
    masks: tuple[Tensor | None, ...]

    def predecessor(self, subcell: int) -> tuple[int, int]:
        """Return the subcell that last updated the state of a subcell, and the number of steps ago: 0 or 1."""
        sharing = [other for other, state in enumerate(self.states) if state == self.states[subcell]]
        position = sharing.index(subcell)
        return sharing[position - 1], int(position == 0)

    def is_last(self, subcell: int) -> bool:
        """Return whether a subcell is the last one in a step that updates its state."""
        return self.states[subcell] not in self.states[subcell + 1 :]


class Problem(NamedTuple):
    """The arguments of a kernel.

    Attributes:
        subcells: The problem of each subcell. The parts of the first one are its projected inputs; `forward` writes
            those of the others. As for a single cell, `forward` overwrites the parts with values for `backward`, which
            overwrites them with their gradient.
        weights_ih, biases: Input weights and bias of each subcell.
        outputs: (T, B, H) of each subcell, written by `forward`.
        cells: (T, B, C), the cell vectors of each subcell, written by `forward`; None without a cell vector.
        connections: How the subcells are connected.
    """

    subcells: tuple[SubCellProblem, ...]
    weights_ih: tuple[Tensor, ...]
    biases: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    cells: tuple[Tensor | None, ...]
    connections: Connections


State = tuple[Tensor, Tensor | None]  # hidden vector (B, H), and cell vector (B, C) or None


class Solution(NamedTuple):
    """Each state after the last step of each sequence; scalars (T, B, …) of each RUM subcell, None for the others."""

    final: tuple[State, ...]
    scalars: tuple[Tensor | None, ...]


class Gradients(NamedTuple):
    """Gradients of the initial states, and of `extra` of each subcell. Those of the parts overwrite the parts."""

    states: tuple[State, ...]
    extra: tuple[Tensor | None, ...]


def unsupported_reason(tensor: Tensor) -> str | None:
    """Return the reason why no kernel supports the device and dtype of a tensor, or None if one does."""
    return kernels.unsupported_reason(MODULES, tensor)


def run(
    inputs: Tensor,
    subcells: Sequence[SubCell],
    connections: Connections,
    states: Sequence[State],
    lengths: Tensor | None,
) -> tuple[Tensor, list[State]]:
    """Run the subcells over inputs (T, B, X), under autocast in the dtype of the parameters.

    Args:
        inputs: (T, B, X), the inputs of the first subcell.
        subcells: In the order in which they run.
        connections: How they are connected.
        states: Before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.

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
    needs_gradient = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
    with torch.autocast(device, enabled=False):
        constants = connections, tuple(subcell.problem for subcell in subcells), lengths
        outputs, *found = _Run.apply(constants, needs_gradient, *tensors)
    final = list(zip(found[0 : len(leaves) : 2], found[1 : len(leaves) : 2], strict=True))
    for subcell, scalars in zip(subcells, found[len(leaves) :], strict=True):
        if subcell.cosines is not None:
            subcell.cosines.extend(scalars[..., 2].unbind(0))
    return outputs, final


class _Tensors(NamedTuple):
    """The tensor arguments of `_Run`; `weights` holds weight_ih, bias, weight_hh and extra of each subcell."""

    inputs: Tensor
    weights: list[tuple[Tensor, Tensor | None, Tensor, Tensor | None]]
    states: list[State]

    @classmethod
    def of(cls, connections: Connections, tensors: Sequence[Any]) -> "_Tensors":
        count, inputs = len(connections.sources), tensors[0]
        given: list[Any] = [None if tensor is None else tensor.contiguous() for tensor in tensors[1:]]
        flat, leaves = given[: 4 * count], given[4 * count :]
        weights = list(zip(*(flat[part::4] for part in range(4)), strict=True))
        return cls(inputs, weights, list(zip(leaves[::2], leaves[1::2], strict=True)))


def _problem(constants: tuple[Any, ...], tensors: _Tensors) -> tuple[Problem, Tensor]:
    """Project the inputs of all steps in one product; return the problem and the buffer that holds its parts."""
    connections, makers, lengths = constants
    steps, batch, _ = tensors.inputs.shape
    # one buffer for all tensors that backward releases
    widths = []
    for state, (weight_ih, _, _, _) in zip(connections.states, tensors.weights, strict=True):
        hidden, cell = tensors.states[state]
        widths += [len(weight_ih), hidden.shape[1], 0 if cell is None else cell.shape[1]]
    buffer = buffers.acquire(steps * batch * sum(widths), tensors.inputs)
    pieces = buffer.split([steps * batch * width for width in widths])
    parts, outputs, cells = ([piece.view(steps, batch, -1) for piece in pieces[first::3]] for first in range(3))
    outputs[-1] = torch.empty_like(outputs[-1])  # returned, therefore not in the buffer

    weight_ih, bias, _, _ = tensors.weights[0]
    rows, projected = tensors.inputs.flatten(0, 1), parts[0].flatten(0, 1)
    if bias is None:
        torch.mm(rows, weight_ih.T, out=projected)
    else:
        torch.addmm(bias, rows, weight_ih.T, out=projected)
    problems = []
    for index, (make, state) in enumerate(zip(makers, connections.states, strict=True)):
        _, _, weight_hh, extra = tensors.weights[index]
        hidden, cell = tensors.states[state]
        problems.append(
            make(parts=parts[index], weight_hh=weight_hh, extra=extra, hidden=hidden, cell=cell, lengths=lengths)
        )
    problem = Problem(
        tuple(problems),
        tuple(weights[0] for weights in tensors.weights),
        tuple(weights[1] for weights in tensors.weights),
        tuple(outputs),
        tuple(
            None if tensors.states[state][1] is None else c for state, c in zip(connections.states, cells, strict=True)
        ),
        connections,
    )
    return problem, buffer


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx, constants, needs_gradient, *tensors):
        problem, buffer = _problem(constants, _Tensors.of(constants[0], tensors))
        solution = kernels.find(MODULES, buffer).forward(problem)
        if needs_gradient:
            ctx.save_for_backward(problem.outputs[-1], *tensors)
            # without the returned outputs, whose graph holds this context: that would be a reference cycle
            ctx.saved = problem._replace(outputs=problem.outputs[:-1]), solution.scalars, buffer
            ctx.constants = constants
        else:
            buffers.release(buffer)
        scalars = [tensor for tensor in solution.scalars if tensor is not None]
        ctx.mark_non_differentiable(*scalars)
        return problem.outputs[-1], *(leaf for state in solution.final for leaf in state), *solution.scalars

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_outputs, *grads):
        connections = ctx.constants[0]
        last_outputs, *saved = ctx.saved_tensors
        tensors = _Tensors.of(connections, saved)
        # backward overwrites the saved values: a second backward over the same graph runs forward again
        saved_values, ctx.saved = ctx.saved, None
        if saved_values is None:
            problem, buffer = _problem(ctx.constants, tensors)
            scalars = kernels.find(MODULES, buffer).forward(problem).scalars
        else:
            problem, scalars, buffer = saved_values
            problem = problem._replace(outputs=(*problem.outputs, last_outputs))
        found = kernels.find(MODULES, buffer)
        states = len(tensors.states)
        grad_states = tuple(zip(grads[0 : 2 * states : 2], grads[1 : 2 * states : 2], strict=True))
        gradients = found.backward(problem, scalars, grad_outputs, grad_states)

        results: list[Tensor | None] = []
        for index in range(len(problem.subcells)):
            results += _weight_gradients(problem, index, tensors.inputs)
            results.append(gradients.extra[index])
        results += [leaf for state in gradients.states for leaf in state]
        grad_inputs = None
        if ctx.needs_input_grad[2]:
            grad_parts = problem.subcells[0].parts.view(tensors.inputs[..., 0].numel(), -1)
            grad_inputs = (grad_parts @ problem.weights_ih[0]).view(tensors.inputs.shape)
        buffers.release(buffer)
        return None, None, grad_inputs, *results


def _weight_gradients(problem: Problem, index: int, inputs: Tensor) -> list[Tensor | None]:
    """Return the gradients of weight_ih, bias and weight_hh of a subcell, given that of its parts."""
    subcell, connections = problem.subcells[index], problem.connections
    source, mask = connections.sources[index], connections.masks[index]
    grad_parts = subcell.parts.flatten(2)
    rows = grad_parts.flatten(0, 1)
    if index == 0:
        grad_weight_ih = rows.T @ inputs.flatten(0, 1)
    elif source < 0:  # without inputs
        grad_weight_ih = torch.zeros_like(problem.weights_ih[index])
    else:
        read = problem.outputs[source] if mask is None else problem.outputs[source] * mask
        grad_weight_ih = rows.T @ read.flatten(0, 1)
    predecessor, lag = connections.predecessor(index)
    hidden, outputs = subcell.hidden, problem.outputs[predecessor]
    if isinstance(subcell, gated.Problem) and subcell.drop is not None:
        hidden, outputs = hidden * subcell.drop, outputs * subcell.drop
    recurrent = grad_parts[..., : len(subcell.weight_hh)]
    if lag:
        grad_weight_hh = gated.weight_gradient(recurrent, hidden, outputs)
    else:
        grad_weight_hh = recurrent.flatten(0, 1).T @ outputs.flatten(0, 1)
    return [grad_weight_ih, None if problem.biases[index] is None else rows.sum(0), grad_weight_hh]
