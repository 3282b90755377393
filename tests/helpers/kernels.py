"""Kernels that may be unavailable, and those compiled for other processors than this machine's."""

import functools
import importlib
import pkgutil
from pathlib import Path
from typing import Any

import pytest
import torch

from gyral import ops
from gyral.ops import operator
from gyral.ops.native import library
from gyral.ops.operator import Operator

SHARED = ("native", "triton")  # packages of `gyral.ops` that are no families


def skip_unless_ready(operator: Operator) -> None:
    """Compile the kernels of an operator for the CPU, or skip the test where this is impossible."""
    reason = operator.unsupported_on(torch.device("cpu"), torch.float64)
    if reason is not None:
        pytest.skip(f"the kernels cannot be compiled here: {reason}")


def skip_without(operator: Operator) -> Any:
    """Return a fixture that skips the tests of its module where the kernels of an operator cannot be compiled.

    It compiles them when the first of these tests runs: modules of tests compile nothing when they are imported.
    """

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> None:
        skip_unless_ready(operator)

    return compiled


def forget_kernels() -> None:
    """Let this process look for kernels again, as a new one would."""
    for cached in (operator.load_or_reason, library.load_or_reason, library.function):
        cached.cache_clear()
    library.unavailable.clear()


def look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process look for kernels again during a test, and afterwards find those that it had found before."""
    for module, name in (
        (operator, "load_or_reason"),
        (library, "load_or_reason"),
        (library, "function"),
    ):
        if hasattr(function := getattr(module, name, None), "cache_clear"):
            monkeypatch.setattr(module, name, functools.cache(function.__wrapped__))
    for name in ("block", "_workspace", "_run"):  # a property is found before what an instance has cached
        monkeypatch.setattr(library.Kernel, name, property(getattr(library.Kernel, name).func))
    monkeypatch.setattr(library, "unavailable", {})


def compile_for(monkeypatch: pytest.MonkeyPatch, directory: Path, *processor: str) -> None:
    """Compile kernels from now on with these flags in the place of -march=native, into a directory."""
    others = [flag for flag in library.FLAGS if flag != "-march=native"]
    assert len(others) < len(library.FLAGS)
    monkeypatch.setattr(library, "FLAGS", (*others, *processor))
    monkeypatch.setattr(library, "load", functools.cache(library._load))
    look_again(monkeypatch)
    monkeypatch.setattr(library, "cache_directory", lambda: directory)


@functools.cache
def operators(device: str = "") -> dict[str, Operator]:
    """Return the operators of all families of kernels, or of those with kernels for a device, by their names."""
    found = {}
    for family in (info.name for info in pkgutil.iter_modules(ops.__path__) if info.ispkg and info.name not in SHARED):
        module = importlib.import_module(f"{ops.__name__}.{family}")
        found[family] = next(each for each in vars(module).values() if isinstance(each, Operator))
    return {name: each for name, each in found.items() if not device or device in each.kernels}
