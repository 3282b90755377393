"""What SLURM says of a job decides whether the job requeues itself. tests/cluster has the tests with a real SLURM."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from gyral.core import commands
from gyral.sweeps.launchers import slurm, slurm_queue

TERM, WARNING = signal.SIGTERM, signal.SIGUSR2


@pytest.mark.parametrize(
    ("facts", "received", "expected"),
    [
        ("JobState=COMPLETING Reason=None Restarts=1", [TERM, TERM], None),  # preempted: SLURM requeues it
        ("JobState=RUNNING Reason=None PreemptTime=2026-11-25T19:15:32", [TERM], False),  # in its grace time
        ("JobState=RUNNING Reason=None PreemptTime=None", [WARNING], True),  # before its time limit
        ("JobState=RUNNING Reason=None PreemptTime=2026-11-25T19:15:32", [WARNING], False),
        ("JobState=COMPLETING Reason=TimeLimit PreemptTime=None", [TERM, TERM], True),  # at its time limit
        ("JobState=COMPLETING Reason=None PreemptTime=None", [TERM], None),  # cancelled
        ("JobState=RUNNING Reason=None PreemptTime=None", [TERM], None),  # `kill`, not by SLURM
        ("", [TERM], None),  # the controller does not answer
    ],
)
def test_a_job_requeues_itself_if_slurm_does_not(
    facts: str, received: Sequence[int], expected: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The facts are those of SLURM 22.05."""
    known = dict(fact.split("=") for fact in facts.split())
    monkeypatch.setattr(slurm_queue, "show", lambda job: known if job == "42_1" else {})
    monkeypatch.setattr(slurm, "PREEMPTION", 1)
    environment = SimpleNamespace(cluster="slurm", job_id="42_1")
    assert slurm.must_requeue(environment, received) is expected


def test_a_preemption_may_be_told_after_its_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([{"JobState": "RUNNING"}, {"JobState": "RUNNING", "PreemptTime": "2026-11-25T19:15:32"}])
    monkeypatch.setattr(slurm_queue, "show", lambda _: next(answers))
    monkeypatch.setattr(slurm.time, "sleep", lambda _: None)
    assert slurm.must_requeue(SimpleNamespace(cluster="slurm", job_id="42"), [TERM]) is False


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"/runs/a": "42_0", "/runs/b": "43"}', {"/runs/a": "42_0", "/runs/b": "43"}),
        ('{"/runs/a": "42; rm", "/runs/b": "--all", "/runs/c": "7"}', {"/runs/c": "7"}),
        ('{"/runs/a": 42}', {}),
        ("[1", {}),
    ],
)
def test_only_ids_of_jobs_are_read(content: str, expected: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "ids.json").write_text(content)
    assert slurm.read_ids(tmp_path / "ids.json") == expected
    assert slurm.read_ids(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("scontrol", "sacct", "expected"),
    [
        ("JobId=42 JobState=CANCELLED Reason=None ExitCode=0:15", None, ("CANCELLED", 143)),
        ("JobId=42 JobState=FAILED ExitCode=137:0", None, ("FAILED", 137)),
        (None, "OUT_OF_MEMORY|0:125\n", ("OUT_OF_MEMORY", 253)),
        (None, "CANCELLED by 0|0:0\n", ("CANCELLED", 0)),
        (None, "", ("UNKNOWN", 0)),
        (None, None, ("UNKNOWN", 0)),
    ],
)
def test_the_ending_of_a_job_comes_from_scontrol_or_sacct(
    scontrol: str | None, sacct: str | None, expected: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: Sequence[str], **_: object) -> SimpleNamespace:
        printed = {"scontrol": scontrol, "sacct": sacct}[command[0]]
        if printed is None:
            raise subprocess.CalledProcessError(1, list(command), stderr="Invalid job id specified\n")
        return SimpleNamespace(stdout=printed)

    monkeypatch.setattr(commands, "find_program", lambda name: name)  # SLURM need not be installed
    monkeypatch.setattr(subprocess, "run", run)
    assert slurm_queue.ending("42") == expected


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        ("CANCELLED", 143, "was cancelled"),
        ("FAILED", 137, "was ended by SIGKILL"),
        ("FAILED", 130, "was stopped"),
        ("FAILED", 255, "ended without a result"),  # no signal has the number 127
        ("UNKNOWN", 0, "ended without a result"),
    ],
)
def test_the_ending_of_a_job_is_described(state: str, status: int, expected: str) -> None:
    assert slurm.describe_ending(state, status) == expected
