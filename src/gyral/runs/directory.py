"""Run directories: names of their files, and reading runs. Imports no torch: `--help` stays fast."""

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from gyral.config.plain import as_config, plain_values
from gyral.config.resolvers import data_dir
from gyral.config.trust import check_names
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError, UserError
from gyral.core.files import to_json, write_atomically
from gyral.core.inputs import find_fault
from gyral.core.measures import LARGEST
from gyral.runs.data_files import WEIGHTS, content_of, data_options, files_of, has_digest, owner_of, relocate
from gyral.runs.measures import FILE as MEASURES
from gyral.runs.provenance import OVERRIDES, PROVENANCE, read_provenance
from gyral.runs.saved_files import read_config, read_json

log = logging.getLogger(__name__)

SWEEPS = "outputs/sweep"  # where the directories of sweeps are by default
CONFIG = "config.yaml"
# Sections and options that every configuration has; those that may be null are not in NOT_NULL.
SECTIONS = ("task", "model", "optimizer", "scheduler", "trainer", "callbacks", "logger")
OPTIONS = ("seed", "threads", "deterministic", "weights")
NOT_NULL = ("task", "model", "optimizer", "trainer")
DONE, FAILED = "DONE", "FAILED"
COUNTS = ("parameters", "steps")
RESULTS = ("test/loss", "test/baseline", *COUNTS)  # that every report needs; scores depend on the task
LAST_CHECKPOINT, BEST_CHECKPOINT = "checkpoints/last.ckpt", "checkpoints/best.ckpt"
CHECKPOINTS = ("best", "last")  # values of the option checkpoint
PREVIOUS_CHECKPOINT = "checkpoints/previous.ckpt"  # the last one before the last
WANDB = "wandb"
BUDGET = "trainer.max_steps"
METRICS, EXAMPLES, LOG, LOCK = "metrics.csv", "examples.txt", "train.log", ".lock"
FILES = (CONFIG, OVERRIDES, PROVENANCE, MEASURES, DONE, FAILED, METRICS, EXAMPLES, LOG, LOCK)


@dataclass(frozen=True)
class Run:
    """One run directory.

    Attributes:
        directory: the run directory.
        config: the run's configuration, resolved.
        results: the final metrics of a run that is DONE, else None.
        checkpoint: the last checkpoint, from which training resumes, or None for a fresh start.
        is_new: whether the files of the run are not written yet.
        is_longer: whether the files of the run say that it has fewer steps.
        is_saved: whether its configuration is read from its directory, where somebody else may have written it.
        given: the options of the configuration that the command gives nevertheless: the places of data that have moved.
        commits: the commits of the shorter run that a new one continues.
    """

    directory: Path
    config: DictConfig
    results: dict[str, float] | None = None
    checkpoint: Path | None = None
    is_new: bool = False
    is_longer: bool = False
    is_saved: bool = False
    given: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """The run's id in Weights & Biases, derived from its directory when it first started."""
        return str(read_provenance(self.directory).get("id") or "")

    @property
    def sweep(self) -> str | None:
        """The name of the sweep that the run is a job of, see `sweep_name`, or None."""
        return read_provenance(self.directory).get("sweep")

    def check_data(self) -> None:
        """Check that the data that the configuration names are those with which the run has started.

        A line says which of them `foreign_data` returns, before they are read.

        Raises:
            OptionError: an option names other data, or no file.
        """
        values = plain_values(self.config)
        for key, digest in self._digests().items():
            owner, name = owner_of(values, key)
            # a run that has started needs the weights of another run no longer
            has_started = self.checkpoint is not None or self.results is not None
            if owner is None or owner[name] is None or (key == WEIGHTS and has_started):
                continue
            if not has_digest(content := content_of(key, owner[name]), digest):
                known = f"whose SHA-256 is {digest[:16]}…"
                fault = f"does not exist; the run in {self.directory} was trained on these data, {known}"
                if content:
                    fault = f"has another content than the data of the run in {self.directory}, {known}"
                raise OptionError(key, owner[name], f"{fault}; name their place by {key}=<path>")
        for key, value in self.foreign_data().items():
            said = f"named by the configuration in {self.directory}, not by you; its text is not logged"
            log.warning("%s=%s: %s", key, value, said)

    def foreign_data(self) -> dict[str, Any]:
        """Return the options that name data which the author of a saved run need not have had, by key.

        A run has digests of its data, so that its author had them. Without a digest, data in the run directory, in the
        data directory and below the working directory count as those of the run. The home directory is not a working
        directory: everything is below it.
        """
        if not self.is_saved:
            return {}
        here, home = Path.cwd(), Path(os.path.expanduser("~")).resolve()
        own = [self.directory.resolve(), Path(data_dir()).resolve(), *(() if home.is_relative_to(here) else (here,))]
        return {
            key: value
            for key, value in data_options(plain_values(self.config)).items()
            if key not in (*self._digests(), *self.given)
            and not all(any(file.resolve().is_relative_to(place) for place in own) for _, file in files_of(value))
        }

    def has_data(self) -> bool:
        """Return whether the data with which the run has started exist, whatever their contents."""
        values = plain_values(self.config)
        owners = {key: owner_of(values, key) for key in self._digests() if key != WEIGHTS}
        return all(not (owner and owner[name]) or content_of(key, owner[name]) for key, (owner, name) in owners.items())

    def has_other_content(self, key: str, place: str) -> bool:
        """Return whether an option of the run's data has a digest, and an existing place has other contents."""
        return key in self._digests() and bool(files := files_of(place)) and not has_digest(files, self._digests()[key])

    def _digests(self) -> dict[str, str]:
        """Return the digests of the data with which the run has started; a run of an earlier version has none."""
        has_origin = (self.directory / PROVENANCE).is_file()
        return (read_provenance(self.directory).get("data") or {}) if has_origin else {}

    def finish(self, results: dict[str, Any]) -> None:
        """Mark the run as DONE, with its final metrics."""
        write_atomically(self.directory / DONE, to_json(results, 2) + "\n")


def load_run(directory: Path, trust: Any = None, option: str = "run") -> Run:
    """Return the run in a directory, whose configuration may be instantiated.

    Args:
        directory: the run directory.
        trust: the modules besides Gyral's own whose classes the configuration may name, see `gyral.config.trust`.
        option: the option that gives the directory, for errors.

    Raises:
        UserError: the directory is not a run directory, or its configuration is damaged or names untrusted modules.
    """
    if not (directory / CONFIG).is_file():
        raise OptionError(option, directory, f"must be a run directory, one that holds {CONFIG}")
    check_links(directory, option)
    run = read_saved_run(directory)
    check_saved_config(plain_values(run.config), directory, option, trust, directory / CONFIG)
    return replace(run, is_saved=True)


def places_of_data(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options among others that name the place of data: those of the task."""
    return {key: value for key, value in given.items() if key.startswith("task.")}


def with_data_at(run: Run, places: Mapping[str, str]) -> Run:
    """Return a saved run whose data are at other places.

    Args:
        run: the run.
        places: paths by the keys of the options that name data, such as `task.corpus.path`.

    Raises:
        OptionError: an option that is not a data file of the run.
    """
    if not places:
        return run
    values = plain_values(run.config)
    relocate(values, places)
    return replace(run, config=as_config(values), given=tuple(places))


def check_saved_config(
    config: dict[str, Any], origin: Path, option: str, trust: Any = None, file: Path | None = None
) -> None:
    """Check that a saved configuration may be instantiated, before anything is imported.

    Args:
        config: the configuration, as plain containers.
        origin: the run directory, or the checkpoint.
        option: the option that gives it, for errors.
        trust: as for `load_run`.
        file: the file that contains it. None: `origin`.

    Raises:
        UserError: it names an untrusted module, or lacks a section.
    """
    check_names(config, option, origin, trust)
    check_sections(config, file or origin)


def check_sections(config: dict[str, Any], file: Path) -> None:
    """Raise `UserError` if a saved configuration lacks a section or an option that every run has."""
    for key in (*SECTIONS, *OPTIONS):
        value = config.get(key)
        if key not in config or (key in SECTIONS and not isinstance(value, dict) and (key in NOT_NULL or value)):
            raise UserError(f"{file}: has no {'section' if key in SECTIONS else 'option'} {key}")


def check_links(directory: Path, option: str) -> None:
    """Raise `OptionError` if a link in a run directory leads out of it: a run that writes there changes other files.

    Links within the directory are allowed. The folder of Weights & Biases is left out: it has links to logs elsewhere,
    and W&B replaces links instead of writing through them. Pipes and devices are refused, too: a
    run that reads or writes one never ends.
    """
    own = directory.resolve()
    for folder, folders, files in os.walk(directory):
        if Path(folder).name == WANDB and Path(folder) != directory:  # a run may have this name, too
            folders.clear()
            continue
        for path in (Path(folder, name) for name in (*folders, *files)):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(own):
                reason = f"{path.relative_to(directory)} is a link to a place outside, and a run would write there"
                raise OptionError(option, directory, reason)
            must_be_file = path.parent == directory and path.name in FILES
            fault = find_fault(path) if must_be_file or (path.exists() and not path.is_dir()) else None
            if fault is not None:
                raise OptionError(option, directory, f"{path.relative_to(directory)} {fault}")


def read_saved_run(directory: Path) -> Run:
    """Return the run in a directory. Its configuration may come from somebody else and name anything.

    Raises:
        UserError: a file is damaged.
    """
    config = read_config(directory / CONFIG)
    check_sections(config, directory / CONFIG)
    results = read_results(directory) if os.path.lexists(directory / DONE) else None
    return Run(directory, as_config(config), results, find_checkpoint(directory))


def find_checkpoint(directory: Path) -> Path | None:
    """Return the path of the last checkpoint, from which training resumes, or None if a run has none.

    If only the previous checkpoint exists, it takes the place of the last one before training resumes.
    """
    exists = any((directory / name).is_file() for name in (LAST_CHECKPOINT, PREVIOUS_CHECKPOINT))
    return directory / LAST_CHECKPOINT if exists else None


def choose_checkpoint(run_directory: Path, name: str, option: str = "run") -> Path:
    """Return the path of a run's "best" or "last" checkpoint; the last one if there is no best one.

    Args:
        run_directory: the run directory.
        name: "best" or "last".
        option: the option that gives the directory, for errors.

    Raises:
        UserError: another name, or the run has no checkpoint.
    """
    check_choice("checkpoint", name, CHECKPOINTS)
    candidates = [LAST_CHECKPOINT] if name == "last" else [BEST_CHECKPOINT, LAST_CHECKPOINT]
    for candidate in candidates:
        if (run_directory / candidate).is_file():
            return run_directory / candidate
    if not run_directory.is_dir():
        raise OptionError(option, run_directory, "must be a run directory")
    raise OptionError(option, run_directory, "has no checkpoint; it was stopped before its first one")


def checkpoint_of_weights(weights: Any) -> Path:
    """Return the path of the checkpoint with which a new run starts, by the option `weights`, a run directory.

    Raises:
        OptionError: the value is not a run directory, or the run has no checkpoint.
    """
    if not isinstance(weights, str):
        raise OptionError("weights", weights, "must be a run directory")
    return choose_checkpoint(Path(weights), "best", "weights")


def read_results(directory: Path) -> dict[str, Any]:
    """Return the final metrics of a run that is DONE; a metric that was not measured is None.

    Raises:
        UserError: the file is damaged.
    """
    path = directory / DONE
    results = read_json(path, dict[str, float | None])
    try:
        return {"monitor": None, **check_results(str(path), results, ("monitor", *RESULTS))}
    except UserError as error:
        raise UserError(f"{error}; without this file, the run is tested again") from None


def check_results(where: str, results: Mapping[str, float | None], needed: Sequence[str] = RESULTS) -> dict[str, float]:
    """Return the metrics of a run, NaN for a metric that is not a number; `monitor` is missing without a validation.

    Args:
        where: the start of the message of an error.
        results: the metrics as they are written, with null for a number that is not finite.
        needed: the metrics that must be there.

    Raises:
        UserError: one of them is not there, or is a count without a number.
    """
    numbers = {
        name: value if value is not None and abs(value) <= LARGEST else math.nan
        for name, value in results.items()
        if name != "monitor" or (value is not None and math.isfinite(value))
    }
    missing = [name for name in needed if name not in results or (name in COUNTS and math.isnan(numbers[name]))]
    if missing:
        raise UserError(f"{where}: metric {', '.join(missing)} is missing")
    return numbers


def saved_values(config: DictConfig) -> dict[str, Any]:
    """Return the plain values of a configuration, without the options `resume` and `trust`."""
    return {key: value for key, value in plain_values(config).items() if key not in ("resume", "trust")}


def resolve(config: DictConfig) -> DictConfig:
    """Return a copy with every interpolation replaced by its value, without the options `resume` and `trust`."""
    return as_config(saved_values(config))
