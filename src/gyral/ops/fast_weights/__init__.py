"""Recurrences whose state is a hidden vector h and a matrix A: fast weights and WeiNet, over a whole sequence.

`gyral.cells.fast_weights` and `gyral.cells.weinet` have the equations. `naive` computes them step by step in plain
torch.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import InputError
from gyral.ops.declaration import check_shape, product, projection
from gyral.ops.fast_weights import naive
from gyral.ops.native.kernels import ProjectedKernels, before_chunks, like, rows
from gyral.ops.native.products import recurrent_gradient
from gyral.ops.operator import Operator, cast_for_autocast, has_gradient
from gyral.ops.sequences import split_keep

__all__ = ["KINDS", "fast_weights", "unsupported_reason"]

KINDS = ("relu", "tanh", "weinet")  # in the order of fast_weights.cpp: fast weights by their activation, and WeiNet
LARGEST = 256  # N that the kernels for a GPU support; one program would take too long to read larger matrices
PADDING = 16  # rows of matrices in `memories` are padded to at most a multiple of this, the widest vector


def chunk_size(kind: str, size: int) -> int:
    """Return the number of steps after which A is stored."""
    return 16 if kind == "weinet" else max(32, size // 2)


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    steps, batch, inputs = check_shape("x", a.x, *a.x.shape[:2], "X")
    check_choice("kind", a.kind, KINDS)
    is_weinet = a.kind == "weinet"
    _, size = check_shape("h0", a.h0, batch, "N")
    check_shape("a0", a.a0, batch, size, size)
    parts, products = (7 * size, 4 * size) if is_weinet else (size, size)
    check_shape("w_ih", a.w_ih, parts, inputs)
    check_shape("b", a.b, parts)
    check_shape("w_hh", a.w_hh, products, size)
    check_shape("norm", a.norm, 2, size)
    if a.norm is None and not is_weinet:
        raise InputError(f"norm is None, must be gain and bias (2, {size}) for fast weights")
    check_shape("keep", a.keep, *(() if a.keep is None or a.keep.dim() == 0 else (steps, batch, size)))
    check_shape("drop", a.drop, batch, size)
    check_integer("inner_steps", a.inner_steps, minimum=int(not is_weinet))


def sizes(a: Any) -> dict[str, Any]:
    """Return the numbers that the kernel takes, and its tensors that are not arguments."""
    (steps, batch, _), size = a.x.shape, a.h0.shape[1]
    chunk, (mask, keep_mean) = min(steps, chunk_size(a.kind, size)), split_keep(a.keep)
    return {
        "steps": steps,
        "batch": batch,
        "size": size,
        "parts_size": len(a.w_ih),
        "weight_rows": len(a.w_hh),
        "chunk": chunk,
        "kind": KINDS.index(a.kind),
        "keep_mean": keep_mean,
        "keep": mask,
        "a0": a.a0 if a.a0.any() else None,  # most sequences start from zeros, which need not be read
        "decays": (a.decay ** torch.arange(chunk + 1, dtype=torch.float64, device="cpu")).to(a.x.dtype),
    }


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products; see `gyral.ops.declaration.formulas_of`."""
    rows, reads = len(a.x) * len(a.h0), 1 if a.kind == "weinet" else a.inner_steps
    # the outer product that is added to A, and the reads of A
    return projection(a), product(rows, a.w_hh) + (1 + reads) * product(rows, a.a0[0])


def memories(a: Any) -> Tensor | None:
    """Return where the kernel keeps A before each chunk of steps, each (B, N, padded N)."""
    if a.kind == "weinet" and not a.has_gradient:
        return None
    (steps, _, _), (batch, size) = a.x.shape, a.h0.shape
    return before_chunks(a.x, steps, chunk_size(a.kind, size), batch, size, -(-size // PADDING) * PADDING)


class FastWeightsKernels(ProjectedKernels):
    """The kernels, and the gradient of the recurrent weights."""

    def backward(self, a: Any, results: list[Any], kept: list[Any], gradients: Any, needs: dict[str, bool]) -> Any:
        """Return the gradients; see `gyral.ops.operator.Operator`."""
        found = super().backward(a, results, kept, gradients, needs)
        found["w_hh"] = recurrent_gradient(kept[0][..., : len(a.w_hh)], a.h0, results[0], a.starts, a.drop)
        return found


KERNELS = FastWeightsKernels(
    Path(__file__).with_name("fast_weights.cpp"),
    sizes=sizes,
    results={"outputs": lambda a: rows(a, a.h0.shape[1]), "final_hidden": like("h0"), "final_memory": like("a0")},
    kept={"settled": lambda a: rows(a, a.inner_steps, a.h0.shape[1]), "memories": memories},
    states={"h0": "final_hidden"},
    gradients={"a0": like("a0")},
    sums=("b", "norm"),
    optional=("outputs", "final_memory", "a0"),
)
OPERATOR = Operator(
    naive.fast_weights,
    {"cpu": KERNELS, "cuda": "gyral.ops.fast_weights.triton"},
    shapes=shapes,
    products=products,
)


def unsupported_reason(tensor: Tensor, size: int) -> str | None:
    """Return the reason why no kernel supports the device and dtype of a tensor, and N units; None if one does."""
    if tensor.device.type != "cpu" and size > LARGEST:
        return too_large(size)
    return OPERATOR.unsupported_reason(tensor)


def too_large(size: int) -> str:
    """Return the reason why the kernels for a GPU do not support N units."""
    return f"the kernels for a GPU support at most {LARGEST} units, not {size}"


def fast_weights(
    kind: str,
    x: Tensor,
    w_ih: Tensor,
    b: Tensor,
    w_hh: Tensor,
    norm: Tensor | None,
    h0: Tensor,
    a0: Tensor,
    *,
    keep: Tensor | None = None,
    drop: Tensor | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    epsilon: float = 1e-5,
    decay: float = 0.0,
    rate: float = 0.0,
    inner_steps: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a recurrence over a sequence, under autocast in the dtype of the parameters.

    T steps, B batch size, X inputs, N units, G = N for fast weights and 7N for WeiNet.

    Args:
        kind: One of `KINDS`.
        x: (T, B, X).
        w_ih, b: (G, X) and (G,).
        w_hh: (N, N), for WeiNet (4N, N).
        norm: Gain and bias (2, N) of the layer normalization; None for WeiNet without it.
        h0, a0: (B, N) and (B, N, N) before the first step.
        keep: Zoneout: a mask (T, B, N) in training, the probability () in evaluation, or None.
        drop: Recurrent dropout: factors (B, N) of the hidden vector in the product with W_hh, or None.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets h and A of a row to zero before the step.
        epsilon: What layer normalization adds to the variance.
        decay, rate, inner_steps: λ, η and S of fast weights.

    Returns:
        outputs (T, B, N), and h (B, N) and A (B, N, N) after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        InputError: See `gyral.ops.declaration.Checks`.
        ValueError: Fast weights have no inner step.
    """
    if kind != "weinet" and inner_steps < 1:
        raise ValueError(f"inner_steps is {inner_steps}, must be at least 1")
    x, h0, a0 = cast_for_autocast(w_hh.dtype, x, h0, a0)
    given = x, w_ih, b, w_hh, norm, h0, a0, keep, drop
    outputs, hidden, memory = OPERATOR.run(
        *(kind, *given, lengths, starts, epsilon, decay, rate, inner_steps, has_gradient(*given))
    )
    return outputs, hidden, memory
