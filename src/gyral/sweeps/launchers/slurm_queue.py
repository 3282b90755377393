"""The states of SLURM jobs, from squeue for waiting and running jobs, and from scontrol and sacct for ended ones.

submitit asks sacct alone, which knows nothing on a cluster without accounting.
"""

import contextlib
import getpass
import re
from dataclasses import dataclass
from functools import partial

from gyral.core.commands import output_of

call = partial(output_of, seconds=60)  # a busy controller answers slowly

# Reasons for which a job waits that will never go away: the request is wrong.
NEVER = (
    "AccountNotAllowed",
    "BadConstraints",
    "InvalidAccount",
    "InvalidQOS",
    "PartitionConfig",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "QOSNotAllowed",
)
USUAL = ("None", "Priority", "Resources", "BeginTime", "JobArrayTaskLimit")  # of a job that will start


@dataclass(frozen=True)
class QueuedJob:
    """A job that waits or runs: its state, and why it waits."""

    state: str
    reason: str


def read_queue() -> dict[str, QueuedJob]:
    """Return the jobs of this user that have not ended, by their ids, such as 42 or 42_7 in an array.

    Raises:
        OSError: squeue is missing, fails, or does not answer in time.
    """
    printed = call("squeue", "--noheader", "--array", f"--user={getpass.getuser()}", "--format=%i|%T|%r")
    rows = [line.split("|", 2) for line in printed.splitlines()]
    return {row[0].strip(): QueuedJob(row[1], row[2].strip()) for row in rows if len(row) == 3}


def show(job: str) -> dict[str, str]:
    """Return the fields of `scontrol show job` for a job by name; empty if the controller no longer has it."""
    try:
        return dict(re.findall(r"(\w+)=(\S*)", call("scontrol", "show", "job", "--oneliner", job)))
    except OSError:
        return {}


def ending(job: str) -> tuple[str, int]:
    """Return the state in which a job has ended, such as CANCELLED, and its exit status.

    The state is UNKNOWN if neither scontrol nor, with accounting, sacct knows the job. The status of a process that a
    signal has ended is 128 + the signal, as in a shell.
    """
    facts = show(job)
    state, code = facts.get("JobState", "UNKNOWN"), facts.get("ExitCode", "0:0")
    if "JobState" not in facts:
        with contextlib.suppress(OSError):  # there is no accounting
            command = [
                "sacct",
                "--noheader",
                "--allocations",
                "--parsable2",
                "--format=State,ExitCode",
                f"--jobs={job}",
            ]
            rows = [line.split("|") for line in call(*command).splitlines()]
            state, code = rows[0] if rows else (state, code)
    status, _, number = code.partition(":")
    return state.split()[0], 128 + int(number) if number not in ("", "0") else int(status)
