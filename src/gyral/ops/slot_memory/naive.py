"""An external memory with its controller in plain torch, for `gyral.ops.slot_memory.run`.

The kernels compute the same; this code gives their second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.slot_memory.arguments import FixedArguments, Tensors, flatten, unflatten

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


def run(fixed: FixedArguments, tensors: Tensors) -> list[Tensor]:
    """Run all steps; return outputs (T, B, N + R · W), and the state (B, S) after the last step of each sequence."""
    memory, controller, write, lengths, starts = fixed
    hidden_size, flat, outputs = tensors.interface_weight.shape[1], tensors.state, []
    for time, parts in enumerate(F.linear(tensors.inputs, tensors.weight_x, tensors.bias).unbind(0)):
        before = flat
        if starts is not None and tensors.fresh is not None:
            before = torch.where(starts[time].unsqueeze(1), tensors.fresh, flat)
        state = unflatten(before, memory, controller, hidden_size)
        gates = parts + F.linear(before[:, : tensors.weight.shape[1]], tensors.weight)
        if controller == "lstm":
            write_gate, forget, candidate, output = gates.chunk(4, dim=1)
            cell_state = forget.sigmoid() * state[1] + write_gate.sigmoid() * candidate.tanh()
            hidden = output.sigmoid() * cell_state.tanh()
            own: tuple[Tensor, ...] = (hidden, cell_state)
        else:
            hidden = ACTIVATIONS[controller](gates)
            own = ()
        emitted = F.linear(hidden, tensors.interface_weight, tensors.interface_bias)
        old = type(memory.shapes)(*state[len(own) + 1 :])
        read_vector, new = memory.step(emitted, old, None if write is None else write[time])  # type: ignore[arg-type]
        output, after = torch.cat((hidden, read_vector), dim=1), flatten((*own, read_vector, *new), controller)
        if lengths is not None:
            active = (time < lengths).unsqueeze(1)
            output, after = torch.where(active, output, 0.0), torch.where(active, after, flat)
        outputs.append(output)
        flat = after
    return [torch.stack(outputs), flat]
