"""The first use of kernels compares them with plain torch: on a GPU, else under Triton's interpreter."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

pytest.importorskip("triton", reason="the kernels need triton")

import gyral.ops
from gyral.ops.operator import KernelUnavailableError
from tests.helpers.found import at_least
from tests.helpers.triton import DEVICE, mend_interpreter


def modules() -> Iterator[str]:
    """Yield the names of the modules with kernels of Triton that have a first use."""
    for found in pkgutil.walk_packages(gyral.ops.__path__, "gyral.ops."):
        if ".triton" in found.name and hasattr(importlib.import_module(found.name), "_probe"):
            yield found.name


def fail(*_: Any) -> None:
    raise RuntimeError("out of resources\nand more")


def call_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls another once and returns copies of its results: the interpreter is slow."""
    found: list[Any] = []

    def call(*given: Any) -> Any:
        if not found:
            found.append(function(*given))
        return tree_map_only(Tensor, Tensor.clone, found[0])

    return call


@pytest.mark.parametrize("name", at_least(19, modules()))
def test_the_first_use_compares_with_plain_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mend_interpreter(monkeypatch)
    module = importlib.import_module(name)
    forward, backward = call_once(module.forward), call_once(module.backward)
    monkeypatch.setattr(module, "forward", forward)
    monkeypatch.setattr(module, "backward", backward)

    def wrong_results(given: Any) -> Any:
        results, saved = forward(given)
        results[0].mul_(1.001)
        return results, saved

    def wrong_gradients(*given: Any) -> Any:
        return tree_map_only(Tensor, lambda gradient: 1.001 * gradient, backward(*given))

    differs = "differs from that of PyTorch by .*e-0. of its norm$"
    for function, replaced, reason in (
        ("forward", fail, "RuntimeError: out of resources$"),
        ("forward", wrong_results, f"result 0 {differs}"),
        ("backward", wrong_gradients, f"gradient of .* {differs}"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, function, replaced)
            module._probe.cache_clear()
            message = f"^the Triton kernels of .* do not run on {DEVICE}: {reason}"
            with pytest.raises(KernelUnavailableError, match=message):
                module.prepare(torch.device(DEVICE))
    module._probe.cache_clear()


def test_too_little_memory_says_nothing_about_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(given: Any) -> None:
        raise torch.OutOfMemoryError("tried to allocate")

    mend_interpreter(monkeypatch)
    module = importlib.import_module("gyral.ops.polar.triton.launch")
    module._probe.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(module, "forward", allocate)
        with pytest.raises(torch.OutOfMemoryError):
            module.prepare(torch.device(DEVICE))
    module.prepare(torch.device(DEVICE))
