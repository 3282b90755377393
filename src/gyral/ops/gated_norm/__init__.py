"""What follows the recurrence of many layers: a skip connection, a normalization of heads, and a gate.

    x ← x + D_h u                                       for each head h
    x ← x ⊙ φ(z)                                        if the gate is first
    x ← g ⊙ x / √(mean x² + ε)                          the mean over W neighbors: RMS normalization
    y = x ⊙ φ(z)                                        else

Each part may be absent. Kernels of a CPU compute all of it in one pass, forward and backward.
"""

from pathlib import Path
from typing import Any

from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import InputError
from gyral.ops.declaration import check_shape
from gyral.ops.gated_norm import naive
from gyral.ops.gated_norm.naive import ACTIVATIONS
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator

__all__ = ["gated_norm"]


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    steps, batch, heads, value = check_shape("values", a.values, *a.values.shape[:2], "H", "V")
    width = heads * value
    check_shape("gate", a.gate, steps, batch, width)
    check_shape("skip", a.skip, steps, batch, heads, value)
    check_shape("weight", a.weight, heads)
    if (a.skip is None) != (a.weight is None):
        raise InputError("skip and weight must both be given, or neither")
    check_choice("activation", a.activation, tuple(ACTIVATIONS))
    if a.gain is None:
        return
    (period,) = check_shape("gain", a.gain, "P")
    size = check_integer("size", a.size, minimum=1)
    if size % value or period % size or width % period:
        raise InputError(f"size is {size}, must be a multiple of V that divides the {period} gains, which divide H V")


def sizes(a: Any) -> dict[str, Any]:
    """Return the numbers that the kernel takes."""
    steps, batch, heads, value = a.values.shape
    return {
        "batch": steps * batch,
        "rows": batch,
        "heads": heads,
        "value": value,
        "together": 1 if a.gain is None else a.size // value,
        "gains": 0 if a.gain is None else len(a.gain),
        "is_silu": a.activation == "silu",
    }


KERNELS = Kernels(
    Path(__file__).with_name("gated_norm.cpp"),
    sizes=sizes,
    results={"outputs": lambda a: a.values.new_empty(*a.values.shape[:2], a.values.shape[2:].numel())},
    gradients={name: like(name) for name in ("values", "gate", "skip")},
    sums=("gain", "weight"),
)
gated_norm = Operator(naive.gated_norm, {"cpu": KERNELS}, unread=1, shapes=shapes)
