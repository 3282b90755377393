"""Run directories: identity, provenance, resuming, DONE and FAILED markers. Imports no torch: `--help` stays fast."""

import csv
import fcntl
import hashlib
import json
import logging
import os
import platform
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from gyral.core.errors import OptionError
from gyral.core.files import write_atomically

log = logging.getLogger(__name__)


# Sections and options that do not change what a run computes: a run may be continued with others.
PROCESSES = ("trainer.strategy", "trainer.devices", "trainer.num_nodes")
NOT_IDENTITY = ("paths", "logger", "resume", "paper", "report", *PROCESSES)
DATA_DIR = "data_dir"  # nor does where corpora lie, in whatever section
CONFIG, OVERRIDES, PROVENANCE, DIFF = "config.yaml", "overrides.yaml", "provenance.json", "git.diff"
DONE, FAILED = "DONE", "FAILED"
LAST_CHECKPOINT, BEST_CHECKPOINT = "checkpoints/last.ckpt", "checkpoints/best.ckpt"
METRICS, EXAMPLES, LOCK = "metrics.csv", "examples.txt", ".lock"
LONGEST_NAME = 180  # file systems allow 255 bytes


@dataclass(frozen=True)
class Run:
    """One run directory.

    Attributes:
        directory: the run directory.
        config: the configuration that the run has, resolved.
        results: what an earlier DONE run measured, None for a run that is yet to be trained.
        checkpoint: the last checkpoint to go on from, None for a fresh start.
    """

    directory: Path
    config: DictConfig
    results: dict[str, float] | None = None
    checkpoint: Path | None = None

    @property
    def name(self) -> str:
        """How the run is called in dashboards: the last parts of its directory, task, model and time or overrides."""
        return "/".join(self.directory.resolve().parts[-3:])

    @property
    def identity(self) -> str:
        """The id that the run has in Weights & Biases, derived from its directory when it was first started."""
        return str(json.loads((self.directory / PROVENANCE).read_text())["id"])

    def finish(self, results: dict[str, Any]) -> None:
        """Mark the run as done, with what it measured."""
        write_atomically(self.directory / DONE, json.dumps(results, indent=2) + "\n")


def load(directory: Path) -> Run:
    """Return the run in a directory.

    Raises:
        OptionError: there is none.
    """
    if not (directory / CONFIG).is_file():
        raise OptionError(f"run={directory}: must be a run directory, one that holds {CONFIG}")
    config = OmegaConf.load(directory / CONFIG)
    assert isinstance(config, DictConfig)
    results = read_results(directory) if (directory / DONE).is_file() else None
    checkpoint = directory / LAST_CHECKPOINT
    return Run(directory, config, results, checkpoint if checkpoint.is_file() else None)


def read_results(directory: Path) -> dict[str, float]:
    """Return what a DONE run measured."""
    results = json.loads((directory / DONE).read_text())
    assert isinstance(results, dict)
    return results


def read_metrics(directory: Path, name: str) -> tuple[list[int], list[float]]:
    """Return the steps (numbers of optimizer steps taken) and values at which a metric was logged in metrics.csv."""
    return read_curves(directory, (name,))[0][name]


def read_curves(directory: Path, names: Sequence[str]) -> tuple[dict[str, tuple[list[int], list[float]]], bool]:
    """Return of each metric what `read_metrics` does, and whether the file's last line, left out then, is cut off.

    Raises:
        ValueError: what stands there are no steps and numbers.
    """
    curves: dict[str, tuple[list[int], list[float]]] = {name: ([], []) for name in names}
    with (directory / METRICS).open(newline="") as file:
        text = file.read()
    whole = text[: text.rfind("\n") + 1]
    reader = csv.reader(whole.splitlines())
    header = next(reader, [])
    if header and "step" not in header:
        raise ValueError(f"{METRICS} has no column step")
    columns = [(header.index(name), *curves[name]) for name in names if name in header]
    step_column = header.index("step") if columns else 0
    for row in reader:
        for column, steps, values in columns:
            if column < len(row) and row[column]:
                steps.append(int(row[step_column]) + 1)
                values.append(float(row[column]))
    return curves, whole != text


def resolve(config: DictConfig) -> DictConfig:
    """Return a copy with every interpolation replaced by its value and without the switch that asks to resume."""
    container = OmegaConf.to_container(config, resolve=True)
    assert isinstance(container, dict)
    container.pop("resume", None)
    return OmegaConf.create(container)


@contextmanager
def open_run(config: DictConfig) -> Iterator[Run]:
    """Enter the run directory that Hydra chose for this job: new, to be continued, or DONE.

    Leaves DONE to `Run.finish`; writes FAILED, with the traceback, when the body raises. A lock keeps a second process
    out of the directory.

    Raises:
        OptionError: the directory is in use, or holds a run of another configuration.
    """
    directory = Path(HydraConfig.get().runtime.output_dir)
    with _lock(directory):
        run = _continue(directory, config) if (directory / CONFIG).is_file() else None
        if run is None:
            run = Run(directory, resolve(config))
            (directory / OVERRIDES).write_text(OmegaConf.to_yaml(HydraConfig.get().overrides.task))
            _write_provenance(directory)
            write_atomically(directory / CONFIG, OmegaConf.to_yaml(run.config))
        if run.results is None:
            (directory / FAILED).unlink(missing_ok=True)
        try:
            yield run
        except Exception:  # whatever ended the run, so that a report can tell; it goes on to who called
            (directory / FAILED).write_text(traceback.format_exc())
            raise


def _continue(directory: Path, config: DictConfig) -> Run | None:
    """Return the run that is in the directory, or None if nothing there is worth keeping."""
    run = load(directory)
    if config.resume is not None:
        extra = [o for o in HydraConfig.get().overrides.task if not o.startswith("resume=")]
        if extra:
            raise OptionError(f"resume={config.resume}: goes on from its saved configuration; leave out {extra[0]}")
    elif run.results is None and run.checkpoint is None:
        return None
    else:
        wanted = resolve(config)
        difference = first_difference(_identity(run.config), _identity(wanted))
        if difference:
            raise OptionError(
                f"hydra.run.dir={directory}: holds a run of another configuration ({difference}); choose another"
                " directory, or go on with the saved configuration by resume=<directory>"
            )
        run = Run(directory, wanted, run.results, run.checkpoint)
    if run.results is None:
        saved, current = json.loads((directory / PROVENANCE).read_text())["git_commit"], git_commit()
        code = "" if saved == current else f" (started with commit {saved}, now {current})"
        where = f"Going on from {run.checkpoint}" if run.checkpoint else "Starting again, for want of a checkpoint"
        log.info("%s%s", where, code)
    return run


def _identity(config: DictConfig) -> dict[str, Any]:
    """Return by flat key what decides what a run computes."""
    values = flatten(OmegaConf.to_container(config))
    return {
        key: value
        for key, value in values
        if not {key, key.split(".")[0]} & set(NOT_IDENTITY) and key.split(".")[-1] != DATA_DIR
    }


def flatten(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of nested dictionaries with its dotted key."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from flatten(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, node


def first_difference(saved: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """Return the first key in which two flat configurations differ, with both values, or None."""
    for key in sorted({*saved, *wanted}):
        if saved.get(key) != wanted.get(key):
            return f"{key} is {saved.get(key)} there and {wanted.get(key)} here"
    return None


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    with (directory / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OptionError(f"hydra.run.dir={directory}: another process is running there") from None
        yield


def git_commit() -> str | None:
    """Return the commit that the code is at, None outside a checkout."""
    return _output("git", "rev-parse", "HEAD")


def _output(*command: str) -> str | None:
    """Return what a command prints when run beside this file, None where there is no such command or it fails."""
    where = Path(__file__).parent
    try:
        return subprocess.run(command, cwd=where, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _write_provenance(directory: Path) -> None:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    where = f"{socket.gethostname()}:{directory.resolve()}"
    provenance = {
        "id": hashlib.sha256(where.encode()).hexdigest()[:12],
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
    (directory / DIFF).unlink(missing_ok=True)  # of a start here that came to nothing
    if difference:
        (directory / DIFF).write_text(difference + "\n")
    write_atomically(directory / PROVENANCE, json.dumps(provenance, indent=2) + "\n")


def recorded(directory: Path) -> dict[str, Any]:
    """Return what a dashboard needs to know of a run to lead back to it: where it lies, and where it comes from."""
    provenance = json.loads((directory / PROVENANCE).read_text())
    kept = {name: provenance.get(name) for name in ("id", "started", "command", "git_commit", "host")}
    overrides = OmegaConf.to_container(OmegaConf.load(directory / OVERRIDES))
    return {**kept, "directory": str(directory), "overrides": overrides, "changed": (directory / DIFF).is_file()}


def processor() -> str:
    """Return the processor's model name."""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def run_directory(resume: str | None, default: str) -> str:
    """Resolver of hydra.run.dir: the directory to resume, or the default."""
    if resume is None:
        return default
    if not (Path(resume) / CONFIG).is_file():
        raise OptionError(f"resume={resume}: must be a run directory, one that holds {CONFIG}")
    return str(resume)


def directory_name(overrides: str) -> str:
    """Resolver of hydra.sweep.subdir: a file name that the overrides of a sweep's job determine."""
    name = overrides.replace("/", "-") or "default"
    if len(name.encode()) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME // 2]}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def base_name(choice: str) -> str:
    """Resolver: the last part of a choice that lies in folders, gru of rum_paper/table1/gru."""
    return choice.rpartition("/")[2]


OmegaConf.register_new_resolver("run_directory", run_directory, replace=True)
OmegaConf.register_new_resolver("directory_name", directory_name, replace=True)
OmegaConf.register_new_resolver("base_name", base_name, replace=True)
