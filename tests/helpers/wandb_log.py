"""Reads the log of an offline run of Weights & Biases with W&B's own reader."""

import json
import subprocess
from pathlib import Path
from typing import Any

from wandb.util import get_core_path


def read_records(directory: Path) -> list[dict[str, Any]]:
    """Return the records of an offline run, each with its type, as `wandb leet inspect --json` prints them."""
    (path,) = directory.glob("*.wandb")
    # the program behind `wandb leet`, which starts in a fraction of the time
    command = [get_core_path(), "leet", "inspect", "-json", "-no-observability", "-run-file", str(path), str(directory)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


def of_type(records: list[dict[str, Any]], kind: str) -> list[Any]:
    """Return the contents of the records of one type, such as "history"."""
    return [record[kind] for record in records if record["type"] == kind]
