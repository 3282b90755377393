"""The networks of `gyral.ops.fast_slow` in plain torch.

The kernels compute the same; this code gives their second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops import gated, rum
from gyral.ops.fast_slow.arguments import FixedArguments, State, Tensors
from gyral.ops.gated import reference as gated_reference
from gyral.ops.rum import reference as rum_reference


def run(fixed: FixedArguments, tensors: Tensors) -> list[Tensor | None]:
    """Run all steps; see `gyral.ops.fast_slow.run`.

    Returns:
        outputs (T, B, H) of the last subcell, then hidden vector and cell state of each state after the last step.
    """
    connections, _, lengths, starts = fixed
    states, outputs = list(tensors.states), []
    for time, inputs in enumerate(tensors.inputs.unbind(0)):
        active = None if lengths is None else (time < lengths).unsqueeze(1)
        before = list(states)
        if starts is not None:
            states = [gated_reference.reset_state(starts[time], state, None) for state in states]
        read: list[Tensor] = []
        for index, state in enumerate(connections.states):
            states[state] = _step(fixed, tensors, index, time, inputs, read, states[state])
            read.append(states[state][0])
        if active is None:
            outputs.append(read[-1])
            continue
        outputs.append(torch.where(active, read[-1], 0.0))
        states = [gated_reference.choose(active, new, old) for new, old in zip(states, before, strict=True)]
    return [torch.stack(outputs), *(leaf for state in states for leaf in state)]


def _step(
    fixed: FixedArguments, tensors: Tensors, index: int, time: int, inputs: Tensor, read: list[Tensor], state: State
) -> State:
    """Return the state after one subcell, given the outputs of the earlier ones of the step."""
    weight_ih, bias, weight_hh, extra = tensors.weights[index]
    connections, makers, _, _ = fixed
    source, mask = connections.sources[index], connections.masks[index]
    batch = inputs.shape[0]
    if source >= 0:
        inputs = read[source] if mask is None else read[source] * mask[time]
    if index == 0 or source >= 0:
        parts = F.linear(inputs, weight_ih, bias)
    else:  # without inputs
        zeros = weight_ih.new_zeros(batch, len(weight_ih))
        parts = zeros if bias is None else zeros + bias
    hidden, cell_state = state
    # `run` applies lengths and starts to all subcells together
    arguments = makers[index](
        parts=parts.unsqueeze(0),
        weight_hh=weight_hh,
        extra=extra,
        hidden=hidden,
        cell_state=cell_state,
        lengths=None,
        starts=None,
    )
    if isinstance(arguments, gated.Arguments):
        return gated_reference.step(arguments, time, parts, state)[1]
    assert isinstance(arguments, rum.Arguments)
    keep = arguments.keep[time] if isinstance(arguments.keep, Tensor) else arguments.keep
    return rum_reference.step(parts, weight_hh, hidden, None, extra, keep, arguments.options)[0], None
