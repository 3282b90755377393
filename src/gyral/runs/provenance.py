"""The origin of a run: command, code, hardware, package versions."""

import functools
import hashlib
import os
import platform
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gyral.config.overrides import undefer_option
from gyral.core.commands import output_of
from gyral.core.files import replace_when_written, to_json, write_atomically
from gyral.core.side_outputs import SideOutput
from gyral.runs.saved_files import read_json, read_yaml, restore_plain

OVERRIDES, PROVENANCE, DIFF = "overrides.yaml", "provenance.json", "git.diff"
SECONDS = 10.0  # of a program that is asked
# The questions about a run's origin. Without an answer, the run continues.
GIT = SideOutput("git", "the origin of a run lacks its commit and changes")
DRIVER = SideOutput("nvidia-smi", "the origin of a run lacks its GPU")
PACKAGES = SideOutput("Installed packages", "the origin of a run lacks their versions")
# The user's settings may color a difference, or have another program show it.
DIFFERENCE = ("git", "--no-pager", "diff", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD")


@dataclass(frozen=True)
class Origin:
    """The part of provenance.json, and of the provenance in a record file, that is read."""

    id: str | None = None
    sweep: str | None = None
    started: str | None = None
    command: list[str] | str | None = None
    git_commit: str | None = None
    resumed_with: list[str] | None = None
    changed: bool | None = None
    host: str | None = None
    processor: str | None = None
    cores: int | None = None
    gpu: str | None = None
    python: str | None = None
    packages: dict[str, str] | None = None
    data: dict[str, str] | None = None


def write_provenance(
    directory: Path,
    sweep: str | None = None,
    data: dict[str, str] | None = None,
    commits: Sequence[str | None] = (),
) -> None:
    """Write provenance.json and, if the code has uncommitted changes, git.diff to a run directory.

    Args:
        directory: the run directory.
        sweep: name of the sweep that the run is a job of.
        data: digests of the data of the run, see `gyral.runs.data_files`.
        commits: the commits of the shorter run that the run continues.
    """
    first, *others = commits or [git_commit()]
    started = datetime.now(UTC).isoformat(timespec="seconds")
    location = f"{socket.gethostname()}:{directory.resolve()}"
    provenance = {
        "id": _id_from_environment(sweep) or hashlib.sha256(os.fsencode(location)).hexdigest()[:12],
        "sweep": sweep,
        "started": started,
        "command": [sys.executable, *(sys.argv if sweep is None else map(undefer_option, sys.argv))],
        "git_commit": first,
        "resumed_with": others,
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": gpu(),
        "python": platform.python_version(),
        "packages": PACKAGES.call(installed_packages),
        "data": data or {},
    }
    difference = _ask(GIT, *DIFFERENCE)
    (directory / DIFF).unlink(missing_ok=True)  # of an earlier start in this directory that wrote no checkpoint
    if difference:
        content = difference.encode(errors="surrogateescape")  # files need not be text of UTF-8
        replace_when_written(directory / DIFF, lambda temporary: temporary.write_bytes(content))
    write_atomically(directory / PROVENANCE, to_json(provenance, 2) + "\n")


def _id_from_environment(sweep: str | None) -> str | None:
    """Return the id that the user, or an agent of Weights & Biases, has chosen for a run; None for jobs of a sweep."""
    is_one = sweep is None or "WANDB_SWEEP_ID" in os.environ
    return os.environ.get("WANDB_RUN_ID") if is_one else None


def read_provenance(directory: Path) -> dict[str, Any]:
    """Return the content of provenance.json, with None for what it does not have.

    Raises:
        UserError: the file does not exist or is damaged.
    """
    return dict(vars(read_json(directory / PROVENANCE, Origin)))


def commits_of(directory: Path) -> list[str]:
    """Return the commits of the code that has trained a run, in order.

    Raises:
        UserError: provenance.json does not exist or is damaged.
    """
    provenance = read_provenance(directory)
    return [*filter(None, (provenance["git_commit"], *(provenance["resumed_with"] or ())))]


def add_commit(directory: Path) -> None:
    """Add the commit of the code to the provenance of a run that resumes, unless it is the last there.

    Raises:
        UserError: provenance.json does not exist or is damaged.
    """
    commit = git_commit()
    if commit is not None and commits_of(directory)[-1:] != [commit]:
        provenance = read_json(directory / PROVENANCE, dict[str, Any])
        provenance["resumed_with"] = [*(provenance.get("resumed_with") or ()), commit]
        write_atomically(directory / PROVENANCE, to_json(provenance, 2) + "\n")


def origin_of(directory: Path) -> dict[str, Any]:
    """Return the facts that lead from a dashboard back to a run: its directory, id, command, commit and overrides."""
    provenance = read_provenance(directory)
    kept = {name: provenance.get(name) for name in ("id", "started", "command", "git_commit", "resumed_with", "host")}
    overrides = read_overrides(directory)
    return {**kept, "directory": str(directory), "overrides": overrides, "changed": (directory / DIFF).is_file()}


def read_overrides(directory: Path) -> list[str]:
    """Return the overrides on the command line of a run.

    Raises:
        UserError: the file does not exist or is damaged.
    """
    path = directory / OVERRIDES
    words = read_yaml(path)
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return words
    return restore_plain(str(path), list[str], words)  # names what is wrong


def git_commit() -> str | None:
    """Return the git commit of the code, or None if the code is not in a git checkout."""
    return (_ask(GIT, "git", "rev-parse", "HEAD") or "").strip() or None


def processor() -> str:
    """Return the processor's model name."""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


@functools.cache  # the driver takes a second to answer, in each run of a sweep
def gpu() -> str | None:
    """Return the names of the GPUs of this machine, one a line, or None."""
    return (ask_driver("--query-gpu=name", "--format=csv,noheader") or "").strip() or None


@functools.cache  # reading 200 files takes 0.1 s, in each run of a sweep
def installed_packages() -> dict[str, str]:
    """Return the versions of all installed packages by name."""
    from importlib import metadata  # slow, and reports need none of it

    found = {}
    for item in metadata.distributions():
        with suppress(UnicodeDecodeError):  # the description of a package need not be text of UTF-8
            found[item.metadata["Name"]] = item.metadata["Version"]
    return {name: version for name, version in found.items() if name and version}


def ask_driver(*options: str) -> str | None:
    """Return the output of nvidia-smi with options, or None without a driver."""
    return _ask(DRIVER, "nvidia-smi", *options)


def _ask(program: SideOutput, *command: str) -> str | None:
    """Return the output of a command that runs in this file's folder, or None if it is missing, fails or hangs."""

    def ask() -> str | None:
        try:
            return output_of(*command, folder=Path(__file__).parent, seconds=SECONDS)
        except TimeoutError:
            raise
        except OSError:  # it is not installed, or there is nothing to say
            return None

    answer: str | None = program.call(ask, seconds=2 * SECONDS)
    return answer
