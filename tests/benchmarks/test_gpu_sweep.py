"""The sweep on a machine with a GPU: the packages that it takes along, its summary and its archive."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks import gpu_sweep
from benchmarks.provenance import ROOT
from tests.helpers.packages import canonical, link, with_needs

# writes the top-level modules that a process has imported when it ends, and runs src.train
TRAIN = """
import atexit, json, runpy, sys
path = sys.argv.pop(1)
names = lambda: json.dumps(sorted({name.partition(".")[0] for name in sys.modules}))
atexit.register(lambda: open(path, "w").write(names()))
runpy.run_module("src.train", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
def test_a_sweep_imports_exactly_these_packages_beside_those_of_torch(tmp_path):
    listed, torch = {*map(canonical, gpu_sweep.PACKAGES)}, with_needs("torch") | {"numpy"}
    site = tmp_path / "site"
    site.mkdir()
    for name in listed | torch:
        link(name, site)
    quick = "model=rum", "task=copy", "task.delay=5", "task.train_size=64", "trainer.max_steps=2"
    options = *gpu_sweep.OPTIONS, "hydra.launcher.gpus=0.0625", "hydra.launcher.n_jobs=1"
    command = [sys.executable, "-S", "-c", TRAIN, str(tmp_path / "modules"), "-m", *quick, *options]
    paths = {"PYTHONPATH": os.pathsep.join((str(site), str(ROOT))), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | paths, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    of_modules = importlib.metadata.packages_distributions()
    modules = json.loads((tmp_path / "modules").read_text())
    imported = {canonical(name) for module in modules for name in of_modules.get(module, ())}
    assert listed <= imported
    assert imported - torch - {"gyral"} <= listed


def test_all_packages_have_a_version():
    assert [each.partition("==")[0] for each in gpu_sweep.requirements()] == list(gpu_sweep.PACKAGES)


class Training:
    """Stands in for the process of `gyral train`: two runs, one of which is not DONE."""

    def __init__(self, command: list[str], **options: object) -> None:
        self.command, self.returncode = command, 0
        sweep = Path(next(each for each in command if each.startswith("hydra.sweep.dir=")).partition("=")[2])
        for seed in (1, 2):
            run = sweep / "copy" / "rum" / f"seed={seed}"
            (run / "checkpoints").mkdir(parents=True)
            (run / "checkpoints" / "best.ckpt").write_text("large")
            (run / "provenance.json").write_text(json.dumps({"gpu": "NVIDIA H200"}))
        (run / "DONE").write_text(json.dumps({"steps": 500, "seconds_a_step": 0.01, "peak_memory_mb": 700.0}))

    def wait(self, timeout: float | None = None) -> int:
        return 0

    def poll(self) -> int:
        return 0

    def send_signal(self, number: int) -> None:
        raise AssertionError("it has ended")


def test_the_summary_and_the_archive_of_the_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(subprocess, "Popen", Training)
    monkeypatch.setattr(gpu_sweep, "provenance", lambda commit: {"commit": commit})
    status = gpu_sweep.main(["run", "wheels=", f"out={tmp_path}", "jobs=4", "commit=abc", "model=rum", "seed=1,2"])
    assert status == 1  # a run is not DONE
    found = json.loads((tmp_path / "sweep.json").read_text())
    assert found["command"] == (
        "python -m src.train -m model=rum seed=1,2 launcher=joblib logger=none hydra.launcher.gpus=0.25"
    )
    assert (found["commit"], found["runs"], found["done"], found["gpus"]) == ("abc", 2, 1, ["NVIDIA H200"])
    assert found["steps_a_second"] == pytest.approx(500 / 60 * found["runs_a_minute"])
    assert capsys.readouterr().out.startswith("1 of 2 runs in ")
    with tarfile.open(tmp_path / "sweep.tar.gz") as archive:
        names = [name for name in archive.getnames() if "seed=2" in name]
    assert names == [f"sweep/copy/rum/seed=2{name}" for name in ("", "/DONE", "/provenance.json")]


def test_the_figures_of_a_folder_of_runs(tmp_path):
    Training([f"hydra.sweep.dir={tmp_path}"])
    found = gpu_sweep.summary(tmp_path, 30.0)
    assert (found["runs_a_minute"], found["seconds_a_step"], found["peak_memory_mb"]) == (2.0, 0.01, 700.0)
    assert gpu_sweep.summary(tmp_path / "none", 30.0)["seconds_a_step"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["collect", "run"]),
        (["collect", "model=rum"], ["collect model=rum"]),
        (["run", "jobs=0"], ["jobs=0", "≥ 1"]),
        (["run", "out=no/such/folder"], ["out=no/such/folder", "folder"]),
        (["run", "out=.", "wheels=no/such/folder"], ["wheels=no/such/folder", "collect"]),
    ],
)
def test_a_bad_argument_is_one_line(capsys, arguments, words):
    assert gpu_sweep.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert all(word in captured.err for word in words)


def test_help_names_every_key(capsys):
    assert gpu_sweep.main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{key}=" in printed for key in gpu_sweep.Settings._fields)
