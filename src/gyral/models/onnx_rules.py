"""Simplifications of ONNX programs, in which the time of a small step is that of its number of operators."""

from typing import Any

from onnx_ir import Model, Value
from onnxscript.rewriter import rewrite
from onnxscript.rewriter.pattern import RewriteRule, RewriteRuleSet

NO_BIAS = 2  # the number of inputs of a product without one


def simplify(model: Model) -> None:
    """Replace some operators by fewer ones that compute the same to rounding, in place."""
    rewrite(model, RewriteRuleSet([PRODUCT_AND_SUM, TWO_PRODUCTS, SQUARES, QUOTIENT, SOFTPLUS], commute=True))


def _attributes(product: Value) -> dict[str, Any]:
    return dict(product.producer().attributes)  # type: ignore[union-attr]


def _is_like(product: Value, term: Value) -> bool:
    """Return whether the sum of a product (rows, N) and a term has the shape of the product."""
    sizes, other = product.shape, term.shape
    if sizes is None or other is None or len(other) > len(sizes):
        return False
    return all(one in (size, 1) for one, size in zip(other[::-1], sizes[::-1], strict=False))


# x Wᵀ + y: a product has a term, a bias or another product
PRODUCT_AND_SUM = RewriteRule(
    lambda op, x, weight, y: op.Add(op.Gemm(x, weight, _outputs=["product"]), y),
    lambda op, x, weight, y, product: op.Gemm(x, weight, y, **_attributes(product)),
    lambda _, product, y, **__: len(product.producer().inputs) == NO_BIAS and _is_like(product, y),
    name="product and sum",
)
# (x Wᵀ + b) + (h Rᵀ + c), the recurrence of torch, whose biases have a constant sum
TWO_PRODUCTS = RewriteRule(
    lambda op, x, w, b, h, r, c: op.Add(op.Gemm(x, w, b, _outputs=["first"]), op.Gemm(h, r, c, _outputs=["second"])),
    lambda op, x, w, b, h, r, c, first, second: op.Gemm(
        h, r, op.Gemm(x, w, op.Add(b, c), **_attributes(first)), **_attributes(second)
    ),
    lambda _, b, c, **__: b.is_initializer() and c.is_initializer() and b.shape == c.shape,
    name="two products",
)
SQUARES = RewriteRule(
    lambda op, x, axes: op.ReduceSum(op.Mul(x, x), axes, _outputs=["total"]),
    lambda op, x, axes, total: op.ReduceSumSquare(x, axes, **_attributes(total)),
    name="sum of squares",
)
QUOTIENT = RewriteRule(
    lambda op, x, y: op.Mul(x, op.Reciprocal(op.Sqrt(y))),
    lambda op, x, y: op.Div(x, op.Sqrt(y)),
    name="quotient by a square root",
)
# torch replaces softplus(x) by x where x > 20, for which ONNX has no need
SOFTPLUS = RewriteRule(
    lambda op, x, bound: op.Where(op.Greater(x, bound), x, op.Softplus(x)),
    lambda op, x, bound: op.Softplus(x),
    lambda _, bound, **__: bound.const_value is not None and bound.const_value.numpy().item() >= 20,
    name="softplus",
)
