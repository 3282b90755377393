"""Code shared by the Python functions that launch kernels."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from gyral.ops.compilation import compile_at_once, start
from gyral.ops.operator import KernelUnavailableError, Operator

TOLERANCE = 1e-4  # of the first comparison: wrong kernels are off by far more
TOLERANCE_OF_TF32 = 4e-3  # where torch allows TF32, whose numbers have an error of up to 5e-4, in products


def as_bytes(mask: Tensor | None) -> Tensor | None:
    """Return a mask as uint8, which kernels read."""
    return None if mask is None else mask.view(torch.uint8)


def launch(kernel: Any, programs: int, given: Sequence[Any], config: Any, warps: int = 4) -> None:
    """Launch a number of programs of a kernel on the device of its first argument; nothing if there are none."""
    if programs > 0:
        with torch.cuda.device_of(given[0]):
            start(kernel, programs, *given, config=config, num_warps=warps)


def summed(sums: Tensor, like: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the gradients of constants, given sums over the steps of each row, (B, …), and the constants in order."""
    parts = sums.flatten(1).sum(0).split([tensor.numel() for tensor in like.values()])
    return {name: part.view(tensor.shape) for part, (name, tensor) in zip(parts, like.items(), strict=True)}


def waves(device: torch.device, *shape: int) -> Tensor:
    """Return numbers for an example."""
    return torch.arange(math.prod(shape), dtype=torch.float32, device=device).cos().view(shape)


def preparation(kernels: str, probe: Callable[[torch.device], str | None]) -> Callable[[torch.device], None]:
    """Return the function `prepare` of a module of kernels; see `gyral.ops.operator.Operator`.

    Args:
        kernels: What they compute, for the message of the error.
        probe: Returns the reason why they fail on a device, or None; see `difference`.
    """

    def prepare(device: torch.device) -> None:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():  # the comparison would end the capture
            raise RuntimeError(
                f"the Triton kernels of {kernels} have not run on {device} yet: run the layer once before a capture"
            )
        reason = probe(device)
        if reason is not None:
            raise KernelUnavailableError(f"the Triton kernels of {kernels} do not run on {device}: {reason}")

    return prepare


def difference(kernels: Any, operator: Operator, given: Sequence[Any], names: Sequence[str]) -> str | None:
    """Return the first difference between kernels and plain torch in float64, or the error of the kernels, or None.

    Args:
        kernels: The module of kernels; see `Operator`.
        operator: The operator. Its last results, without a gradient, are not compared.
        given: Its arguments on a device, in order.
        names: Names of the arguments with a gradient; they may be lists with tensors and None.

    Raises:
        torch.OutOfMemoryError: There is not enough memory now, which says nothing about the kernels.
    """
    arguments = operator.Arguments(*given)
    needs = {name: name in names for name in arguments._fields}
    count = operator.results - operator.constant

    def run() -> tuple[Any, Any, Any]:
        results, saved = kernels.forward(arguments)
        cotangents = [None if result is None else result.cos() for result in results[:count]]
        by = [*cotangents, *[None] * operator.constant]
        return results[:count], cotangents, kernels.backward(arguments, results, saved, by, needs)

    compile_at_once(run)
    try:
        results, cotangents, gradients = run()
        found = _tensors([*results, *(gradients[name] for name in names)])
        is_finite = all(bool(each.isfinite().all()) for each in found)  # waits for the kernels
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # compiler, driver and interpreter raise errors of many types
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
    if not is_finite:
        return "their results are not finite"
    leaves = {
        name: tree_map_only(Tensor, lambda each: each.detach().double().requires_grad_(), getattr(arguments, name))
        for name in names
    }
    with torch.enable_grad():
        values = operator.naive(**{**arguments._asdict(), **leaves})
        values = [values] if isinstance(values, Tensor) else _tensors(values[:count])
        by = [cotangent.double() for cotangent in _tensors(cotangents)]
        expected = [*values, *torch.autograd.grad(values, _tensors([*leaves.values()]), by)]
    tolerance = TOLERANCE_OF_TF32 if torch.backends.cuda.matmul.fp32_precision == "tf32" else TOLERANCE
    labels = [f"result {index}" for index, result in enumerate(results) if result is not None]
    for name, leaf in leaves.items():
        labels += [f"gradient of {name}"] * len(_tensors([leaf]))
    for label, one, other in zip(labels, found, expected, strict=True):
        distance, size = (one.double() - other.detach()).norm().item(), other.detach().norm().item()
        if not distance <= tolerance * size:
            return f"{label} differs from that of PyTorch by {distance / size:.1e} of its norm"
    return None


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    """Return the tensors among values, of which some may be lists, in order."""
    items = [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
    return [item for item in items if item is not None]
