"""OmegaConf resolvers of the configuration; importing this module registers them."""

import hashlib
import os
import re
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from gyral.config.groups import choices
from gyral.config.overrides import split_values
from gyral.config.roles import NOT_IN_DIRECTORIES
from gyral.core.errors import OptionError

RUN_CONFIG = "config.yaml"  # the saved configuration in a run directory
LONGEST_NAME = 180  # file systems allow 255 bytes
# Metrics of which a smaller value is better; tests/config/test_resolvers.py compares them with the measures of tasks.
SMALLER_IS_BETTER = ("loss", "bits", "perplexity", "mse", "mae", "wrong_bits", "kl")
VALIDATIONS = 20  # of a run, so that a short one has a curve, too


def data_dir() -> str:
    """Return the data folder: the environment variable DATA_DIR, by default data/ in the current directory."""
    return os.path.expanduser(os.environ.get("DATA_DIR") or "data")


def run_directory(resume: str | None, default: str) -> str:
    """Return hydra.run.dir: the run directory to resume, or the default.

    Raises:
        OptionError: `resume` is not a run directory.
    """
    if resume is None:
        return default
    if not (Path(resume) / RUN_CONFIG).is_file():
        raise OptionError("resume", resume, f"must be a run directory, one that holds {RUN_CONFIG}")
    return str(resume)


def directory_name(overrides: str) -> str:
    """Return hydra.sweep.subdir: a file name that the overrides of a sweep's job determine.

    Different overrides have different names: those that this form does not tell apart end in a digest.
    """
    name = overrides.replace("/", "-") or "default"
    encoded = name.encode("utf-8", "surrogateescape")  # a name in another locale
    is_clear = all(map(_is_clear, split_values(overrides))) and not re.search(r"~[0-9a-f]{12}$", name)
    if is_clear and len(encoded) <= LONGEST_NAME:
        return name
    start = encoded[: LONGEST_NAME // 2].decode("utf-8", "ignore")
    whole = encoded if is_clear else overrides.encode("utf-8", "surrogateescape")
    return f"{start}~{hashlib.sha256(whole).hexdigest()[:12]}"


def _is_clear(override: str) -> bool:
    """Return whether an override stays different from all others if its slashes become dashes."""
    key, _, value = override.partition("=")
    if "/" not in value:
        return True
    names = choices(key.lstrip("+~").partition("@")[0])  # few have dashes, and their folders keep the slash
    return value in names and [name.replace("/", "-") for name in names].count(value.replace("/", "-")) == 1


def base_name(choice: str) -> str:
    """Return the last part of a choice in a folder: gru of rum_paper/table1/gru."""
    return choice.rpartition("/")[2]


def row_folder(experiment: str | None) -> str:
    """Return the folder of the jobs of a row in the directory of a sweep, "" for a sweep without rows."""
    return f"{base_name(experiment)}/" if experiment else ""


def not_in_directories(*shown: str) -> list[str]:
    """Return the keys of options that do not name the directory of a job, besides those that its folders show."""
    return [*shown, *NOT_IN_DIRECTORIES]


def best_of(monitor: str) -> str:
    """Return task.mode: "min" if a smaller value of a metric is better, such as val/loss, else "max"."""
    name = monitor.rpartition("/")[2]
    return "min" if any(name == each or name.startswith(f"{each}_") for each in SMALLER_IS_BETTER) else "max"


def trained_row(table: str, row: str, seed: int) -> str:
    """Return the directory of the run of another row of a table from which a run of the same table starts.

    In the sweep of the table, it is the run with the same overrides; otherwise, it is the run of the sweep without
    further overrides.
    """
    if HydraConfig.initialized():
        hydra = HydraConfig.get()
        if hydra.mode == RunMode.MULTIRUN and hydra.runtime.choices.get("sweep") == table:
            return str(Path(hydra.sweep.dir, row, directory_name(hydra.job.override_dirname)))
    return f"outputs/sweep/{table}/{row}/seed={seed}"


def validation_interval(max_steps: Any) -> Any:
    """Return trainer.val_check_interval: the steps between validations of which a run has `VALIDATIONS`, or fewer.

    A number of steps that is not allowed is returned as it is, so that the error of the run names trainer.max_steps.
    """
    is_count = isinstance(max_steps, int) and not isinstance(max_steps, bool)
    return max(1, -(-max_steps // VALIDATIONS)) if is_count else max_steps


def gpus_per_job(trainer: Any) -> int:
    """Return hydra.launcher.gpus: the GPUs that each job of a sweep uses, by the section `trainer`."""
    if trainer.get("accelerator") == "cpu":
        return 0
    devices = trainer.get("devices")
    return devices if isinstance(devices, int) and devices > 0 else 1


for resolver in (
    *(data_dir, run_directory, directory_name, base_name, row_folder, not_in_directories, trained_row),
    *(best_of, validation_interval, gpus_per_job),
):
    OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)
