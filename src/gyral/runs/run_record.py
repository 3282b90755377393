"""The record of a run, as reports and tables show it. Imports no torch."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from gyral.config.overrides import undefer_option
from gyral.config.plain import flatten
from gyral.core.commands import program, typed
from gyral.core.errors import UserError
from gyral.core.measures import LARGEST, Measure, Remark, is_number, printed
from gyral.runs.directory import METRICS
from gyral.runs.metrics_file import logged_metrics, read_metrics

# Names of cells in papers, where the class cannot have them: it is the name without "Cell" for all others.
PUBLISHED_NAMES = {
    **{"Mamba2": "Mamba-2", "Mamba3": "Mamba-3", "RWKV7": "RWKV-7", "GatedDeltaNet": "Gated DeltaNet"},
    **{"GatedDeltaNet2": "Gated DeltaNet-2", "MinGRU": "minGRU", "MinLSTM": "minLSTM", "SLSTM": "sLSTM"},
    **{"MLSTM": "mLSTM", "MLSTMLarge": "mLSTM 7B", "URNN": "uRNN", "FullURNN": "full-capacity uRNN", "M2RNN": "M²RNN"},
    **{"ExpRNN": "expRNN", "DTRIV": "dtriv", "ONLSTM": "ON-LSTM", "PDSSM": "PD-SSM", "RGLRU": "RG-LRU"},
    **{"MAGEGRU": "MAGE-GRU", "RotationScan": "rotation scan", "FastWeights": "fast weights"},
}
DIVERGENCE = "NonFiniteError"  # in the reason of the failure; see gyral.training.callbacks.finite_guard
POINTS = 200  # maximum number of points of a thinned curve, without its two ends


@dataclass(frozen=True)
class Curve:
    """A metric over the course of training, thinned: the minimum and the maximum of each bin of logged points.

    Attributes:
        steps: numbers of optimizer steps taken.
        values: finite values, one per step.
        interval: number of steps before the first point, which is also the number between two points.
        logged: number of logged points.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    steps: list[int]
    values: list[float]
    interval: int
    logged: int

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.values):
            raise ValueError("has not one value for each step")
        if not (is_number(sum(map(abs, self.values))) and is_number(sum(map(abs, self.steps)))):
            raise ValueError("has a number that is too large")


@dataclass(frozen=True)
class Log:
    """The log of a run over training.

    Attributes:
        curves: the metrics of `curve_names`.
        baseline: the loss of a model without memory, or None if it was not logged.
    """

    curves: dict[str, Curve] = field(default_factory=dict)
    baseline: float | None = None


@dataclass(frozen=True)
class Provenance:
    """The origin of a run. Unknown fields are empty.

    Attributes:
        commit: git commit of the code.
        resumed_with: the commits of the code that continued the run.
        changed: whether the code had uncommitted changes.
        command: the command line.
        identity: the run's id in Weights & Biases.
        started: date and time.
        host: name of the machine.
    """

    commit: str = ""
    resumed_with: tuple[str, ...] = ()
    changed: bool = False
    command: str = ""
    identity: str = ""
    started: str = ""
    host: str = ""

    @classmethod
    def of(cls, recorded: Mapping[str, Any], changed: bool) -> "Provenance":
        """Return the provenance that a run's provenance.json records."""
        command = [str(word) for word in recorded.get("command") or ()]
        if len(command) > 1 and command[1].endswith(("src/train.py", "gyral/train.py")):
            command[:2] = program("train", script=command[1])
        command = [undefer_option(word) for word in command]
        texts = {name: str(recorded.get(name) or "") for name in ("started", "host")}
        commit, identity = str(recorded.get("git_commit") or ""), str(recorded.get("id") or "")
        others = tuple(recorded.get("resumed_with") or ())
        return cls(commit, others, changed=changed, command=typed(command), identity=identity, **texts)

    @property
    def code(self) -> str:
        """The abbreviated commits, with a mark if there were uncommitted changes."""
        commits = " then ".join(commit[:10] or "no commit" for commit in (self.commit, *self.resumed_with))
        return commits + (" + uncommitted changes" if self.changed else "")


@dataclass(frozen=True, repr=False)
class RunRecord:
    """One run, as reports show it. Functions that expect the path of a run also take a record, as in `gyral.load(run)`.

    Attributes:
        place: the run directory, the record file, or the run's address in Weights & Biases.
        config: the configuration.
        overrides: the overrides on the command line, unchanged, by key.
        results: the final metrics, or None if the run is not DONE.
        reason: the reason of the failure, or None if the run did not fail.
        running: whether a process on this machine runs it now.
        steps: optimizer steps taken; if the run is not DONE, the last logged step.
        read_log: returns what the run has logged over training, which tables do not show.
        provenance: the origin of the run.
        transcribed: whether the numbers are from an older table, and neither run directory nor curves exist.
        measures: what the task measures, in the order of preference.
        remarks: the remarks that the task may make on its results.
    """

    place: str
    config: dict[str, Any]
    overrides: dict[str, str]
    results: dict[str, float] | None
    reason: str | None = None
    running: bool = False
    steps: int = 0
    read_log: Callable[[], Log] = Log
    provenance: Provenance = Provenance()
    transcribed: bool = False
    measures: tuple[Measure, ...] = ()
    remarks: tuple[Remark, ...] = ()

    def __repr__(self) -> str:
        metrics = {name: value for name, value in self.metrics.items() if name.startswith("test/")}
        shown = "".join(f", {name} = {printed(name, value, self.measures)}" for name, value in metrics.items())
        return f"<run {self.place}: {self.cell} on {self.task}, {self.state}{shown}>"

    def __fspath__(self) -> str:
        return self.place

    @property
    def directory(self) -> Path:
        """The run directory."""
        return Path(self.place)

    @cached_property  # rows compare it with that of each other run
    def options(self) -> dict[str, Any]:
        """All options of the configuration by their keys on the command line, such as model.cell.hidden_size."""
        return dict(flatten(self.config))

    @property
    def metrics(self) -> dict[str, float]:
        """The final metrics by name, such as test/accuracy; empty if the run is not DONE."""
        return self.results or {}

    @cached_property
    def log(self) -> Log:
        """The log of the run over training, read at the first access.

        Raises:
            UserError: the file is damaged.
        """
        return self.read_log()

    @property
    def curves(self) -> dict[str, Curve]:
        """The logged metrics of `curve_names`, thinned."""
        return self.log.curves

    @property
    def baseline(self) -> float | None:
        """The loss of a model without memory, or None if it was not logged."""
        return self.log.baseline

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """Return steps and values of a logged metric, such as train/loss or val/accuracy.

        Raises:
            UserError: the metric was not logged.
        """
        path = self.directory / METRICS
        logged = logged_metrics(self.directory) if path.is_file() else []
        if name not in logged:
            raise UserError(f"{path}: has no metric {name}; it has {', '.join(logged) or 'none yet'}")
        return read_metrics(self.directory, name)

    @cached_property  # reports ask for it in every row of every table
    def experiment(self) -> str | None:
        """The run's experiment, as its name on the command line."""
        return self.overrides.get("experiment", "").partition("=")[2] or None

    def has(self, option: str) -> bool:
        """Return whether an option has a value, by an override or in the configuration: "task.delay=500".

        "~task.delay" asks whether no override sets the option.
        """
        key, _, value = option.partition("=")
        if key.startswith("~"):
            return key[1:] not in self.overrides
        return self.overrides.get(key) == option or (key in self.options and _has_value(self.options[key], value))

    @property
    def seed(self) -> str:
        return str(self.config["seed"])

    @property
    def failed(self) -> bool:
        return self.reason is not None

    @property
    def diverged(self) -> bool:
        """Whether training ended with a loss, gradient or parameter that is not finite."""
        return self.failed and not self.results and DIVERGENCE in str(self.reason)

    @property
    def ended(self) -> bool:
        """Whether the run is done or has diverged, and has no more to come."""
        return bool(self.results) or self.diverged

    @property
    def state(self) -> str:
        """The progress of the run in a few words."""
        if self.results or self.failed:
            return "DONE" if self.results else "FAILED"
        return f"{'running' if self.running else 'unfinished'} at step {self.steps:,}"

    @property
    def cell(self) -> str:
        return cell_of(self.config)

    @property
    def task(self) -> str:
        return task_of(self.config)


def _has_value(option: Any, text: str) -> bool:
    """Return whether a text, as on the command line, is the value of an option: 1e-2 of 0.01, true of True."""
    if option is None or isinstance(option, bool):
        return text.lower() in (str(option).lower(), "null" if option is None else "")
    if isinstance(option, int | float):
        with suppress(ValueError):
            return float(text) == option
    return str(option) == text


def measures_of(records: Iterable[RunRecord]) -> dict[str, Measure]:
    """Return the measures of runs by name, in the order of preference of the first run that has them."""
    measures: dict[str, Measure] = {}
    for own in dict.fromkeys(record.measures for record in records):
        for measure in own:
            measures.setdefault(measure.name, measure)
    return measures


def remarks_of(records: Iterable[RunRecord]) -> list[Remark]:
    """Return the remarks that the tasks of runs may make, whether or not they apply."""
    return list(dict.fromkeys(remark for record in records for remark in record.remarks))


def curve_names(measures: Iterable[Measure]) -> list[str]:
    """Return the names of the metrics that a record has over the course of training."""
    return ["train/loss", "val/loss", *(f"val/{measure.name}" for measure in measures if not measure.at_end)]


def by_key(overrides: list[Any]) -> dict[str, str]:
    """Return command-line overrides by their keys."""
    return {str(override).lstrip("+~").partition("=")[0]: str(override) for override in overrides}


def thin(steps: list[int], values: list[float], points: int = POINTS) -> Curve:
    """Return a curve of at most `points` points and its two ends that keeps the extremes of each bin."""
    kept = [index for index, value in enumerate(values) if abs(value) <= LARGEST]  # not NaN
    if len(kept) > points:
        bins = points // 2
        chosen = {kept[0], kept[-1]}
        for number in range(bins):
            part = kept[len(kept) * number // bins : len(kept) * (number + 1) // bins]
            chosen |= {min(part, key=values.__getitem__), max(part, key=values.__getitem__)}
        kept = sorted(chosen)
    return Curve([steps[i] for i in kept], [values[i] for i in kept], steps[0], len(values))


def select(config: Any, key: str) -> Any:
    """Return the value of a dotted key, or None if the key does not exist."""
    for name in key.split("."):
        config = config.get(name) if isinstance(config, dict) else None
    return config


def check_shape(config: dict[str, Any], path: Path | str) -> None:
    """Raise `UserError` unless a configuration has a seed, and sections where reports expect them.

    Args:
        config: the configuration of a run.
        path: its file, or another name of it.
    """
    seed = config.get("seed")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise UserError(f"{path}: has no seed that is an integer")
    for key in ("task", "model", "model.cell", "paper", "paths"):
        if not isinstance(select(config, key), dict | None):
            raise UserError(f"{path}: {key} is not a section")


def cell_of(config: dict[str, Any]) -> str:
    """Return the one name of a configuration's cell, such as RUM or Mamba-2, with inner cells as FSRNN(LSTM, RUM).

    A cell of another library, or of your own, that is given as `cell: leaky.LeakyCell` is Leaky; torch.nn.GRUCell is
    torch.nn.GRU, unlike the GRU of Gyral.
    """
    cell = select(config, "model.cell") or select(config, "model") or {}
    inner = [cell[part] for part in ("fast", "slow", "cell", "encoder", "decoder") if cell.get(part)]
    if isinstance(other := cell.get("cell"), str):
        return other.removesuffix("Cell").removeprefix(f"{other.partition('.')[0]}." if other.count(".") == 1 else "")
    names = [_cell_name(select(one, "_target_") or one) for one in inner]
    return _cell_name(cell.get("_target_")) + (f"({', '.join(names)})" if names else "")


def task_of(config: dict[str, Any]) -> str:
    """Return the name of a configuration's corpus, or of the task: "recall", "repeat copy", "algorithm reverse"."""
    corpus = select(config, "task.corpus.name")
    words = re.sub("(?<=[a-z])(?=[A-Z])", " ", _class_name(select(config, "task._target_"), "Task")).lower()
    return str(corpus or " ".join(map(str, filter(None, (words, select(config, "task.name"))))))


def _cell_name(target: Any) -> str:
    name = _class_name(target, "Cell")
    return PUBLISHED_NAMES.get(name, name)


def _class_name(target: Any, suffix: str) -> str:
    return str(target or "unknown").rpartition(".")[2].removesuffix(suffix)
