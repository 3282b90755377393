"""Kernels in Triton: how they are launched, and how those of a call are compiled at once before the first launch."""

import logging
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)
_only_compiles: ContextVar[bool] = ContextVar("only_compiles", default=False)
_forms: set[Hashable] = set()  # of the calls whose kernels have been compiled


def start(kernel: Any, programs: int, *given: Any, **options: Any) -> None:
    """Launch a number of programs of a kernel on the current device; see `compile_at_once`."""
    if _only_compiles.get():
        kernel.warmup(*given, grid=(programs,), **options)
    else:
        kernel[(programs,)](*given, **options)


def compiles_only() -> bool:
    """Return whether `start` only compiles: steps whose kernels are the same then need no more than one launch."""
    return _only_compiles.get()


def compile_at_once(run: Callable[[], object]) -> None:
    """Compile the kernels that a function launches, each in a thread. They do not run: what they write is undefined.

    One after another, the kernels of the delta rule take more than ten seconds. Whatever fails here fails again when
    the kernel is launched, and versions of Triton that cannot do so compile it then.
    """
    token = _only_compiles.set(True)
    try:
        import triton

        if not triton.knobs.runtime.interpret:
            with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
                run()
    except Exception as error:
        log.debug("kernels are not compiled at once: %s", error)
    finally:
        _only_compiles.reset(token)


def compile_first_use(kernels: Any, arguments: Any, differentiable: bool) -> None:
    """Compile the kernels of a call of an operator at once, if it is the first one of its form.

    Args:
        kernels: The module of kernels; see `Operator`.
        arguments: The named tuple of the arguments.
        differentiable: Whether a backward pass may follow, from the gradient of the first result.
    """
    # numbers of steps and rows are no part of it: kernels are the same for all, or for most of them
    form = (kernels.__name__, differentiable, *map(_form, arguments))
    if form in _forms:
        return
    _forms.add(form)
    if torch.cuda.is_current_stream_capturing():
        return

    def run() -> None:
        results, saved = kernels.forward(arguments)
        if differentiable:
            gradients = [results[0], *[None] * (len(results) - 1)]
            kernels.backward(arguments, results, saved, gradients, dict.fromkeys(arguments._fields, True))

    compile_at_once(run)


def _form(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_form, value))
    if not isinstance(value, Tensor):
        return value
    return (value.dtype, *value.shape[min(2, value.dim() - 1) :]) if value.dim() else value.dtype
