"""Search over options by Optuna: sweep=tune. Imports no torch, and Optuna only if a search runs.

Gyral does not use Hydra's Optuna plugin: it needs Optuna 2.10 of 2021, cannot prune, and numbers its jobs from 0 in
each call, so that a search that is started again overwrites its own runs. Here the number of a job, and so its run
directory, is the number of its trial.
"""

import logging
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, read_write
from rich import box
from rich.table import Table

from gyral.config.overrides import quote
from gyral.config.plain import plain_values
from gyral.config.roles import determining, first_difference, identity_of
from gyral.core.checks import check_integer
from gyral.core.commands import program, typed
from gyral.core.console import Console
from gyral.core.errors import OptionError, SweepError, UserError, hide_passwords, printable
from gyral.core.extras import import_extra
from gyral.core.files import csv_line, to_json, write_atomically
from gyral.core.locks import lock_file
from gyral.core.measures import Measure, percent, printed
from gyral.runs.directory import check_links, resolve
from gyral.runs.measures import read_measures
from gyral.runs.trial import PRUNED, instantiate_optuna, open_storage, quiet_optuna, trial_of
from gyral.sweeps import cma_states, larger_space
from gyral.sweeps.grid import BaseSweeper, values_of
from gyral.sweeps.larger_space import REASON
from gyral.sweeps.launchers.base import FinishedJob
from gyral.sweeps.launchers.slurm import Slurm
from gyral.sweeps.ownership import Ownership, directory_of, read_id, study_of
from gyral.sweeps.space import as_text, belongs_to, distribution_of, first_value
from gyral.sweeps.storage import check_storage, storage_errors, storage_for_jobs, url_of_file

log = logging.getLogger(__name__)

MAX_INITIAL_FAILURES = 5  # the search ends if this many trials fail and none succeeds
POLL = 2.0  # seconds between two looks at the trials of other searches
SHOWN = 10  # trials in the table
SUMMARY, TRIALS = "summary.json", "trials.csv"
NOT_OF_SEARCH = "Trial %s has options or values that are not of this search; it is not run"
SETTINGS = "settings"  # user attribute of a study


class Tune(BaseSweeper):
    """Runs trials with options that Optuna chooses.

    Args:
        params: the search space by key, in Hydra's grammar: interval(a,b), int(interval(a,b)), both also within
            tag(log,…), range(a,b,step), or a list of values. Axes on the command line replace them; a single value
            there excludes a key from the search.
        n_trials: total number of trials of the study; a search that is started again runs only those that are missing.
        storage: URL of Optuna's storage; None: study.db in the sweep's directory. No file has the URL's password.
        study: name of the study in the storage; None: the sweep's directory. Several searches may share a study.
        sampler: node of a class of optuna.samplers, without its seed.
        pruner: node of a class of optuna.pruners; None: no pruning.
        seed: seed of the sampler.
        together: must be empty; it is an option of sweeps over all combinations.

    Raises:
        UserError: Optuna is not installed.
        OptionError: a value is not allowed.
    """

    def __init__(
        self,
        params: dict[str, Any] | None,
        n_trials: int,
        storage: str | None,
        study: str | None,
        sampler: DictConfig,
        pruner: DictConfig | None,
        seed: int,
        together: Sequence[Any] = (),
    ) -> None:
        super().__init__(params)
        if together:
            raise OptionError(
                "hydra.sweeper.together", list(together), "must be [] for a search, which draws each option"
            )
        import_extra("optuna", "sweep=tune", "tune")
        self.n_trials = check_integer("hydra.sweeper.n_trials", n_trials)
        self.seed = check_integer("hydra.sweeper.seed", seed, minimum=0)
        self.given_url, self.study_name, self.sampler, self.pruner = storage, study, sampler, pruner

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Prepare the search; the command line and the configurations of its jobs show no password."""
        option, directory = "hydra.sweeper.storage=", Path(str(config.hydra.sweep.dir))
        self.url = url_of_file(directory / "study.db") if self.given_url is None else self.given_url
        check_storage(self.url)
        self.storage = hide_passwords(self.url)  # to be shown
        self.study_name = self.study_name or self.study_of_directory(directory)
        with read_write(config):
            given = [word for word in config.hydra.overrides.hydra if not word.lstrip("+").startswith(option)]
            # fixed, because a job may run in the directory of another search
            own = [quote(f"{option}{self.storage}"), quote(f"hydra.sweeper.study={self.study_name}")]
            config.hydra.overrides.hydra = [*given, *own]
            config.hydra.sweeper.storage = self.storage
        sys.argv[:] = [hide_passwords(word) if word.lstrip("+").startswith(option) else word for word in sys.argv]
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)

    def study_of_directory(self, directory: Path) -> str:
        """Return the name of the study of the search in a directory, which may have been moved since it began."""
        check_links(directory, "hydra.sweep.dir")
        if read_id(directory) is None:
            return str(directory)
        with storage_errors(self.storage):
            quiet_optuna()
            found = study_of(directory, open_storage(self.url)) or str(directory)
        return found.removesuffix(larger_space.COPY)  # of a search that was killed while its study was replaced

    def sweep(self, arguments: list[str]) -> float:
        """Run the missing trials; return the best value.

        Raises:
            OptionError: an axis or option is not allowed, or the directory holds another search.
            SweepError: no trial succeeded.
        """
        overrides = self.overrides(arguments)
        axes = {key: override for key, override in overrides.items() if override.is_sweep_override()}
        fixed = [f"{key}={values_of(override)[0]}" for key, override in overrides.items() if key not in axes]
        config = self.hydra_context.config_loader.load_sweep_config(self.config, fixed)
        given = {argument.partition("=")[0] for argument in arguments}
        for key in [key for key in axes if key not in given and not exists(config, key)]:
            log.info("%s is not an option of this configuration and is not searched", key)
            del axes[key]
        if not axes:
            example = "optimizer.lr=tag(log,interval(0.0001,0.1))"
            raise OptionError("sweep", "tune", f"nothing to search; give at least one axis, such as {example}")
        if isinstance(self.launcher, Slurm) and self.launcher.n_jobs is None:
            reason = "must be a number of simultaneous trials if a search uses launcher=slurm"
            raise OptionError("hydra.launcher.n_jobs", "null", reason)
        distributions = {key: distribution_of(override) for key, override in axes.items()}
        first = [f"{key}={as_text(first_value(distribution))}" for key, distribution in distributions.items()]
        self.validate_batch_is_legal([[*fixed, *first]])
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            lock = lock_file(self.directory / ".lock")
        except BlockingIOError:
            raise OptionError("hydra.sweep.dir", self.directory, "another search is running there") from None
        with lock, storage_for_jobs(self.url):
            with storage_errors(self.storage):
                study = self.open_study(config, distributions)
            self.run_trials(study, fixed, distributions)
            with storage_errors(self.storage):
                return self.summarize(study, fixed, config, distributions)

    def open_study(self, config: DictConfig, distributions: dict[str, Any]) -> Any:
        """Return the study in the storage; create it if it does not exist.

        Raises:
            OptionError: the storage cannot be opened, or the study has other options.
        """
        import optuna
        from optuna.trial import TrialState

        quiet_optuna()
        self.opened = open_storage(self.url)
        larger_space.restore(str(self.study_name), self.opened)
        study = optuna.create_study(
            study_name=self.study_name,
            storage=self.opened,
            pruner=instantiate_optuna(self.pruner, "hydra.sweeper.pruner"),
            direction="maximize" if config.task.mode == "max" else "minimize",
            load_if_exists=True,
        )
        known = len(study.trials)
        own = plain_values(resolve(OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])))
        settings = {key: str(value) for key, value in identity_of(own).items() if key not in distributions}
        settings["searched"] = ", ".join(sorted(distributions))
        saved = study.user_attrs.get(SETTINGS)
        if saved is None:
            study.set_user_attr(SETTINGS, settings)
            saved = settings
        if not isinstance(saved, dict):
            reason = f"has a study {self.study_name} that Gyral did not make"
            raise OptionError("hydra.sweeper.storage", self.storage, reason)
        if difference := first_difference(determining(saved), determining(settings)):
            reason = f"holds a search with other options ({difference}); choose another directory"
            raise OptionError("hydra.sweep.dir", self.directory, reason)
        self.owned = Ownership(study, self.opened, self.directory)
        study = larger_space.continue_with(study, self.opened, self.owned, distributions, self.directory, self.n_trials)
        self.owned.study = study
        cma_states.use_json()
        # neither a search that is started again nor one of several must draw the numbers of another
        seed = self.seed + known + (0 if self.owned.is_alone else self.owned.id)
        study.sampler = instantiate_optuna(self.sampler, "hydra.sweeper.sampler", seed=seed % 2**32)
        for trial in study.trials:
            if trial.state == TrialState.RUNNING and not belongs_to(trial, distributions):
                log.warning(NOT_OF_SEARCH, trial.number)
        if known:
            log.info("Resuming %s: %d of %d trials", self.directory, min(known, self.n_trials), self.n_trials)
        return study

    def run_trials(self, study: Any, fixed: list[str], distributions: dict[str, Any]) -> None:
        """Run the trials that were stopped, then new ones, and report to Optuna how they ended.

        The trials that other searches run are waited for. Those whose search has ended are run, too.
        """

        def jobs() -> Iterator[tuple[int, list[str]]]:
            while True:
                with storage_errors(self.storage):
                    job = self.next_job(study, fixed, distributions)
                if job is None:
                    return
                yield job

        with self.owned.renewed():
            while True:
                with storage_errors(self.storage):
                    total = self.count_left(study, distributions)
                for finished in self.run_jobs(jobs(), total, fixed, raises=False):
                    with storage_errors(self.storage):
                        report_end(study, finished)
                        self.owned.end(finished.job.number)
                if not self.wait_for_others(study, distributions):
                    return

    def next_job(self, study: Any, fixed: list[str], distributions: dict[str, Any]) -> tuple[int, list[str]] | None:
        """Return the number and the overrides of the next trial, or None if there is none to run."""
        from optuna.trial import TrialState

        while self.count_left(study, distributions) and not only_failures(study):
            ids = {known.number: known._trial_id for known in study.get_trials(deepcopy=False)}
            trial = study.ask(distributions)
            is_taken = ids.get(trial.number, trial._trial_id) != trial._trial_id
            if is_taken or (trial.number in ids and trial.number >= self.n_trials):
                study.tell(trial, state=TrialState.FAIL)  # Optuna counts trials, and their numbers have gaps here
                continue
            if trial.number >= self.n_trials:  # another search has started the last one at the same moment
                self.owned.give_up(trial.number)
                continue
            frozen = trial_of(study, trial.number)
            if not belongs_to(frozen, distributions):  # somebody else has put it into the queue
                log.warning(NOT_OF_SEARCH, trial.number)
                study.tell(trial.number, state=TrialState.FAIL)
                continue
            self.owned.take(trial.number)
            directory = directory_of(frozen)  # of the search that has started the trial
            is_own = directory is None or directory == self.directory.resolve()
            there = [] if is_own else [quote(f"hydra.sweep.dir={directory}")]
            return trial.number, [*fixed, *overrides_of(trial.params), *there]
        return None

    def count_left(self, study: Any, distributions: dict[str, Any]) -> int:
        """Return the number of trials that no search runs or has run."""
        from optuna.trial import TrialState

        self.owned.release_stopped(lambda trial: belongs_to(trial, distributions))
        trials = study.get_trials(deepcopy=False)
        waiting = [trial for trial in trials if trial.state == TrialState.WAITING and trial.number < self.n_trials]
        return max(0, self.n_trials - len(trials)) + len(waiting)

    def wait_for_others(self, study: Any, distributions: dict[str, Any]) -> bool:
        """Wait for the trials that other searches run; return whether a search has ended and has left one."""
        from optuna.trial import TrialState

        is_announced = False
        while not only_failures(study):
            with storage_errors(self.storage):
                if self.count_left(study, distributions):
                    return True
                states = study.get_trials(deepcopy=False, states=[TrialState.RUNNING])
            running = [trial for trial in states if belongs_to(trial, distributions) and trial.number < self.n_trials]
            if not running:
                return False
            if not is_announced:
                numbers = ", ".join(str(trial.number) for trial in running)
                log.info("Waiting for trials that other searches run: %s (Ctrl-C ends this search)", numbers)
            is_announced = True
            time.sleep(POLL)
        return False

    def summarize(self, study: Any, fixed: list[str], config: DictConfig, distributions: dict[str, Any]) -> float:
        """Print the best trials and the importance of each option, write both to files; return the best value."""
        import optuna
        from optuna.importance import get_param_importances
        from optuna.trial import TrialState

        trials = [trial for trial in study.get_trials() if trial.number < self.n_trials or trial.state.is_finished()]
        write_trials(self.directory / TRIALS, trials, config.task.monitor)
        complete = [t for t in trials if t.state == TrialState.COMPLETE and belongs_to(t, distributions)]
        counts = {state.name.lower(): sum(trial.state == state for trial in trials) for state in TrialState}
        if not complete:
            raise SweepError(f"none of {len(trials)} trials succeeded, see above and {self.directory / TRIALS}")
        own = optuna.create_study(direction=study.direction)
        own.add_trials(complete)
        importances = get_param_importances(own) if len(complete) > 1 else {}
        complete.sort(key=lambda trial: trial.value, reverse=config.task.mode == "max")
        best = complete[0]
        given = [
            override for override in fixed if not override.startswith(("sweep=", "launcher=", "hydra.", "+hydra."))
        ]
        command = [*program("train"), *given, *overrides_of(best.params)]
        summary = {
            "monitor": config.task.monitor,
            "best": {"trial": best.number, "value": best.value, "params": best.params, "command": command},
            "importances": importances,
            "trials": {name: count for name, count in counts.items() if count},
        }
        write_atomically(self.directory / SUMMARY, to_json(summary, 2) + "\n")
        print_summary(summary, complete, measures_of_trials(complete, self.directory))
        print(f"All trials: {self.directory / TRIALS}\nThe best: {typed(command)}")
        return float(best.value)


def exists(config: DictConfig, key: str) -> bool:
    """Return whether a configuration has a key, even if its value is None."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else config
    return isinstance(node, DictConfig) and name in node


def overrides_of(params: dict[str, Any]) -> list[str]:
    """Return the overrides of a trial."""
    return [f"{key}={value}" for key, value in params.items()]


def only_failures(study: Any) -> bool:
    """Return whether `MAX_INITIAL_FAILURES` trials have failed and none has succeeded."""
    from optuna.trial import TrialState

    ended = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL])
    return len(ended) >= MAX_INITIAL_FAILURES and all(trial.state == TrialState.FAIL for trial in ended)


def report_end(study: Any, finished: FinishedJob) -> None:
    """Report to Optuna how a trial of a study ended."""
    from optuna.trial import TrialState

    number, value = finished.job.number, finished.value
    trial = trial_of(study, number)
    reason = str(finished.error) if finished.error else None
    if not reason and not (isinstance(value, int | float) and math.isfinite(value)):
        reason = f"{finished.job.config.task.monitor} is {value}, which is not a finite number"
        log.warning("Trial %d counts as failed: %s", number, reason)
    if trial.state.is_finished():
        log.warning("Another search has run trial %d, too; its result counts", number)
    elif reason:
        study._storage.set_trial_user_attr(trial._trial_id, REASON, reason)
        study.tell(number, state=TrialState.FAIL)
    elif trial.user_attrs.get(PRUNED):
        study.tell(number, state=TrialState.PRUNED)
    else:
        study.tell(number, float(value), skip_if_finished=True)


def write_trials(path: Path, trials: list[Any], monitor: str) -> None:
    """Write a CSV file with one row per trial: number, state, value, options, reason of a failure."""
    keys = sorted({key for trial in trials for key in trial.params})
    lines: list[list[Any]] = [["trial", "state", monitor, *keys, "reason"]]
    for trial in trials:
        values = [trial.params.get(key, "") for key in keys]
        reason = trial.user_attrs.get(REASON, "")
        lines.append([trial.number, trial.state.name, last_value(trial), *values, reason])
    write_atomically(path, printable("".join(map(csv_line, lines))))


def last_value(trial: Any) -> float | str:
    """Return the value of a trial, or else the last value that it reported, or else an empty string."""
    if trial.value is not None:
        return trial.value
    return trial.intermediate_values[max(trial.intermediate_values)] if trial.intermediate_values else ""


def measures_of_trials(trials: list[Any], directory: Path) -> Sequence[Measure]:
    """Return the measures of the task of the trials of a search in a directory; none if it is not on this machine."""
    for frozen in trials:
        with suppress(UserError):
            return read_measures((directory_of(frozen) or directory) / f"trial_{frozen.number}")[0]
    return ()


def print_summary(summary: dict[str, Any], complete: list[Any], measures: Sequence[Measure]) -> None:
    """Print the best trials and the importance of each option."""
    console = Console()
    keys = list(complete[0].params)
    table = Table("trial", summary["monitor"], *keys, box=box.SQUARE, title="Best trials")
    for trial in complete[:SHOWN]:
        score = printed(summary["monitor"], trial.value, measures)
        table.add_row(str(trial.number), score, *(as_text(trial.params[key]) for key in keys))
    console.print(table)
    if summary["importances"]:
        table = Table("option", "importance", box=box.SQUARE, title="Importance of each option (fANOVA)")
        for key, share in summary["importances"].items():
            table.add_row(key, f"{percent(share, 1):>7} {'█' * round(20 * share)}")
        console.print(table)
    print("Trials:", ", ".join(f"{count} {name}" for name, count in summary["trials"].items()))
