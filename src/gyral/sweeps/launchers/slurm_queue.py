"""What SLURM's commands say of jobs: squeue of those that wait or run, scontrol and sacct of those that have ended."""

import getpass
import re
import subprocess
from dataclasses import dataclass

SECONDS = 60  # time limit of a command; a busy controller answers slowly

# Reasons for which a job waits that will never go away: the request is wrong.
NEVER = (
    "AccountNotAllowed",
    "BadConstraints",
    "InvalidAccount",
    "InvalidQOS",
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
    """Return what the controller says of a job, by the names of `scontrol show job`; nothing if it has forgotten it."""
    try:
        return dict(re.findall(r"(\w+)=(\S*)", call("scontrol", "show", "job", "--oneliner", job)))
    except OSError:
        return {}


def final_state(job: str) -> str:
    """Return the state in which a job has ended, such as CANCELLED; UNKNOWN if neither scontrol nor sacct knows it."""
    if "JobState" in (facts := show(job)):
        return facts["JobState"]
    try:
        states = call("sacct", "--noheader", "--allocations", "--parsable2", "--format=State", f"--jobs={job}").split()
    except OSError:  # there is no accounting
        states = []
    return states[0] if states else "UNKNOWN"


def call(*command: str) -> str:
    """Return what a command prints.

    Raises:
        OSError: it is missing, fails, or does not answer in time.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    except subprocess.CalledProcessError as error:
        raise OSError(" ".join(error.stderr.split())) from None
    except subprocess.TimeoutExpired:
        raise OSError(f"{command[0]} did not answer in {SECONDS} seconds") from None
    return done.stdout
