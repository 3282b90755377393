"""The interface of the kernels of `gyral.ops.fast_slow`, and the products before and after them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.ops import buffers, gated, rum
from gyral.ops.sequences import project

MODULES = {"cpu": "gyral.ops.fast_slow.cpu"}

SubCellArguments = gated.Arguments | rum.Arguments
Maker = Callable[..., SubCellArguments]


class SubCell(NamedTuple):
    """A cell within the step of another cell. X input size, H width of the hidden vector, G width of the parts.

    Attributes:
        make_arguments: Returns `Arguments` of `gyral.ops.gated` or `gyral.ops.rum`, given parts (T, B, G), weight_hh,
            extra, hidden, cell_state, lengths and starts.
        weight_ih: (G, X).
        bias: (G,) of the parts, or None.
        weight_hh, extra: See these arguments; for RUM `extra` is its norms.
        cosines: The list to which each step appends the cosines (B,) of RUM's rotations, or None.
    """

    make_arguments: Maker
    weight_ih: Tensor
    bias: Tensor | None
    weight_hh: Tensor
    extra: Tensor | None
    cosines: list[Tensor] | None = None


class Connections(NamedTuple):
    """How the subcells of a step are connected; one entry per subcell, in the order in which they run.

    Attributes:
        sources: Index of the earlier subcell that provides the inputs of a subcell, or -1.
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


class Arguments(NamedTuple):
    """The arguments of a kernel.

    Attributes:
        subcells: The arguments of each subcell. The parts of the first one are its projected inputs; `forward` writes
            those of the others. As for a single cell, `forward` overwrites the parts with values for `backward`, which
            overwrites them with their gradient.
        weights_ih, biases: Input weights and bias of each subcell.
        outputs: (T, B, H) of each subcell, written by `forward`.
        cell_states: (T, B, C), the cell states of each subcell, written by `forward`; None without a cell state.
        connections: How the subcells are connected.
    """

    subcells: tuple[SubCellArguments, ...]
    weights_ih: tuple[Tensor, ...]
    biases: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    cell_states: tuple[Tensor | None, ...]
    connections: Connections


State = tuple[Tensor, Tensor | None]  # hidden vector (B, H), and cell state (B, C) or None


class Results(NamedTuple):
    """Each state after the last step of each sequence; scalars (T, B, …) of each RUM subcell, None for the others."""

    final: tuple[State, ...]
    scalars: tuple[Tensor | None, ...]


class Gradients(NamedTuple):
    """Gradients of the initial states, and of `extra` of each subcell. Gradients of the parts overwrite the parts."""

    states: tuple[State, ...]
    extra: tuple[Tensor | None, ...]


class FixedArguments(NamedTuple):
    """The arguments of `run` that have no gradient; `makers` holds `SubCell.make_arguments` of each subcell."""

    connections: Connections
    makers: tuple[Maker, ...]
    lengths: Tensor | None
    starts: Tensor | None


class Tensors(NamedTuple):
    """The arguments of `run` that have one; `weights` holds weight_ih, bias, weight_hh and extra of each subcell."""

    inputs: Tensor
    weights: list[tuple[Tensor, Tensor | None, Tensor, Tensor | None]]
    states: list[State]

    @classmethod
    def of(cls, connections: Connections, tensors: Sequence[Any]) -> "Tensors":
        count, inputs = len(connections.sources), tensors[0]
        given: list[Any] = [None if tensor is None else tensor.contiguous() for tensor in tensors[1:]]
        flat, leaves = given[: 4 * count], given[4 * count :]
        weights = list(zip(*(flat[part::4] for part in range(4)), strict=True))
        return cls(inputs, weights, list(zip(leaves[::2], leaves[1::2], strict=True)))


def make_arguments(fixed: FixedArguments, tensors: Tensors) -> tuple[Arguments, Tensor]:
    """Project the inputs of all steps in one product; return the arguments and the buffer that holds its parts."""
    connections, makers, lengths, starts = fixed
    starts = None if starts is None else starts.contiguous()
    steps, batch, _ = tensors.inputs.shape
    # one buffer for all tensors that backward releases
    widths = []
    for state, (weight_ih, _, _, _) in zip(connections.states, tensors.weights, strict=True):
        hidden, cell_state = tensors.states[state]
        widths += [len(weight_ih), hidden.shape[1], 0 if cell_state is None else cell_state.shape[1]]
    buffer = buffers.acquire(steps * batch * sum(widths), tensors.inputs)
    pieces = buffer.split([steps * batch * width for width in widths])
    shaped = [piece.view(steps, batch, width) for piece, width in zip(pieces, widths, strict=True)]
    parts, outputs, cell_states = (shaped[first::3] for first in range(3))
    outputs[-1] = torch.empty_like(outputs[-1])  # returned, therefore not in the buffer

    weight_ih, bias, _, _ = tensors.weights[0]
    project(tensors.inputs, weight_ih, bias, out=parts[0])
    subcells = []
    for index, (make, state) in enumerate(zip(makers, connections.states, strict=True)):
        _, _, weight_hh, extra = tensors.weights[index]
        hidden, cell_state = tensors.states[state]
        own: dict[str, Any] = {"weight_hh": weight_hh, "extra": extra, "hidden": hidden, "cell_state": cell_state}
        _, lag = connections.predecessor(index)
        subcells.append(make(parts=parts[index], lengths=lengths, starts=starts if lag else None, **own))
    arguments = Arguments(
        tuple(subcells),
        tuple(weights[0] for weights in tensors.weights),
        tuple(weights[1] for weights in tensors.weights),
        tuple(outputs),
        tuple(
            None if tensors.states[state][1] is None else c
            for state, c in zip(connections.states, cell_states, strict=True)
        ),
        connections,
    )
    return arguments, buffer


def weight_gradients(arguments: Arguments, index: int, inputs: Tensor) -> list[Tensor | None]:
    """Return the gradients of weight_ih, bias and weight_hh of a subcell, given the gradient of its parts."""
    subcell, connections = arguments.subcells[index], arguments.connections
    source, mask = connections.sources[index], connections.masks[index]
    steps, batch, *_ = subcell.parts.shape
    grad_parts = subcell.parts.view(steps, batch, len(arguments.weights_ih[index]))
    rows = grad_parts.flatten(0, 1)
    if index == 0:
        grad_weight_ih = rows.T @ inputs.flatten(0, 1)
    elif source < 0:  # without inputs
        grad_weight_ih = torch.zeros_like(arguments.weights_ih[index])
    else:
        read = arguments.outputs[source] if mask is None else arguments.outputs[source] * mask
        grad_weight_ih = rows.T @ read.flatten(0, 1)
    predecessor, lag = connections.predecessor(index)
    outputs = arguments.outputs[predecessor]
    drop = subcell.drop if isinstance(subcell, gated.Arguments) else None
    recurrent = grad_parts[..., : len(subcell.weight_hh)]
    if lag:
        grad_weight_hh = gated.weight_gradient(recurrent, subcell.hidden, outputs, drop, subcell.starts)
    else:
        read = outputs if drop is None else outputs * drop
        grad_weight_hh = recurrent.flatten(0, 1).T @ read.flatten(0, 1)
    return [grad_weight_ih, None if arguments.biases[index] is None else rows.sum(0), grad_weight_hh]
