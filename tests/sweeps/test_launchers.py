"""Launchers: jobs side by side, what is shared out among them, what fails is told and the others go on."""

import csv
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from joblib.externals.loky.process_executor import TerminatedWorkerError
from omegaconf import OmegaConf

from gyral.core.signals import Interrupted
from gyral.sweeps import duration
from gyral.sweeps.launchers import joblib, slurm
from gyral.sweeps.launchers.base import ParallelLauncher, execute, measure
from gyral.sweeps.launchers.gpus import describe_sharing, gpus_of_worker, listed_gpus, simultaneous_jobs, visible_gpus
from tests.helpers.launching import WITNESS, accident, read_witness
from tests.helpers.running import (
    ROOT,
    SMALL_COPY,
    SMALL_RECALL,
    Outcome,
    assert_same_run,
    compose_config,
    invoke,
    spawn,
)

COPY = tuple(option for option in SMALL_COPY if option != "task=copy")
QUICK = ("trainer.max_steps=2", "trainer.val_check_interval=2")
BOTH = tuple(option for option in SMALL_RECALL if not option.startswith(("task=", "task.length")))


def endings(directory: Path) -> dict[str, list[str]]:
    """Return the run directories' names by the marker that they have."""
    return {
        name: sorted(str(path.parent.relative_to(directory)) for path in directory.rglob(name))
        for name in ("DONE", "FAILED")
    }


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have joblib's workers be this process; return what they are handed. A job of seed 13 loses its process."""
    handed: list[Any] = []

    class Here(joblib.Worker):
        def start(self) -> None:
            pass

        def submit(self, function: Any, job: Any, *seconds: float) -> Future[Any]:
            future: Future[Any] = Future()
            if seconds:
                future.set_result(measure(job, *seconds))
                return future
            handed.append((self.number, self.environment, job))
            if "seed=13" in job.overrides:
                job.directory.mkdir(parents=True, exist_ok=True)
                future.set_exception(TerminatedWorkerError("exit codes of the workers are {SIGKILL(-9)}"))
            else:
                future.set_result(execute(job, quiet=True))
            return future

        def end(self, kill: bool = False) -> None:
            pass

    monkeypatch.setattr(joblib, "Worker", Here)
    return handed


def sweep(*arguments: str, directory: Path) -> Outcome:
    return invoke("-m", "launcher=joblib", "hydra.launcher.n_jobs=2", *arguments, f"hydra.sweep.dir={directory}")


def test_failed_and_lost_jobs_are_listed_with_their_reasons_and_the_others_finish(
    tmp_path: Path, here: list[Any]
) -> None:
    command = [*COPY, *QUICK, "task=copy", "model=rnn", "seed=1,13", "task.monitor=val/nothing,val/loss"]
    outcome = sweep(*command, directory=tmp_path)
    assert outcome.status == 1
    end = "error: 3 jobs of 4 failed, see above; the same command retries all that are not DONE\n"
    assert outcome.err.endswith(end)
    listed = outcome.err.partition("Failed:\n")[2].splitlines()[:3]
    assert sum("seed=13" in line and "killed (SIGKILL)" in line for line in listed) == 2
    assert sum("task.monitor=val/nothing: must be one of" in line for line in listed) == 1
    ends = endings(tmp_path)
    assert (len(ends["DONE"]), len(ends["FAILED"])) == (1, 3)
    assert "killed" in (tmp_path / next(name for name in ends["FAILED"] if "seed=13" in name) / "FAILED").read_text()

    handed = len(here)
    outcome = sweep(*command, directory=tmp_path)
    assert "was DONE" in outcome.out
    assert len(here) == handed + 3, "finished jobs are not submitted"
    finished = ["seed=1", "task.monitor=val/loss", f"hydra.sweep.dir={tmp_path}"]
    outcome = invoke("-m", "launcher=local", *command, *finished)
    assert outcome.status == 0, "the directory does not depend on the launcher"
    assert outcome.out.count("was DONE") == 1
    assert logging.root.manager.disable == 0


def test_jobs_are_measured_in_a_worker_before_the_first_one(
    tmp_path: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duration, "WORTH", 0)
    outcome = sweep(*COPY, "trainer.max_steps=4", "task=copy", "model=rnn", "seed=1,13", directory=tmp_path)
    assert re.match(
        r"2 jobs in \S+, about \d+ s with 2 at a time on this machine, measured on 3 steps of 1 kind of job, ",
        outcome.out,
    )
    assert len(here) == 2


def test_cores_and_gpus_are_shared_out_among_workers(
    tmp_path: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5,GPU-7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(joblib, "available_cores", lambda: 12)
    command = ["-m", "launcher=joblib", *COPY, "task=copy", "model=rnn", "seed=13"]  # whose processes die
    command.append("trainer.accelerator=auto")
    assert "4 jobs of 4 failed" in invoke(*command, "task.delay=1,2,3,4", f"hydra.sweep.dir={tmp_path}").err
    given = {place: environment for place, environment, _ in here}
    assert [given[place]["CUDA_VISIBLE_DEVICES"] for place in sorted(given)] == ["2", "5", "GPU-7"][: len(given)]
    assert {environment["OMP_NUM_THREADS"] for environment in given.values()} == {"4"}
    here.clear()
    invoke(*command, "task.delay=5", "hydra.launcher.gpus=0.5", f"hydra.sweep.dir={tmp_path}")
    [(_, environment, _)] = here
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["OMP_NUM_THREADS"]) == ("2", "2"), "one of six workers"


@pytest.mark.parametrize(
    ("options", "said", "groups"),
    [
        ([], "8 GPUs: 8 jobs at a time, 1 GPU each\n", "0 1 2 3 4 5 6 7"),
        (["trainer=ddp", "trainer.devices=2"], "8 GPUs: 4 jobs at a time, 2 GPUs each\n", "0,1 2,3 4,5 6,7"),
    ],
)
def test_a_sweep_uses_all_gpus_without_an_option(
    options: list[str], said: str, groups: str, tmp_path: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    command = ["-m", *COPY, "task=copy", "model=rnn", "seed=13", "trainer.accelerator=auto"]  # whose processes die
    delays = ",".join(map(str, range(1, 25)))
    outcome = invoke(*command, *options, f"task.delay={delays}", f"hydra.sweep.dir={tmp_path}")
    assert "24 jobs of 24 failed" in outcome.err
    assert outcome.out.startswith(said) or f"\n{said}" in outcome.out
    first = {place: environment["CUDA_VISIBLE_DEVICES"] for place, environment, _ in here}
    assert [first[place] for place in sorted(first)] == groups.split()
    assert len(here) == 24


def test_jobs_that_leave_gpus_idle_say_so(tmp_path: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    command = ["-m", *COPY, *QUICK, "task=copy", "model=rnn", "seed=1", f"hydra.sweep.dir={tmp_path}"]
    for options, said in [
        (["launcher=local"], "8 GPUs: 1 job, 1 GPU; 7 stay idle; launcher=joblib uses all of them\n"),
        (["launcher=local", "trainer.accelerator=cpu"], ""),
        (["trainer.accelerator=cpu"], ""),
    ]:
        outcome = invoke(*command, "trainer.accelerator=auto", *options)
        assert outcome.status == 0
        assert [line for line in outcome.out.splitlines(keepends=True) if "GPU" in line] == [said] * bool(said)
    assert not here
    for each, n_jobs, said in [
        (1, 2, "2 jobs at a time, 1 GPU each; 6 stay idle"),
        (1, 12, "12 jobs at a time, up to 2 on each GPU"),
        (3, 2, "2 jobs at a time, 3 GPUs each; 2 stay idle"),
        (5, 1, "1 job, 5 GPUs; 3 stay idle"),
        (0.5, 16, "16 jobs at a time, 2 on each GPU"),
        (4, 4, "4 jobs at a time, 2 on the same 4 GPUs"),
    ]:
        assert describe_sharing("01234567", each, n_jobs) == f"8 GPUs: {said}"
    assert [simultaneous_jobs("01234567", each) for each in (1, 2, 3, 8, 16, 0.5, 0.33)] == [8, 4, 2, 1, 1, 16, 24]


@pytest.mark.parametrize("moment", ["compose", "submit"])
def test_a_signal_while_jobs_are_composed_or_submitted_reaches_all_of_them(moment: str, tmp_path: Path) -> None:
    submitted: list[int] = []
    stopped: list[int] = []

    class Engine(ParallelLauncher):
        """Signals this process at the moment of the second job."""

        def compose(self, number: int, overrides: Any) -> Any:
            if (moment, number) == ("compose", 1):
                signal.raise_signal(signal.SIGTERM)
            return SimpleNamespace(number=number, directory=tmp_path / str(number))

        def begin(self) -> int:
            return 3

        def submit(self, jobs: list[Any]) -> list[Any]:
            submitted.extend(job.number for job in jobs)
            if moment == "submit":
                signal.raise_signal(signal.SIGTERM)
            return [job.number for job in jobs]

        def wait(self, handles: list[Any]) -> list[Any]:
            return handles

        def result(self, handle: Any, job: Any) -> Any:
            raise Interrupted

        def stop(self, at_once: bool) -> None:
            stopped.extend(self.running)

        def end(self) -> None:
            pass

    config = OmegaConf.create({"hydra": {"hydra_logging": {"root": None}, "verbose": False}})
    launcher = Engine()
    launcher.setup(hydra_context=SimpleNamespace(), task_function=lambda _: None, config=config)  # type: ignore[arg-type]
    with pytest.raises(Interrupted):
        list(launcher.run(enumerate([["seed=1"], ["seed=2"], ["seed=3"], ["seed=4"]])))
    expected = [] if moment == "compose" else [0, 1, 2]
    assert (submitted, stopped) == (expected, expected)


@pytest.mark.parametrize(
    ("gpus", "each", "workers", "expected"),
    [
        ("0123", 1, 4, ["0", "1", "2", "3"]),
        ("0123", 2, 2, ["01", "23"]),
        ("01", 0.5, 4, ["0", "0", "1", "1"]),
        ("0", 0.25, 4, ["0", "0", "0", "0"]),
        ("01", 1, 3, ["0", "1", "0"]),
        ("01", 4, 1, ["01"]),
        ("01234567", 3, 3, ["012", "345", "012"]),
        ("01", 0, 1, [""]),
        ("", 1, 2, ["", ""]),
    ],
)
def test_each_worker_has_its_own_gpus(gpus: str, each: float, workers: int, expected: list[str]) -> None:
    assert ["".join(gpus_of_worker(gpus, each, place)) for place in range(workers)] == expected


def test_gpus_equal_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert visible_gpus() == ["3", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: H100'\necho 'GPU 1: H100'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    listed_gpus.cache_clear()
    assert visible_gpus() == ["0", "1"]
    split = "GPU 0: A100 (UUID: GPU-a)\n  MIG 3g.20gb Device 0: (UUID: MIG-b)\n  MIG 3g.20gb Device 1: (UUID: MIG-c)\n"
    tool.write_text(f"#!/bin/sh\necho '{split}GPU 1: A100 (UUID: GPU-d)'\n")
    listed_gpus.cache_clear()
    assert visible_gpus() == ["MIG-b", "MIG-c", "1"], "CUDA does not use a GPU beside its instances"
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    listed_gpus.cache_clear()
    assert visible_gpus() == []
    listed_gpus.cache_clear()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["launcher=nothing"], "launcher=nothing: must be one of default, joblib, local, ray, slurm"),
        (["launcher=joblib", "hydra.launcher.n_jobs=0"], "hydra.launcher.n_jobs=0: must be an integer ≥ 1"),
        (["launcher=joblib", "hydra.launcher.n_jobs=all"], "hydra.launcher.n_jobs=all: must be an integer ≥ 1"),
        (["launcher=joblib", "hydra.launcher.gpus=1.5"], "hydra.launcher.gpus=1.5: must be a whole number"),
        (["launcher=joblib", "hydra.launcher.jobs=2"], "no such option; did you mean hydra.launcher.n_jobs?"),
        (["launcher=slurm", "hydra.launcher.cluster=k8s"], "hydra.launcher.cluster=k8s: must be one of slurm, local"),
        (["launcher=ray", "hydra.launcher.cpus=0"], "hydra.launcher.cpus=0: must be a finite number > 0"),
    ],
)
def test_bad_options_are_one_line(options: list[str], said: str, tmp_path: Path) -> None:
    assert said in invoke("-m", *options, "seed=1,2", f"hydra.sweep.dir={tmp_path}/sweep").error
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(("launcher", "package"), [("slurm", "submitit"), ("ray", "ray")])
def test_an_engine_that_is_not_installed_is_named(
    launcher: str, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    error = invoke("-m", f"launcher={launcher}", "seed=1,2", f"hydra.sweep.dir={tmp_path}").error
    assert error == f"launcher={launcher}: needs the package {package}: pip install 'gyral[{launcher}]'"


def test_a_missing_cluster_and_a_wrong_parameter_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    command = ["-m", "launcher=slurm", "seed=1,2", f"hydra.sweep.dir={tmp_path}/sweep"]
    assert invoke(*command).error.startswith("launcher=slurm: ")
    error = invoke(*command, "hydra.launcher.cluster=local", "hydra.launcher.timeout_min=x").error
    assert error.startswith('launcher=slurm: Parameter "timeout_min" expected type ')


def test_slurm_gets_one_job_array_and_a_signal_before_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    for name in ("sbatch", "srun"):
        (tmp_path / name).write_text("#!/bin/sh\necho Submitted batch job 42\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    config = compose_config("launcher=slurm", "hydra.launcher.slurm_partition=gpu", hydra_too=True)
    options = {str(key): value for key, value in config.hydra.launcher.items() if key != "_target_"}
    cluster = slurm.Slurm(**options)
    cluster.config = OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path / "sweep")}}})
    assert cluster.begin() is None, "all jobs at once"
    jobs: list[Any] = [SimpleNamespace(directory=tmp_path / name) for name in ("one", "two", "three")]
    assert [job.job_id for job in cluster.submit(jobs)] == ["42_0", "42_1", "42_2"]
    script = next((tmp_path / "sweep" / ".submitit").glob("*.sh"))
    for line in (
        "array=0-2%3",
        "job-name=gyral",
        "partition=gpu",
        "signal=USR2@120",
        "time=240",
        "cpus-per-task=4",
        "gpus-per-node=1",
    ):
        assert f"#SBATCH --{line}\n" in script.read_text()


def test_a_signal_while_sbatch_runs_keeps_the_ids_of_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    signals = "os.kill(os.getpid(), signal.SIGINT), os.kill(os.getppid(), signal.SIGTERM)"
    sbatch = f"#!{sys.executable} -I\nimport os, signal\n{signals}\nprint('Submitted batch job 42')\n"
    (tmp_path / "sbatch").write_text(sbatch)
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    for name in ("sbatch", "srun"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    command = ["-m", "launcher=slurm", *COPY, "task=copy", "model=rnn", "seed=1,2", f"hydra.sweep.dir={tmp_path}/sweep"]
    outcome = invoke(*command)
    assert outcome.status == 130
    assert "To cancel them: scancel 42\n" in outcome.err
    ids = json.loads((tmp_path / "sweep" / ".submitit" / "ids.json").read_text())
    assert sorted(ids.values()) == ["42_0", "42_1"]


@pytest.mark.parametrize(
    ("options", "gpus", "jobs", "threads"),
    [
        ({}, "", 8, "1"),
        ({"n_jobs": 2}, "", 2, "4"),
        ({"gpus_per_node": 1}, "", 8, "1"),
        ({"gpus_per_node": 1}, "0", 1, "8"),
    ],
)
def test_slurm_on_this_machine_divides_the_cores(
    options: dict[str, int], gpus: str, jobs: int, threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setattr(slurm, "available_cores", lambda: 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    launcher = slurm.Slurm(cluster="local", **options)
    launcher.config = OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}})
    assert launcher.begin() == jobs
    assert os.environ["OMP_NUM_THREADS"] == threads
    monkeypatch.delenv("OMP_NUM_THREADS")  # which `begin` has set


def test_joblib_starts_its_workers_again_for_the_next_jobs_of_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joblib, "_prepare_worker", os.getpid)  # instead of importing PyTorch
    launcher = joblib.Joblib(n_jobs=1, gpus=0)
    launcher.config = OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}})
    pids = set()
    for _ in ("trials of choose", "the other jobs"):
        assert launcher.begin() == 1
        pids.add(launcher.idle[-1].submit(os.getpid).result())
        launcher.end()
    assert len(pids - {os.getpid()}) == 2


# What follows starts processes that import torch.


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Provide a list of processes that are ended after the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(*arguments: str, directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "src.train", "-m", "launcher=joblib", "hydra.launcher.n_jobs=2", *arguments]
    command.append(f"hydra.sweep.dir={directory}")
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, the process would inherit that it is ignored
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for(condition: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
    return [
        int(child) for child in children if "popen_loky" in Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8")
    ]


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


LONGER = (*BOTH, "task=copy,recall", "model=rnn", "seed=1,2", "trainer.max_steps=240", "callbacks.checkpoints.every=20")


def assert_each_once(directory: Path, jobs: int, steps: int) -> None:
    """Check that all runs are DONE and that none has a row of metrics twice."""
    assert len(endings(directory)["DONE"]) == jobs
    for path in directory.rglob("metrics.csv"):
        with path.open(newline="") as file:
            logged = [int(row["step"]) for row in csv.DictReader(file) if row["train/loss"]]
        assert logged == list(range(1, steps, 2))


@pytest.mark.slow
def test_a_killed_sweep_leaves_no_worker_and_resumes(tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    first = start(*LONGER, directory=tmp_path)
    started.append(first)
    wait_for(lambda: len(endings(tmp_path)["DONE"]) >= 2)
    wait_for(lambda: len(workers_of(first)) == 2)  # a worker that is being replaced is counted twice for a moment
    workers = workers_of(first)
    first.kill()
    first.wait()
    wait_for(lambda: not any(map(is_running, workers)))
    done = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("DONE")}
    again = start(*LONGER, directory=tmp_path)
    started.append(again)
    out, err = again.communicate()
    assert again.returncode == 0, err
    assert out.count("was DONE") == len(done)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert_each_once(tmp_path, jobs=4, steps=240)


@pytest.mark.slow
@pytest.mark.parametrize(
    "signals",
    [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM], [signal.SIGHUP]],
    ids=["Ctrl-C", "preempted", "closed"],
)
def test_signals_stop_the_jobs_after_their_step_and_the_sweep_resumes(
    signals: list[int], tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    first = start(*LONGER, directory=tmp_path)
    started.append(first)
    wait_for(lambda: any(tmp_path.rglob("last.ckpt")))
    for number in signals:
        first.send_signal(number)
        time.sleep(0.005)
    err = first.communicate()[1]
    assert first.returncode == 130, err
    assert err.count("Stopping the jobs after their current step") == 1
    assert endings(tmp_path)["FAILED"] == []
    assert len(endings(tmp_path)["DONE"]) < 4
    again = start(*LONGER, directory=tmp_path)
    started.append(again)
    err = again.communicate()[1]
    assert again.returncode == 0, err
    assert_each_once(tmp_path, jobs=4, steps=240)


def run_in_one_worker(directory: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run a sweep whose jobs have a witness in one worker; return what they have seen, in the order of the jobs."""
    command = ["-m", "src.train", "-m", "launcher=joblib", "hydra.launcher.n_jobs=1", WITNESS, *arguments]
    spawn(*command, f"hydra.sweep.dir={directory}")
    runs = sorted(directory.rglob("witness.json"), key=lambda path: path.stat().st_mtime_ns)
    return [{**read_witness(path.parent), "directory": path.parent} for path in runs]


@pytest.mark.slow
def test_a_job_of_a_worker_that_has_run_others_equals_one_in_its_own_process(tmp_path: Path) -> None:
    options = [option for option in COPY if option != "threads=1"] + ["task=copy", "model=rum", "logger=csv"]
    axes = ["optimizer.lr=1e30,0.01", "threads=2,null", "trainer.precision=64-true,32-true"]
    seen = run_in_one_worker(tmp_path / "sweep", *options, *axes)
    assert len(seen) == 8
    assert {name: len(runs) for name, runs in endings(tmp_path / "sweep").items()} == {"DONE": 4, "FAILED": 4}
    assert len({state["pid"] for state in seen}) == 1
    assert [state["threads"] for state in seen] == [2, 2, 1, 1] * 2

    last, alone = seen[-1]["directory"], tmp_path / "alone"
    values = [axis.partition("=")[0] + "=" + axis.rpartition(",")[2] for axis in axes]
    outcome = spawn("-m", "src.train", *options, WITNESS, *values, f"hydra.run.dir={alone}")
    assert outcome.status == 0, outcome.err
    assert_same_run(last, alone)
    state = read_witness(alone)
    for name in state.keys() - {"pid", "peak", "arguments", "environment"}:
        assert seen[-1][name] == state[name], name
    assert {key: seen[-1][key] for key in ("arguments", "environment")} == {
        key: seen[0][key] for key in ("arguments", "environment")
    }


@pytest.mark.slow
def test_a_worker_keeps_its_process_and_no_memory_of_its_jobs(tmp_path: Path) -> None:
    options = [option for option in COPY if not option.startswith(("task.batch", "task.delay", "trainer.max_steps"))]
    options += ["task=copy", "model=lstm", "trainer.max_steps=2", "task.batch_size=64"]
    seen = run_in_one_worker(tmp_path, *options, "task.delay=3000,3", "seed=1,2")
    assert len(seen) == 4
    assert len({state["pid"] for state in seen}) == 1
    peaks = [json.loads((state["directory"] / "DONE").read_text())["peak_memory_mb"] for state in seen]
    assert min(peaks[:2]) > max(peaks[2:]) + 100


@pytest.mark.slow
def test_the_memory_of_a_worker_does_not_grow(tmp_path: Path) -> None:
    options = [option for option in COPY if not option.startswith("trainer.max_steps")] + ["trainer.max_steps=4"]
    seen = run_in_one_worker(tmp_path, *options, "task=copy", "model=rum", "seed=range(1,51)")
    assert len(seen) == 50
    assert len({state["pid"] for state in seen}) == 1
    assert seen[-1]["peak"] < seen[9]["peak"] + 10  # MB


@pytest.mark.slow
def test_failing_diverging_memory_hungry_and_killed_jobs_are_listed_and_the_others_finish(tmp_path: Path) -> None:
    bad = "model.cell.hidden_size=4,3000000", "optimizer.lr=0.01,1e30"
    options = [*COPY, "task=copy", "model=rum", *bad, accident(20, "SIGKILL", tmp_path / "killed")]
    options = [option for option in options if option != "model.cell.hidden_size=8"]
    outcome = spawn(
        *("-m", "src.train", "-m", *options, "launcher=joblib", "hydra.launcher.n_jobs=2"),
        f"hydra.sweep.dir={tmp_path}/sweep",
    )
    assert outcome.error.startswith("4 jobs of 4 failed")
    for reason, count in (
        ("NonFiniteError: step 2: the loss is nan", 1),
        ("out of memory: can't allocate memory", 2),
        ("was killed (SIGKILL); the system does so when memory runs out", 1),
    ):
        assert sum(line.endswith(reason) or reason in line for line in outcome.err.splitlines()) == count, outcome.err
    again = spawn(
        *("-m", "src.train", "-m", *options, "launcher=joblib", "hydra.launcher.n_jobs=2"),
        f"hydra.sweep.dir={tmp_path}/sweep",
    )
    assert again.error.startswith("3 jobs of 4 failed"), "the killed job is resumed"


@pytest.mark.slow
def test_a_job_requeued_by_submitit_ends_bit_equal(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    mark = tmp_path / "mark"
    options = [*COPY, "task=copy", "model=rum", accident(11, "SIGUSR2", mark)]
    outcome = spawn(
        *("-m", "src.train", "-m", *options, "launcher=slurm", "hydra.launcher.cluster=local"),
        f"hydra.sweep.dir={tmp_path}/sweep",
    )
    assert outcome.status == 0, outcome.err
    assert mark.exists()
    (directory,) = (path.parent for path in (tmp_path / "sweep").rglob("DONE"))
    assert "Resuming from" in (directory / "train.log").read_text()
    assert any("Requeued job" in path.read_text() for path in (tmp_path / "sweep/.submitit").glob("*log.out"))
    assert invoke(*options, f"hydra.run.dir={tmp_path}/whole").status == 0  # the mark is there: nothing happens
    assert_same_run(directory, tmp_path / "whole")


@pytest.mark.slow
def test_ray_runs_two_jobs_at_once_and_reports_a_killed_job(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    options = [*COPY, "task=copy", "model=rnn", "seed=1,2,3", accident(11, "SIGKILL", tmp_path / "mark")]
    command = ["-m", "src.train", "-m", *options, "launcher=ray", "hydra.launcher.n_jobs=2"]
    outcome = spawn(*command, f"hydra.sweep.dir={tmp_path}/sweep")
    assert outcome.error.startswith("1 job of 3 failed")
    ends = endings(tmp_path / "sweep")
    assert (len(ends["DONE"]), len(ends["FAILED"])) == (2, 1)
    again = spawn(*command, f"hydra.sweep.dir={tmp_path}/sweep")
    assert again.status == 0, again.err
    assert again.out.count("was DONE") == 2


@pytest.mark.parametrize("option", ["slurm_mem", "slurm_mem_per_cpu", "slurm_mem_per_gpu"])
def test_another_request_of_memory_replaces_the_default(option: str) -> None:
    assert slurm.Slurm(mem_gb=16, **{option: "4GB"}).parameters == {option: "4GB"}
    assert slurm.Slurm(mem_gb=16, **{option: None}).parameters == {"mem_gb": 16}
