"""Loggers: metrics.csv in the run directory always, Weights & Biases by default."""

import csv
import logging
import math
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from omegaconf import DictConfig
from pydantic import AfterValidator, StringConstraints
from pytorch_lightning.loggers import TensorBoardLogger, WandbLogger
from pytorch_lightning.loggers.logger import Logger, rank_zero_experiment
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from gyral.config.instantiation import check_section, make
from gyral.config.plain import plain_values
from gyral.core.extras import import_extra
from gyral.core.files import named_in_errors, replace_when_written
from gyral.core.signals import Interrupted
from gyral.runs.directory import METRICS, Run
from gyral.runs.measures import read_measures, to_plain
from gyral.runs.metrics_file import read_rows
from gyral.runs.names import describe_option, model_name
from gyral.runs.provenance import origin_of
from gyral.runs.run_record import by_key, cell_of, task_of
from gyral.runs.wandb_key import STEPS, has_wandb_key

log = logging.getLogger(__name__)


def _check_project(name: str) -> str:
    if set(name) & set("/\\#?%:"):
        raise ValueError("must not contain / \\ # ? % :")
    return name


STOPPED = 255  # the exit code by which Weights & Biases knows a run that its user stopped
# of Weights & Biases
LONGEST_NAME, LONGEST_TAG = 128, 64
Text = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
Project = Annotated[Text, AfterValidator(_check_project)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_TAG)]
# options of the command line that the name of a run shows besides options of the cell
SHOWN_OPTIONS = ("task.", "model.", "optimizer", "scheduler")


class MetricsFile(Logger):
    """metrics.csv: a row per logged step and a column per metric, empty if the metric was not logged at the step.

    `step` is the index of the last optimizer step, from 0. Each row is written to disk as soon as it is logged. A
    resumed run appends to the file; rows from after its checkpoint are dropped first, because they are logged again.

    Args:
        path: path of the file.
        resumed_at: number of optimizer steps of the checkpoint from which the run resumes; 0 starts a new file.

    Attributes:
        logged: for each metric, the last step at which an earlier start of the resumed run has logged it.
    """

    def __init__(self, path: Path, resumed_at: int = 0) -> None:
        super().__init__()
        self.path = path
        self.columns = ["step"]
        self.logged: dict[str, int] = {}
        rows: list[dict[str, Any]] = []
        if resumed_at > 0 and path.is_file():
            self.columns, whole = read_rows(path)
            self.logged = {name: int(row["step"]) for row in whole for name, value in row.items() if value}
            rows = [row for row in whole if int(row["step"]) < resumed_at]
        self._rows = rows
        self._rewrite()

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @property
    @rank_zero_experiment
    def experiment(self) -> "MetricsFile":
        return self

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: config.yaml in the same folder has the hyperparameters."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        row = {"step": step, **{key: value for key, value in metrics.items() if key != "epoch"}}
        self._rows.append(row)
        if set(row) <= set(self.columns):
            with named_in_errors(self.path), self.path.open("a", newline="") as file:
                csv.DictWriter(file, self.columns, restval="").writerow(row)
        else:
            self._rewrite()

    def _rewrite(self) -> None:
        for row in self._rows:
            self.columns += [column for column in row if column not in self.columns]
        replace_when_written(self.path, self._write)

    def _write(self, path: Path) -> None:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="")
            writer.writeheader()
            writer.writerows(self._rows)


def tensorboard_logger(run: Run) -> Logger:
    """Return a TensorBoard logger that writes to the folder tensorboard/ of the run directory."""
    import_extra("tensorboard", "logger=tensorboard", "tensorboard")
    return TensorBoardLogger(str(run.directory), name="tensorboard", version="")


def wandb_logger(
    run: Run,
    project: Project,
    entity: Text | None = None,
    group: Text | None = None,
    tags: list[Tag] | Tag | None = None,
    notes: str | None = None,
) -> Logger:
    """Return the Weights & Biases logger of a run: online with a key, offline without one. It never asks for a key.

    If W&B cannot be reached within 30 seconds, the run is logged offline.

    Args:
        run: the run. W&B writes to the folder wandb/ of its directory, and its identity is the id in W&B.
        project: the W&B project.
        entity: the user or team that the project belongs to. None: the default of the key.
        group: the W&B group. None: the run's sweep.
        tags: tags besides the names of the cell, the task and the experiment.
        notes: a description of the run.
    """
    import wandb

    identity = _identity(run)
    options: dict[str, Any] = {
        "dir": str(run.directory),
        "id": run.identity,
        "name": display_name(run),
        "project": project,
        "entity": entity,
        "group": group or os.environ.get("WANDB_RUN_GROUP") or (run.sweep or "")[:LONGEST_NAME] or None,
        "job_type": identity["task_name"],
        "notes": notes,
        "resume": "allow" if run.checkpoint else None,  # None replaces a run that was stopped before a checkpoint
    }
    mode = os.environ.get("WANDB_MODE", "online")
    if mode == "online" and not has_wandb_key(wandb.setup().settings.base_url):
        mode = "offline"  # wandb would ask for a key
    try:
        experiment = wandb.init(**options, settings=_settings(mode))
    except wandb.errors.Error as error:
        log.warning("Weights & Biases cannot be reached (%s): this run is logged offline", str(error).splitlines()[0])
        experiment = wandb.init(**options, settings=_settings("offline"))
    experiment.config.update(identity, allow_val_change=True)
    given = [tags] if isinstance(tags, str) else tags or ()
    own = [identity[f"{name}_name"][:LONGEST_TAG] for name in ("cell", "task", "experiment")]
    # added, because those that are given to wandb.init replace the tags that users have added to a resumed run
    experiment.tags = tuple(dict.fromkeys(tag for tag in (*(experiment.tags or ()), *own, *given) if tag))
    _define_metrics(experiment, run)
    if experiment.settings.mode == "offline":
        log.info("W&B is offline; to upload this run: wandb sync %s", shlex.quote(str(experiment.settings.sync_dir)))
    return RunLogger(experiment=experiment, save_dir=str(run.directory))


def _settings(mode: str) -> Any:
    """Return the settings of W&B, as far as its installed version has them.

    Args:
        mode: "online", "offline" or "disabled".
    """
    import wandb

    options: dict[str, Any] = {
        "silent": True,
        "init_timeout": 30,
        "console": "wrap",
        "git_root": str(Path(__file__).parent),
        "save_code": True,  # without it, W&B does not save the difference to the commit
        "x_transaction_log_flush_interval": 1.0,  # seconds; a killed run loses the metrics of this interval
    }
    known = {name: value for name, value in options.items() if name in wandb.Settings.model_fields}
    return wandb.Settings(mode=mode, **known)  # type: ignore[arg-type]


class RunLogger(WandbLogger):
    """Lightning's logger of Weights & Biases with the number of optimizer steps, `steps`, as the x axis."""

    _logged: Mapping[str, int] = MappingProxyType({})

    def resume(self, logged: Mapping[str, int]) -> None:
        """Do not log again what an earlier start of the run has logged: steps would decrease.

        A resumed run repeats the steps after its last checkpoint, with the same metrics.

        Args:
            logged: for each metric, the last step at which it was logged.
        """
        received = self.experiment.summary.get(STEPS, math.inf)  # what the server has received; unknown offline
        self._logged = {name: min(step, received - 1) for name, step in logged.items()}

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        if step is None:
            self.experiment.log(dict(metrics))
            return
        last = max(self._logged.values(), default=-1)  # of metrics that are not in metrics.csv, such as examples
        new = {name: value for name, value in metrics.items() if step > self._logged.get(name, last)}
        new.pop("epoch", None)
        if new:
            # The step of a metric is the index of the last optimizer step; that of the final test is their number.
            steps = step if all(name.startswith("test/") for name in new) else step + 1
            self.experiment.log({**new, STEPS: steps})


def display_name(run: Run) -> str:
    """Return the name of a run in dashboards, such as "RUM λ = 1 · recall · seed 2 · length = 50"."""
    config = plain_values(run.config)
    options = [override.lstrip("+").partition("=") for override in origin_of(run.directory)["overrides"]]
    shown = [
        describe_option(key, value)
        for key, _, value in options
        if key.startswith(SHOWN_OPTIONS) and not key.startswith("model.cell.")
    ]
    parts = [model_name(config), task_of(config), f"seed {config['seed']}", *([", ".join(shown)] if shown else [])]
    return " · ".join(parts)[:LONGEST_NAME]


def _identity(run: Run) -> dict[str, Any]:
    """Return the origin of a run, by which its directory can be found, and the names by which dashboards group runs."""
    origin = origin_of(run.directory)
    config = plain_values(run.config)
    return {
        "run": {**origin, **to_plain(*read_measures(run.directory))},
        "experiment_name": by_key(origin["overrides"]).get("experiment", "").partition("=")[2],
        "model_name": model_name(config),
        "cell_name": cell_of(config),
        "task_name": task_of(config),
    }


def _define_metrics(experiment: Any, run: Run) -> None:
    """Declare the x axis of all metrics, and that the summary has the best value of the monitored metric."""
    experiment.define_metric(STEPS, hidden=True)
    experiment.define_metric("*", step_metric=STEPS, step_sync=True)
    if run.config.task.get("monitor"):
        experiment.define_metric(run.config.task.monitor, step_metric=STEPS, summary=run.config.task.mode)


def check_loggers(config: DictConfig) -> None:
    """Check the configured loggers, which write when they are built, see `open_loggers`.

    Raises:
        OptionError: an option that is unknown, of the wrong type or not allowed.
    """
    for name, node in (config.logger or {}).items():
        check_section(node, f"logger.{name}")


@contextmanager
def open_loggers(run: Run, resumed_at: int) -> Iterator[list[Any]]:
    """Open the loggers of a run, metrics.csv and the configured ones, and close them when the context exits.

    Args:
        run: the run that is logged.
        resumed_at: number of optimizer steps of the checkpoint from which the run resumes, 0 for a new run.
    """
    exit_code = 1
    try:
        file = MetricsFile(run.directory / METRICS, resumed_at)
        configured = [make(run.config, f"logger.{name}", run=run) for name in run.config.logger or {}]
        for logger in configured:
            if isinstance(logger, RunLogger):
                logger.resume(file.logged)
            logger.log_hyperparams(plain_values(run.config))
        yield [file, *configured]
        exit_code = 0
    except Interrupted:
        exit_code = STOPPED
        raise
    finally:
        _close_wandb(exit_code)


def _close_wandb(exit_code: int) -> None:
    """End the process's W&B run, if there is one: the next job of a sweep must not log to it."""
    if "wandb" in sys.modules:
        sys.modules["wandb"].finish(exit_code=exit_code)


def log_results(loggers: list[Any], results: dict[str, Any], picture: Path | None) -> None:
    """Log the final metrics to the summary of Weights & Biases, and a picture, if any, to loggers of images."""
    for logger in loggers:
        summary = getattr(logger.experiment, "summary", None)
        if summary is not None:
            summary.update({name: value for name, value in results.items() if value is not None})
        if picture is not None and hasattr(logger, "log_image"):
            logger.log_image(picture.stem, [str(picture)])
