"""A Lie-access memory with an LSTM as controller, over a whole sequence: the fused path of `gyral.cells.lantm`.

`gyral.cells.lantm.LANTMCell` has the equations. `naive` computes them in plain torch.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import InputError, OptionError
from gyral.ops.declaration import check_shape, product, projection
from gyral.ops.lie_access import naive
from gyral.ops.lie_access.naive import MemoryState
from gyral.ops.native.kernels import ProjectedKernels, like, rows
from gyral.ops.operator import Operator, cast_for_autocast

__all__ = ["MemoryState", "Options", "Weights", "lie_access", "memory_full_error", "unsupported_reason"]

FUSED_GROUPS = ("translation", "rotation", "scaling_rotation")  # in the order of their numbers in lie_access.cpp
SLACK = 16  # entries behind the last one of a log: the kernel reads whole registers


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


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    steps, batch, inputs = check_shape("x", a.x, *a.x.shape[:2], "X")
    _, capacity, width = check_shape("vectors", a.vectors, batch, "C", "W")
    check_shape("keys", a.keys, batch, capacity, 2)
    check_shape("strengths", a.strengths, batch, capacity)
    check_shape("count", a.count, batch)
    _, size = check_shape("head_weight", a.head_weight, 13 + width + a.softmax, "N")
    check_shape("head_bias", a.head_bias, 13 + width + a.softmax)
    check_shape("w_ih", a.w_ih, 4 * size, inputs)
    check_shape("b", a.b, 4 * size)
    check_shape("w", a.w, 4 * size, size + width)
    check_shape("flat_state", a.flat_state, batch, 2 * size + width + 8)
    check_shape("fresh", a.fresh, 2 * size + width + 8)
    check_shape("write", a.write, steps, batch)
    if a.starts is not None and a.fresh is None:
        raise InputError("fresh is None, must be a state where there are starts")
    check_choice("group", a.group, FUSED_GROUPS)
    check_integer("forget", a.forget, minimum=0, maximum=capacity)


def sizes(a: Any) -> dict[str, Any]:
    """Return the numbers that the kernel takes, and the filled slots."""
    (steps, batch, _), (_, capacity, width) = a.x.shape, a.vectors.shape
    return {
        "steps": steps,
        "batch": batch,
        "hidden_size": a.head_weight.shape[1],
        "width": width,
        "capacity": capacity,
        "log_size": steps + capacity + SLACK,
        "group": FUSED_GROUPS.index(a.group),
        "count": a.count.clamp(0, capacity),  # the kernel would read beyond the end of the memory
    }


def new_log(a: Any) -> Tensor:
    """Return where the kernel keeps the entries of the memory in the order in which they were written, (B, 3 + W, E).

    Its rows are both coordinates of the keys, strengths, and the elements of the vectors.
    """
    return a.x.new_empty(a.x.shape[1], 3 + a.vectors.shape[2], a.x.shape[0] + a.vectors.shape[1] + SLACK)


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products, with reads of all slots; see `gyral.ops.declaration.formulas_of`."""
    rows = len(a.x) * len(a.keys)
    return projection(a), sum(product(rows, each) for each in (a.w, a.head_weight, a.vectors[0]))


class LieAccessKernels(ProjectedKernels):
    """The kernels, and the gradients of weights."""

    def forward(self, a: Any) -> tuple[list[Any], list[Any]]:
        """Run all steps; see `gyral.ops.operator.Operator`.

        Raises:
            OptionError: A vector was written to a full memory that forgets nothing.
        """
        results, kept = super().forward(a)
        if kept[-1]:
            raise memory_full_error(a.keys.shape[1])
        return results, kept

    def backward(self, a: Any, results: list[Any], kept: list[Any], gradients: Any, needs: dict[str, bool]) -> Any:
        """Return the gradients; see `gyral.ops.operator.Operator`."""
        found = super().backward(a, results, kept, gradients, needs)
        parts, heads, flat_states = (tensor.flatten(0, 1) for tensor in kept[:3])
        return found | {
            "w": parts.T @ flat_states[:, : a.w.shape[1]],
            "head_weight": heads.T @ results[0].flatten(0, 1),
            "head_bias": heads.sum(0),
        }


KERNELS = LieAccessKernels(
    Path(__file__).with_name("lie_access.cpp"),
    sizes=sizes,
    results={
        "outputs": lambda a: rows(a, a.head_weight.shape[1]),
        **{f"final_{name}": like(name) for name in ("flat_state", "keys", "vectors", "strengths", "count")},
    },
    kept={
        "heads": lambda a: rows(a, len(a.head_weight)),
        "flat_states": lambda a: rows(a, a.flat_state.shape[1]),
        "log": new_log,
        # begin and end of the filled part of the log after each step
        "windows": lambda a: a.count.new_empty(*a.x.shape[:2], 2),
        "is_full": lambda a: a.count.new_zeros(1),
    },
    states={"flat_state": "final_flat_state"},
    gradients={name: like(name) for name in ("keys", "vectors", "strengths")},
    sums=("fresh",),
    optional=("outputs", *(f"{when}{name}" for name in ("keys", "vectors", "strengths") for when in ("", "final_"))),
)
OPERATOR = Operator(
    naive.lie_access,
    {"cpu": KERNELS},
    constant=1,
    shapes=shapes,
    dtypes={"count": torch.int64, "write": torch.bool},
    products=products,
)


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
        InputError: See `gyral.ops.declaration.Checks`.
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
