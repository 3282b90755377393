"""Queries about PyTorch's compilers and transforms that trace code."""

import torch

from gyral.core import compat
from gyral.core.compat import assume_constant_result


def is_traced() -> bool:
    """Return whether a compiler, `torch.func` transform or CUDA graph traces this code; tensors have no values then."""
    return torch.compiler.is_compiling() or transform_is_active() or torch.jit.is_tracing() or _is_capturing()


def is_eager() -> bool:
    """Return whether no compiler, exporter, tracer or transform runs this code, except for a CUDA graph."""
    return not (torch.compiler.is_compiling() or compat.transform_is_active() or torch.jit.is_tracing())


def kernels_unsupported_reason() -> str | None:
    """Return the reason why what traces this code supports functions of torch alone, or None if kernels may run."""
    if transform_is_active():
        return "transforms of torch.func and forward-mode derivatives have no fused path"
    if is_exporting_to_onnx():
        return "ONNX has no operators for the fused path"
    if torch.jit.is_tracing():
        return "torch.jit.trace has no fused path"
    return None


def transform_is_active() -> bool:
    """Return whether this code runs within a transform of `torch.func`, such as `grad` or `vmap`."""
    return not torch.compiler.is_compiling() and compat.transform_is_active()


def _is_capturing() -> bool:
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def is_exporting_to_onnx() -> bool:
    """Return whether this code runs within `torch.onnx.export`."""
    # in eager mode without asking torch.onnx, which takes microseconds
    return (torch.compiler.is_compiling() or torch.jit.is_tracing()) and _is_exporting_to_onnx()


@assume_constant_result  # torch.onnx.is_in_onnx_export is always False for a compiler
def _is_exporting_to_onnx() -> bool:
    return torch.onnx.is_in_onnx_export()
