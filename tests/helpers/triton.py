"""Triton's interpreter, which runs kernels on the CPU where there is no GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

import numpy as np
import triton
from triton.runtime import interpreter

from gyral.ops.operator import Operator, load_or_reason
from tests.helpers.memory import poison

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"


def mend_interpreter(patch: pytest.MonkeyPatch) -> None:
    """Mend faults of the interpreter: loop bounds under numpy ≥ 2.4; products of bfloat16, held as bits; slow calls.

    For every function that a kernel calls, it goes through all of Triton's language again. It describes the types in
    every tuple, too, which only the compiler reads. It scans one number at a time, reduces several tensors so, and
    flips a tensor by many reductions.
    """
    if ON_GPU:
        return
    patch_tensor, create_dot = interpreter._patch_lang_tensor, interpreter.InterpreterBuilder.create_dot
    core = triton.language.core
    patch_language, language = interpreter._patch_lang, {"tl": triton.language, "core": core}

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

    patch.setattr(interpreter.InterpretedFunction, "__call__", call)
    patch.setattr(interpreter, "_patch_lang", lambda kernel: patch_language(SimpleNamespace(__globals__=language)))
    patch.setattr(interpreter, "_patch_lang_tensor", with_index)
    patch.setattr(core, "_type_for_tuple_values", lambda values, fields=None: core.tuple_type([], fields))
    patch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
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
