"""The outputs of mLSTM: what the heads read, divided by its norm, normalized in each head, and gated.

    h = c / (max(|n|, e^{−m}) + 10⁻⁶),  y = (g ⊙ (h − mean h) / √(var h + ε) + s ⊙ x) ⊙ SiLU(z), or ⊙ σ(z)

mLSTM: Beck et al., "xLSTM: extended long short-term memory", NeurIPS 2024, equation 21 and the layer of its appendix.
The operator has a kernel on a CPU alone; elsewhere it is `gyral.ops.normalized_heads` and functions of torch.
"""

from pathlib import Path
from typing import Any

from gyral.core.errors import InputError
from gyral.ops.declaration import check_shape
from gyral.ops.gated_heads import naive
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator

__all__ = ["gated_heads"]


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    *leading, heads, size = check_shape("outputs", a.outputs, *a.outputs.shape[:2], "H", "V + 1")
    width = heads * (size - 1)
    check_shape("least", a.least, *leading, heads)
    check_shape("gate", a.gate, *leading, width)
    check_shape("gain", a.gain, width)
    if (a.skip is None) != (a.skipped is None):
        raise InputError("skip and skipped: must be given together, or both be None")
    check_shape("skip", a.skip, width)
    check_shape("skipped", a.skipped, *leading, width)


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    steps, rows, heads, size = a.outputs.shape
    return {"batch": steps * rows, "rows": rows, "heads": heads, "value": size - 1}


KERNELS = Kernels(
    Path(__file__).with_name("gated_heads.cpp"),
    sizes=sizes,
    results={"y": like("gate")},
    gradients={name: like(name) for name in ("outputs", "least", "gate", "skipped")},
    sums=("gain", "skip"),
)
gated_heads = Operator(naive.gated_heads, {"cpu": KERNELS}, shapes=shapes)
