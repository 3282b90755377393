"""Processes that srun, torchrun and other launchers start: one run with whole records, or a run of its own for each."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning import Callback, Trainer

from gyral.runs.records import read_run
from tests.helpers.engines import free_port
from tests.helpers.engines.slurm import Slurm, clean, slurm
from tests.helpers.running import ROOT, Outcome, invoke, load_last, read_rows
from tests.training.test_ddp import COPY, assert_close, fails, seconds_to_fail

DDP = (*COPY, "trainer=ddp")
GYRAL = (sys.executable, "-m", "gyral", "train")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "gyral", "train")
BOTH_NODES = ("srun", "--nodes=2", "--ntasks=2", *GYRAL)
FILES = {"config.yaml", "overrides.yaml", "provenance.json", "measures.json", "metrics.csv", "train.log", "DONE"}


class Stops(Callback):
    """Sends SIGTERM to the second process after a step, once."""

    def __init__(self, step: int, mark: str) -> None:
        self.step, self.mark = step, Path(mark)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_rank == 1 and trainer.global_step == self.step and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGTERM)


def start(folder: Path, *command: str, variables: Mapping[str, str] | None = None) -> Outcome:
    """Run a command in a folder."""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**clean(os.environ), **paths, **(variables or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Outcome(ended.returncode, ended.stdout, ended.stderr)


def errors(outcome: Outcome) -> list[str]:
    """Return the lines in which processes tell errors."""
    return [line.partition("error: ")[2] for line in outcome.err.splitlines() if line.startswith("error: ")]


def only_run(folder: Path) -> Path:
    """Return the only run directory in the outputs of a folder."""
    (directory,) = (folder / "outputs" / "copy" / "rum").iterdir()
    return directory


def check_records(directory: Path, alone: Path) -> None:
    """Check that a run has the records of another one, which a single process has trained."""
    own, names = (
        {path.relative_to(run).as_posix() for path in run.rglob("*")} - {"git.diff"}  # a checkout may change meanwhile
        for run in (directory, alone)
    )
    assert own == names
    assert names >= FILES
    assert len(read_rows(directory)) == len(read_rows(alone)) > 5
    assert_close(directory, alone)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of one process."""
    directory = tmp_path_factory.mktemp("alone") / "run"
    assert invoke(*COPY, f"hydra.run.dir={directory}", plot=True).status == 0
    return directory


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm") / "cluster") as started:
        yield started


def test_torchrun_forms_one_run(tmp_path: Path, alone: Path) -> None:
    outcome = start(tmp_path, *TORCHRUN, *DDP)
    assert outcome.status == 0, outcome.err
    assert outcome.out.count("test loss") == 1
    directory = only_run(tmp_path)
    check_records(directory, alone)
    assert read_run(directory).config["trainer"]["devices"] == 2


def test_torchrun_by_mistake_is_one_line(tmp_path: Path) -> None:
    outcome = start(tmp_path, *TORCHRUN, *COPY)
    line = "trainer.devices=1: torchrun started 2 processes; trainer=ddp trains one model in all of them"
    assert errors(outcome) == [line]
    assert not list(tmp_path.rglob("config.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["trainer.devices=4"], "trainer.devices=4: torchrun started 2 processes on this node; leave this option out"),
        (["task.batch_size=9"], "task.batch_size=9: must be a multiple of 2"),
        (
            ["-m", "seed=1,2", "hydra.sweep.dir=sweep"],
            "torchrun started 2 processes, each of which would run this sweep",
        ),
    ],
)
def test_a_wrong_option_under_torchrun_is_one_line(tmp_path: Path, options: list[str], said: str) -> None:
    outcome = start(tmp_path, *TORCHRUN, *DDP, *options)
    assert outcome.status != 0
    (line,) = errors(outcome)
    assert line.startswith(said)
    assert not list(tmp_path.rglob("DONE"))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_under_torchrun_reaches_the_user(tmp_path: Path, rank: int) -> None:
    outcome = start(tmp_path, *TORCHRUN, *DDP, *fails(rank, 4, "raises"))
    assert outcome.status != 0
    directory = only_run(tmp_path)
    told = (directory / "FAILED").read_text()
    assert "LookupError: a test wants it so" in told
    assert rank == 0 or "ProcessError: process 1 on " in told
    assert any("process 1 on" in line or rank == 0 for line in errors(outcome))
    assert all("a test wants it so" in line for line in errors(outcome)), outcome.err
    assert seconds_to_fail(directory) < 30


@pytest.mark.slow
def test_a_process_of_torchrun_that_vanishes_ends_the_run(tmp_path: Path) -> None:
    outcome = start(tmp_path, *TORCHRUN, *DDP, *fails(1, 4, "vanishes"))
    assert outcome.status != 0
    directory = only_run(tmp_path)
    assert "ended without a message" in (directory / "FAILED").read_text()
    assert seconds_to_fail(directory) < 60


@pytest.mark.slow
def test_a_run_of_torchrun_stops_and_resumes(tmp_path: Path, alone: Path) -> None:
    """The second process receives SIGTERM; a run that is DONE is not trained again."""
    only_second = f"+callbacks.stops={{_target_:{__name__}.Stops,step:5,mark:'{tmp_path / 'mark'}'}}"
    outcome = start(tmp_path, *TORCHRUN, *DDP, only_second)
    assert outcome.status != 0
    directory = only_run(tmp_path)
    assert load_last(directory)["global_step"] == 5
    assert not (directory / "FAILED").exists()
    for _ in range(2):
        outcome = start(tmp_path, *TORCHRUN, f"resume={directory}", "trust=tests")
        assert outcome.status == 0, outcome.err
    assert_close(directory, alone)
    assert only_run(tmp_path) == directory


def start_two(folder: Path, *command: str, each: Sequence[Mapping[str, str]]) -> list[Outcome]:
    """Run a command in two processes at once, with environment variables for each."""
    with ThreadPoolExecutor() as pool:
        started = [pool.submit(start, folder, *command, variables=own) for own in each]
        return [future.result() for future in started]


def pods() -> list[dict[str, str]]:
    """Return the variables of two pods of Kubernetes."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    return [{**shared, "RANK": rank} for rank in "01"]


@pytest.mark.slow
def test_processes_that_variables_number_form_one_run(tmp_path: Path, alone: Path) -> None:
    """In Kubernetes, each pod has one process."""
    outcomes = start_two(tmp_path, *GYRAL, *DDP, "trainer.devices=1", each=pods())
    assert [outcome.status for outcome in outcomes] == [0, 0], outcomes
    check_records(only_run(tmp_path), alone)


@pytest.mark.slow
def test_processes_of_mpi_form_one_run(tmp_path: Path, alone: Path) -> None:
    """With the variables that Open MPI sets on one machine; without its commands, which need not be installed."""
    shared = {"SIZE": "2", "LOCAL_SIZE": "2"}
    each = [
        {f"OMPI_COMM_WORLD_{name}": value for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}
        for rank in "01"
    ]
    outcomes = start_two(tmp_path, *GYRAL, *DDP, each=[{**own, "PMIX_NAMESPACE": f"test{os.getpid()}"} for own in each])
    assert [outcome.status for outcome in outcomes] == [0, 0], outcomes
    check_records(only_run(tmp_path), alone)


@pytest.mark.slow
def test_processes_with_different_options_are_refused(tmp_path: Path) -> None:
    """As in a packed job with trainer=ddp by mistake."""
    outcomes = start_two(
        tmp_path, "bash", "-c", 'exec "$0" "$@" seed=$RANK', *GYRAL, *DDP, "trainer.devices=1", each=pods()
    )
    told = "the launcher started processes with different options (seed is 0 there and 1 here)"
    for outcome in outcomes:
        assert outcome.status == 1
        (line,) = errors(outcome)
        assert told in line
    assert not list(tmp_path.rglob("config.yaml"))


def test_srun_forms_one_run_of_two_nodes(cluster: Slurm, tmp_path: Path, alone: Path) -> None:
    outcome = start(tmp_path, *BOTH_NODES, *DDP, "trainer.devices=1", variables=cluster.environment)
    assert outcome.status == 0, outcome.err
    check_records(only_run(tmp_path), alone)


@pytest.mark.slow
def test_srun_starts_all_processes_of_a_node(cluster: Slurm, tmp_path: Path, alone: Path) -> None:
    command = ("srun", "--nodes=1", "--ntasks=2", "--overcommit", *GYRAL)
    outcome = start(tmp_path, *command, *DDP, variables=cluster.environment)
    assert outcome.status == 0, outcome.err
    check_records(only_run(tmp_path), alone)


@pytest.mark.slow
def test_each_process_of_srun_starts_others_on_its_node(cluster: Slurm, tmp_path: Path, alone: Path) -> None:
    outcome = start(tmp_path, *BOTH_NODES, *DDP, variables=cluster.environment)
    assert outcome.status == 0, outcome.err
    directory = only_run(tmp_path)
    check_records(directory, alone)
    trainer = read_run(directory).config["trainer"]
    assert (trainer["devices"], trainer["num_nodes"]) == (2, 2)


def test_packed_runs_keep_their_records(cluster: Slurm, tmp_path: Path) -> None:
    """RANK and LOCAL_RANK are there, too, as in a job that prepares the variables of torch."""
    script = "RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_PROCID exec {} seed=$SLURM_PROCID hydra.run.dir=seed$SLURM_PROCID"
    words = script.format(" ".join(f"'{word}'" for word in (*GYRAL, *COPY)))
    command = ("srun", "--nodes=2", "--ntasks=4", "--overcommit", "bash", "-c", words)
    outcome = start(tmp_path, *command, variables=cluster.environment)
    assert outcome.status == 0, outcome.err
    assert outcome.err.count("srun started 4 processes, each of which trains its own run") == 1
    rows = [len(read_rows(tmp_path / f"seed{seed}")) for seed in range(4)]
    assert len(set(rows)) == 1
    assert rows[0] > 5
    for seed in range(4):
        directory = tmp_path / f"seed{seed}"
        assert {path.name for path in directory.iterdir()} >= FILES
        assert read_run(directory).config["seed"] == seed


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raises", "vanishes"])
def test_a_failure_on_the_second_node_reaches_the_user(cluster: Slurm, tmp_path: Path, how: str) -> None:
    outcome = start(tmp_path, *BOTH_NODES, *DDP, "trainer.devices=1", *fails(1, 4, how), variables=cluster.environment)
    assert outcome.status != 0
    directory = only_run(tmp_path)
    reason = "LookupError: a test wants it so" if how == "raises" else "ended without a message"
    assert f"node 1 (node2): {reason}".replace(": ended", " ended") in (directory / "FAILED").read_text()
    assert any(reason in line for line in errors(outcome)), outcome.err
    assert seconds_to_fail(directory) < 60


@pytest.mark.slow
def test_without_srun_a_job_starts_its_own_processes(cluster: Slurm, tmp_path: Path, alone: Path) -> None:
    """In a batch script, and in the shell of salloc; there, srun with one task changes nothing."""
    words = " ".join(f"'{word}'" for word in (*GYRAL, *DDP))
    for name, command in {
        "sbatch": ("sbatch", "--wait", "--nodes=2", "--ntasks=2", "--output=log", "--wrap"),
        "salloc": ("salloc", "--nodes=2", "--ntasks=2", "bash", "-c"),
    }.items():
        for beginning in ("", "srun --ntasks=1 --nodes=1 "):
            folder = tmp_path / f"{name}{bool(beginning)}"
            folder.mkdir()
            outcome = start(folder, *command, beginning + words, variables=cluster.environment)
            assert outcome.status == 0, outcome.err
            check_records(only_run(folder), alone)


@pytest.mark.slow
def test_srun_in_a_batch_script_forms_one_run(cluster: Slurm, tmp_path: Path, alone: Path) -> None:
    words = " ".join(f"'{word}'" for word in ("srun", *GYRAL, *DDP, "trainer.devices=1"))
    command = ("sbatch", "--wait", "--nodes=2", "--ntasks=2", "--output=log", "--wrap", words)
    outcome = start(tmp_path, *command, variables=cluster.environment)
    assert outcome.status == 0, (tmp_path / "log").read_text()
    check_records(only_run(tmp_path), alone)


@pytest.mark.slow
def test_a_sweep_on_slurm_has_jobs_of_two_nodes(cluster: Slurm, tmp_path: Path, alone: Path) -> None:
    """A failure in the second node's process of one job is the reason that the sweep prints."""
    size = {"nodes": 2, "cpus_per_task": 1, "gpus_per_node": 0, "mem_gb": 1, "timeout_min": 5}
    launcher = ("launcher=slurm", *(f"hydra.launcher.{name}={value}" for name, value in size.items()))
    sweep = ("-m", *DDP, "trainer.devices=1", *launcher, *fails(1, "4,99", "raises"), "hydra.sweep.dir=sweep")
    outcome = start(tmp_path, *GYRAL, *sweep, variables=cluster.environment)
    assert outcome.status == 1
    assert "LookupError: a test wants it so" in outcome.out + outcome.err
    locks = (tmp_path / "sweep").rglob(".lock")
    failed, done = sorted((lock.parent for lock in locks), key=lambda directory: (directory / "DONE").exists())
    assert "node 1 (node2): LookupError: a test wants it so" in (failed / "FAILED").read_text()
    assert_close(done, alone)
