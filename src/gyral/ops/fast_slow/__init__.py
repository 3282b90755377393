"""Fast-slow networks, several recurrences per step, over a whole sequence: the fused path of `gyral.cells.fs_rnn`.

Each step runs its subcells one after another. The first, a fast one, reads the inputs of the sequence. The second, the
slow one, reads the output of the first. The third reads the output of the slow one, and further ones read nothing.
All fast subcells share a state: one updates it after the other, and the next step starts from the last update.
`fast_slow` runs the kernels of `cpu`, which is imported on first use; `naive` computes the same in plain torch.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from torch import Tensor

from gyral.core.errors import InputError
from gyral.ops import gated, rum
from gyral.ops.declaration import check_shape, product
from gyral.ops.fast_slow import naive
from gyral.ops.gated.naive import State
from gyral.ops.operator import Operator, cast_for_autocast

__all__ = ["SubCell", "fast_slow", "unsupported_reason"]


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    steps, batch, inputs = check_shape("x", a.x, *a.x.shape[:2], "X")
    kinds, activations, count = a.kinds.split(), a.activations.split(), len(a.units)
    lengths = {
        name: len(getattr(a, name)) for name in ("weights", "states", "masks", "units", "chunks", "etas", "epsilons")
    }
    lengths |= {"kinds": len(kinds), "activations": len(activations)}
    for name, found in lengths.items():
        expected = 4 if name == "states" else count * (4 if name in ("weights", "masks") else 1)
        if count < 3 or found != expected:
            raise InputError(f"{name} has {found} entries, must have {max(expected, 3)}")
    _, fast = check_shape("states[0]", a.states[0], batch, "N")
    _, slow = check_shape("states[2]", a.states[2], batch, "N")
    for index, kind in enumerate(kinds):
        w_ih, b, w_hh, extra = a.weights[4 * index : 4 * index + 4]
        factors, keep, keep_cell_state, drop = a.masks[4 * index : 4 * index + 4]
        own, cell_state = (slow, a.states[3]) if index == naive.SLOW else (fast, a.states[1])
        width = (inputs, fast, slow)[index] if index <= naive.SLOW + 1 else w_ih.shape[-1]
        given = SimpleNamespace(kind=kind, w_ih=w_ih, b=b, w_hh=w_hh, extra=extra, norms=extra, units=a.units[index])
        given.chunk, given.activation = a.chunks[index], activations[index]
        if kind == "rum":
            rum.check_weights(given, width, own)
            check_shape("b", b, len(w_ih))
        else:
            gated.check_weights(given, width)
            check_shape("w_hh", w_hh, len(w_ih), own)
            check_shape("cell state", cell_state, batch, own)
            if cell_state is None and "lstm" in kind:
                raise InputError(f"the state of {kind} must have a cell state")
        if index <= naive.SLOW + 1:
            check_shape("factors", factors, steps, batch, width)
        gated.check_zoneout("keep", keep, steps, batch, own)
        gated.check_zoneout("keep_cell_state", keep_cell_state, steps, batch, own)
        check_shape("drop", drop, batch, own)


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products, from the fourth subcell on without inputs; see `gyral.ops.declaration`."""
    rows, (first, *others) = len(a.x) * a.x.shape[1], a.weights[::4]
    recurrent = a.weights[2::4]
    return product(rows, first), sum(product(rows, each) for each in (*others[: naive.SLOW + 1], *recurrent))


KERNELS = {"cpu": "gyral.ops.fast_slow.cpu", "cuda": "gyral.ops.fast_slow.triton"}
OPERATOR = Operator(naive.fast_slow, KERNELS, constant=1, shapes=shapes, products=products)
unsupported_reason = OPERATOR.unsupported_reason


class SubCell(NamedTuple):
    """A recurrence within the step of a network.

    Attributes:
        kind: One of `gyral.ops.gated.KINDS`, or "rum" for RUM with λ = 0.
        w_ih, b, w_hh, extra: See `gyral.ops.gated.gated`; for RUM `extra` is its norms, see `gyral.ops.rum.rum`.
        keep, keep_cell_state, drop, units, chunk, activation, eta, epsilon: See there.
        cosines: The list to which each step appends the cosines (B,) of RUM's rotations, or None.
    """

    kind: str
    w_ih: Tensor
    b: Tensor | None
    w_hh: Tensor
    extra: Tensor | None
    keep: Tensor | None = None
    keep_cell_state: Tensor | None = None
    drop: Tensor | None = None
    units: int = 0
    chunk: int = 1
    activation: str = "relu"
    eta: float | None = None
    epsilon: float = 1e-5
    cosines: list[Tensor] | None = None


def fast_slow(
    x: Tensor,
    subcells: Sequence[SubCell],
    fast: State,
    slow: State,
    masks: Sequence[Tensor | None],
    *,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, State, State]:
    """Run the subcells over inputs (T, B, X), under autocast in the dtype of the parameters.

    Args:
        x: (T, B, X).
        subcells: At least three, in the order in which they run: fast, slow, fast, …
        fast, slow: The states before the first step: hidden vector (B, H), and cell state (B, C) or None.
        masks: For each subcell factors (T, B, W) of the output that it reads, or None.
        lengths: (B,) int64 in [1, T], or None; see `gyral.ops.gated.gated`.
        starts: (T, B) bool, or None. True resets both states of the row to zero before the step.

    Returns:
        outputs (T, B, H) of the last subcell, and the states after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        InputError: See `gyral.ops.declaration.Checks`.
    """
    x, *states = cast_for_autocast(subcells[0].w_hh.dtype, x, *fast, *slow)
    outputs, hidden, cell_state, slow_hidden, slow_cell_state, cosines = OPERATOR.run(
        x,
        [tensor for own in subcells for tensor in (own.w_ih, own.b, own.w_hh, own.extra)],
        states,
        [
            tensor
            for factors, own in zip(masks, subcells, strict=True)
            for tensor in (factors, own.keep, own.keep_cell_state, own.drop)
        ],
        lengths,
        starts,
        " ".join(own.kind for own in subcells),
        [own.units for own in subcells],
        [own.chunk for own in subcells],
        " ".join(own.activation for own in subcells),
        [own.eta or 0.0 for own in subcells],
        [own.epsilon for own in subcells],
    )
    for index, own in enumerate(subcells):
        if own.cosines is not None:
            own.cosines.extend(rum.recorded_cosines(cosines[index], lengths))
    return outputs, (hidden, cell_state), (slow_hidden, slow_cell_state)
