"""Kernel modules: a missing triton makes them unavailable, any other failure of their import is an error."""

import sys
from pathlib import Path

import pytest
import torch

from gyral.ops.operator import load_or_reason
from tests.helpers.kernels import forget_kernels

MODULE = "kernels_of_a_test"


def load(module: str = MODULE) -> object:
    return load_or_reason(module, torch.device("cpu"), torch.float32)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a kernel module for the CPU that the test writes."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    forget_kernels()
    return tmp_path / f"{MODULE}.py"


def test_without_triton_the_kernels_are_unavailable(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)  # its import raises ModuleNotFoundError
    for statement in ("import triton", "import triton.language as tl", "from triton import language"):
        module.write_text(statement, encoding="utf-8")
        assert load() == "triton is not installed"


@pytest.mark.parametrize("statement", ["import no_such_module", "from torch import no_such_name", "1 / 0"])
def test_a_broken_kernel_module_is_an_error(module: Path, statement: str) -> None:
    module.write_text(statement, encoding="utf-8")
    with pytest.raises((ImportError, ZeroDivisionError)):
        load()


def test_a_misspelt_kernel_module_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"gyral\.ops\.rum\.trion"):
        load("gyral.ops.rum.trion")
