"""What the host does for a small call, counted instead of timed: calls of Python functions, and operations of torch."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.profiler import ProfilerActivity, profile

from benchmarks import host
from benchmarks.provenance import ROOT
from gyral.ops import operator, rum
from gyral.ops.native import products
from gyral.ops.rum import triton
from gyral.ops.rum.triton import launch

# The most calls of Python functions and operations of torch, a tenth more than there are. At commit 2bd73b6 a forward
# pass of GRU had 352 and 25, a training step of RUM 434 and 60; at 5b75f7c1 a step of a stream of LSTM had 238 and 12.
LIMITS = {
    "GRU forward, T = B = 1": (140, 21),
    "LSTM forward, T = B = 1": (143, 15),
    "DeltaNet forward, T = B = 1": (374, 56),  # three operators: convolution, memory, normalization
    "LRU forward, T = B = 1": (181, 41),
    "GRU step of a stream": (165, 17),
    "LSTM step of a stream": (162, 11),
    "DeltaNet step of a stream": (240, 76),
    "LRU step of a stream": (186, 64),
    "RUM λ = 0 training step without kernels": (219, 38),
    "RUM λ = 1 training step without kernels": (250, 48),
}


@pytest.fixture(scope="module")
def cases() -> Iterator[dict[str, Callable[[], Any]]]:
    """The calls that `benchmarks.host` times."""
    with pytest.MonkeyPatch.context() as patched:
        for module, name in (
            *((launch, name) for name in host.kernel_names(launch)),
            *((launch, "_processors"), (triton, "prepare"), (products, "_is_supported"), (rum.OPERATOR, "kernels")),
        ):
            patched.setattr(module, name, getattr(module, name))  # `host.cases` replaces them
        yield host.cases()
    operator.load_or_reason.cache_clear()


def count(run: Callable[[], Any]) -> tuple[int, int]:
    """Return the numbers of calls of Python functions, and of operations of torch that are no part of another one."""
    for _ in range(3):
        run()
    calls = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        run()
    operations = [event for event in profiled.events() if event.name.startswith("aten::")]
    outer = [event for event in operations if event.cpu_parent is None or not event.cpu_parent.name.startswith("aten")]
    return calls, len(outer)


@pytest.mark.parametrize("name", LIMITS)
def test_calls_and_operations_of_a_small_call(cases: dict[str, Callable[[], Any]], name: str) -> None:
    calls, operations = count(cases[name])
    most_calls, most_operations = LIMITS[name]
    assert calls <= most_calls
    assert operations <= most_operations


def test_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(host, "ROUNDS", 1)
    assert host.main(["seconds=0.001"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 12
    assert "× torch.nn" in lines[1]


def test_a_checkout_that_cannot_be_measured_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    assert host.main([]) == 1
    captured = capsys.readouterr()
    assert captured.err == f"{ROOT}: this checkout cannot be measured; exit status 1\n"
    assert captured.out == ""


@pytest.mark.parametrize("argument", ["rounds=3", "seconds=short", "seconds=0", "base=no/such/folder", "seconds"])
def test_a_bad_argument_is_one_line(capsys: pytest.CaptureFixture[str], argument: str) -> None:
    assert host.main([argument]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"{argument}: must be base=")
    assert captured.err.count("\n") == 1
