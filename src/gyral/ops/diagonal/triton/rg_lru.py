"""RG-LRU as Triton kernels: the products of both gates are one, and the scan computes the gates in registers.

The units of a head are next to each other in x, W_a x and W_x x: a row of products has those of the first head for both
gates, then those of the second head, and so on. The last head is padded if it is not full.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.diagonal.triton.coefficients import Config
from gyral.ops.diagonal.triton.kernels import backward_scan, forward_scan
from gyral.ops.diagonal.triton.launch import DTYPES, prepare, run
from gyral.ops.triton.launch import summed

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results; and the weights (H, b, 2b) and products (T, B, 2 H b) of both gates."""
    _, heads, block, _ = a.weight.shape
    results = [torch.empty_like(a.inputs), torch.empty_like(a.h0), torch.empty_like(a.fresh)]
    shapes = (heads, block, 2 * block), (*a.inputs.shape[:2], 2 * heads * block)
    return results, [a.h0.new_empty(shape, dtype=a.product_dtype) for shape in shapes]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    weight, products = saved
    weight.view(*weight.shape[:2], 2, -1).copy_(a.weight.permute(1, 2, 0, 3))
    torch.bmm(_by_head(_factor(a, weight), weight), weight, out=_by_head(products, weight))
    run(forward_scan, _config(a), a.inputs, products, a, results)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    (weight, products), config = saved, _config(a)
    found = {name: torch.empty_like(getattr(a, name)) for name in ("inputs", "h0")}
    is_padded = weight.shape[0] * weight.shape[1] > config.size
    grad_products = torch.zeros_like(products) if is_padded else torch.empty_like(products)
    sums = a.h0.new_empty(len(a.h0), config.sums, config.size)
    written = [found["inputs"], grad_products, sums, found["h0"]]
    run(backward_scan, config, a.inputs, products, a, [results[0], *gradients[:2], *written])
    by_head = _by_head(grad_products, weight)
    grad_weight = torch.bmm(_by_head(_factor(a, weight), weight).transpose(1, 2), by_head)
    found["weight"] = torch.empty_like(a.weight)
    found["weight"].copy_(grad_weight.view(*weight.shape[:2], 2, -1).permute(2, 0, 1, 3))
    if is_padded or weight.dtype != found["inputs"].dtype:
        more = torch.bmm(by_head, weight.transpose(1, 2)).transpose(0, 1).flatten(1)
        found["inputs"] += more[:, : config.size].view_as(a.inputs)
    else:
        _by_head(found["inputs"], weight).baddbmm_(by_head, weight.transpose(1, 2))
    return found | summed(sums, {name: getattr(a, name) for name in ("decay", "bias")})


def _config(a: Any) -> Config:
    """Return the compile-time constants of the kernels."""
    (_, heads, block, _), size = a.weight.shape, a.h0.shape[1]
    return Config("rg_lru", size, False, "", size, 2 * heads * block, 0, True, block, 3)


def _factor(a: Any, weight: Tensor) -> Tensor:
    """Return the inputs (T, B, H b) in the dtype of the products."""
    heads, block, _ = weight.shape
    missing = heads * block - a.inputs.shape[2]
    return (F.pad(a.inputs, (0, missing)) if missing else a.inputs).to(weight.dtype)


def _by_head(rows: Tensor, weight: Tensor) -> Tensor:
    """Return rows (T, B, H J) as a view (H, T B, J)."""
    heads = weight.shape[0]
    return rows.view(rows.shape[0] * rows.shape[1], heads, rows.shape[2] // heads).transpose(0, 1)
