"""Search over options by Optuna: sweep=tune. Imports no torch, and Optuna only where a search runs.

Hydra's Optuna plugin is not used: it needs Optuna 2.10 of 2021, cannot prune, and numbers its jobs anew in each call,
so that a search that goes on writes over its own runs. Here a job's number is its trial's, and so its run directory.
"""

import csv
import fcntl
import json
import logging
import math
import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich import box
from rich.console import Console
from rich.table import Table

from gyral import runs
from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.extras import import_extra
from gyral.sweeps.grid import Search, SweepError, values_of
from gyral.sweeps.launchers import Finished, Slurm

log = logging.getLogger(__name__)

HOPELESS = 5  # trials that may fail before the first succeeds
SHOWN = 10  # trials in the table
SUMMARY, TRIALS = "summary.json", "trials.csv"
PRUNED, REASON, SETTINGS = "pruned", "reason", "settings"  # attributes of a trial, of a trial and of a study


class Tune(Search):
    """Trials of options that Optuna chooses.

    Args:
        params: what is searched, by key, in Hydra's grammar: interval(a,b), int(interval(a,b)), both also within
            tag(log,…), range(a,b,step), or a list of values. The command line's go before, and a single value there
            takes a key out of the search.
        n_trials: in all: a search that is started again goes on until there are as many.
        storage: URL of Optuna's storage.
        study: name in the storage; None for the sweep's directory.
        sampler: node of a class of optuna.samplers, without its seed.
        pruner: node of a class of optuna.pruners, None for none.
        seed: of the sampler.

    Raises:
        OptionError: Optuna is not installed, or a value that is not allowed.
    """

    def __init__(
        self,
        params: dict[str, Any] | None,
        n_trials: int,
        storage: str,
        study: str | None,
        sampler: DictConfig,
        pruner: DictConfig | None,
        seed: int,
    ) -> None:
        super().__init__(params)
        import_extra("optuna", "sweep=tune", "tune")
        self.n_trials = check_integer("hydra.sweeper.n_trials", n_trials)
        self.seed = check_integer("hydra.sweeper.seed", seed, minimum=0)
        self.storage, self.study_name, self.sampler, self.pruner = storage, study, sampler, pruner

    def sweep(self, arguments: list[str]) -> float:
        """Run the trials that are still to be run; return the best value.

        Raises:
            OptionError: an axis or option that is not allowed, or a directory that holds another search.
            SweepError: no trial succeeded.
        """
        overrides = self.overrides(arguments)
        axes = {key: override for key, override in overrides.items() if override.is_sweep_override()}
        fixed = [f"{key}={values_of(override)[0]}" for key, override in overrides.items() if key not in axes]
        config = self.hydra_context.config_loader.load_sweep_config(self.config, fixed)
        given = {argument.partition("=")[0] for argument in arguments}
        for key in [key for key in axes if key not in given and not exists(config, key)]:
            log.info("%s is no option here and is not searched", key)
            del axes[key]
        if not axes:
            raise OptionError("sweep=tune: nothing to search; give an axis, optimizer.lr=tag(log,interval(0.0001,0.1))")
        if isinstance(self.launcher, Slurm) and self.launcher.n_jobs is None:
            raise OptionError("hydra.launcher.n_jobs=null: must be a number of trials at once for a search by slurm")
        distributions = {key: distribution_of(override) for key, override in axes.items()}
        first = [f"{key}={as_text(bounds(distribution)[0])}" for key, distribution in distributions.items()]
        self.validate_batch_is_legal([[*fixed, *first]])
        self.directory.mkdir(parents=True, exist_ok=True)
        with locked(self.directory):
            study = self.open_study(config, list(axes))
            self.run_trials(study, fixed, distributions)
            return self.summarize(study, fixed, config)

    def open_study(self, config: DictConfig, searched: list[str]) -> Any:
        """Return the study in the storage, a new one if there is none.

        Raises:
            OptionError: the storage cannot be opened, or the study is of other options.
        """
        import optuna

        quiet_optuna()
        name = self.study_name or str(self.directory)
        try:
            storage = open_storage(self.storage)
            names = optuna.get_all_study_names(storage)
            known = optuna.load_study(study_name=name, storage=storage).trials if name in names else []
            study = optuna.create_study(
                study_name=name,
                storage=storage,
                sampler=made(self.sampler, "sampler", seed=self.seed + len(known)),  # and not the same numbers again
                pruner=made(self.pruner, "pruner"),
                direction="maximize" if config.task.mode == "max" else "minimize",
                load_if_exists=True,
            )
        except OptionError:
            raise
        except Exception as error:
            reason = " ".join(str(error.__cause__ or error).split("\n")[0].split())
            raise OptionError(f"hydra.sweeper.storage={self.storage}: cannot be used: {reason}") from error
        ours = runs.resolve(strip(config))
        settings = {key: str(value) for key, value in runs._identity(ours).items() if key not in searched}
        settings["searched"] = ", ".join(sorted(searched))
        former = study.user_attrs.get(SETTINGS)
        if former is None:
            study.set_user_attr(SETTINGS, settings)
        elif difference := runs.first_difference(former, settings):
            raise OptionError(
                f"hydra.sweep.dir={self.directory}: holds a search with other options ({difference}); choose another"
            )
        if known:
            log.info("Going on with %s: %d of %d trials", self.directory, len(known), self.n_trials)
        return study

    def run_trials(self, study: Any, fixed: list[str], distributions: dict[str, Any]) -> None:
        """Run the trials that were stopped, then new ones, and tell Optuna how they ended."""
        from optuna.trial import TrialState

        under_way = {trial.number: trial for trial in study.get_trials(states=[TrialState.RUNNING])}
        total = max(0, self.n_trials - len(study.trials)) + len(under_way)

        def jobs() -> Iterator[tuple[int, list[str]]]:
            for trial in list(under_way.values()):
                yield trial.number, [*fixed, *told(trial.params)]
            while len(study.trials) < self.n_trials and not hopeless(study):
                trial = study.ask(distributions)
                under_way[trial.number] = trial
                yield trial.number, [*fixed, *told(trial.params)]

        for finished in self.conduct(jobs(), total, raises=False):
            tell(study, finished)

    def summarize(self, study: Any, fixed: list[str], config: DictConfig) -> float:
        """Print the best trials and what mattered, write both and all trials to files; return the best value."""
        from optuna.importance import get_param_importances
        from optuna.trial import TrialState

        trials = study.get_trials()
        with (self.directory / TRIALS).open("w", newline="") as file:
            keys = sorted({key for trial in trials for key in trial.params})
            writer = csv.writer(file)
            writer.writerow(["trial", "state", config.task.monitor, *keys, "reason"])
            for trial in trials:
                values = [trial.params.get(key, "") for key in keys]
                reason = trial.user_attrs.get(REASON, "")
                writer.writerow([trial.number, trial.state.name, last_value(trial), *values, reason])
        complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        counts = {state.name.lower(): sum(trial.state == state for trial in trials) for state in TrialState}
        if not complete:
            raise SweepError(f"none of {len(trials)} trials succeeded, see above and {self.directory / TRIALS}")
        importances = get_param_importances(study) if len(complete) > 1 else {}
        best = study.best_trial
        own = [override for override in fixed if not override.startswith(("sweep=", "launcher=", "hydra.", "+hydra."))]
        command = ["python", "-m", "src.train", *own, *told(best.params)]
        summary = {
            "monitor": config.task.monitor,
            "best": {"trial": best.number, "value": best.value, "params": best.params, "command": command},
            "importances": importances,
            "trials": {name: count for name, count in counts.items() if count},
        }
        runs.write_atomically(self.directory / SUMMARY, json.dumps(summary, indent=2) + "\n")
        print_summary(summary, sorted(complete, key=lambda trial: trial.value, reverse=config.task.mode == "max"))
        print(f"All trials: {self.directory / TRIALS}\nThe best: {shlex.join(command)}")
        return float(best.value)


def made(node: DictConfig | None, name: str, **options: Any) -> Any:
    """Return what a node of the sweeper's stands for, Optuna's own that does nothing for none.

    Raises:
        OptionError: it stands for nothing, or has an option that is not allowed.
    """
    import optuna

    if node is None:
        return optuna.pruners.NopPruner()
    try:
        return instantiate(node, **options)
    except Exception as error:
        reason = " ".join(str(error).split("\n")[0].split())
        raise OptionError(f"hydra.sweeper.{name}={node.get('_target_')}: {reason}") from error


def exists(config: DictConfig, key: str) -> bool:
    """Return whether a configuration has a key, with whatever value."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else config
    return isinstance(node, DictConfig) and name in node


def strip(config: DictConfig) -> DictConfig:
    """Return a copy without Hydra's own section."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def distribution_of(override: Override) -> Any:
    """Return Optuna's distribution of an axis.

    Raises:
        OptionError: it is none.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    axis = override.value()
    try:
        if isinstance(axis, IntervalSweep):
            whole = isinstance(axis.start, int) and isinstance(axis.end, int)
            number: Any = IntDistribution if whole else FloatDistribution
            return number(axis.start, axis.end, log="log" in axis.tags)
        if isinstance(axis, RangeSweep) and all(isinstance(end, int) for end in (axis.start, axis.stop, axis.step)):
            values = range(int(axis.start or 0), int(axis.stop or 0), int(axis.step))
            return IntDistribution(values[0], values[-1], step=values.step)
        return CategoricalDistribution(values_of(override))
    except (ValueError, IndexError) as error:
        raise OptionError(f"{override.input_line}: cannot be searched: {error}") from None


def bounds(distribution: Any) -> tuple[Any, Any]:
    """Return the first and the last value of a distribution."""
    ends = getattr(distribution, "choices", None) or (distribution.low, distribution.high)
    return ends[0], ends[-1]


def as_text(value: Any) -> str:
    """Return a value as it stands on the command line."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def told(params: dict[str, Any]) -> list[str]:
    """Return the overrides of a trial."""
    return [f"{key}={value}" for key, value in params.items()]


def hopeless(study: Any) -> bool:
    """Return whether so many trials have failed, and none succeeded, that the rest will fail, too."""
    from optuna.trial import TrialState

    ended = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL])
    return len(ended) >= HOPELESS and all(trial.state == TrialState.FAIL for trial in ended)


def tell(study: Any, finished: Finished) -> None:
    """Tell Optuna how a trial ended."""
    from optuna.trial import TrialState

    number, value = finished.job.number, finished.value
    trial = study.trials[number]
    reason = str(finished.error) if finished.error else None
    if not reason and not (isinstance(value, int | float) and math.isfinite(value)):
        reason = f"{finished.job.config.task.monitor} is {value}, which is no finite number"
        log.warning("Trial %d counts as failed: %s", number, reason)
    if reason:
        study._storage.set_trial_user_attr(trial._trial_id, REASON, reason)
        study.tell(number, state=TrialState.FAIL)
    elif trial.user_attrs.get(PRUNED):
        study.tell(number, state=TrialState.PRUNED)
    else:
        study.tell(number, float(value))


def last_value(trial: Any) -> float | str:
    """Return what a trial came to: its value, or the last one that was reported."""
    if trial.value is not None:
        return trial.value
    return trial.intermediate_values[max(trial.intermediate_values)] if trial.intermediate_values else ""


def print_summary(summary: dict[str, Any], complete: list[Any]) -> None:
    """Print the best trials and the importances of what was searched."""
    console = Console()
    keys = list(complete[0].params)
    table = Table("trial", summary["monitor"], *keys, box=box.SQUARE, title="Best trials")
    for trial in complete[:SHOWN]:
        table.add_row(str(trial.number), f"{trial.value:.6g}", *(as_text(trial.params[key]) for key in keys))
    console.print(table)
    if summary["importances"]:
        table = Table("option", "importance", box=box.SQUARE, title="How much each mattered (fANOVA)")
        for key, share in summary["importances"].items():
            table.add_row(key, f"{share:6.1%} {'█' * round(20 * share)}")
        console.print(table)
    print("Trials:", ", ".join(f"{count} {name}" for name, count in summary["trials"].items()))


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep a second search out of a directory.

    Raises:
        OptionError: there is one.
    """
    with (directory / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OptionError(f"hydra.sweep.dir={directory}: another search is running there") from None
        yield


def quiet_optuna() -> None:
    """Keep Optuna's notes out of the terminal: what it would say, the sweeper and the log say."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def open_storage(url: str) -> Any:
    """Return a storage that many processes may use at once."""
    import optuna

    patience = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}  # seconds for another's write
    return optuna.storages.RDBStorage(url, engine_kwargs=patience)


class Reporter:
    """What a trial's run says to Optuna while it runs, in the process where it runs."""

    def __init__(self) -> None:
        import optuna

        quiet_optuna()
        config = HydraConfig.get()
        sweeper = config.sweeper
        name = sweeper.study or str(Path(str(config.sweep.dir)))
        storage = open_storage(sweeper.storage)
        study = optuna.load_study(study_name=name, storage=storage, pruner=made(sweeper.pruner, "pruner"))
        self.trial = optuna.trial.Trial(study, study.trials[config.job.num]._trial_id)
        self.reported = set(study.trials[config.job.num].intermediate_values)

    def should_prune(self, step: int, value: float) -> bool:
        """Report a value; return whether the trial is not worth going on."""
        if step not in self.reported and math.isfinite(value):
            self.reported.add(step)
            self.trial.report(value, step)
        prune = self.trial.should_prune()
        if prune:
            self.trial.set_user_attr(PRUNED, True)
        return prune


def reporter() -> Reporter | None:
    """Return what reports to the search that this run is a trial of, None for any other run."""
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        return None
    return Reporter() if "n_trials" in (HydraConfig.get().sweeper or {}) else None
