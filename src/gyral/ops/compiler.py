"""What code needs to know of the compilers of PyTorch that trace it."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def assume_constant_result(function: Function) -> Function:
    """Let compilers call a function while they trace, and take its result for a constant.

    As `torch.compiler.assume_constant_result`, which also imports `torch._dynamo`: two seconds at the import of Gyral.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # the mark that the decorator of torch sets
    return function


def is_exporting_to_onnx() -> bool:
    """Return whether this code runs within `torch.onnx.export`."""
    # in eager mode without asking torch.onnx, which takes microseconds
    return (torch.compiler.is_compiling() or torch.jit.is_tracing()) and _is_exporting_to_onnx()


@assume_constant_result  # torch.onnx.is_in_onnx_export is always False for a compiler
def _is_exporting_to_onnx() -> bool:
    return torch.onnx.is_in_onnx_export()
