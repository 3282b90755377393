"""Kernels for the CPU that begin with one product for all steps, that of the inputs and W_ih."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from gyral.ops.native.kernels import Kernels, Make
from gyral.ops.sequences import project, project_backward


def rows(a: Any, *shape: int) -> Tensor:
    """Return a tensor (T, B, …) without values, for the argument x (T, B, X)."""
    new: Tensor = a.x.new_empty(*a.x.shape[:2], *shape)
    return new


class ProjectedKernels(Kernels):
    """Kernels that read the parts W_ih x_t + b (T, B, G) of all steps, and overwrite them with their gradient.

    The operator has the arguments x, w_ih and b of `gyral.ops.sequences.project`. The first kept tensor is `parts`. If
    the kernel has no field `grad_b`, the gradient of b is the sum of that of the parts.
    """

    def __init__(self, source: Path, *, kept: Mapping[str, Make] | None = None, **further: Any) -> None:
        super().__init__(source, kept={"parts": lambda a: rows(a, a.w_ih.shape[0]), **(kept or {})}, **further)

    def _run(self, a: Any, results: list[Any], kept: list[Any]) -> None:
        project(a.x, a.w_ih, a.b, out=kept[0])
        super()._run(a, results, kept)

    def backward(self, a: Any, results: list[Any], kept: list[Any], gradients: Any, needs: dict[str, bool]) -> Any:
        """Return the gradients; see `gyral.ops.operator.Operator`."""
        found = super().backward(a, results, kept, gradients, needs)
        b = a.b if "grad_b" not in self._fields else None
        return project_backward(kept[0], a.x, a.w_ih, b, needs) | found
