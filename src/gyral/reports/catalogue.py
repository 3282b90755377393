"""Sweeps that have a name in conf/sweep, and what the runs in a directory came to. Imports no torch."""

import csv
import itertools
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

from gyral import runs
from gyral.config.command_line import CONFIG_PATH, choices, typed
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError

DIRECTORY = Path("outputs/sweep")  # as conf/sweep/_base.yaml has it
LAYOUTS = ("table", "tasks", "curves")
MEASURES = ("accuracy", "bits", "perplexity", "rouge1", "rouge2", "rougeL")
RESULTS = ("test/accuracy", "test/loss", "test/baseline", "parameters", "steps")
CURVES = ("train/loss", "val/loss", *(f"val/{measure}" for measure in MEASURES))
BASELINE = "train/baseline"
POINTS = 200  # that a curve is thinned to
LONGEST_REASON = 240  # letters
# Overrides by which a run is no other setting of its row: which job it is, and what does not change what it computes.
NOT_SETTINGS = (
    "experiment",
    "sweep",
    "seed",
    "threads",
    "launcher",
    "logger",
    "paths.data_dir",
    "callbacks.progress_bar",
)


@dataclass(frozen=True)
class Sweep:
    """A sweep of conf/sweep and how it is shown.

    Attributes:
        name: of the file, as in sweep=<name>.
        title: what is shown.
        layout: one of `LAYOUTS`.
        measure: one of `MEASURES`: what a table is of, in the runs' results and in what the paper says.
        column: the key whose values are a table's columns, None for one column; with the layout "tasks" its values are
            lines, over which a row's average is taken.
        axes: the values of each key, in order; those of `experiment` are the rows.
        papers: what the paper says of each row, the node `paper` of its file in conf/experiment.
        ngrams: orders of the n-gram models that stand below the rows.
        also: further measures, columns of a table that has no column.
        solved: the measure, as it is printed, from which on a line of the layout "tasks" counts as solved.
    """

    name: str
    title: str
    layout: str
    measure: str
    column: str | None
    axes: dict[str, list[str]]
    papers: dict[str, dict[str, Any]]
    ngrams: tuple[int, ...] = ()
    solved: float = math.inf
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Curve:
    """A metric along training, thinned: of each bin of points that were logged its lowest and its highest.

    Attributes:
        steps: numbers of optimizer steps taken.
        values: finite, one for each of the steps.
        interval: steps taken at the first point, which are those between two points.
        logged: how many points there were.
    """

    steps: list[int]
    values: list[float]
    interval: int
    logged: int


@dataclass(frozen=True)
class Provenance:
    """Where a run comes from; what is not known is empty.

    Attributes:
        commit: the code's.
        changed: whether the code had changes that were not committed.
        command: as it was given.
        identity: its id in Weights & Biases.
        started: date and time.
        host: the machine.
    """

    commit: str = ""
    changed: bool = False
    command: str = ""
    identity: str = ""
    started: str = ""
    host: str = ""

    @classmethod
    def of(cls, recorded: Mapping[str, Any], changed: bool) -> "Provenance":
        """Return what a run's provenance.json says."""
        command = [str(word) for word in recorded.get("command") or ()]
        if len(command) > 1 and command[1].endswith("src/train.py"):
            command[:2] = ["python", "-m", "src.train"]
        told = {name: str(recorded.get(name) or "") for name in ("started", "host")}
        commit, identity = str(recorded.get("git_commit") or ""), str(recorded.get("id") or "")
        return cls(commit=commit, changed=changed, command=typed(command), identity=identity, **told)

    @property
    def code(self) -> str:
        """The commit in short, marked where the code was not what was committed."""
        return (self.commit[:10] or "no commit") + (" + uncommitted changes" if self.changed else "")


@dataclass(frozen=True)
class Job:
    """A run that was found.

    Attributes:
        place: the run directory, or the run's address in Weights & Biases.
        config: its configuration.
        overrides: what was given on the command line, as it was, by key.
        results: what it measured, None while it is not DONE.
        reason: why it failed, None where it did not.
        running: whether a process of this machine is at it.
        steps: optimizer steps taken; of a run that is not DONE, as far as they were logged.
        curves: those of `CURVES` that were logged.
        baseline: the loss without memory, None where none was logged.
        provenance: where it comes from.
    """

    place: str
    config: dict[str, Any]
    overrides: dict[str, str]
    results: dict[str, float] | None
    reason: str | None = None
    running: bool = False
    steps: int = 0
    curves: dict[str, Curve] = field(default_factory=dict)
    baseline: float | None = None
    provenance: Provenance = Provenance()

    @property
    def experiment(self) -> str | None:
        """The row that it is of, its name in conf/experiment."""
        return self.overrides.get("experiment", "").partition("=")[2] or None

    @property
    def seed(self) -> str:
        return str(self.config["seed"])

    @property
    def failed(self) -> bool:
        return self.reason is not None

    @property
    def state(self) -> str:
        """How far the run is, in a few words."""
        if self.results or self.failed:
            return "DONE" if self.results else "FAILED"
        return f"{'running' if self.running else 'unfinished'} at step {self.steps:,}"

    @property
    def cell(self) -> str:
        return cell_of(self.config)

    @property
    def task(self) -> str:
        return task_of(self.config)


@dataclass(frozen=True)
class Row:
    """The runs of one row of a sweep that differ in seed and column alone.

    Attributes:
        experiment: its name in conf/experiment.
        setting: what was overridden, as on the command line, none for the row's own values.
        paper: what the paper says of it.
        jobs: the runs, none where the row was not run.
    """

    experiment: str
    setting: tuple[str, ...]
    paper: dict[str, Any]
    jobs: list[Job]


@cache
def load(name: str) -> Sweep:
    """Return a sweep by its name.

    Raises:
        OptionError: its file says nothing, or nothing that is allowed, of how it is shown.
    """
    file = Path(CONFIG_PATH) / "sweep" / f"{name}.yaml"
    node = OmegaConf.load(file)
    report = OmegaConf.select(node, "report")
    if report is None:
        raise OptionError(f"sweep={name}: {file} has no node report, which says how it is shown")
    axes = {str(key): _values(f"{key}={values}") for key, values in node.hydra.sweeper.params.items()}
    return Sweep(
        name,
        report.title,
        check_choice("report.layout", report.layout, LAYOUTS),
        check_choice("report.measure", report.get("measure", MEASURES[0]), MEASURES),
        report.get("column"),
        axes,
        {experiment: _paper(experiment) for experiment in axes["experiment"]},
        tuple(report.get("ngrams", ())),
        report.get("solved", math.inf),
        tuple(check_choice("report.also", measure, MEASURES) for measure in report.get("also", ())),
    )


@cache
def named() -> tuple[Sweep, ...]:
    """Return the sweeps of conf/sweep that say how they are shown."""
    return tuple(
        load(name) for name in choices("sweep") if _says_how_shown(Path(CONFIG_PATH) / "sweep" / f"{name}.yaml")
    )


def _says_how_shown(file: Path) -> bool:
    return OmegaConf.select(OmegaConf.load(file), "report") is not None


def _values(override: str) -> list[str]:
    """Return the values that a sweep goes through, each as it stands on the command line."""
    parsed = OverridesParser.create().parse_override(override)
    return list(parsed.sweep_string_iterator()) if parsed.is_sweep_override() else [parsed.get_value_element_as_str()]


def _paper(experiment: str) -> dict[str, Any]:
    node = OmegaConf.load(Path(CONFIG_PATH) / "experiment" / f"{experiment}.yaml")
    paper = OmegaConf.to_container(node.paper)
    assert isinstance(paper, dict)
    return {str(key): value for key, value in paper.items()}


def find(where: str) -> Path:
    """Return the directory of a sweep that is given by its name or by its directory.

    Raises:
        OptionError: there is none.
    """
    names = choices("sweep")
    directory = DIRECTORY / where if where in names else Path(where)
    if directory.is_dir():
        return directory
    if where in names:
        raise OptionError(f"sweep={where}: has not been run yet: python -m src.train sweep={where}")
    raise OptionError(f"sweep={where}: must be one of {', '.join(names)}, or a directory that holds runs")


def read(directory: Path, known: Mapping[str, Job] | None = None) -> tuple[list[Job], list[str]]:
    """Return the runs in a directory, at any depth, and a line for each that cannot be read, or not whole.

    Args:
        directory: where they lie.
        known: runs that were read before, by place; those of them that are DONE are not read again.
    """
    jobs, told = [], []
    locks = locked_inodes()
    for path in run_directories(directory):
        seen = (known or {}).get(str(path))
        if seen is not None and seen.results:
            jobs.append(seen)
            continue
        try:
            job, notes = _read_job(path, locks)
        except (csv.Error, OSError, ValueError, LookupError, TypeError) as error:
            reason = " ".join((str(error) or type(error).__name__).split())
            told.append(f"{path}: cannot be read: {reason[:LONGEST_REASON]}")
            continue
        jobs.append(job)
        told += [f"{path}: {note}" for note in notes]
    return jobs, told


@dataclass(frozen=True)
class Plan:
    """What the multirun that was last started in a directory is to run.

    Attributes:
        jobs: the overrides of each of its jobs.
        command: that starts it, and goes on with it.
    """

    jobs: tuple[frozenset[str], ...] = ()
    command: str = ""


def planned(directory: Path) -> Plan:
    """Return what was to be run in a directory, without the rows of sweeps that have a name and know it themselves."""
    try:
        hydra = _read_yaml(directory / "multirun.yaml")["hydra"]
        given, own, sweeper = hydra["overrides"]["task"], hydra["overrides"]["hydra"], hydra["sweeper"]
        if not sweeper["_target_"].endswith((".BasicSweeper", ".Grid")) or sweeper["params"]:
            return Plan()
        axes = [[f"{_key(override)}={value}" for value in _values(override)] for override in given]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, HydraException):
        return Plan()
    rows = {f"experiment={experiment}" for sweep in named() for experiment in sweep.papers}
    jobs = tuple(job for values in itertools.product(*axes) if not rows & (job := frozenset(values)))
    ours = [override for override in own if not override.startswith("hydra.mode=")]
    return Plan(jobs, typed(["python", "-m", "src.train", "-m", *given, *ours]))


def _key(override: str) -> str:
    return str(OverridesParser.create().parse_override(override).get_key_element())


def run_directories(directory: Path) -> Iterator[Path]:
    """Yield the run directories in a directory, or itself, in order; what lies in a run directory is no run."""
    for path, folders, files in os.walk(directory):
        if runs.OVERRIDES in files:
            folders.clear()
            yield Path(path)
        folders.sort()


def locked_inodes() -> set[int]:
    """Return the inodes of the files that processes hold locks on, none where the system has no list of them."""
    try:
        return {int(inode) for inode in re.findall(r" \w+:\w+:(\d+) ", Path("/proc/locks").read_text())}
    except OSError:
        return set()


def _read_job(directory: Path, locks: set[int]) -> tuple[Job, list[str]]:
    """Return a run, and what of it could not be read."""
    if not (directory / runs.CONFIG).is_file():
        raise OptionError(f"{runs.CONFIG} is missing")
    config = _read_yaml(directory / runs.CONFIG)
    if not isinstance(config, dict) or config.get("seed") is None:
        raise OptionError(f"{runs.CONFIG} has no seed")
    given = _read_yaml(directory / runs.OVERRIDES)
    if not isinstance(given, list):
        raise OptionError(f"{runs.OVERRIDES} is no list")
    results = _read_results(directory / runs.DONE) if (directory / runs.DONE).is_file() else None
    curves: dict[str, tuple[list[int], list[float]]] = {}
    cut_off = False
    if (directory / runs.METRICS).is_file():  # a run that failed before its first step has logged nothing
        curves, cut_off = runs.read_curves(directory, (*CURVES, BASELINE))
    failed = directory / runs.FAILED
    lock = directory / runs.LOCK
    running = lock.is_file() and lock.stat().st_ino in locks
    provenance = _read_provenance(directory)
    notes = [f"the last line of {runs.METRICS} is cut off and left out"] if cut_off and not running else []
    notes += [] if provenance else [f"{runs.PROVENANCE} cannot be read: no commit or command is known"]
    job = Job(
        str(directory),
        config,
        by_key(given),
        results,
        reason_of(failed.read_text(errors="replace")) if failed.is_file() else None,
        running,
        int(results["steps"]) if results else max(curves.get("train/loss", ([], []))[0], default=0),
        {name: thin(*curves[name]) for name in CURVES if curves.get(name, ([], []))[0]},
        next(iter(curves.get(BASELINE, ([], []))[1]), None),
        provenance or Provenance(),
    )
    return job, notes


def by_key(overrides: list[Any]) -> dict[str, str]:
    """Return overrides of the command line by their keys."""
    return {str(override).lstrip("+~").partition("=")[0]: str(override) for override in overrides}


def _read_yaml(path: Path) -> Any:
    try:
        return yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # the former is fast
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise OptionError(f"{path.name} is no YAML: {error}") from error


def _read_results(path: Path) -> dict[str, float]:
    try:
        results = json.loads(path.read_text())
    except ValueError as error:
        raise OptionError(f"{path.name} holds no results: {error}") from error
    return check_results(path.name, results)


def check_results(where: str, results: Any) -> dict[str, float]:
    """Return what a run measured as numbers, without what it did not measure.

    Raises:
        OptionError: it is no such thing, or something is missing that a report needs.
    """
    if not isinstance(results, dict):
        raise OptionError(f"{where} holds no results")
    missing = [name for name in RESULTS if results.get(name) is None]
    if missing:
        raise OptionError(f"{where} has no {', '.join(missing)}")
    return {name: float(value) for name, value in results.items() if value is not None}


def _read_provenance(directory: Path) -> Provenance | None:
    """Return where a run comes from, None where that cannot be read."""
    try:
        recorded = json.loads((directory / runs.PROVENANCE).read_text())
        return Provenance.of(recorded, (directory / runs.DIFF).is_file())
    except (OSError, ValueError, AttributeError):
        return None


def reason_of(text: str) -> str:
    """Return the last error of a traceback in a line: its type and message."""
    lines = text.rstrip().splitlines()
    inside = [index for index, line in enumerate(lines) if line.startswith(("  ", "Traceback"))]
    last = lines[inside[-1] + 1 :] if inside else lines[-1:]
    reason = " ".join(" ".join(last).split()) or "no reason was written"
    return reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1]}…"


def thin(steps: list[int], values: list[float], points: int = POINTS) -> Curve:
    """Return a curve of at most so many points (and its ends) that keeps all extremes that its bins have."""
    kept = [index for index, value in enumerate(values) if math.isfinite(value)]
    if len(kept) > points:
        bins = points // 2
        chosen = {kept[0], kept[-1]}
        for number in range(bins):
            part = kept[len(kept) * number // bins : len(kept) * (number + 1) // bins]
            chosen |= {min(part, key=values.__getitem__), max(part, key=values.__getitem__)}
        kept = sorted(chosen)
    return Curve([steps[i] for i in kept], [values[i] for i in kept], steps[0], len(values))


def select(config: Any, key: str) -> Any:
    """Return the value of a dotted key, None where there is none."""
    for name in key.split("."):
        config = config.get(name) if isinstance(config, dict) else None
    return config


def cell_of(config: dict[str, Any]) -> str:
    """Return the class of a configuration's cell, as RUM, and those of the cells in it, as FSRNN(LSTM, RUM)."""
    cell = select(config, "model.cell") or select(config, "model") or {}
    inner = [cell[part] for part in ("fast", "slow", "cell") if cell.get(part)]
    names = [_class_name(select(one, "_target_") or one, "Cell") for one in inner]
    return _class_name(cell.get("_target_"), "Cell") + (f"({', '.join(names)})" if names else "")


def task_of(config: dict[str, Any]) -> str:
    """Return the corpus of a configuration's task, or the task's class, as recall."""
    corpus = select(config, "task.corpus.name")
    return str(corpus or _class_name(select(config, "task._target_"), "Task").lower())


def _class_name(target: Any, suffix: str) -> str:
    return str(target or "unknown").rpartition(".")[2].removesuffix(suffix)


def column_of(sweep: Sweep, job: Job) -> str:
    """Return the column that a run belongs into, "" where there is but one."""
    return str(select(job.config, sweep.column)) if sweep.column else ""


def setting_of(sweep: Sweep, job: Job) -> tuple[str, ...]:
    """Return what was overridden besides the sweep's axes, as on the command line."""
    ours = (*NOT_SETTINGS, sweep.column)
    return tuple(override for key, override in sorted(job.overrides.items()) if key not in ours)


def rows_of(sweep: Sweep, jobs: list[Job]) -> list[Row]:
    """Sort runs into the rows of a sweep, every row at least once; a row with several settings stands once for each."""
    rows = []
    for experiment in sweep.axes["experiment"]:
        mine = [job for job in jobs if job.experiment == experiment]
        for setting in sorted({setting_of(sweep, job) for job in mine}) or [()]:
            same = [job for job in mine if setting_of(sweep, job) == setting]
            rows.append(Row(experiment, setting, sweep.papers[experiment], same))
    return rows


def others_of(jobs: list[Job]) -> dict[str, list[Row]]:
    """Sort runs that are of no sweep's rows by task and, in it, into rows whose runs differ in the seed alone.

    A row is named after its model and what else it was given that not all runs of its task were.
    """
    tasks: dict[str, dict[tuple[str, ...], list[Job]]] = {}
    for job in jobs:
        name = job.overrides.get("experiment") or job.overrides.get("model") or f"model={job.cell}"
        given = [said for key, said in sorted(job.overrides.items()) if key not in (*NOT_SETTINGS, "model", "task")]
        tasks.setdefault(job.task, {}).setdefault((name, *given), []).append(job)
    rows = {}
    for task, settings in sorted(tasks.items()):
        common = set.intersection(*map(set, settings))
        rows[task] = [
            Row("", setting, {"row": "\n".join((setting[0], *(s for s in setting[1:] if s not in common)))}, mine)
            for setting, mine in sorted(settings.items())
        ]
    return rows
