"""The conditions of a measurement."""

import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]


def provenance(given: str = "") -> dict[str, Any]:
    """Return the machine, the version of torch, the commit of this repository and the date.

    Args:
        given: The commit, where git does not know it, as in a copy of the tree.
    """
    file = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", file.read_text(encoding="utf-8")) if file.exists() else []
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "commit": given or commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def commit() -> str:
    """Return the commit, with -dirty if the tree has changes; unknown outside a repository or without git."""
    if not shutil.which("git"):
        return "unknown"
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False).stdout.strip() or "unknown"
