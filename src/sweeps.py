"""Sweeps that have a name in conf/sweep, and what the runs in a directory came to. Imports no torch."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from src import runs
from src.checks import OptionError, check_choice
from src.cli import CONFIG_PATH, choices

DIRECTORY = Path("outputs/sweep")  # as conf/sweep/_base.yaml has it
LAYOUTS = ("table", "tasks", "curves")
MEASURES = ("accuracy", "bits", "perplexity")
RESULTS = ("test/accuracy", "test/loss", "test/baseline", "parameters", "steps")
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


@dataclass(frozen=True)
class Job:
    """A run that was found.

    Attributes:
        directory: the run directory.
        config: its configuration.
        overrides: what was given on the command line, as it was, by key.
        results: what it measured, None while it is not DONE.
        failed: whether it ended with an error.
        steps: optimizer steps taken; of a run that is not DONE, as far as they were logged.
    """

    directory: Path
    config: DictConfig
    overrides: dict[str, str]
    results: dict[str, float] | None
    failed: bool
    steps: int

    @property
    def experiment(self) -> str | None:
        return self.overrides.get("experiment", "").partition("=")[2] or None

    @property
    def seed(self) -> str:
        return str(self.config.seed)

    @property
    def state(self) -> str:
        """How far the run is, in a few words."""
        return "DONE" if self.results else "FAILED" if self.failed else f"unfinished at step {self.steps:,}"


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


def names() -> list[str]:
    """Return the sweeps that say how they are shown: all but searches."""
    return [
        name for name in choices("sweep") if "report" in OmegaConf.load(Path(CONFIG_PATH) / "sweep" / f"{name}.yaml")
    ]


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
    )


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
    known = names()
    directory = DIRECTORY / where if where in known else Path(where)
    if directory.is_dir():
        return directory
    if where in known:
        raise OptionError(f"sweep={where}: has not been run yet: python -m src.train sweep={where}")
    raise OptionError(f"sweep={where}: must be one of {', '.join(known)}, or a directory that holds runs")


def read(directory: Path) -> tuple[list[Job], list[str]]:
    """Return the runs in a directory, at any depth, and a line for each that cannot be read."""
    jobs, broken = [], []
    for path in sorted(directory.rglob(runs.OVERRIDES)):
        try:
            jobs.append(_read_job(path.parent))
        except (OptionError, OmegaConfBaseException, YAMLError, OSError, ValueError, LookupError, TypeError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            broken.append(f"{path.parent}: cannot be read: {reason}")
    return jobs, broken


def _read_job(directory: Path) -> Job:
    run = runs.load(directory)
    given = OmegaConf.load(directory / runs.OVERRIDES)
    if not isinstance(given, ListConfig):
        raise OptionError(f"{runs.OVERRIDES} is no list")
    overrides = {str(override).lstrip("+~").partition("=")[0]: str(override) for override in given}
    # a run that failed before its first step has logged nothing
    logged = runs.read_metrics(directory, "train/loss")[0] if (directory / runs.METRICS).is_file() else []
    results = run.results and {name: float(value) for name, value in run.results.items() if value is not None}
    missing = [name for name in RESULTS if results and name not in results]
    if missing:
        raise OptionError(f"{runs.DONE} has no {', '.join(missing)}")
    if run.config.get("seed") is None:
        raise OptionError(f"{runs.CONFIG} has no seed")
    return Job(
        directory,
        run.config,
        overrides,
        results,
        (directory / runs.FAILED).is_file(),
        int(results["steps"]) if results else max(logged, default=0),
    )


def column_of(sweep: Sweep, job: Job) -> str:
    """Return the column that a run belongs into, "" where there is but one."""
    return str(OmegaConf.select(job.config, sweep.column)) if sweep.column else ""


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
