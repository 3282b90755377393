"""Fast paths of the functions in `gyral.ops`, one module a kind of device. Imported when they are wanted."""

import importlib
from typing import Any

from torch import Tensor


class KernelUnavailableError(Exception):
    """A kernel cannot run here, and why."""


def find(modules: dict[str, str], tensor: Tensor) -> Any:
    """Return the module of kernels for the device and dtype of a tensor, made ready to run there.

    Args:
        modules: names of modules by the type of device. Each has `DTYPES` and `prepare(device)`.
        tensor: what they are to run on.

    Raises:
        KernelUnavailableError: there are none, and why.
    """
    kind = tensor.device.type
    if kind not in modules:
        raise KernelUnavailableError(f"there are no kernels for {kind}")
    try:
        kernels = importlib.import_module(modules[kind])
    except ImportError as error:
        raise KernelUnavailableError(f"{error.name} is not installed") from error
    if tensor.dtype not in kernels.DTYPES:
        raise KernelUnavailableError(f"there are no kernels for {tensor.dtype} on {kind}")
    kernels.prepare(tensor.device)
    return kernels
