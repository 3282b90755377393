"""The queries, keys and values of mLSTM, products with block-diagonal matrices, and the logits of its gates.

    q_t = W_q c_t,  k_t = W_k c_t,  v_t = W_v u_t,  gates_t = W_g [q_t; k_t; v_t] + b_g

mLSTM: Beck et al., "xLSTM: extended long short-term memory", NeurIPS 2024, in the layer of its appendix. The operator
has a kernel on a CPU alone; elsewhere it is functions of torch.
"""

from pathlib import Path
from typing import Any

from gyral.core.errors import InputError
from gyral.ops.block_projections import naive
from gyral.ops.declaration import check_shape, product
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator

__all__ = ["block_projections"]


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    *leading, channels = check_shape("convolved", a.convolved, *a.convolved.shape[:2], "C")
    check_shape("values", a.values, *leading, channels)
    *_, size, _ = check_shape("weight", a.weight, 3, "C / b", "b", "b")
    check_shape("weight", a.weight, 3, -(-channels // size), size, size)
    rows, _ = check_shape("weight_gates", a.weight_gates, "G", 3 * channels)
    check_shape("bias_gates", a.bias_gates, rows)
    if a.heads < 1 or channels % a.heads:
        raise InputError(f"heads={a.heads}: must be a divisor of the {channels} channels")


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    steps, rows, channels = a.convolved.shape
    return {
        "batch": steps * rows,
        "rows": rows,
        "channels": channels,
        "size": a.weight.shape[-1],
        "gates_size": a.bias_gates.shape[0],
    }


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products; see `gyral.ops.declaration.formulas_of`."""
    rows = a.convolved.shape[0] * a.convolved.shape[1]
    return product(rows, a.weight) + product(rows, a.weight_gates), 0


KERNELS = Kernels(
    Path(__file__).with_name("block_projections.cpp"),
    sizes=sizes,
    results={
        "q": like("convolved"),
        "k": like("convolved"),
        "v": lambda a: a.values.new_empty(*a.values.shape[:2], a.heads, a.values.shape[2] // a.heads + 1),
        "gates": lambda a: a.values.new_empty(*a.values.shape[:2], a.bias_gates.shape[0]),
    },
    gradients={"convolved": like("convolved"), "values": like("values")},
    sums=("weight", "weight_gates", "bias_gates"),
    optional=("q", "k", "v", "gates"),
)
block_projections = Operator(naive.block_projections, {"cpu": KERNELS}, unread=3, shapes=shapes, products=products)
