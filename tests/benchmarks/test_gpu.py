"""The GPU benchmark, as far as a CPU allows: its cases, time limits, failures and the file that it writes."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu, gpu_rows, gpu_tests
from benchmarks.cells import MODELS
from benchmarks.gpu_rows import Case
from benchmarks.provenance import ROOT

TINY = ["device=cpu", "tests=0", "size=4x6x12", "input=3", "repeat=1", "precision=float32"]
CASE = Case("RUM", "fused", "float32", 4, 6, 3, 12)


class Here:
    """A worker in this process."""

    def row(self, seconds: float, *arguments: Any) -> dict[str, Any]:
        try:
            return gpu_rows.row(*arguments)
        except ArithmeticError as error:
            raise RuntimeError(str(error)) from error

    def stop(self) -> None:
        pass


def run(monkeypatch, tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    monkeypatch.setattr(gpu, "Worker", Here)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    path = tmp_path / "gpu.json"
    status = gpu.main([*TINY, f"json={path}", *arguments])
    return status, json.loads(path.read_text())


def test_a_row_for_every_backend_and_the_conditions(monkeypatch, tmp_path, capsys):
    # without AVX-512, torch.nn.LSTM refuses autocast on a CPU
    precisions = ["float32", "bfloat16"] if torch.ops.mkldnn._is_mkldnn_bf16_supported() else ["float32"]
    status, results = run(monkeypatch, tmp_path, "model=RUM", f"precision={','.join(precisions)}")
    assert status == 0
    assert {"command", "torch", "triton", "python", "cuda", "cudnn", "commit", "date"} <= results["about"].keys()
    rows = {(row["model"], row["backend"], row["precision"]): row for row in results["rows"]}
    assert {(model, backend) for model, backend, _ in rows} == {
        *((layer, "torch") for layer in gpu_rows.LAYERS),
        ("RUM", "reference"),
        ("RUM", "fused"),
    }
    assert len(rows) == 5 * len(precisions)
    for row in rows.values():
        assert row["train_to_gru"] == pytest.approx(row["train_ms"] / row["gru_train_ms"])
        assert row["forward_to_lstm"] == pytest.approx(row["forward_ms"] / row["lstm_forward_ms"])
    assert rows["RUM", "fused", "float32"]["error"] < 1e-5
    (unsupported, *_) = results["unsupported"]
    assert (unsupported["backend"], unsupported["unsupported"].partition(";")[0]) == ("graph", "there is no GPU")
    assert len(capsys.readouterr().out.splitlines()) == 6 * len(precisions) + 1


def test_a_wrong_result_is_recorded_in_one_line_and_the_other_rows_follow(monkeypatch, tmp_path, capsys):
    build = gpu_rows.build

    def wrong(case, device):
        module = build(case, device)
        if case.backend == "fused":
            module.cells[0].bias.data += 0.1
        return module

    monkeypatch.setattr(gpu_rows, "build", wrong)
    status, results = run(monkeypatch, tmp_path, "model=RUM")
    assert status == 1
    (failed,) = (row for row in results["rows"] if "failure" in row)
    assert failed["failure"].startswith("fused: relative error of outputs is")
    assert failed["failure"] in capsys.readouterr().out
    assert len(results["rows"]) == 5


def test_rows_beyond_the_budget_are_skipped_and_named(monkeypatch, tmp_path):
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(gpu.time, "monotonic", lambda: next(clock))
    status, results = run(monkeypatch, tmp_path, "model=RUM", "budget=250")
    assert status == 0
    assert [row["model"] for row in results["rows"]] == ["torch.nn.GRU", "torch.nn.LSTM"]
    assert results["skipped"][0] == "torch.nn.RNN torch float32 4 6 3 12"
    assert len(results["skipped"]) == 4


def test_every_cell_is_measured():
    # model files are named as in conf/model; FS-RNN has a file for each slow cell, and DAG-RNN is a kind of MAGE
    names = {name.partition(":")[0].lower() for name in gpu_rows.models()}
    others = {model for model in MODELS if model.startswith("fs_")} | {"dag_rnn", "external"}
    assert {model.replace("_", "") for model in MODELS if model not in others} <= names
    variants = {"RUM:lambd=1", "LSTM:layer_norm=true", "FSRNN:fast=LSTM:slow=RUM", "MAGE:cell=RNN"}
    assert variants <= gpu_rows.models().keys()
    cases = list(gpu.cases(gpu.Settings()))
    assert len(cases) == len(set(cases)) == 4 * (len(gpu_rows.LAYERS) + 3 * len(gpu_rows.models()))


@pytest.mark.slow
def test_a_worker_reports_how_a_row_failed():
    for arguments, reason in (
        ((CASE._replace(precision="int8"), "cpu", 1), "KeyError: 'int8'"),
        ((CASE, "nowhere", 1), "RuntimeError: "),
        (("nonsense",), "TypeError: "),
    ):
        worker = gpu.Worker()
        with pytest.raises(RuntimeError, match=f"^{reason}"):
            worker.row(60, *arguments)
        assert worker.row(60, CASE, "cpu", 1)["train_ms"] > 0
        worker.stop()
    worker = gpu.Worker()
    with pytest.raises(RuntimeError, match=r"^it took longer than 0 s$"):
        worker.row(0.1, CASE, "cpu", 1)
    worker.stop()
    worker = gpu.Worker()
    worker.process.kill()
    with pytest.raises(RuntimeError, match=r"^its process ended with exit code -9$"):
        worker.row(60, CASE, "cpu", 1)


def test_outcomes_are_read_from_the_output_of_pytest():
    found: dict[str, Any] = {"passed": 0, "skipped": 1, "failures": [], "finished": False, "seconds": 3.0}
    gpu_tests.count("..F\nFAILED tests/a.py::b[x=1 y] - assert 0\n1 failed, 12 passed, 2 skipped in 3.14s\n", found)
    gpu_tests.count("....\n4 passed in 1.00s\n", found)
    assert (found["passed"], found["skipped"]) == (16, 3)
    assert found["failures"] == ["tests/a.py::b[x=1 y] - assert 0"]
    assert not gpu_tests.has_passed(found)
    assert gpu_tests.has_passed(None)
    assert gpu_tests.summary(found).splitlines() == [
        "FAILED tests/a.py::b[x=1 y] - assert 0",
        "16 tests passed, 1 failed, 3 skipped in 3.0 s, stopped at the time limit",
    ]


@pytest.mark.slow
def test_tests_run_in_several_processes_within_a_time_limit():
    passed = gpu_tests.run("cpu", 120, ("tests/nn/test_cuda_graph.py",))
    assert passed["passed"] > 10
    assert passed["finished"]
    assert not passed["failures"]
    assert not gpu_tests.run("cpu", 0.1, ("tests/nn/test_cuda_graph.py",))["finished"]
    missing = gpu_tests.run("cpu", 60, ("tests/nn/no_such_file.py",))
    assert len(missing["failures"]) == 1
    assert "no_such_file.py" in missing["failures"][0]


@pytest.mark.slow
def test_needs_torch_triton_and_pytest_alone():
    """Everything that `make gpu` imports, its tests included, works without the other dependencies."""
    absent = ("hydra", "omegaconf", "pytorch_lightning", "wandb", "rich", "absl", "hypothesis", "matplotlib", "yaml")
    code = f"""
import sys
sys.modules |= dict.fromkeys({absent})
import pytest
from benchmarks import gpu, gpu_tests
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
        ("model=foo", ["model=foo", *gpu_rows.models()]),
        ("backend=auto", ["backend=auto", "graph"]),
        ("precision=int8", ["precision=int8", "bfloat16"]),
        ("device=tpu", ["device=tpu", "cuda", "cpu"]),
        ("json=no/such/folder/file", ["json=no/such/folder/file", "folder"]),
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
        pair = build(CASE._replace(model=layer, backend="torch")), build(CASE._replace(model=model))
        inputs = torch.randn(6, 4, 3)
        torch.testing.assert_close(*(module(inputs)[0] for module in pair))
