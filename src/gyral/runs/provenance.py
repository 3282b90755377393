"""The origin of a run: command, code, hardware, package versions."""

import hashlib
import json
import os
import platform
import socket
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gyral.core.files import write_atomically

OVERRIDES, PROVENANCE, DIFF = "overrides.yaml", "provenance.json", "git.diff"


def write_provenance(directory: Path) -> None:
    """Write provenance.json and, if the code has uncommitted changes, git.diff to a run directory."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    location = f"{socket.gethostname()}:{directory.resolve()}"
    provenance = {
        "id": hashlib.sha256(location.encode()).hexdigest()[:12],
        "started": started,
        "command": [sys.executable, *sys.argv],
        "git_commit": git_commit(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
        "python": platform.python_version(),
        "packages": {item.metadata["Name"]: item.version for item in metadata.distributions()},
    }
    difference = _output("git", "diff", "HEAD")
    (directory / DIFF).unlink(missing_ok=True)  # of an earlier start in this directory that wrote no checkpoint
    if difference:
        (directory / DIFF).write_text(difference + "\n")
    write_atomically(directory / PROVENANCE, json.dumps(provenance, indent=2) + "\n")


def read_provenance(directory: Path) -> dict[str, Any]:
    """Return the content of provenance.json."""
    provenance = json.loads((directory / PROVENANCE).read_text())
    assert isinstance(provenance, dict)
    return provenance


def origin_of(directory: Path) -> dict[str, Any]:
    """Return the facts that lead from a dashboard back to a run: its directory, id, command, commit and overrides."""
    provenance = read_provenance(directory)
    kept = {name: provenance.get(name) for name in ("id", "started", "command", "git_commit", "host")}
    overrides = OmegaConf.to_container(OmegaConf.load(directory / OVERRIDES))
    return {**kept, "directory": str(directory), "overrides": overrides, "changed": (directory / DIFF).is_file()}


def git_commit() -> str | None:
    """Return the git commit of the code, or None if the code is not in a git checkout."""
    return _output("git", "rev-parse", "HEAD")


def processor() -> str:
    """Return the processor's model name."""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def _output(*command: str) -> str | None:
    """Return the output of a command that runs in this file's folder, or None if it is missing or fails."""
    folder = Path(__file__).parent
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
