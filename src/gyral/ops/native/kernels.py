"""Kernels for the CPU that a family declares by the names of their arguments, for `gyral.ops.operator.Operator`."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native import library
from gyral.ops.native.products import project, project_backward

Make = Callable[[Any], Any]  # from the arguments of an operator to a tensor without values, or None


def like(name: str) -> Make:
    """Return a function that allocates a tensor like an argument."""

    def make(a: Any) -> Tensor | None:
        value = getattr(a, name)
        return None if value is None else torch.empty_like(value)

    return make


def before_chunks(like: Tensor, steps: int, size: int, *shape: int) -> Tensor:
    """Return a tensor without values for a state of a shape before each chunk of `size` steps, in one dimension.

    A dimension for the chunks, of which a short sequence has one, would be a constant for a compiler; then so are the
    numbers of steps that fit into one chunk.
    """
    return like.new_empty(-(-steps // size) * math.prod(shape))


class Kernels:
    """A module of kernels, see `gyral.ops.operator.Operator`, that calls the source <name>.cpp.

    Each field of its `struct Arguments` is found by its name:

    * a number or a tensor that `sizes` returns;
    * an argument of the operator, a result, or a tensor that is kept for the backward pass;
    * `grad_<result>`, the gradient of a result, zeros if it has none;
    * `grad_<argument>`, where the kernel writes the gradient of an argument.

    Args:
        source: The path of <name>.cpp.
        sizes: Returns the numbers that the kernel takes, with `batch` among them, and tensors that are computed from
            the arguments.
        results: Functions that allocate the results, by name in the order of the operator.
        kept: The same for what backward needs besides arguments and results; each may return None.
        states: The name of the result with the state after the last step, by the name of the argument with the state
            before the first one. The field `grad_<argument>` is the gradient of the result before the backward pass and
            that of the argument after it. If the kernel has no field with the name of the argument, the field of the
            result is the state before the first step, too: the kernel overwrites it.
        gradients: Functions that return the tensors for the gradients of other arguments, null if they return None;
            zeros like the argument where there is no function. A tensor with one dimension more than the argument has
            partial sums over its first dimension.
        sums: Names of the arguments whose gradients are such sums, one for each block of rows, from zeros: so they do
            not depend on the number of threads.
        optional: Names of arguments whose gradients the kernel leaves out where they are not needed, and of results
            whose gradients are null, not zeros, where there is none.
        layouts: By the name of an argument, two functions. One returns it in the layout of the kernel. The other takes
            a tensor in that layout, and the argument, and returns the tensor in the layout of the argument.
    """

    DTYPES = library.DTYPES

    def __init__(
        self,
        source: Path,
        *,
        sizes: Callable[[Any], dict[str, Any]],
        results: Mapping[str, Make],
        kept: Mapping[str, Make] | None = None,
        states: Mapping[str, str] | None = None,
        gradients: Mapping[str, Make] | None = None,
        sums: Collection[str] = (),
        optional: Collection[str] = (),
        layouts: Mapping[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] | None = None,
    ) -> None:
        self.kernel, self.sizes, self.results, self.kept = library.Kernel(source), sizes, results, kept or {}
        self.states, self.gradients, self.layouts = states or {}, gradients or {}, layouts or {}
        self.sums, self.optional = sums, optional
        self.prepare = self.kernel.prepare
        self._is_checked = False

    @cached_property
    def _fields(self) -> frozenset[str]:
        return frozenset(self.kernel.names)

    @cached_property
    def _differentiable(self) -> list[str]:
        """The arguments that have a gradient."""
        names = [name.removeprefix("grad_") for name in self.kernel.names if name.startswith("grad_")]
        return [name for name in names if name not in self.results]

    @cached_property
    def _overwritten(self) -> list[tuple[str, str]]:
        """The arguments and results with a state that the kernel overwrites."""
        return [(before, after) for before, after in self.states.items() if before not in self._fields]

    def allocate(self, a: Any) -> tuple[list[Any], list[Any]]:
        """Return results and kept tensors without values."""
        return [make(a) for make in self.results.values()], [make(a) for make in self.kept.values()]

    def forward(self, a: Any) -> tuple[list[Any], list[Any]]:
        """Run all steps; see `gyral.ops.operator.Operator`."""
        results, kept = self.allocate(a)
        self._run(a, results, kept)
        return results, kept

    def _run(self, a: Any, results: list[Any], kept: list[Any]) -> None:
        """Write results and kept tensors."""
        given = self._given(a, results, kept)
        for before, after in self._overwritten:
            given[after] = self._copied(before, getattr(a, before))
        self.kernel.call(False, results[0].dtype, given)
        for before, after in self._overwritten:
            results[[*self.results].index(after)].copy_(self._unpacked(before, given[after], a))

    def backward(
        self, a: Any, results: list[Any], kept: list[Any], gradients: Sequence[Tensor | None], needs: dict[str, bool]
    ) -> dict[str, Any]:
        """Return the gradients; see `gyral.ops.operator.Operator`."""
        if results[0] is None:  # unread, see `gyral.ops.operator.Operator`: without values, it has dtype and shape
            results = [make(a) for make in self.results.values()]
        given, final = self._given(a, results, kept), dict(zip(self.results, gradients, strict=True))
        for (name, gradient), result in zip(final.items(), results, strict=True):
            if f"grad_{name}" in self._fields:
                is_null = gradient is None and name not in self.optional
                given[f"grad_{name}"] = torch.zeros_like(result) if is_null else gradient
        found: dict[str, Any] = {}
        for name in self._differentiable:
            argument = getattr(a, name)
            if argument is None or (name in self.optional and not needs[name]):
                continue
            if name in self.states:
                gradient = final[self.states[name]]
                made: Tensor | None = self._copied(name, torch.zeros_like(argument) if gradient is None else gradient)
            elif name in self.gradients:
                made = self.gradients[name](a)
            elif name in self.sums:
                made = given[name].new_zeros(self.kernel.blocks(given["batch"]), *given[name].shape)
            else:
                made = torch.zeros_like(given[name])
            if made is not None:
                found[name] = given[f"grad_{name}"] = made
        self.kernel.call(True, results[0].dtype, given)
        for name, gradient in found.items():
            argument = given[name] if name in self.layouts and name not in self.states else getattr(a, name)
            if gradient.dim() > argument.dim() and name not in self.states:
                gradient = gradient.sum(0)
            found[name] = self._unpacked(name, gradient, a)
        return found

    def _given(self, a: Any, results: list[Any], kept: list[Any]) -> dict[str, Any]:
        """Return tensors and numbers by the names of the fields of the kernel."""
        given = a._asdict()
        sizes = self.sizes(a)
        if not self._is_checked:
            self._check({*given, *sizes})
        given.update(zip(self.results, results, strict=True))
        given.update(zip(self.kept, kept, strict=True))
        given.update(sizes)
        for name, (pack, _) in self.layouts.items():
            if name in self._fields:
                given[name] = pack(given[name])
        return given

    def _check(self, given: set[str]) -> None:
        """Check that each field has a value, and each name of this declaration a field.

        Raises:
            TypeError: One has none.
        """
        declared = {*self.kept, *(f"grad_{name}" for name in self.gradients)}
        source = self.kernel.source.name
        if unknown := declared - self._fields:
            raise TypeError(f"{source} has no argument {', '.join(sorted(unknown))}")
        known = {*given, *self.results, *self.kept, "threads", "workspace"}
        known |= {f"grad_{name}" for name in known}
        if missing := self._fields - known:
            raise TypeError(f"{source} has arguments without a value: {', '.join(sorted(missing))}")
        self._is_checked = True

    def _copied(self, name: str, state: Tensor) -> Tensor:
        """Return a copy of a state, or of its gradient, in the layout of the kernel."""
        packed = self.layouts[name][0](state) if name in self.layouts else state
        return packed.clone() if packed.data_ptr() == state.data_ptr() else packed

    def _unpacked(self, name: str, tensor: Tensor, a: Any) -> Tensor:
        """Return a tensor of the kernel in the layout of an argument."""
        return self.layouts[name][1](tensor, getattr(a, name)) if name in self.layouts else tensor


def rows(a: Any, *shape: int) -> Tensor:
    """Return a tensor (T, B, …) without values, for the argument x (T, B, X)."""
    new: Tensor = a.x.new_empty(*a.x.shape[:2], *shape)
    return new


class ProjectedKernels(Kernels):
    """Kernels that read the parts W_ih x_t + b (T, B, G) of all steps, and overwrite them with their gradient.

    The operator has the arguments x, w_ih and b of `gyral.ops.native.products.project`. The first kept tensor is
    `parts`. If the kernel has no field `grad_b`, the gradient of b is the sum of that of the parts.
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
