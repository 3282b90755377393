"""What the Python functions share that launch kernels."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def as_bytes(mask: Tensor | None) -> Tensor | None:
    """Return a mask as uint8, which kernels read."""
    return None if mask is None else mask.view(torch.uint8)


def failure(check: Callable[[], str | None]) -> str | None:
    """Return what `check` returns, the reason why kernels fail on a small example or None, or the error it raises."""
    try:
        return check()
    except Exception as error:  # compiler, driver and interpreter raise errors of many types
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def difference(kernels: Any, naive: Callable[..., Any], arguments: Any, names: Sequence[str]) -> str | None:
    """Return where kernels differ from the naive function in float64, in values or gradients, or None.

    Args:
        kernels: A module of kernels; see `gyral.ops.operator.Operator`.
        naive: The function; each of its results is a tensor with a gradient.
        arguments: A named tuple of the arguments of `naive`.
        names: Names of the arguments with a gradient.
    """
    results, saved = kernels.forward(arguments)
    cotangents = [result.cos() for result in results]
    needs = {name: name in names for name in arguments._fields}
    found = kernels.backward(arguments, results, saved, cotangents, needs)
    given: Mapping[str, Any] = arguments._asdict()
    leaves = {name: given[name].double().requires_grad_() for name in names}
    with torch.enable_grad():
        expected = naive(**{**given, **leaves})
    by = [cotangent.double() for cotangent in cotangents]
    gradients = torch.autograd.grad(expected, [*leaves.values()], by)
    pairs = [(f"result {index}", *pair) for index, pair in enumerate(zip(results, expected, strict=True))]
    pairs += [(f"the gradient of {name}", found[name], by) for name, by in zip(names, gradients, strict=True)]
    for name, one, other in pairs:
        error, size = ((one.double() - other.detach()).norm().item(), other.detach().norm().item())
        if not error <= 1e-4 * size:
            return f"{name} differs from that of PyTorch by {error / size:.1e} of its norm"
    return None
