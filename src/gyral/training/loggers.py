"""Where metrics go: metrics.csv in the run directory always, Weights & Biases by default."""

import csv
import logging
import netrc
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from omegaconf import OmegaConf
from pytorch_lightning.loggers import TensorBoardLogger, WandbLogger
from pytorch_lightning.loggers.logger import Logger, rank_zero_experiment
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from gyral import runs
from gyral.reports import catalogue as sweeps

log = logging.getLogger(__name__)


class MetricsFile(Logger):
    """metrics.csv: a row a logged step, a column a metric, empty where a metric was not logged at that step.

    `step` is the index of the last optimizer step taken, from 0. Rows are on disk as soon as they are logged. A run
    that is continued appends; rows from after its checkpoint, which it is about to log again, are dropped first.

    Args:
        path: of the file.
        resumed_at: number of optimizer steps taken when the run's checkpoint was written; 0 starts a new file.
    """

    def __init__(self, path: Path, resumed_at: int = 0) -> None:
        super().__init__()
        self.path = path
        self.columns = ["step"]
        rows: list[dict[str, Any]] = []
        if resumed_at > 0 and path.is_file():
            with path.open(newline="") as file:
                reader = csv.DictReader(file)
                # a line cut off by a crash lacks columns; it is from after the checkpoint
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
        """Hyper-parameters stand in config.yaml beside the file."""

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


def has_wandb_key(server: str) -> bool:
    """Whether a key for a Weights & Biases server, given by its URL, is at hand, without asking for one."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(server).hostname or server
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def tensorboard_logger(run: runs.Run) -> Logger:
    """Return a TensorBoard logger that writes to the folder tensorboard/ of the run directory."""
    return TensorBoardLogger(str(run.directory), name="tensorboard", version="")


def wandb_logger(run: runs.Run, project: str, **options: Any) -> Logger:
    """Return the Weights & Biases logger of a run: online with a key, offline without one; it never asks.

    Args:
        run: the run; W&B's files go to the folder wandb/ of its directory, and its identity is its id there.
        project: the W&B project.
        **options: passed to `wandb.init`: entity, group, tags, notes, …

    When W&B cannot be reached within 30 seconds, the run goes on offline.
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


def _identity(run: runs.Run) -> dict[str, Any]:
    """Return what leads from a W&B run back to its directory, and the names that dashboards group runs by."""
    recorded = runs.recorded(run.directory)
    config: Any = OmegaConf.to_container(run.config)
    return {
        "run": recorded,
        "experiment_name": sweeps.by_key(recorded["overrides"]).get("experiment", "").partition("=")[2],
        "cell_name": sweeps.cell_of(config),
        "task_name": sweeps.task_of(config),
    }


def close_wandb() -> None:
    """End the process's W&B run, if there is one: the next job of a sweep must not write into it."""
    if "wandb" in sys.modules:
        sys.modules["wandb"].finish()
