"""How kernels in Triton are compiled: at once, and before the first of them runs."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from gyral.ops import compilation

pytest.importorskip("triton", reason="the kernels need triton")

AHEAD = """
import torch
from types import SimpleNamespace
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction
from gyral.ops import compilation
from tests.helpers.ahead_of_time import FAMILIES, HOPPER, SAMPLE

target = GPUTarget("cuda", HOPPER, 32)
torch.cuda.device_of = lambda tensor: torch.no_grad()
driver.set_active(
    SimpleNamespace(get_current_device=lambda: 0, get_current_stream=lambda _: 0, get_current_target=lambda: target)
)
run = lambda: FAMILIES["rum"].launch(SAMPLE)
compilation.compile_at_once(run)
JITFunction.compile = None  # all are compiled
compilation._only_compiles.set(True)
run()
print("compiled")
"""


class Kernel:
    """Counts what happens to it."""

    def __init__(self) -> None:
        self.compiled: list[Any] = []
        self.launched: list[Any] = []

    def warmup(self, *given: Any, grid: Any, **options: Any) -> None:
        self.compiled.append((*given, grid, options))

    def __getitem__(self, grid: Any) -> Any:
        return lambda *given, **options: self.launched.append((*given, grid, options))


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile as on a GPU, in place of Triton's interpreter."""
    import triton

    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    monkeypatch.setattr(compilation, "_forms", set())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


@pytest.mark.usefixtures("compiler")
def test_kernels_are_compiled_without_a_launch() -> None:
    kernel = Kernel()
    compilation.compile_at_once(lambda: compilation.start(kernel, 3, "a", num_warps=4))
    assert (kernel.compiled, kernel.launched) == ([("a", (3,), {"num_warps": 4})], [])
    compilation.start(kernel, 3, "a", num_warps=4)
    assert kernel.compiled == kernel.launched


@pytest.mark.usefixtures("compiler")
def test_an_error_is_left_to_the_launch() -> None:
    kernel = Kernel()

    def fail() -> None:
        compilation.start(kernel, 1)
        raise RuntimeError("no compiler")

    compilation.compile_at_once(fail)
    compilation.start(kernel, 1)
    assert len(kernel.compiled) == len(kernel.launched) == 1


class Arguments(NamedTuple):
    """Those of an operator."""

    x: Tensor
    mask: Tensor | None = None
    kind: str = "relu"


@pytest.mark.usefixtures("compiler")
def test_the_first_call_of_each_form_compiles() -> None:
    calls: list[str] = []
    gradients: list[Any] = []

    def forward(a: Any) -> tuple[list[Any], list[Any]]:
        calls.append("forward")
        return [a.x, a.x], []

    def backward(a: Any, results: Any, saved: Any, given: list[Any], needs: dict[str, bool]) -> dict[str, Any]:
        calls.append("backward")
        gradients.append(given)
        return {}

    kernels = SimpleNamespace(__name__="kernels", forward=forward, backward=backward)
    for steps in (2, 5):
        compilation.compile_first_use(kernels, Arguments(torch.ones(steps, 3, 4)), True)
    assert calls == ["forward", "backward"]
    assert gradients[0][1] is None
    for arguments in (Arguments(torch.ones(2, 3, 5)), Arguments(torch.ones(2, 3, 4), kind="tanh")):
        compilation.compile_first_use(kernels, arguments, False)
    assert calls == ["forward", "backward", "forward", "forward"]


@pytest.mark.slow
def test_kernels_that_were_compiled_at_once_are_not_compiled_again(tmp_path: Path) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", AHEAD], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "compiled\n", done.stderr
