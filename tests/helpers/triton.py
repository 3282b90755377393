"""Triton's interpreter, which runs kernels on the CPU where there is no GPU, and what tests of kernels share."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

import numpy as np
import triton
from torch import Tensor
from torch.utils._pytree import tree_leaves
from triton.runtime import interpreter

from gyral.cells.base import RecurrentCell
from gyral.nn import choice
from gyral.nn.recurrent import Recurrent
from gyral.ops.operator import Operator, load_or_reason
from tests.helpers.memory import poison

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
MASKS = {"none": (False, False), "lengths": (True, False), "starts": (False, True), "both": (True, True)}


def mend_interpreter(patch: pytest.MonkeyPatch) -> None:
    """Mend faults of the interpreter: loop bounds under numpy ≥ 2.4; products of bfloat16, held as bits; slow calls.

    Its maximum and minimum of a number and NaN are NaN; on a GPU, by default, they are the number, and so here.

    In Triton 3.9, loads refuse the masks of integers that it makes of a scalar which a comparison has returned, and
    functions refuse the constant that it makes of a product of a constant and a tensor.

    For every function that a kernel calls, it goes through all of Triton's language again. It describes the types in
    every tuple, too, which only the compiler reads, and the type and shape of every tensor anew. It scans one number at
    a time, reduces several tensors so, and flips a tensor by many reductions.
    """
    if ON_GPU:
        return
    patch_tensor, create_dot = interpreter._patch_lang_tensor, interpreter.InterpreterBuilder.create_dot
    core = triton.language.core
    multiply = core.constexpr.__mul__
    patch_language, language = interpreter._patch_lang, {"tl": triton.language, "core": core}
    new_block_type, new_tensor, numpy_dtype = core.block_type.__init__, core.tensor.__init__, interpreter._get_np_dtype
    semantic = triton.language.semantic.TritonSemantic
    broadcast_any = semantic.broadcast_impl_value
    block_types, tensors, dtypes = {}, {}, {}

    def with_index(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def widen(factor: Any) -> Any:
        if factor.data.dtype != np.uint16:
            return factor
        bits = factor.data.astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), triton.language.float32)

    def dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        return create_dot(self, widen(a), widen(b), *others)

    def splat(self: Any, returned: Any, scalar: Any) -> Any:
        data = np.full(returned.shape, scalar.data.item(), scalar.data.dtype)
        return interpreter.TensorHandle(data, scalar.dtype.scalar)

    def times(self: Any, other: Any) -> Any:
        return self.value * other if isinstance(other, core.tensor) else multiply(self, other)

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        return self.rewrite()(*arguments, **options)

    def scan(self: Any, given: Any) -> list[Any]:
        """Compose each row with the one before it, then with that two before it, and so on."""
        found, reach = [each.handle.data for each in given], 1
        while reach < found[0].shape[self.axis]:
            sides = [np.roll(each, reach, self.axis) for each in found] + found  # whole tiles: powers of 2
            composed = self.combine_fn.fn(*map(self.to_tensor, sides, [each.dtype for each in given] * 2))
            has_before = (np.arange(found[0].shape[self.axis]) >= reach).reshape(
                -1, *[1] * (found[0].ndim - self.axis - 1)
            )
            found = [np.where(has_before, new.handle.data, old) for new, old in zip(composed, found, strict=True)]
            reach *= 2
        return [self.to_tensor(data, each.dtype) for data, each in zip(found, given, strict=True)]

    def flip(x: Any, dim: int) -> Any:
        return core.tensor(interpreter.TensorHandle(np.flip(x.handle.data, dim), x.dtype), x.type)

    def reduce(self: Any, given: Any) -> list[Any]:
        """Combine one half of the axis with the other one, as long as there are two."""
        values, dtypes = [each.handle.data for each in given], [each.dtype for each in given]

        def tensor(data: Any, dtype: Any) -> Any:  # quicker than `to_tensor`
            return core.tensor(interpreter.TensorHandle(data, dtype), core.block_type(dtype, [*data.shape]))

        while values[0].shape[self.axis] > 1:
            halves = zip(*(np.split(value, 2, self.axis) for value in values), strict=True)
            first, second = (map(tensor, half, dtypes) for half in halves)
            values = [each.handle.data for each in self.combine_fn.fn(*first, *second)]
        if not self.keep_dims:
            values = [value.squeeze(self.axis) for value in values]
        return [self.to_tensor(*each) for each in zip(values, dtypes, strict=True)]

    def block_type(self: Any, element_ty: Any, shape: Any) -> None:
        key = element_ty.name, *(each.value if isinstance(each, core.constexpr) else each for each in shape)
        if key not in block_types:
            new_block_type(self, element_ty, shape)
            block_types[key] = vars(self)
        vars(self).update(block_types[key])

    def tensor_of(self: Any, handle: Any, type: Any) -> None:
        if type.name not in tensors:
            new_tensor(self, handle, type)
            tensors[type.name] = vars(self).copy()
        vars(self).update(tensors[type.name], handle=handle)

    def dtype_of(type: Any) -> Any:
        name = type.scalar.name
        if name not in dtypes:
            dtypes[name] = numpy_dtype(type)
        return dtypes[name]

    def broadcast(self: Any, a: Any, b: Any) -> Any:
        if a.type.is_block() and b.type.is_block() and a.type.shape.values == b.type.shape.values:
            return a, b
        return broadcast_any(self, a, b)

    patch.setattr(semantic, "broadcast_impl_value", broadcast)
    patch.setattr(core.block_type, "__init__", block_type)
    patch.setattr(core.tensor, "__init__", tensor_of)
    patch.setattr(interpreter, "_get_np_dtype", dtype_of)
    patch.setattr(interpreter.InterpretedFunction, "__call__", call)
    patch.setattr(interpreter, "_patch_lang", lambda kernel: patch_language(SimpleNamespace(__globals__=language)))
    patch.setattr(interpreter, "_patch_lang_tensor", with_index)
    patch.setattr(core, "_type_for_tuple_values", lambda values, fields=None: core.tuple_type([], fields))
    patch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
    patch.setattr(interpreter.InterpreterBuilder, "create_splat", splat)
    for name, function in (("create_maxnumf", np.fmax), ("create_minnumf", np.fmin)):
        patch.setattr(interpreter.InterpreterBuilder, name, lambda self, a, b, of=function: self.binary_op(a, b, of))
    patch.setattr(core.constexpr, "__mul__", times)
    patch.setattr(interpreter.ScanOps, "generic_scan", scan)
    patch.setattr(interpreter.ReduceOps, "generic_reduce", reduce)
    patch.setattr(triton.language, "flip", flip)


@contextmanager
def kernels_of(*operators: Operator) -> Iterator[None]:
    """Have operators run the kernels of a GPU, on the CPU, too; memory without values is NaN: nothing may read it."""
    with pytest.MonkeyPatch.context() as patch:
        mend_interpreter(patch)
        for operator in operators:
            patch.setitem(operator.kernels, "cpu", operator.kernels["cuda"])
        load_or_reason.cache_clear()
        for operator in operators:
            reason = operator.unsupported_reason(torch.empty(0, device=DEVICE))
            assert reason is None, reason
        poison(patch)
        yield
    load_or_reason.cache_clear()


def launches_of(patch: pytest.MonkeyPatch, module: Any, function: str = "launch") -> list[Any]:
    """Return a list that gets the kernels which a function of a module launches from now on."""
    run, launched = getattr(module, function), []

    def launch(kernel: Any, *given: Any, **options: Any) -> None:
        launched.append(kernel)
        run(kernel, *given, **options)

    patch.setattr(module, function, launch)
    return launched


class KernelCase:
    """Arguments of an operator, whose kernels are compared with its naive function in float64.

    Args:
        tensors: The arguments that have a gradient; values of float32 are taken.
        others: The other arguments, without `lengths` and `starts`.
        steps, batch: T and B.
        masks: Which of `lengths` (B,) and `starts` (T, B) are drawn: a key of `MASKS`.

    Attributes:
        operator: The operator; set by a subclass, as the next two.
        tolerance: The largest error of a result or a gradient, relative to its norm.
        names: The names of the results; those after them are not compared.
        least: The smallest norm that an error is relative to.
    """

    operator: Operator
    tolerance: float
    names: Sequence[str] = ("outputs", "final")
    least: float = 0.0

    def __init__(
        self, tensors: dict[str, Tensor], others: dict[str, Any], steps: int, batch: int, masks: str = "none"
    ) -> None:
        self.steps, self.tensors = steps, {name: tensor.float().double() for name, tensor in tensors.items()}
        has_lengths, has_starts = MASKS[masks]
        lengths = torch.randint(1, steps + 1, (batch,), device=DEVICE) if has_lengths else None
        starts = (torch.rand(steps, batch) < 0.3).to(DEVICE) if has_starts else None
        self.others = {**others, "lengths": lengths, "starts": starts}

    @property
    def beyond(self) -> Tensor:
        """Where a row has ended, (T, B)."""
        return torch.arange(self.steps).unsqueeze(1) >= self.others["lengths"].cpu()

    def cotangent(self, result: Tensor) -> Tensor:
        """Return what the gradient of a result is multiplied by."""
        return torch.arange(result.numel(), device=DEVICE, dtype=result.dtype).sin().view_as(result)

    def arguments(self) -> Any:
        """Return the arguments of the kernels."""
        given = self.others | self.tensors
        return self.operator.Arguments(**{name: moved(each, torch.float32) for name, each in given.items()})

    def results(self, run: Callable[..., Any], dtype: torch.dtype) -> dict[str, Tensor]:
        """Return the results and the gradients of a function in a dtype, as tensors of float64."""
        leaves = {name: each.to(DEVICE, dtype, copy=True).requires_grad_() for name, each in self.tensors.items()}
        values = run(**{name: moved(each, dtype) for name, each in self.others.items()} | leaves)
        values = [values] if isinstance(values, Tensor) else [each for each in values if each is not None]
        values = values[: len(self.names)]
        by = [self.cotangent(each.detach()) for each in values]
        gradients = torch.autograd.grad(values, list(leaves.values()), by, materialize_grads=True)
        found = dict(zip((*self.names[: len(values)], *leaves), (*values, *gradients), strict=True))
        return {name: tensor.detach().cpu().double() for name, tensor in found.items()}

    def by_kernels(self) -> dict[str, Tensor]:
        return self.results(self.operator, torch.float32)

    def in_float64(self) -> dict[str, Tensor]:
        return self.results(self.operator.naive, torch.float64)

    def check(self) -> dict[str, Tensor]:
        """Compare the kernels with the naive function; return their results."""
        found, expected = self.by_kernels(), self.in_float64()
        for name, tensor in expected.items():
            error, size = (found[name] - tensor).norm().item(), max(tensor.norm().item(), self.least)
            assert error <= self.tolerance * size, f"{name}: {error:.1e} of {size:.1e}"
        return found

    def check_repeats(self, but: Sequence[str] = ()) -> None:
        """Check that the kernels return the same bits each time; `but` names gradients that are not compared."""
        expected = self.by_kernels()
        for _ in range(10):
            found = self.by_kernels()
            assert all(torch.equal(found[name], each) for name, each in expected.items() if name not in but)


def check_cell(cell: RecurrentCell, masked: bool = True, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Compare the kernels of a cell with four inputs with its loop over the steps: outputs and all gradients."""
    steps, batch = 5, 3
    cell.to(DEVICE)
    lengths = torch.tensor([2, steps, 3], device=DEVICE) if masked else None
    starts = (torch.rand(steps, batch) < 0.3).to(DEVICE) if masked else None
    inputs = torch.randn(steps, batch, 4, device=DEVICE)
    found = []
    for backend in ("fused", "reference"):
        module = Recurrent(lambda size: cell, 4, backend=backend)
        outputs, state = module(leaf := inputs.clone().requires_grad_(), lengths=lengths, starts=starts)
        total = outputs.sin().sum() + sum(each.sin().sum() for each in tree_leaves(state) if each.is_floating_point())
        found.append([outputs, *torch.autograd.grad(total, [leaf, *cell.parameters()])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


def check_chosen_on_a_gpu(cell: RecurrentCell) -> None:
    """Check that `backend="auto"` runs the kernels of a cell with four inputs on a GPU, whether there is one or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "is_on_gpu", lambda cell: True)
        patch.setattr(torch.cuda, "is_available", lambda: True)
        module = Recurrent(lambda size: copy.deepcopy(cell).to(DEVICE), 4)
        assert module.choice(module.cells[0]) == choice.Choice("fused", None, choice.SHORT)


def moved(value: Any, dtype: torch.dtype) -> Any:
    """Return a value on the device, and in a dtype if it is a tensor of floating-point numbers."""
    if not isinstance(value, Tensor):
        return value
    value = value.to(dtype) if value.is_floating_point() else value
    return value.to(DEVICE) if value.dim() else value  # single numbers stay
