"""Sweeps on a Ray cluster of two nodes: environment, lost workers and nodes, a sweep that is killed or stopped."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gyral.runs.metrics_file import read_rows
from tests.helpers.engines import free_port, wait_until
from tests.helpers.engines.ray import Cluster, cluster
from tests.helpers.running import ROOT, SMALL_COPY, Outcome

pytest.importorskip("ray", reason="Ray is not installed; see make test-cluster-install")

STEPS = 400
SWEEP = ("-m", *SMALL_COPY, "model=rnn", f"trainer.max_steps={STEPS}", "callbacks.checkpoints.every=20", "launcher=ray")
KEY = "0123456789abcdef" * 2 + "01234567"  # as long as a key of Weights & Biases


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Cluster]:
    with cluster() as started:
        yield started


@contextmanager
def sweep(address: str, *arguments: str, folder: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Start a sweep in a working directory, as a user who has configured nothing."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "WANDB_MODE": "offline", **variables}
    command = [sys.executable, "-m", "gyral", "train", *SWEEP, f"hydra.launcher.address={address}", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def outcome(process: subprocess.Popen[str], seconds: float = 180) -> Outcome:
    out, err = process.communicate(timeout=seconds)
    return Outcome(process.returncode, out, err)


def runs(folder: Path, marker: str) -> list[Path]:
    return sorted(path.parent for path in folder.rglob(marker))


def training(folder: Path) -> list[Path]:
    """Return the run directories that have a checkpoint and no end."""
    return [path.parents[1] for path in folder.rglob("last.ckpt") if not (path.parents[1] / "DONE").exists()]


def assert_each_trained_once(folder: Path, count: int) -> None:
    """Check that all runs are DONE and that each step has one row."""
    assert len(runs(folder, "DONE")) == count
    for directory in runs(folder, "DONE"):
        _, rows = read_rows(directory / "metrics.csv")
        steps = [int(row["step"]) for row in rows if row["train/loss"]]
        assert steps == list(range(1, STEPS, 2))


def test_a_killed_worker_is_reported_and_the_environment_reaches_workers_but_no_log(
    two_nodes: Cluster, tmp_path: Path
) -> None:
    variables = {"DATA_DIR": f"{tmp_path}/data", "WANDB_API_KEY": KEY}
    with sweep(two_nodes.address, "seed=1,2", folder=tmp_path, **variables) as process:
        wait_until(lambda: training(tmp_path) and two_nodes.workers(1), 90, "a job trains")
        two_nodes.workers(1)[0].kill()
        ended = outcome(process)
    assert ended.error == "1 job of 2 failed, see above; the same command retries all that are not DONE"
    assert "its worker was killed, or its node died" in ended.err
    (directory,) = runs(tmp_path, "DONE")
    assert f"data_dir: {tmp_path}/data" in (directory / "config.yaml").read_text()
    for folder in (tmp_path, two_nodes.folder):
        assert not [path for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


@pytest.mark.slow
def test_requests_that_no_node_can_fulfil_are_one_line(two_nodes: Cluster, tmp_path: Path) -> None:
    with sweep(two_nodes.address, "seed=1,2", "hydra.launcher.cpus=2", folder=tmp_path) as process:
        ended = outcome(process)
    assert ended.error == "hydra.launcher.cpus=2, gpus=0: no node of the cluster has as many"


@pytest.mark.slow
@pytest.mark.parametrize("answers", [False, True])
def test_a_wrong_address_is_one_line_within_20_seconds(answers: bool, tmp_path: Path) -> None:
    port = free_port()
    server = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"] if answers else ["sleep", "100"]
    with subprocess.Popen(server, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
        start = time.monotonic()
        with sweep(f"127.0.0.1:{port}", "seed=1,2", folder=tmp_path) as process:
            ended = outcome(process)
        other.kill()
    assert ended.error == f"hydra.launcher.address=127.0.0.1:{port}: no cluster answers within 12 seconds"
    assert time.monotonic() - start < 20


@pytest.mark.slow
def test_a_lost_node_is_reported_and_the_others_finish(tmp_path: Path) -> None:
    with cluster() as nodes:
        with sweep(nodes.address, "seed=1,2,3,4", folder=tmp_path) as process:
            wait_until(lambda: len(training(tmp_path)) == 2 and nodes.workers(1), 120, "both nodes train")
            nodes.kill_node(1)
            ended = outcome(process)
        assert ended.error.startswith("1 job of 4 failed")
        assert ended.err.count(": its ") == 1, ended.err
        assert len(runs(tmp_path, "DONE")) == 3
        with sweep(nodes.address, "seed=1,2,3,4", folder=tmp_path) as process:
            assert outcome(process).status == 0
        assert_each_trained_once(tmp_path, 4)


@pytest.mark.slow
def test_a_sweep_ends_if_no_node_is_left_that_can_run_its_jobs(tmp_path: Path) -> None:
    with cluster(cpus=(0, 1)) as nodes:
        with sweep(nodes.address, "seed=1,2", folder=tmp_path) as process:
            wait_until(lambda: training(tmp_path), 120, "a job trains")
            nodes.kill_node(1)
            ended = outcome(process, 60)
        assert ended.error.startswith("2 jobs of 2 failed")
        assert "no node is left that has cpus=1, gpus=0" in ended.err


@pytest.mark.slow
def test_the_jobs_of_a_killed_sweep_end_and_the_same_command_continues(two_nodes: Cluster, tmp_path: Path) -> None:
    with sweep(two_nodes.address, "seed=1,2,3", folder=tmp_path) as process:
        wait_until(lambda: len(training(tmp_path)) == 2, 90, "two jobs train")
        process.send_signal(signal.SIGKILL)
    # at once, while Ray may still be ending the jobs
    with sweep(two_nodes.address, "seed=1,2,3", folder=tmp_path) as process:
        ended = outcome(process)
    assert ended.status == 0, ended.err
    assert_each_trained_once(tmp_path, 3)


@pytest.mark.slow
def test_ctrl_c_stops_the_jobs_after_their_step_with_a_checkpoint(two_nodes: Cluster, tmp_path: Path) -> None:
    words = "seed=1,2,3", "callbacks.checkpoints.every=100000"
    with sweep(two_nodes.address, *words, folder=tmp_path) as process:
        wait_until(lambda: len(list(tmp_path.rglob("metrics.csv"))) == 2, 90, "two jobs train")
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        ended = outcome(process, 60)
    assert ended.status == 130, ended.err
    assert len(training(tmp_path)) == 2, "both have written a checkpoint"
    assert not runs(tmp_path, "FAILED")
    with sweep(two_nodes.address, *words, folder=tmp_path) as process:
        ended = outcome(process)
    assert ended.status == 0, ended.err
    assert_each_trained_once(tmp_path, 3)
