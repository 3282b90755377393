"""Recurrences that take turns within a step, over a whole sequence: of which `gyral.cells.fs_rnn` consists.

The first turn takes in the inputs of the sequence, whose projections are one product; a later one the outputs of an
earlier turn, or nothing. Turns may share a state, which is handed on from one to the next and to the first of the next
step. A turn is a recurrence of `gyral.ops.gated.sequence` or of `gyral.ops.rum.sequence`, λ = 0. `run` is differentiable once; its
reference is `gyral.cells.fs_rnn.FSRNNCell.step`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.ops import buffers, gated, kernels, rum
from gyral.ops.differentiation import first_derivative

MODULES = {"cpu": "gyral.ops.fast_slow.cpu"}

OneProblem = gated.Problem | rum.Problem


class SubCell(NamedTuple):
    """A cell as it takes its turn. X input size, H width of the hidden vector, G that of the parts.

    Attributes:
        problem: makes a problem of `gyral.ops.gated.sequence` or `gyral.ops.rum.sequence` from parts (T, B, G), weight_hh, extra,
            hidden, cell and lengths.
        weight_ih: (G, X).
        bias: (G,) of the parts, or None.
        weight_hh, extra: as in the problem; `extra` stands for RUM's norms.
        cosines: where those of RUM's rotations (B,) are appended for each step, or None.
    """

    problem: Callable[..., OneProblem]
    weight_ih: Tensor
    bias: Tensor | None
    weight_hh: Tensor
    extra: Tensor | None
    cosines: list[Tensor] | None = None


class Order(NamedTuple):
    """Who takes turns; one entry a turn.

    Attributes:
        sources: the earlier turn whose outputs a turn takes in, -1 for none.
        states: number of the turn's state, from 0 in the order of their first turns.
        masks: (T, B, X) factors of what a turn takes in from its source, or None.
    """

    sources: tuple[int, ...]
    states: tuple[int, ...]
    masks: tuple[Tensor | None, ...]

    def before(self, turn: int) -> tuple[int, int]:
        """Return the turn that leaves the state which this one finds, and how many steps ago that was: 0 or 1."""
        sharing = [other for other, state in enumerate(self.states) if state == self.states[turn]]
        place = sharing.index(turn)
        return sharing[place - 1], int(place == 0)

    def is_last(self, turn: int) -> bool:
        """Tell whether the state at the end of a step is what this turn leaves."""
        return self.states[turn] not in self.states[turn + 1 :]


class Problem(NamedTuple):
    """What a kernel runs on.

    Attributes:
        turns: their problems. The parts of the first hold its projected inputs; those of the others are written. As
            alone, `forward` leaves there what `backward` needs, which writes gradients over it.
        weights_ih, biases: of each turn.
        outputs: (T, B, H) of each turn, written by `forward`.
        cells: (T, B, C) of each turn's cell vectors, likewise; None without.
        order: who takes turns.
    """

    turns: tuple[OneProblem, ...]
    weights_ih: tuple[Tensor, ...]
    biases: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    cells: tuple[Tensor | None, ...]
    order: Order


State = tuple[Tensor, Tensor | None]  # hidden vector (B, H), cell vector (B, C) where there is one


class Solution(NamedTuple):
    """The state after each sequence's last step, of each; scalars (T, B, …) of RUM's turns, None for the others."""

    final: tuple[State, ...]
    scalars: tuple[Tensor | None, ...]


class Gradients(NamedTuple):
    """Of the initial states, and of `extra` of each turn. Those of the parts stand where the parts were."""

    states: tuple[State, ...]
    extra: tuple[Tensor | None, ...]


def unsupported_reason(tensor: Tensor) -> str | None:
    """Return why there are no kernels for the device and dtype of a tensor, None where there are."""
    try:
        kernels.find(MODULES, tensor)
    except kernels.KernelUnavailableError as error:
        return str(error)
    return None


def run(
    inputs: Tensor, turns: Sequence[SubCell], order: Order, states: Sequence[State], lengths: Tensor | None
) -> tuple[Tensor, list[State]]:
    """Let the turns be taken over inputs (T, B, X) of the first; under autocast in the parameters' own type.

    Returns:
        outputs (T, B, H) of the last turn, and the states after each sequence's last step.

    Raises:
        TypeError: inputs or states of another type than the parameters', outside autocast.
    """
    device, dtype = inputs.device.type, turns[0].weight_hh.dtype
    leaves: list[Any] = [leaf for state in states for leaf in state]
    if torch.is_autocast_enabled(device):
        inputs = inputs.to(dtype)
        leaves = [None if leaf is None else leaf.to(dtype) for leaf in leaves]
    others = [leaf.dtype for leaf in (inputs, *leaves) if leaf is not None and leaf.dtype != dtype]
    if others:
        raise TypeError(f"inputs and states must be of the parameters' type, {dtype}, not {others[0]}")
    weights = [tensor for turn in turns for tensor in (turn.weight_ih, turn.bias, turn.weight_hh, turn.extra)]
    tensors = (inputs, *weights, *leaves)
    wanted = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
    with torch.autocast(device, enabled=False):
        constants = order, tuple(turn.problem for turn in turns), lengths
        outputs, *found = _Run.apply(constants, wanted, *tensors)
    final = list(zip(found[0 : len(leaves) : 2], found[1 : len(leaves) : 2], strict=True))
    for turn, scalars in zip(turns, found[len(leaves) :], strict=True):
        if turn.cosines is not None:
            turn.cosines.extend(scalars[..., 2].unbind(0))
    return outputs, final


class _Tensors(NamedTuple):
    """The arguments of `_Run` by their names."""

    inputs: Tensor
    turns: list[tuple[Tensor, Tensor | None, Tensor, Tensor | None]]
    states: list[State]

    @classmethod
    def of(cls, order: Order, tensors: Sequence[Any]) -> "_Tensors":
        count, inputs = len(order.sources), tensors[0]
        given: list[Any] = [None if tensor is None else tensor.contiguous() for tensor in tensors[1:]]
        weights, leaves = given[: 4 * count], given[4 * count :]
        turns = list(zip(*(weights[part::4] for part in range(4)), strict=True))
        return cls(inputs, turns, list(zip(leaves[::2], leaves[1::2], strict=True)))


def _problem(constants: tuple[Any, ...], tensors: _Tensors) -> tuple[Problem, Tensor]:
    """Return the problem with the inputs of all steps projected in one product, and the buffer that holds its parts."""
    order, makers, lengths = constants
    steps, batch, _ = tensors.inputs.shape
    # one buffer for all that is let go after backward
    widths = []
    for state, (weight_ih, _, _, _) in zip(order.states, tensors.turns, strict=True):
        hidden, cell = tensors.states[state]
        widths += [len(weight_ih), hidden.shape[1], 0 if cell is None else cell.shape[1]]
    buffer = buffers.take(steps * batch * sum(widths), tensors.inputs)
    pieces = buffer.split([steps * batch * width for width in widths])
    parts, outputs, cells = ([piece.view(steps, batch, -1) for piece in pieces[first::3]] for first in range(3))
    outputs[-1] = torch.empty_like(outputs[-1])  # but for what is returned

    weight_ih, bias, _, _ = tensors.turns[0]
    rows, projected = tensors.inputs.flatten(0, 1), parts[0].flatten(0, 1)
    if bias is None:
        torch.mm(rows, weight_ih.T, out=projected)
    else:
        torch.addmm(bias, rows, weight_ih.T, out=projected)
    problems = []
    for index, (make, state) in enumerate(zip(makers, order.states, strict=True)):
        _, _, weight_hh, extra = tensors.turns[index]
        hidden, cell = tensors.states[state]
        problems.append(
            make(parts=parts[index], weight_hh=weight_hh, extra=extra, hidden=hidden, cell=cell, lengths=lengths)
        )
    problem = Problem(
        tuple(problems),
        tuple(weights[0] for weights in tensors.turns),
        tuple(weights[1] for weights in tensors.turns),
        tuple(outputs),
        tuple(None if tensors.states[state][1] is None else c for state, c in zip(order.states, cells, strict=True)),
        order,
    )
    return problem, buffer


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx, constants, will_be_differentiated, *tensors):
        problem, buffer = _problem(constants, _Tensors.of(constants[0], tensors))
        solution = kernels.find(MODULES, buffer).forward(problem)
        if will_be_differentiated:
            ctx.save_for_backward(problem.outputs[-1], *tensors)
            # without what is returned, which would hold this context in turn
            ctx.work = problem._replace(outputs=problem.outputs[:-1]), solution.scalars, buffer
            ctx.constants = constants
        else:
            buffers.give(buffer)
        scalars = [tensor for tensor in solution.scalars if tensor is not None]
        ctx.mark_non_differentiable(*scalars)
        return problem.outputs[-1], *(leaf for state in solution.final for leaf in state), *solution.scalars

    @staticmethod
    @first_derivative
    def backward(ctx, grad_outputs, *grads):
        order = ctx.constants[0]
        last_outputs, *saved = ctx.saved_tensors
        tensors = _Tensors.of(order, saved)
        # an earlier backward over the same graph has consumed it
        work, ctx.work = ctx.work, None
        if work is None:
            problem, buffer = _problem(ctx.constants, tensors)
            scalars = kernels.find(MODULES, buffer).forward(problem).scalars
        else:
            problem, scalars, buffer = work
            problem = problem._replace(outputs=(*problem.outputs, last_outputs))
        found = kernels.find(MODULES, buffer)
        states = len(tensors.states)
        grad_states = tuple(zip(grads[0 : 2 * states : 2], grads[1 : 2 * states : 2], strict=True))
        gradients = found.backward(problem, scalars, grad_outputs, grad_states)

        results: list[Tensor | None] = []
        for turn in range(len(problem.turns)):
            results += _of_weights(problem, turn, tensors.inputs)
            results.append(gradients.extra[turn])
        results += [leaf for state in gradients.states for leaf in state]
        grad_inputs = None
        if ctx.needs_input_grad[2]:
            slopes = problem.turns[0].parts.view(tensors.inputs[..., 0].numel(), -1)
            grad_inputs = (slopes @ problem.weights_ih[0]).view(tensors.inputs.shape)
        buffers.give(buffer)
        return None, None, grad_inputs, *results


def _of_weights(problem: Problem, turn: int, inputs: Tensor) -> list[Tensor | None]:
    """Return the gradients of a turn's weight_ih, bias and weight_hh from that of its parts."""
    own, order = problem.turns[turn], problem.order
    slopes = own.parts.flatten(2)
    rows = slopes.flatten(0, 1)
    if turn == 0:
        grad_weight_ih = rows.T @ inputs.flatten(0, 1)
    elif order.sources[turn] < 0:  # it has taken in nothing
        grad_weight_ih = torch.zeros_like(problem.weights_ih[turn])
    else:
        taken, mask = problem.outputs[order.sources[turn]], order.masks[turn]
        grad_weight_ih = rows.T @ (taken if mask is None else taken * mask).flatten(0, 1)
    left_by, ago = order.before(turn)
    hidden, outputs = own.hidden, problem.outputs[left_by]
    if isinstance(own, gated.Problem) and own.drop is not None:
        hidden, outputs = hidden * own.drop, outputs * own.drop
    recurrent = slopes[..., : len(own.weight_hh)]
    if ago:
        grad_weight_hh = gated.of_weight(recurrent, hidden, outputs)
    else:
        grad_weight_hh = recurrent.flatten(0, 1).T @ outputs.flatten(0, 1)
    return [grad_weight_ih, None if problem.biases[turn] is None else rows.sum(0), grad_weight_hh]
