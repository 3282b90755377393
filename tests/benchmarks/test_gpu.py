"""The GPU benchmark, as far as a CPU allows: its plan, time limits, failures and the file that it writes."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
import torch

from benchmarks import fla, gpu, gpu_plan, gpu_rows, gpu_tests, gpu_timing, gpu_workers
from benchmarks.cells import MODELS
from benchmarks.gpu_rows import Case
from benchmarks.gpu_workers import Pool, Request
from benchmarks.provenance import ROOT
from gyral.ops import delta

TINY = ["device=cpu", "size=4x6x12", "input=3", "repeat=1"]
THREE = ["RUM", "GRU", "MinGRU"]
CASE = Case("RUM", "float32", 4, 6, 3, 12)
CHECK = "benchmarks.gpu_rows.check"
LATE = {"failure": "it took longer than 60 s", "is_late": True}


class Here:
    """Stands in for `Pool`: it answers in this process."""

    late: Sequence[str] = ()  # models whose comparisons in bfloat16 take too long
    cut: Sequence[str] = ()  # models whose rows in bfloat16 do not begin in time

    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def answers(
        self, requests: Sequence[Request], processes: int, deadline: float
    ) -> Iterator[tuple[int, dict[str, Any] | None]]:
        functions = {"check": gpu_rows.check, "measured": gpu_timing.measured, "ceilings": gpu_timing.ceilings}
        for index, request in enumerate(requests):
            name, (case, *_) = request.function.rpartition(".")[2], request.arguments
            is_second = isinstance(case, Case) and case.precision == "bfloat16"
            if gpu.time.monotonic() > deadline or (is_second and name == "measured" and case.model in self.cut):
                yield index, None
            elif is_second and name == "check" and case.model in self.late:
                yield index, dict(LATE)
            else:
                try:
                    yield index, functions[name](*request.arguments)
                except ArithmeticError as error:
                    yield index, {"failure": str(error)}


def run(monkeypatch, tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    monkeypatch.setattr(gpu, "Pool", Here)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    path = tmp_path / "gpu.json"
    status = gpu.main([*TINY, "tests=0", f"json={path}", *arguments])
    return status, json.loads(path.read_text())


def used() -> float:
    """Return the seconds that the processor has spent on this process and on those that it has started and ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def test_the_whole_command_with_its_tests_and_processes_takes_less_than_20_seconds(monkeypatch, tmp_path, capsys):
    for name in ("TRITON_INTERPRET", "OMP_NUM_THREADS", "TRITON_CACHE_AUTOTUNING"):  # the command sets them
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    path, models = tmp_path / "gpu.json", ["GRU", "MinGRU", "GLA"]
    before = used()
    status = gpu.main([*TINY, f"model={','.join(models)}", f"json={path}", "commit=1a6d4d24"])
    processor = used() - before
    printed = capsys.readouterr().out.splitlines()
    assert status == 0, "\n".join(printed)
    results = json.loads(path.read_text())
    about = results["about"]
    assert min(about["seconds"], processor) < 20  # the first is more where other processes run
    assert about["commit"] == "1a6d4d24"
    assert {"command", "torch", "triton", "fla", "python", "cuda", "cudnn", "date"} <= about.keys()
    assert about["checks_ended"] <= about["tests_ended"] <= about["rows_ended"] <= about["second_rows_ended"]
    assert results["ceilings"].keys() == {"copy", "float32", "tf32", "bfloat16"}
    assert results["tests"]["passed"] > 10
    assert not results["tests"]["cut"]
    # the second part follows
    rows = {(row["model"], row["precision"]): row for row in results["rows"]}
    assert list(rows) == [(model, precision) for precision in ("float32", "bfloat16") for model in models]
    for row in rows.values():
        assert row["path"] == "fused"
        assert row["train_to_gru"] == pytest.approx(row["train_ms"] / row["gru_train_ms"])
        assert row["bound_ms"] > 0
        assert row["error"] < (1e-5 if row["precision"] == "float32" else 0.1)
    assert results["cut"] == ["GLA fla float32 4x6x12: flash-linear-attention needs a GPU"]
    # what is going to run is printed first
    first, second, cut, *_ = printed
    assert first == "first part: tests and comparisons in at most 190 s, then 3 rows in 3 s, 0 cut"
    assert second == "second part, if nothing fails: comparisons in at most 60 s, then 3 rows in 3 s, 0 cut"
    assert cut == f"cut: {results['cut'][0]}"
    assert printed[-1].startswith("6 rows, 0 failed, 1 cut")


def test_a_wrong_result_is_recorded_and_the_other_rows_follow(monkeypatch, tmp_path, capsys):
    build = gpu_rows.build

    def wrong(case, device):
        module = build(case, device)
        if case.model == "RUM":
            module.cells[0].bias.data += 0.1
        return module

    monkeypatch.setattr(gpu_rows, "build", wrong)
    status, results = run(monkeypatch, tmp_path, f"model={','.join(THREE)}")
    assert status == 1
    failed, *others = results["rows"]
    assert failed["failure"].startswith("RUM: relative error of outputs is")
    printed = capsys.readouterr().out
    assert failed["failure"] in printed
    assert [(row["model"], row["precision"]) for row in others if "train_ms" in row] == [
        ("GRU", "float32"),
        ("MinGRU", "float32"),
    ]
    assert "the second part did not run, because the first one failed" in printed


def test_rows_beyond_the_time_are_cut_and_named(monkeypatch, tmp_path, capsys):
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(gpu.time, "monotonic", lambda: next(clock))
    status, results = run(monkeypatch, tmp_path, f"model={','.join(THREE)}", "seconds=1450")
    assert status == 1
    assert [row["model"] for row in results["rows"]] == ["RUM", "GRU"]
    assert results["late"] == ["MinGRU float32 4x6x12"]
    assert "cut: MinGRU float32 4x6x12: no time was left" in capsys.readouterr().out


def test_rows_of_the_second_part_beyond_the_time_are_no_failure(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(Here, "late", ["RUM"])
    monkeypatch.setattr(Here, "cut", ["GRU"])
    status, results = run(monkeypatch, tmp_path, f"model={','.join(THREE)}")
    assert status == 0
    assert [row["model"] for row in results["rows"]] == [*THREE, "MinGRU"]
    assert results["late"] == []
    cut = ["RUM bfloat16 4x6x12: it took longer than 60 s", "GRU bfloat16 4x6x12: no time was left"]
    assert sorted(results["cut"]) == sorted(cut)
    printed = capsys.readouterr().out
    assert all(f"cut: {text}" in printed for text in cut)


def test_the_second_part_can_fail_and_can_be_left_out(monkeypatch, tmp_path):
    def fail(case, *arguments):
        if case.precision == "bfloat16":
            raise ArithmeticError("wrong")
        return {"error": 0.0, "path": "fused"}

    monkeypatch.setattr(gpu_rows, "check", fail)
    monkeypatch.setattr(gpu_timing, "measured", lambda *_: {"train_ms": 1.0, "train_to_gru": 1.0})
    status, results = run(monkeypatch, tmp_path, "model=GRU")
    assert status == 1
    assert [row.get("failure") for row in results["rows"]] == [None, "wrong"]
    status, results = run(monkeypatch, tmp_path, "model=GRU", "second=0")
    assert status == 0
    assert len(results["rows"]) == 1


def test_the_plan_for_a_gpu_has_every_cell_within_its_time():
    settings = gpu.Settings()
    sizes = gpu_rows.SIZES
    cases = gpu_plan.first_part(gpu.names(), settings.precision, sizes, settings.input)
    found = gpu.plan(cases, settings.seconds - settings.tests)
    assert len(found.cases) >= 90
    assert found.seconds <= settings.seconds - settings.tests
    assert settings.seconds <= 380
    assert {case.model for case in found.cases} == {*gpu.names()}
    assert len(found.cases) + len(found.cut) == len(cases) == len({*cases}) == len(sizes) * len(gpu.names())
    # the longest graphs are left out, and only as many as the time demands
    assert max(map(gpu.launches_of, found.cases)) <= min(int(text.split()[-2]) for text in found.cut)
    assert len(gpu.plan(cases, 10 * settings.seconds).cut) < len(found.cut)
    # model files are named as in conf/model; FS-RNN has a file for each slow cell, and DAG-RNN is a kind of MAGE
    names = {name.partition(":")[0].lower() for name in gpu_rows.models()}
    others = {model for model in MODELS if model.startswith("fs_")} | {"dag_rnn", "external"}
    assert {model.replace("_", "") for model in MODELS if model not in others} <= names
    variants = {"RUM:lambd=1", "LSTM:layer_norm=true", "FSRNN:fast=LSTM:slow=RUM", "MAGE:cell=RNN"}
    assert variants <= gpu_rows.models().keys()


def test_the_plan_of_the_second_part():
    settings = gpu.Settings()
    first = gpu_plan.first_part(gpu.names(), settings.precision, gpu_rows.SIZES, settings.input)
    second = gpu_plan.second_part(first)
    assert {(case.batch, case.steps, case.hidden) for case in second} == {(8, 1024, 128)}
    assert [(case.model, case.precision) for case in second if case.fla] == [
        ("DeltaNet", "float32"),
        ("GLA", "float32"),
    ]
    assert [case.model for case in second if not case.fla] == [*gpu.names()]
    found = gpu.plan(second, settings.second - settings.second // 2)
    assert found.seconds <= settings.second // 2
    assert len(found.cases) >= 20
    assert all(case in found.cases for case in second if case.fla)
    # the two parts, the start of a process and the time until it ends fit into a command of 600 seconds
    assert settings.seconds + settings.second + gpu_workers.GRACE <= 540
    # what the first part has is not measured again
    assert not {*gpu_plan.second_part([*first, *second])} & {*first, *second}
    halves = gpu_plan.first_part(["GLA"], ["bfloat16"], [(4, 6, 12)], 3)
    assert gpu_plan.second_part(halves) == [Case("GLA", "float32", 4, 6, 3, 12, fla=True)]


def test_rows_of_flash_linear_attention_without_the_package_are_named_with_the_reason(monkeypatch, tmp_path):
    def missing() -> None:
        raise ModuleNotFoundError("No module named 'fla'")

    case = Case("GLA", "float32", 4, 6, 3, 12, fla=True)
    monkeypatch.setattr(fla, "load", lambda: None)
    assert gpu.unsupported_reason("cuda", case) is None
    assert gpu.unsupported_reason("cpu", case) == "flash-linear-attention needs a GPU"
    monkeypatch.setattr(fla, "load", missing)
    reason = "flash-linear-attention cannot be used: No module named 'fla'"
    assert gpu.unsupported_reason("cuda", case) == reason
    assert gpu_plan.separate([case, CASE], partial(gpu.unsupported_reason, "cuda")) == (
        [CASE],
        [f"GLA fla float32 4x6x12: {reason}"],
    )


def test_flash_linear_attention_runs_in_its_own_rows_alone(monkeypatch):
    device, kernels = torch.device("cpu"), delta.delta_scan.kernels
    asked = Mock(return_value=None)
    monkeypatch.setattr(delta.delta_scan, "unsupported_on", asked)
    with gpu_rows.conditions(CASE, device):
        assert delta.delta_scan.kernels is kernels
    asked.assert_not_called()
    with gpu_rows.conditions(CASE._replace(fla=True), device):
        assert delta.delta_scan.kernels == {**kernels, "cuda": fla.__name__}
    asked.return_value = "there are none"
    with pytest.raises(gpu_rows.KernelUnavailableError, match="there are none"):
        gpu_rows.check(CASE._replace(fla=True), "cpu", False)
    assert delta.delta_scan.kernels is kernels


@pytest.mark.slow
def test_processes_report_failures_and_go_on():
    requests = [
        Request(CHECK, (CASE._replace(precision="int8"), "cpu", False), 60),
        Request(CHECK, (CASE, "nowhere", False), 60),
        Request("os._exit", (7,), 60),
        Request("time.sleep", (60,), 0.5),
        Request(CHECK, (CASE, "cpu", False), 60),
    ]
    with Pool() as pool:
        found = dict(pool.answers(requests, 2, time.monotonic() + 60))
        (worker,) = pool.idle
        # it answers the next requests
        assert dict(pool.answers(requests[-1:], 1, time.monotonic() + 60))[0]["error"] < 1e-5
        assert pool.idle == [worker]
        assert list(pool.answers(requests[:1], 1, time.monotonic() - 1)) == [(0, None)]
    assert not worker.process.is_alive()
    assert [found[index]["failure"].partition(":")[0] for index in range(4)] == [
        "KeyError",
        "RuntimeError",
        "its process ended with exit code 7",
        "it took longer than 0 s",
    ]
    assert any("precision_of" in text for text in found[0]["traceback"])
    assert [index for index, answer in found.items() if "is_late" in answer] == [3]
    assert found[4]["error"] < 1e-5


def test_outcomes_are_read_from_the_output_of_pytest():
    found: dict[str, Any] = {"passed": 0, "skipped": 1, "failures": [], "cut": [], "reports": [], "slowest": []}
    gpu_tests.add(
        """
tests/a.py::b[x=1 y] FAILED                                              [ 10%]
tests/a.py::c PASSED                                                     [ 20%]
tests/a.py::d SKIPPED (no GPU)                                           [ 30%]
tests/a.py::e
=================================== FAILURES ===================================
tests/a.py:7: in b
E   assert 0
============================= slowest 10 durations =============================
3.00s call     tests/a.py::c
=========================== short test summary info ============================
FAILED tests/a.py::b[x=1 y] - assert 0
""",
        found,
    )
    assert (found["passed"], found["skipped"]) == (1, 2)
    assert found["failures"] == ["tests/a.py::b[x=1 y] - assert 0"]
    assert found["reports"][0].endswith("E   assert 0\n")
    assert found["slowest"] == [[3.0, "tests/a.py::c"]]
    assert not gpu_tests.has_passed(found)
    assert not gpu_tests.has_passed(found | {"failures": [], "cut": ["tests/a.py::e"]})
    assert gpu_tests.has_passed(None)
    assert gpu_tests.summary(found | {"seconds": 3.0}).splitlines() == [
        "FAILED tests/a.py::b[x=1 y] - assert 0",
        "1 tests passed, 1 failed, 2 skipped, 0 cut in 3.0 s",
    ]


@pytest.mark.slow
def test_tests_run_in_several_processes_within_a_time_limit(tmp_path, monkeypatch):
    passed = gpu_tests.run("cpu", time.monotonic() + 120, 2, [], ("tests/ops/test_rotation.py",))
    assert passed["passed"] > 10
    assert not passed["failures"]
    assert not passed["cut"]
    missing = gpu_tests.run("cpu", time.monotonic() + 60, 2, [], ("tests/nn/no_such_file.py",))
    assert len(missing["failures"]) == 1
    assert "no_such_file.py" in missing["failures"][0]
    (tmp_path / "test_endless.py").write_text("import time\ndef test_a(): pass\ndef test_b(): time.sleep(600)\n")
    monkeypatch.setattr(gpu_tests, "ROOT", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cut = gpu_tests.run("cpu", time.monotonic() + 10, 1, [], (f"--rootdir={tmp_path}", "test_endless.py"))
    assert (cut["passed"], cut["failures"]) == (1, [])
    assert cut["cut"] == ["test_endless.py::test_b"]


@pytest.mark.slow
def test_needs_torch_triton_and_pytest_alone():
    """Everything that `make gpu` imports, its tests included, works without the other dependencies."""
    absent = ("hydra", "omegaconf", "pytorch_lightning", "wandb", "rich", "absl", "hypothesis", "matplotlib", "yaml")
    code = f"""
import sys
sys.modules |= dict.fromkeys({absent})
import pytest
from benchmarks import gpu, gpu_tests, gpu_timing
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *gpu_tests.PATHS]))
"""
    own = {"PYTHONPATH": str(ROOT / "src"), "GYRAL_TEST_DEVICE": "cpu", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = os.environ | own
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("foo=1", ["foo=1", "precision"]),
        ("repeat=0", ["repeat=0", "≥ 1"]),
        ("repeat", ["repeat", "<key>=<value>"]),
        ("size=8x9", ["size=8x9", "128x53x50"]),
        ("model=foo", ["model=foo", *gpu.names()]),
        ("backend=auto", ["backend=auto", "precision"]),
        ("precision=int8", ["precision=int8", "bfloat16"]),
        ("device=tpu", ["device=tpu", "cuda", "cpu"]),
        ("json=no/such/folder/file", ["json=no/such/folder/file", "folder"]),
        ("json=.", ["json=.", "the path of a file"]),
        ("second=-1", ["second=-1", "≥ 0"]),
        pytest.param(
            "device=cuda",
            ["device=cuda", "no CUDA GPU"],
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_a_bad_argument_is_one_line(capsys, argument, words):
    assert gpu.main(["device=cpu", argument]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert all(word in captured.err for word in words)


def test_help_names_every_key(capsys):
    assert gpu.main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{key}=" in printed for key in gpu.Settings._fields)


def test_torch_layers_have_the_weights_of_the_cells():
    device = torch.device("cpu")
    for layer, (_, model) in gpu_rows.LAYERS.items():
        build = partial(gpu_rows.build, device=device)
        pair = build(CASE._replace(model=layer)), build(CASE._replace(model=model))
        inputs = torch.randn(6, 4, 3)
        torch.testing.assert_close(*(module(inputs)[0] for module in pair))


class Event:
    """Stands in for `torch.cuda.Event`; it reads a clock that only `torch.cuda._sleep` and kernels move."""

    clock = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.time = Event.clock

    def elapsed_time(self, end: "Event") -> float:
        return end.time - self.time


@pytest.mark.parametrize(("host", "is_held"), [(0.0, True), (0.02, False)])
def test_times_of_the_device_while_the_host_queues(monkeypatch, host, is_held):
    def sleep(cycles: int) -> None:
        Event.clock += 1000 * cycles / gpu_timing.CYCLES

    def step() -> None:
        time.sleep(host)
        Event.clock += 3.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "_sleep", sleep)
    load = Mock(step=step)
    found = gpu_timing.device_times(load, 0.005, 3)
    assert found["device_ms"] == pytest.approx(3.0)
    assert found["host_ms"] >= 1000 * host
    assert found["is_held"] is is_held


def test_launches_and_kernels_of_a_profile(monkeypatch):
    def event(name: str, kind: Any, nanoseconds: int = 0) -> Mock:
        found = Mock(**{"device_type.return_value": kind, "duration_ns.return_value": nanoseconds})
        found.name.return_value = name
        return found

    cpu, cuda = gpu_rows.DeviceType.CPU, gpu_rows.DeviceType.CUDA
    names = ("cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch", "cudaMemsetAsync", "cudaStreamSynchronize")
    events = [*(event(name, cpu) for name in names), *(event("gemm", cuda, 2_000_000) for _ in range(6))]
    profile = MagicMock()
    profile.__enter__.return_value.profiler.kineto_results.events.return_value = events
    monkeypatch.setattr(torch.profiler, "profile", lambda activities: profile)
    found = gpu_rows.profiled(lambda: None)
    assert found == {"launches": 4, "kernels": 6, "kernels_ms": pytest.approx(12.0), "longest": [["gemm", 12.0]]}
