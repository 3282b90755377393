"""The log names the backend that runs, for every cell of conf/cell, with a compiler and with one that fails."""

import importlib
import logging
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from torch import Tensor

from gyral import ops
from gyral.nn import recurrent
from gyral.nn.recurrent import Recurrent
from gyral.ops.native import library
from tests.faults import forks
from tests.helpers.kernels import forget_kernels
from tests.helpers.running import SMALL_COPY, choices, compose_choices

SIZES = {"hidden_size": 20, "input_size": 3, "steps": 6, "rows": 2}
needs_compiler = pytest.mark.skipif(library.compiler() is None, reason="needs a C++ compiler")


@pytest.fixture
def without_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Return a function after whose call the compiler fails and no compiled kernel is cached."""

    def fail() -> None:
        monkeypatch.setenv("CXX", "false")
        monkeypatch.setenv("GYRAL_CACHE", str(tmp_path))
        forget_kernels()

    yield fail
    forget_kernels()


def reference_modules() -> list[ModuleType]:
    """Return the references of all families of kernels: equations in plain torch, one step after the other."""
    found = pkgutil.walk_packages(ops.__path__, f"{ops.__name__}.")
    return [importlib.import_module(module.name) for module in found if module.name.endswith(".reference")]


def run(cell: str, backend: str = "auto") -> tuple[Recurrent, Tensor]:
    """Return a network with a cell, and its outputs for random inputs; both depend on the name of the cell alone."""
    torch.manual_seed(0)
    factory = instantiate(compose_choices("cell")[cell], hidden_size=SIZES["hidden_size"])
    model = Recurrent(factory, SIZES["input_size"], backend=backend, dtype=torch.float64).eval()
    with torch.no_grad():
        outputs, _ = model(torch.randn(SIZES["steps"], SIZES["rows"], SIZES["input_size"], dtype=torch.float64))
    return model, outputs


def observed(cell: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, set[str], Tensor]:
    """Run a cell; return its backend, what ran of "loop", "fused path" and "reference of kernels", and the outputs."""
    ran: set[str] = set()

    def note(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            ran.add(name)
            return function(*arguments, **options)

        return noted

    with monkeypatch.context() as patched:
        patched.setattr(recurrent, "scan", note("loop", recurrent.scan))
        for module in reference_modules():
            patched.setattr(module, "run", note("reference of kernels", module.run))
        choose = Recurrent._choose_backend

        def choose_and_note(self: Recurrent, cell: Any, *arguments: Any) -> str:
            if "fused" not in vars(cell):
                cell.fused = note("fused path", cell.fused)
            return choose(self, cell, *arguments)

        patched.setattr(Recurrent, "_choose_backend", choose_and_note)
        model, outputs = run(cell)
    return model.backend, ran, outputs


@pytest.mark.parametrize("compiler", [pytest.param("works", marks=needs_compiler), "fails"])
@pytest.mark.parametrize("cell", choices("cell"))
def test_the_log_names_the_backend_that_runs(
    cell: str,
    compiler: str,
    without_compiler: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if compiler == "fails":
        without_compiler()
    with caplog.at_level(logging.INFO, "gyral.nn"):
        backend, ran, _ = observed(cell, monkeypatch)
    (message,) = {record.getMessage() for record in caplog.records if " runs on the " in record.getMessage()}
    assert f" runs on the {backend} backend (requested: auto" in message
    assert ran == {"loop" if backend == "reference" else "fused path"}


@needs_compiler
@pytest.mark.parametrize("cell", choices("cell"))
def test_outputs_do_not_depend_on_the_compiler(cell: str, without_compiler: Callable[[], None]) -> None:
    compiled, expected = run(cell)
    without_compiler()
    model, outputs = run(cell)
    torch.testing.assert_close(outputs, expected, rtol=1e-10, atol=1e-10)
    assert model.backend == "reference" or compiled.backend == "fused"


@pytest.mark.slow
def test_torch_compile_refuses_a_compiler_that_fails_in_one_line(
    without_compiler: Callable[[], None], tmp_path: Path
) -> None:
    without_compiler()
    ended = forks.spawn(*SMALL_COPY, "model=rum", "model.backend=compile", directory=tmp_path)
    assert ended.status == 1, ended
    assert ended.error.startswith("backend=compile: "), ended
    assert ended.error.endswith("; allowed here: auto, reference, fused, graph"), ended
