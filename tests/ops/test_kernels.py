"""Kernel modules: a missing triton makes them unavailable, any other failure of their import is an error."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from gyral.ops import fast_slow, gated, kernels, lie_access, rum, slot_memory
from tests.helpers.kernels import forget_kernels

TENSOR = torch.empty(1)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a kernel module for the CPU that the test writes."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kernels_of_a_test", raising=False)
    forget_kernels()
    return tmp_path / "kernels_of_a_test.py"


MODULES = {"cpu": "kernels_of_a_test"}


def test_without_triton_the_kernels_are_unavailable(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)  # its import raises ModuleNotFoundError
    for statement in ("import triton", "import triton.language as tl", "from triton import language"):
        module.write_text(statement)
        with pytest.raises(kernels.KernelUnavailableError, match=r"^triton is not installed$"):
            kernels.find(MODULES, TENSOR)
        assert kernels.unsupported_reason(MODULES, TENSOR) == "triton is not installed"


@pytest.mark.parametrize("statement", ["import no_such_module", "from torch import no_such_name", "1 / 0"])
def test_a_broken_kernel_module_is_an_error(module: Path, statement: str) -> None:
    module.write_text(statement)
    with pytest.raises((ImportError, ZeroDivisionError)):
        kernels.find(MODULES, TENSOR)
    with pytest.raises((ImportError, ZeroDivisionError)):
        kernels.unsupported_reason(MODULES, TENSOR)


def test_a_misspelt_kernel_module_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"gyral\.ops\.rum\.trion"):
        kernels.find({"cpu": "gyral.ops.rum.trion"}, TENSOR)


@pytest.mark.parametrize("family", [fast_slow, gated, lie_access, rum, slot_memory])
def test_every_kernel_module_exists(family) -> None:
    assert all(importlib.util.find_spec(name) is not None for name in family.MODULES.values())
