"""Products of whole sequences with small matrices, and their gradients."""

import torch
from torch import Tensor

from gyral.ops.native import library

# Products of long matrices, with a row for each step and sequence, and small ones: products.cpp on a CPU. Libraries of
# linear algebra do not reach the processor's speed for matrices as narrow as these, least of all on processors of
# another maker.
PRODUCTS = library.Kernel(library.SOURCES / "native" / "products.cpp")
LARGEST = 2**19  # bytes of the small matrix; for larger ones, which leave the cache, torch is as fast or faster


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `tensor.to(dtype)`, in a tenth of the time where it has this dtype."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def project(x: Tensor, w_ih: Tensor, b: Tensor | None, out: Tensor) -> None:
    """Write the parts W_ih x_t + b of all steps to `out` (T, B, G), in one product in its dtype.

    Args:
        x: (T, B, X).
        w_ih: (G, X).
        b: (G,) or None.
        out: (T, B, G).
    """
    rows, w_ih, projected = cast(x.flatten(0, 1), out.dtype), cast(w_ih, out.dtype), out.flatten(0, 1)
    if b is None:
        torch.mm(rows, w_ih.T, out=projected)
    else:
        torch.addmm(cast(b, out.dtype), rows, w_ih.T, out=projected)


def project_backward(
    grad_parts: Tensor, x: Tensor, w_ih: Tensor, b: Tensor | None, needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients of the arguments of `project`, in their dtypes.

    Args:
        grad_parts: (T, B, G).
        x, w_ih, b: The arguments.
        needs: Whether the gradient of "x" is needed.
    """
    rows = grad_parts.flatten(0, 1)
    dtype = rows.dtype
    return {
        "x": cast(multiply(rows, cast(w_ih, dtype)).view(x.shape), x.dtype) if needs["x"] else None,
        "w_ih": cast(sum_outer(rows, cast(x.flatten(0, 1), dtype)), w_ih.dtype),
        "b": None if b is None else rows.sum(0),
    }


def recurrent_gradient(
    grad_products: Tensor,
    h0: Tensor,
    outputs: Tensor,
    starts: Tensor | None = None,
    drop: Tensor | None = None,
    fresh: Tensor | None = None,
) -> Tensor:
    """Return the gradient (R, H) of the weights of a product with the previous hidden vector.

    Args:
        grad_products: (T, B, R), the gradients of the products; overwritten during the call.
        h0, outputs: (B, H) and (T, B, H), the hidden vectors before the first step and after each step.
        starts: (T, B) bool: where the product has read `fresh` instead. Or None.
        drop: (B, H), factors of the hidden vectors in the product, or None.
        fresh: (H,), or None stands for zeros.
    """
    if starts is not None and starts.device.type != "cpu":  # a host that waits for indices keeps a GPU waiting
        rows = products_read(h0, outputs, starts, drop, fresh)
        return sum_outer(grad_products.flatten(0, 1), rows.flatten(0, 1))
    if drop is not None:
        h0, outputs = h0 * drop, outputs * drop
    if starts is not None:  # these few products read `fresh`
        begins = starts.nonzero(as_tuple=True)
        apart = grad_products[begins]
        grad_products[begins] = 0.0
    gradient = grad_products[0].T @ h0
    if grad_products.shape[0] > 1:
        gradient += sum_outer(grad_products[1:].flatten(0, 1), outputs[:-1].flatten(0, 1))
    if starts is not None:
        grad_products[begins] = apart
        if fresh is not None:
            gradient.addmm_(apart.T, fresh.expand(len(apart), -1) if drop is None else fresh * drop[begins[1]])
    return gradient


def products_read(
    h0: Tensor, outputs: Tensor, starts: Tensor, drop: Tensor | None = None, fresh: Tensor | None = None
) -> Tensor:
    """Return the vectors (T, B, H) that the products of all steps read; see `recurrent_gradient`."""
    before = torch.cat((h0.unsqueeze(0), outputs[:-1]))
    rows = torch.where(starts.unsqueeze(2), 0.0 if fresh is None else fresh.to(before.dtype), before)
    return rows if drop is None else rows * drop


def multiply(rows: Tensor, weight: Tensor) -> Tensor:
    """Return rows · weight (M, N).

    Args:
        rows: (M, K).
        weight: (K, N), contiguous.
    """
    if not _is_supported(weight):
        return rows @ weight
    found = rows.new_empty(rows.shape[0], weight.shape[1])
    _run_products(False, _with_whole_rows(rows), weight, found)
    return found


def sum_outer(gradients: Tensor, rows: Tensor) -> Tensor:
    """Return gradientsᵀ · rows (N, K), the sum of the outer products of the rows.

    Args:
        gradients: (M, N).
        rows: (M, K).
    """
    found = rows.new_empty(gradients.shape[1], rows.shape[1])
    if not _is_supported(found) or rows.shape[0] == 0:
        return torch.mm(gradients.T, rows, out=found)
    _run_products(True, _with_whole_rows(rows), found, _with_whole_rows(gradients))
    return found


def _with_whole_rows(matrix: Tensor) -> Tensor:
    """Return a matrix whose rows have no gaps between their numbers."""
    return matrix if matrix.stride(1) == 1 else matrix.contiguous()


def _is_supported(matrix: Tensor) -> bool:
    is_small = matrix.device.type == "cpu" and matrix.dtype in library.DTYPES and matrix.nbytes <= LARGEST
    return is_small and not isinstance(library.load_or_reason(PRODUCTS.source), str)


def _run_products(backward: bool, rows: Tensor, weight: Tensor, results: Tensor) -> None:
    PRODUCTS.run(  # with addresses, because rows may have gaps between them
        backward=backward,
        dtype=rows.dtype,
        batch=rows.shape[0],
        depth=rows.shape[1],
        columns=results.shape[1],
        rows_stride=rows.stride(0),
        results_stride=results.stride(0),
        rows=rows.data_ptr(),
        weight=weight.data_ptr(),
        results=results.data_ptr(),
    )
