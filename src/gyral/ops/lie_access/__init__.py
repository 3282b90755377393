"""A Lie-access memory with an LSTM as controller, over a whole sequence: the fused path of `gyral.cells.lantm`.

`gyral.cells.lantm.LANTMCell` has the equations. `lie_access` runs the kernels of `cpu`, which is imported on first use;
`naive` computes the same in plain torch.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from gyral.core.errors import OptionError
from gyral.ops.lie_access import naive
from gyral.ops.lie_access.naive import MemoryState
from gyral.ops.operator import Operator, cast_for_autocast

__all__ = ["MemoryState", "Options", "Weights", "lie_access", "memory_full_error", "unsupported_reason"]

OPERATOR = Operator(naive.lie_access, {"cpu": "gyral.ops.lie_access.cpu"}, constant=1)
FUSED_GROUPS = ("translation", "rotation", "scaling_rotation")  # in the order of their numbers in lie_access.cpp


class Weights(NamedTuple):
    """The weights of the controller, an LSTM of N units, and of the heads. X inputs, W width of the vectors.

    Attributes:
        w_ih: (4N, X + W), of the input and of the read vector, rows [i; f; g; o].
        b: (4N,) or None.
        w_hh: (4N, N).
        head_weight, head_bias: (K, N) and (K,). The outputs of the heads are, before any activation, those of the write
            head: key (2), gate of the key, step (2), gate of the step, strength, vector (W); and those of the read
            head: key (2), gate of the key, step (2), gate of the step, and with SoftMax the temperature.
    """

    w_ih: Tensor
    b: Tensor | None
    w_hh: Tensor
    head_weight: Tensor
    head_bias: Tensor


class Options(NamedTuple):
    """The options of a memory.

    Attributes:
        group: A name of `gyral.ops.lie_access.groups.GROUPS`.
        normalizes: Whether the elements of the group are normalized.
        softmax: Whether the weights of a read vector are those of SoftMax; else those of InvNorm.
        forget: Number of the oldest vectors that go when the memory is full; 0: that is an error.
        read_first: Whether a step reads before it appends its vector.
    """

    group: str
    normalizes: bool
    softmax: bool
    forget: int
    read_first: bool = False


def unsupported_reason(tensor: Tensor, group: str) -> str | None:
    """Return the reason why no kernel supports the device and dtype of a tensor, or the group; None if one does."""
    if group not in FUSED_GROUPS:
        return f"there are no kernels for group={group}"
    return OPERATOR.unsupported_reason(tensor)


def memory_full_error(capacity: int) -> OptionError:
    """Return the error of a write to a memory that is full and forgets nothing."""
    return OptionError("capacity", capacity, "is less than the vectors that are written; set a larger one, or forget")


def lie_access(
    x: Tensor,
    weights: Weights,
    state: MemoryState,
    options: Options,
    *,
    write: Tensor | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    fresh: MemoryState | None = None,
) -> tuple[Tensor, MemoryState]:
    """Run a memory with its controller over inputs (T, B, X), under autocast in the dtype of the parameters.

    Args:
        x: (T, B, X).
        weights: Of the controller and of the heads.
        state: Before the first step. Its C slots are the capacity; the slots behind `count` are not read.
        options: Of the memory.
        write: (T, B) bool: at False nothing is written, and the write head does not move. None: everywhere.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row to `fresh` with an empty memory before the step.
        fresh: A state for a batch of one, whose memory is not read; needed with `starts`.

    Returns:
        outputs (T, B, N), h after each step, and the state after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        TypeError: Inputs or states have another dtype than the parameters, outside autocast.
        UserError: A vector is written to a full memory that forgets nothing.
    """
    hidden_size = weights.w_hh.shape[1]
    x, *leaves = cast_for_autocast(weights.w_hh.dtype, x, *state[:-1])
    state = MemoryState._make((*leaves, state.count))
    w_ih, w_read = weights.w_ih.split([x.shape[2], state.read_vector.shape[1]], dim=1)
    outputs, flat_state, *memory = OPERATOR.run(
        x,
        w_ih,
        weights.b,
        torch.cat((weights.w_hh, w_read), dim=1),
        weights.head_weight,
        weights.head_bias,
        state.flatten(),
        state.keys,
        state.vectors,
        state.strengths,
        None if starts is None or fresh is None else fresh.flatten()[0],
        state.count,
        write,
        lengths,
        starts,
        *options,
    )
    return outputs, MemoryState.of(flat_state, hidden_size, tuple(memory))
