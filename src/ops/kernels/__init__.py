"""Fast paths of the functions in `src.ops`, one module a kind of device. Imported when they are wanted."""

import importlib
from typing import Any

from torch import Tensor


class UnavailableError(Exception):
    """A kernel cannot run here, and why."""


def find(modules: dict[str, str], tensor: Tensor) -> Any:
    """Return the module of kernels for the device and dtype of a tensor, made ready to run there.

    Args:
        modules: names of modules by the type of device. Each has `DTYPES` and `prepare(device)`.
        tensor: what they are to run on.

    Raises:
        UnavailableError: there are none, and why.
    """
    kind = tensor.device.type
    if kind not in modules:
        raise UnavailableError(f"there are no kernels for {kind}")
    try:
        kernels = importlib.import_module(modules[kind])
    except ImportError as error:
        raise UnavailableError(f"{error.name} is not installed") from error
    if tensor.dtype not in kernels.DTYPES:
        raise UnavailableError(f"there are no kernels for {tensor.dtype} on {kind}")
    kernels.prepare(tensor.device)
    return kernels
