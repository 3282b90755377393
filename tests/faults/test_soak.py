"""A sweep of 500 jobs whose workers are killed, that is killed itself, and whose disk is full for a time."""

import csv
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disks import leave, limit_files, mounted, resize
from tests.helpers.attacks import Attack
from tests.helpers.running import ROOT, SMALL, assert_same_run, invoke
from tests.sweeps.test_launchers import is_running, workers_of

JOBS, STEPS = 500, 3
SPACE = 2**30  # bytes, of which little is used
REPLACED = ("trainer.max_steps", "trainer.val_check", "trainer.log_every", "callbacks.check", "task.", "model.cell")
TINY = (
    *(option for option in SMALL if not option.startswith(REPLACED)),
    *("model=rnn", "model.cell.hidden_size=2", "task=copy", "task.delay=3", "task.recalled=2", "task.batch_size=2"),
    *("task.train_size=4", "task.val_size=2", "task.test_size=2", f"trainer.max_steps={STEPS}"),
    *("trainer.val_check_interval=2", "trainer.log_every_n_steps=1", "callbacks.checkpoints.every=1"),
)


class Sweep:
    """The sweep in a process of its own, whose workers a test kills."""

    def __init__(self, directory: Path, log: Path, attack: Attack) -> None:
        command = [sys.executable, "-m", "src.train", "-m", "launcher=joblib", "hydra.launcher.n_jobs=2", *TINY]
        command += [f"seed=range(1,{JOBS + 1})", f"hydra.sweep.dir={directory}"]
        self.log, self.attack, self.seen, self.killed = log, attack, set[int](), 0
        with log.open("w", encoding="utf-8") as out, log.with_suffix(".err").open("w") as err:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err, stdin=subprocess.DEVNULL)

    def ended(self, failed: bool = False) -> int:
        """Return the number of jobs that have ended or, of those, have failed."""
        lines = [line for line in self.log.read_text().splitlines() if f" of {JOBS} " in line]
        return sum(" FAILED " in line for line in lines) if failed else len(lines)

    def attack_until(self, jobs: int) -> bool:
        """Kill a random worker after every few jobs, until so many jobs have ended; return whether the sweep runs."""
        due = self.ended() + self.attack.random.randint(5, 35)
        while self.process.poll() is None and self.ended() < jobs:
            self.watch()
            if self.ended() >= due:
                time.sleep(self.attack.random.uniform(0, 1))
                self.kill_a_worker()
                due = self.ended() + self.attack.random.randint(5, 35)
        return self.process.poll() is None

    def kill_a_worker(self) -> None:
        workers = workers_of(self.process)
        if workers:
            subprocess.run(["kill", "-9", str(self.attack.random.choice(workers))], check=False, capture_output=True)
            self.killed += 1

    def watch(self) -> None:
        time.sleep(0.1)
        if self.process.poll() is None:
            self.seen.update(workers_of(self.process))

    def workers_have_ended(self) -> bool:
        deadline = time.monotonic() + 5
        while any(map(is_running, self.seen)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return not any(map(is_running, self.seen))

    @property
    def error(self) -> str:
        return self.log.with_suffix(".err").read_text()


def fill_the_disk(sweep: Sweep, disk: Path, is_mounted: bool) -> None:
    """Leave no space until three jobs have failed."""
    before, deadline = sweep.ended(failed=True), time.monotonic() + 120
    if is_mounted:
        leave(disk, sweep.attack.random.randrange(0, 2**18, 4096))
    while sweep.ended(failed=True) < before + 3 and time.monotonic() < deadline and sweep.process.poll() is None:
        if not is_mounted:
            limit_files(100, workers_of(sweep.process))
        sweep.watch()
    if is_mounted:
        resize(disk, SPACE)
    else:
        limit_files(-1, workers_of(sweep.process))


def done(directory: Path) -> set[Path]:
    return {path.parent for path in directory.rglob("DONE")}


@pytest.fixture
def sweeps() -> Iterator[list[Sweep]]:
    """Provide a list of sweeps that are ended after the test."""
    started: list[Sweep] = []
    yield started
    for sweep in started:
        sweep.process.kill()
        sweep.process.wait()


@pytest.mark.slow
@pytest.mark.attacks(sampled=0, whole=1)
def test_a_sweep_of_500_jobs_loses_nothing_and_leaves_no_process(
    attack: Attack, sweeps: list[Sweep], tmp_path: Path
) -> None:
    with mounted(tmp_path / "disk", SPACE) as is_mounted:
        directory = tmp_path / "disk" / "sweep"
        killed = Sweep(directory, tmp_path / "killed.log", attack)
        sweeps.append(killed)
        assert killed.attack_until(attack.random.randint(120, 220)), killed.error
        killed.process.kill()
        killed.process.wait()
        assert killed.workers_have_ended()
        done_before = done(directory)

        filled = Sweep(directory, tmp_path / "filled.log", attack)
        sweeps.append(filled)
        assert filled.attack_until(attack.random.randint(280, 380)), filled.error
        fill_the_disk(filled, tmp_path / "disk", is_mounted)
        filled.attack_until(JOBS)
        assert filled.process.wait(600) == 1
        assert filled.workers_have_ended()
        assert filled.ended() == JOBS
        done_then = done(directory)
        assert filled.ended(failed=True) == JOBS - len(done_then)
        assert filled.error.endswith(
            f"error: {JOBS - len(done_then)} jobs of {JOBS} failed, see above; the same command retries all that are"
            " not DONE\n"
        )
        assert done_before <= done_then

        last = Sweep(directory, tmp_path / "last.log", attack)
        sweeps.append(last)
        while last.process.poll() is None:
            last.watch()
        assert last.process.returncode == 0, last.error
        assert last.workers_have_ended()
        assert last.log.read_text().count(" was DONE ") == len(done_then)
        assert not [*directory.rglob("FAILED")]
        runs = sorted(done(directory))
        assert len(runs) == JOBS
        for run in runs:
            with (run / "metrics.csv").open(newline="") as file:
                logged = [row["step"] for row in csv.DictReader(file) if row["train/loss"]]
            assert logged == [str(step) for step in range(STEPS)], run
        hit = [run for run in runs if "Resuming" in (run / "train.log").read_text() or run not in done_then]
        for run in attack.random.sample(hit, min(10, len(hit))):
            seed = next(word for word in (run / "overrides.yaml").read_text().split() if word.startswith("seed="))
            undisturbed = tmp_path / seed.replace("=", "")
            assert invoke(*TINY, seed, f"hydra.run.dir={undisturbed}").status == 0
            assert_same_run(run, undisturbed)
    attack.record("jobs DONE in the end", JOBS)
    attack.record("workers killed", killed.killed + filled.killed)
    attack.record("jobs FAILED before the last start", JOBS - len(done_then))
    attack.record("jobs resumed or repeated", len(hit))
