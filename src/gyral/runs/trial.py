"""The run of an Optuna trial: its report to the study. Imports Optuna only in a search."""

import math
import os
import re
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig

from gyral.core.errors import OptionError
from gyral.runs.database import TIMEOUT, Database, check_database

PRUNED = "pruned"  # user attribute of a pruned trial
ATTEMPTS = 3  # to open a storage
STORAGE = "GYRAL_STORAGE"  # environment variable for the jobs of a search: the URL of a storage that has a password


class Reporter:
    """Reports the metric of a running trial to its study, in the process that trains."""

    def __init__(self) -> None:
        import optuna

        quiet_optuna()
        config = HydraConfig.get()
        sweeper = config.sweeper
        name = sweeper.study or str(Path(str(config.sweep.dir)))
        storage = open_storage(os.environ.get(STORAGE, sweeper.storage))
        study = optuna.load_study(
            study_name=name, storage=storage, pruner=instantiate_optuna(sweeper.pruner, "hydra.sweeper.pruner")
        )
        own = trial_of(study, config.job.num)
        self.trial = optuna.trial.Trial(study, own._trial_id)
        self.reported = set(own.intermediate_values)

    def should_prune(self, step: int, value: float) -> bool:
        """Report a value, and return whether the pruner prunes the trial."""
        if step not in self.reported and math.isfinite(value):
            self.reported.add(step)
            self.trial.report(value, step)
        prune = self.trial.should_prune()
        if prune:
            self.trial.set_user_attr(PRUNED, True)
        return prune


def reporter() -> Reporter | None:
    """Return the reporter of the trial that this run belongs to, or None if the run is not a trial."""
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        return None
    return Reporter() if "n_trials" in (HydraConfig.get().sweeper or {}) else None


def trial_of(study: Any, number: int) -> Any:
    """Return the trial of a study that has a number. The numbers may have gaps, if somebody has deleted trials.

    Raises:
        LookupError: no trial has the number.
    """
    for trial in study.get_trials(deepcopy=False):
        if trial.number == number:
            return trial
    raise LookupError(f"the study has no trial {number}")


def instantiate_optuna(node: DictConfig | None, option: str, **arguments: Any) -> Any:
    """Instantiate a sampler or pruner; without a node, return the pruner that never prunes.

    Raises:
        OptionError: the node cannot be instantiated.
    """
    import optuna

    if node is None:
        return optuna.pruners.NopPruner()
    try:
        return instantiate(node, **arguments)
    except Exception as error:
        reason = " ".join(str(error).split("\n")[0].split())
        raise OptionError(option, node.get("_target_"), reason) from error


def quiet_optuna() -> None:
    """Silence Optuna's messages; the sweeper logs the same information."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def open_storage(url: str) -> Any:
    """Return a storage that several processes can use at the same time.

    Raises:
        UserError: it is a database of SQLite that would change other files, see `check_database`.
    """
    import optuna
    from sqlalchemy import make_url
    from sqlalchemy.exc import DBAPIError

    if url.startswith("sqlite"):
        if file := make_url(url).database:
            check_database(Path(file.removeprefix("file:")))
        options: dict[str, Any] = {"connect_args": {"timeout": TIMEOUT, "factory": Database}}
    else:
        options = {"pool_pre_ping": True}  # a server closes connections that nobody uses
    if re.match(r"(postgresql|mysql|mariadb)(\+(psycopg2?|pymysql|mysqldb))?:", url):
        options["connect_args"] = {"connect_timeout": 10}  # seconds to wait for the server
    for _ in range(ATTEMPTS - 1):
        with suppress(DBAPIError, AssertionError):  # another search may create the tables at this moment
            return optuna.storages.RDBStorage(url, engine_kwargs=options)
        time.sleep(1)
    return optuna.storages.RDBStorage(url, engine_kwargs=options)
