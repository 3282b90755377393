"""External memories with slots, those of NTM and DNC, and a controller, over a whole sequence.

    h_t = controller([x_t; r_{t−1}])
    r_t, memory_t = step(W h_t + b, memory_{t−1})
    output = [h_t; r_t]

`slot_memory` runs the kernels of `cpu`, which is imported on first use. `ntm` and `dnc` have the steps of the memories
in plain torch, and `naive` has the loop.
"""

import torch
from torch import Tensor

from gyral.ops.operator import Operator, cast_for_autocast, has_gradient
from gyral.ops.slot_memory import naive
from gyral.ops.slot_memory.dnc import DNCCodeMemory, DNCMemory
from gyral.ops.slot_memory.naive import MEMORIES, Memory, flatten, unflatten
from gyral.ops.slot_memory.ntm import NTMMemory

__all__ = ["DNCCodeMemory", "DNCMemory", "Memory", "NTMMemory", "slot_memory", "unsupported_reason"]

OPERATOR = Operator(naive.slot_memory, {"cpu": "gyral.ops.slot_memory.cpu"})
unsupported_reason = OPERATOR.unsupported_reason


def slot_memory(
    x: Tensor,
    w_ih: Tensor,
    b: Tensor | None,
    w_hh: Tensor | None,
    interface_weight: Tensor,
    interface_bias: Tensor,
    state: tuple[Tensor, ...],
    memory: Memory,
    *,
    controller: str = "lstm",
    write: Tensor | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    fresh: tuple[Tensor, ...] | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run a memory with its controller over inputs (T, B, X), under autocast in the dtype of the parameters.

    Args:
        x: (T, B, X).
        w_ih: (G, X + R · W), of the input and of the read vectors; G = 4N of an LSTM, rows [i; f; g; o], or N.
        b: (G,) or None.
        w_hh: (4N, N) of an LSTM, else None.
        interface_weight, interface_bias: (K, N) and (K,), K = `memory.outputs_size`.
        state: Before the first step: h and c (B, N) of an LSTM, the read vector (B, R · W), and the tensors of the
            state of the memory.
        memory: The kind and the sizes of the memory.
        controller: "lstm", or the activation of a feedforward controller, "tanh" or "relu".
        write: (T, B) bool: where the memory may be written. None: everywhere.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row to `fresh` before the step.
        fresh: A state for a batch of one; needed with `starts`.

    Returns:
        outputs (T, B, N + R · W), and the state after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        TypeError: Inputs or states have another dtype than the parameters, outside autocast.
    """
    x, *leaves = cast_for_autocast(w_ih.dtype, x, *state)
    w_x, w = w_ih.tensor_split([x.shape[2]], dim=1)
    if w_hh is not None:
        w = torch.cat((w_hh, w), dim=1)
    given = (
        *(x, w_x, b, w, interface_weight, interface_bias, flatten(tuple(leaves), controller)),
        None if starts is None or fresh is None else flatten(fresh, controller)[0],
    )
    name = next(name for name, kind in MEMORIES.items() if isinstance(memory, kind))
    outputs, final = OPERATOR.run(*given, write, lengths, starts, name, list(memory), controller, has_gradient(*given))
    return outputs, unflatten(final, memory, controller, interface_weight.shape[1])
