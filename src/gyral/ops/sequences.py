"""Functions of whole sequences that several families of kernels share."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from gyral.ops.compiler import is_traced
from gyral.ops.native import library

# Products of long matrices, with a row for each step and sequence, and small ones: products.cpp on a CPU. Libraries of
# linear algebra do not reach the processor's speed for matrices as narrow as these, least of all on processors of
# another maker.
PRODUCTS = library.Kernel(library.SOURCES / "native" / "products.cpp")
LARGEST = (
    2**19
)  # bytes of the small matrix; for larger ones, which do not stay in the cache, torch is as fast or faster


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


def split_keep(keep: Tensor | None) -> tuple[Tensor | None, float]:
    """Return zoneout as a mask of several dimensions or None, and as a probability or 0."""
    if keep is None or keep.dim() > 0:
        return keep, 0.0
    return None, float(keep)


def reachable_since(starts: Tensor | None, past: int) -> Tensor | None:
    """Return the first step (T, B) that each step can read: the last start, or −`past` before the first start.

    Args:
        starts: (T, B) bool, True where the state is reset before the step. None: every step is reachable.
        past: Number of values from before the first step.
    """
    if starts is None:
        return None
    time = torch.arange(starts.shape[0], device=starts.device).unsqueeze(1)
    return torch.where(starts, time, -past).cummax(0).values


def marked_since_start(marks: Tensor, starts: Tensor | None) -> Tensor:
    """Return whether a step (T, B) has a mark (T, B), or one before it and since the last start (T, B)."""
    count = marks.to(torch.int64).cumsum(0)
    if starts is None:
        return count > 0
    return count > torch.where(starts, count - marks.to(torch.int64), 0).cummax(0).values


def spoil(values: Tensor, rows: Tensor) -> Tensor:
    """Return values (…, N, …) with NaN where the mask (…) is True."""
    spoiling = torch.where(rows, torch.nan, 0.0).to(values.dtype)
    return values + spoiling.view(*rows.shape, *[1] * (values.dim() - rows.dim()))


def is_finite(*tensors: Tensor | None) -> bool:
    """Return whether no tensor has NaN or infinity; for a compiler, which knows no values, True."""
    return is_traced() or all(tensor is None or bool(tensor.detach().sum().isfinite()) for tensor in tensors)


def zero_beyond(outputs: Tensor, lengths: Tensor | None) -> Tensor:
    """Return outputs (T, B, N) with zeros beyond the lengths (B,)."""
    if lengths is None:
        return outputs
    ended = torch.arange(outputs.shape[0], device=outputs.device).unsqueeze(1) >= lengths
    return outputs.masked_fill(ended.unsqueeze(2), 0.0)


def last_step(sequence: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the values (B, …) of a sequence (T, B, …) at the last step of each row, given the lengths (B,)."""
    if lengths is None:
        return sequence[-1]
    return sequence[lengths - 1, torch.arange(lengths.shape[0], device=sequence.device)]


def shift(first: Tensor, sequence: Tensor) -> Tensor:
    """Return what precedes each step of a sequence (T, B, …): `first` (B, …), then the steps except for the last."""
    # slices with T − 1 steps would make compilers assume that T is not 2
    return torch.cat((first.unsqueeze(0), sequence))[:-1]


def mark_first(starts: Tensor | None, fresh: Tensor, steps: int) -> Tensor:
    """Return the starts (T, B), all False if None, where the first step is also one in the rows with `fresh` (B,)."""
    if starts is None:
        starts = torch.zeros(steps, fresh.shape[0], dtype=torch.bool, device=fresh.device)
    time = torch.arange(steps, device=fresh.device).unsqueeze(1)
    return starts | ((time == 0) & fresh)


def reverse(sequence: Any, lengths: Tensor | None) -> Any:
    """Reverse the leaves (T, B, …) in time, each sequence within its own length; padding stays at the end."""
    if lengths is None:
        return tree_map_only(Tensor, lambda leaf: leaf.flip(0), sequence)

    def reverse_leaf(leaf: Tensor) -> Tensor:
        steps, rows = leaf.shape[:2]
        time = torch.arange(steps, device=leaf.device).unsqueeze(1)
        source = torch.where(time < lengths, lengths - 1 - time, time)
        # whole vectors at once: `gather` looks up an index for each number
        index = source * rows + torch.arange(rows, device=leaf.device)
        return leaf.flatten(0, 1).index_select(0, index.flatten()).view_as(leaf)

    return tree_map_only(Tensor, reverse_leaf, sequence)


def reverse_starts(starts: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the starts (T, B) of the segments for a sequence that `reverse` has reversed.

    The last step of a segment, before which the next one begins, becomes its first. A row has no start at its own last
    step, where the backward direction reads the state passed in.
    """
    return shift(torch.zeros_like(starts[0]), reverse(starts, lengths))


def multiply(rows: Tensor, weight: Tensor) -> Tensor:
    """Return rows · weight (M, N).

    Args:
        rows: (M, K), whose last dimension is contiguous.
        weight: (K, N), contiguous.
    """
    if not _is_supported(weight):
        return rows @ weight
    found = rows.new_empty(rows.shape[0], weight.shape[1])
    _run_products(False, rows, weight, found)
    return found


def sum_outer(gradients: Tensor, rows: Tensor) -> Tensor:
    """Return gradientsᵀ · rows (N, K), the sum of the outer products of the rows.

    Args:
        gradients: (M, N), whose last dimension is contiguous.
        rows: (M, K), likewise.
    """
    found = rows.new_empty(gradients.shape[1], rows.shape[1])
    if not _is_supported(found) or rows.shape[0] == 0:
        return torch.mm(gradients.T, rows, out=found)
    _run_products(True, rows, found, gradients)
    return found


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
