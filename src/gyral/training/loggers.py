"""Loggers: metrics.csv in the run directory always, Weights & Biases by default."""

import csv
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from pytorch_lightning.loggers import TensorBoardLogger, WandbLogger
from pytorch_lightning.loggers.logger import Logger, rank_zero_experiment
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from gyral.config.instantiation import make
from gyral.runs.directory import METRICS, Run
from gyral.runs.provenance import origin_of
from gyral.runs.records import by_key, cell_of, task_of
from gyral.runs.wandb_key import has_wandb_key

log = logging.getLogger(__name__)


class MetricsFile(Logger):
    """metrics.csv: a row per logged step and a column per metric, empty if the metric was not logged at the step.

    `step` is the index of the last optimizer step, from 0. Each row is written to disk as soon as it is logged. A
    resumed run appends to the file; rows from after its checkpoint are dropped first, because they are logged again.

    Args:
        path: path of the file.
        resumed_at: number of optimizer steps of the checkpoint from which the run resumes; 0 starts a new file.
    """

    def __init__(self, path: Path, resumed_at: int = 0) -> None:
        super().__init__()
        self.path = path
        self.columns = ["step"]
        rows: list[dict[str, Any]] = []
        if resumed_at > 0 and path.is_file():
            with path.open(newline="") as file:
                reader = csv.DictReader(file)
                # a line that a crash has truncated lacks columns; it is from after the checkpoint
                rows = [row for row in reader if None not in row.values() and int(row["step"]) < resumed_at]
                self.columns = list(reader.fieldnames or self.columns)
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
            with self.path.open("a", newline="") as file:
                csv.DictWriter(file, self.columns, restval="").writerow(row)
        else:
            self._rewrite()

    def _rewrite(self) -> None:
        for row in self._rows:
            self.columns += [column for column in row if column not in self.columns]
        temporary = self.path.with_suffix(".tmp")
        with temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="")
            writer.writeheader()
            writer.writerows(self._rows)
        os.replace(temporary, self.path)


def tensorboard_logger(run: Run) -> Logger:
    """Return a TensorBoard logger that writes to the folder tensorboard/ of the run directory."""
    return TensorBoardLogger(str(run.directory), name="tensorboard", version="")


def wandb_logger(run: Run, project: str, **options: Any) -> Logger:
    """Return the Weights & Biases logger of a run: online with a key, offline without one. It never asks for a key.

    If W&B cannot be reached within 30 seconds, the run is logged offline.

    Args:
        run: the run. W&B writes to the folder wandb/ of its directory, and its identity is the id in W&B.
        project: the W&B project.
        **options: further arguments of `wandb.init`: entity, group, tags, notes, …
    """
    import wandb

    def start(mode: Any) -> Any:
        settings = wandb.Settings(
            mode=mode, silent=True, console="off", init_timeout=30, disable_git=True, disable_code=True
        )
        return wandb.init(
            dir=str(run.directory),
            id=run.identity,
            name=run.name,
            project=project,
            resume="allow",
            settings=settings,
            **options,
        )

    mode = os.environ.get("WANDB_MODE", "online")
    if mode == "online" and not has_wandb_key(wandb.setup().settings.base_url):
        mode = "offline"  # wandb would ask for a key
    try:
        experiment = start(mode)
    except wandb.errors.Error as error:
        log.warning("Weights & Biases cannot be reached (%s): this run is logged offline", str(error).splitlines()[0])
        experiment = start("offline")
    experiment.config.update(_identity(run), allow_val_change=True)
    if experiment.settings.mode == "offline":
        log.info("W&B is offline; to upload this run: wandb sync %s", experiment.settings.sync_dir)
    return WandbLogger(experiment=experiment, save_dir=str(run.directory))


def _identity(run: Run) -> dict[str, Any]:
    """Return the origin of a run, by which its directory can be found, and the names by which dashboards group runs."""
    origin = origin_of(run.directory)
    config: Any = OmegaConf.to_container(run.config)
    return {
        "run": origin,
        "experiment_name": by_key(origin["overrides"]).get("experiment", "").partition("=")[2],
        "cell_name": cell_of(config),
        "task_name": task_of(config),
    }


@contextmanager
def open_loggers(run: Run, resumed_at: int) -> Iterator[list[Any]]:
    """Open the loggers of a run, metrics.csv and the configured ones, and close them when the context exits.

    Args:
        run: the run that is logged.
        resumed_at: number of optimizer steps of the checkpoint from which the run resumes, 0 for a new run.
    """
    try:
        configured = [make(run.config, f"logger.{name}", run=run) for name in run.config.logger or {}]
        for logger in configured:
            logger.log_hyperparams(OmegaConf.to_container(run.config))
        yield [MetricsFile(run.directory / METRICS, resumed_at), *configured]
    finally:
        _close_wandb()


def _close_wandb() -> None:
    """End the process's W&B run, if there is one: the next job of a sweep must not log to it."""
    if "wandb" in sys.modules:
        sys.modules["wandb"].finish()


def log_results(loggers: list[Any], results: dict[str, Any], picture: Path) -> None:
    """Log the final metrics to the summary of Weights & Biases, and a picture to loggers that support images."""
    for logger in loggers:
        summary = getattr(logger.experiment, "summary", None)
        if summary is not None:
            summary.update({name: value for name, value in results.items() if value is not None})
        if hasattr(logger, "log_image"):
            logger.log_image(picture.stem, [str(picture)])
