"""Workers of launcher=joblib that are killed while they run a job or between two jobs: the other jobs continue."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from gyral.core.errors import JobError
from gyral.sweeps.launchers import base, joblib
from tests.faults import light_jobs
from tests.helpers.attacks import Attack
from tests.sweeps.test_launchers import is_running


class LightSweep(joblib.Joblib):
    """A sweep of light jobs in a directory."""

    def __init__(self, directory: Path, n_jobs: int) -> None:
        super().__init__(n_jobs)
        self.running = {}
        self.config = OmegaConf.create(
            {"hydra": {"sweep": {"dir": str(directory)}, "hydra_logging": None, "verbose": 0}}
        )

    def compose(self, number: int, overrides: Sequence[str]) -> base.SweepJob:
        directory = Path(self.config.hydra.sweep.dir, str(number))
        return base.SweepJob(number, tuple(overrides), OmegaConf.create(), directory, None, None, (), "/")  # type: ignore[arg-type]


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers run light jobs."""
    monkeypatch.setattr(joblib, "execute_in_worker", light_jobs.run)
    monkeypatch.setattr(joblib, "_prepare_worker", os.getpid)
    monkeypatch.setattr(base, "configure_log", lambda *_: None)


@pytest.mark.usefixtures("light")
def test_a_process_that_has_grown_runs_the_next_job(tmp_path: Path) -> None:
    sweep = LightSweep(tmp_path, n_jobs=1)
    ended = list(sweep.run(enumerate([[light_jobs.GROWS], ["fine"], ["fine"]])))
    pids = {(finished.job.directory / "finished").read_text() for finished in ended}
    assert len(ended) == 3
    assert pids == {str(sweep.idle[0].pid.result())}


def wait_for_end(finished: Path) -> None:
    """Wait until a job has finished and the process that ran it has ended."""
    until = time.monotonic() + 60
    while not (finished.exists() and (pid := finished.read_text("utf-8")) and not is_running(int(pid))):
        assert time.monotonic() < until, finished
        time.sleep(0.01)


@pytest.mark.usefixtures("light")
@pytest.mark.attacks(sampled=1, whole=20)
def test_the_other_jobs_continue_when_a_worker_dies(attack: Attack, tmp_path: Path) -> None:
    accidents = [light_jobs.DIES, f"{light_jobs.DIES_LATER}{attack.random.uniform(0, 0.02)}"]
    words = [attack.random.choices(["fine", *accidents], (3, 1, 1)) for _ in range(12)]
    if attack.number == 0:  # the one of `make test`: the process dies between two jobs
        words = [[accidents[1]], ["fine"]]

    def numbered() -> Iterator[tuple[int, Sequence[str]]]:
        for number, overrides in enumerate(words):
            if attack.number != 0:
                time.sleep(attack.random.uniform(0, 0.05))  # as composing takes
            elif number == 1:
                wait_for_end(tmp_path / "0" / "finished")
            yield number, overrides

    sweep = LightSweep(tmp_path, n_jobs=1 if attack.number == 0 else 2)
    pids = set()
    ended = {}
    for finished in sweep.run(numbered()):
        ended[finished.job.number] = finished
        pids.update(worker.pid.result() for worker in sweep.idle if worker.pool and not worker.pid.exception())
    assert sorted(ended) == list(range(len(words)))
    for number, finished in ended.items():
        if finished.error is None:
            assert (finished.job.directory / "finished").exists()
        else:
            assert isinstance(finished.error, JobError)
            assert "was killed (SIGKILL)" in str(finished.error)
            assert words[number] == ["dies"] or [accidents[1]] in words[: number + 1]
    assert attack.number or not ended[1].error
    assert not any(map(is_running, pids))
    attack.record("jobs finished", sum(finished.error is None for finished in ended.values()))
    attack.record("jobs reported as killed", sum(finished.error is not None for finished in ended.values()))
    attack.record("processes used", len(pids))
