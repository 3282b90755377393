"""Lookup of the kernels of `gyral.ops`: one module per device type, imported on first use."""

import functools
import importlib
from typing import Any

import torch
from torch import Tensor

from gyral.core.compat import assume_constant_result


class KernelUnavailableError(Exception):
    """No kernel supports this device or dtype; the message is the reason."""


def find(modules: dict[str, str], tensor: Tensor) -> Any:
    """Return the module with the kernels for the device and dtype of a tensor, ready to run on that device.

    A kernel module has `DTYPES`, `prepare(device)`, `forward` and `backward`.

    Args:
        modules: Dotted names of kernel modules by device type.
        tensor: A tensor with the device and dtype of the state and the parameters.

    Raises:
        KernelUnavailableError: There are no such kernels; the message is the reason.
        ImportError: The kernel module is broken, for example a misspelt name. Only a missing `triton` package counts
            as unavailable, so that a broken module never falls back to the reference.
    """
    found = load_or_reason(modules.get(tensor.device.type), tensor.device, tensor.dtype)
    if isinstance(found, str):
        raise KernelUnavailableError(found)
    return found


@functools.cache  # each forward pass asks twice: whether there are kernels, and for the kernels
def load_or_reason(module: str | None, device: torch.device, dtype: torch.dtype) -> Any:
    """Return a kernel module by its name, ready to run on a device, or the reason why it is unavailable."""
    if module is None:
        return f"there are no kernels for {device.type}"
    try:
        kernels = importlib.import_module(module)
        if dtype not in kernels.DTYPES:
            return f"there are no kernels for {dtype} on {device.type}"
        kernels.prepare(device)
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        return "triton is not installed"
    except KernelUnavailableError as error:
        return str(error)
    return kernels


def unsupported_reason(modules: dict[str, str], tensor: Tensor) -> str | None:
    """Return the reason why no kernel supports the device and dtype of a tensor, or None if one does."""
    return _unsupported_reason(modules.get(tensor.device.type), tensor.device, tensor.dtype)


@assume_constant_result  # a compiler could not trace imports
def _unsupported_reason(module: str | None, device: torch.device, dtype: torch.dtype) -> str | None:
    found = load_or_reason(module, device, dtype)
    return found if isinstance(found, str) else None


def check_dtypes(dtype: torch.dtype, *tensors: Tensor | None) -> None:
    """Check that inputs and states have the dtype of the parameters.

    Raises:
        TypeError: A tensor has another dtype.
    """
    for tensor in tensors:
        if tensor is not None and tensor.dtype != dtype:
            raise TypeError(f"inputs and states must have the dtype of the parameters, {dtype}, not {tensor.dtype}")
