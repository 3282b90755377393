"""Products of long matrices, with a row for each step and sequence, and small ones: products.cpp on a CPU.

Libraries of linear algebra do not reach the processor's speed for matrices as narrow as these, least of all on
processors of another maker.
"""

from pathlib import Path

import torch
from torch import Tensor

from gyral.ops.native import library

KERNEL = library.Kernel(Path(__file__).with_name("products.cpp"))
LARGEST = (
    2**19
)  # bytes of the small matrix; for larger ones, which do not stay in the cache, torch is as fast or faster


def multiply(rows: Tensor, weight: Tensor) -> Tensor:
    """Return rows · weight (M, N).

    Args:
        rows: (M, K), whose last dimension is contiguous.
        weight: (K, N), contiguous.
    """
    if not _is_supported(weight):
        return rows @ weight
    found = rows.new_empty(rows.shape[0], weight.shape[1])
    _run(False, rows, weight, found)
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
    _run(True, rows, found, gradients)
    return found


def _is_supported(matrix: Tensor) -> bool:
    is_small = matrix.device.type == "cpu" and matrix.dtype in library.DTYPES and matrix.nbytes <= LARGEST
    return is_small and not isinstance(library.load_or_reason(KERNEL.source), str)


def _run(backward: bool, rows: Tensor, weight: Tensor, results: Tensor) -> None:
    KERNEL.run(  # with addresses, because rows may have gaps between them
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
