"""Sweepers: the base class, and Grid, which runs every combination of values. Imports no torch."""

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, read_write

from gyral.config.errors import describe
from gyral.config.groups import choices, find_generated_choice, load_choice
from gyral.config.overrides import combine, undefer_option, written
from gyral.config.plain import flatten
from gyral.config.roles import NOT_IN_DIRECTORIES
from gyral.config.tables import PROTOCOL, load_table
from gyral.core.commands import program, typed
from gyral.core.errors import JobError, OptionError, SweepError, UserError
from gyral.core.progress import format_seconds, line
from gyral.core.ranks import launched, refuse
from gyral.core.signals import Interrupted
from gyral.runs.directory import BUDGET, check_links
from gyral.runs.run_record import DIVERGENCE
from gyral.runs.saved_files import write_yaml
from gyral.sweeps import duration
from gyral.sweeps.checks import is_group, refuse_values, wrong_values
from gyral.sweeps.duration import Durations, finished_runs, unfinished_jobs, words_of
from gyral.sweeps.job_lines import describe_failure, describe_outcome, name_of, show_running_jobs
from gyral.sweeps.launchers.base import FinishedJob, SweepLauncher

PLAN = "multirun.yaml"  # the configuration of the sweep that was last started in a directory


class BaseSweeper(Sweeper):
    """Base class of all sweepers.

    Args:
        params: axes by key, in Hydra's grammar. Axes on the command line replace them.
    """

    hydra_context: HydraContext
    config: DictConfig
    launcher: SweepLauncher
    after_sweep: Callable[[DictConfig], None] | None
    check_options: Callable[[DictConfig, str], None] | None

    def __init__(self, params: dict[str, Any] | None = None) -> None:
        self.params = params or {}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config
        launcher = Plugins.instance().instantiate_launcher(hydra_context, task_function, config)
        if not isinstance(launcher, SweepLauncher):
            raise OptionError("hydra/launcher", type(launcher).__name__, "must be one of the choices of launcher")
        self.launcher = launcher
        self.after_sweep = getattr(task_function, "after_sweep", None)  # see `gyral.config.command_line.main`
        self.check_options = getattr(task_function, "check_options", None)
        self.durations = Durations(launcher.at_once)
        self.directory = Path(str(config.hydra.sweep.dir))
        check_links(self.directory, "hydra.sweep.dir")

    def overrides(self, arguments: list[str]) -> dict[str, Override]:
        """Return the overrides of all jobs by key; the command line replaces `params`."""
        check_launched(arguments)
        words = [f"{key}={value}" for key, value in self.params.items()] + [*map(undefer_option, arguments)]
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        return {override.get_key_element(): override for override in parser.parse_overrides(words)}

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """Return the configuration of a job, with Hydra's own section."""
        return self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))

    def run_jobs(
        self,
        jobs: Iterable[tuple[int, Sequence[str]]],
        total: int,
        shared: Collection[str] = (),
        raises: bool = True,
        is_last: bool = True,
        planned: Sequence[Sequence[str]] = (),
    ) -> Iterator[FinishedJob]:
        """Run jobs; print a line when each has ended, and one when it starts in this process; yield the outcomes.

        When all jobs have ended, call `conclude` if no other jobs follow, and list the failures.

        Args:
            jobs: the number and the overrides of each job.
            total: the number of jobs.
            shared: overrides that all jobs have, which the lines leave out.
            raises: whether failed jobs are an error.
            is_last: whether no other jobs follow.
            planned: the overrides of all jobs, as far as they are known before they start.

        Raises:
            SweepError: some jobs failed, and `raises` is True.
        """
        parallel = self.launcher.in_other_processes

        def announced() -> Iterator[tuple[int, Sequence[str]]]:
            for place, (number, overrides) in enumerate(jobs, 1):
                if not parallel:
                    print(f"Job {place} of {total}: {name_of(overrides, shared)}", flush=True)
                self.durations.begin(overrides)
                yield number, overrides

        failures: list[str] = []
        raised: BaseException | None = None
        self.durations.plan(planned, total)
        for count, finished in enumerate(self._outcomes(announced(), total, shared), 1):
            if finished.error:
                failures.append(describe_failure(finished))
            outcome = describe_outcome(finished, name_of(finished.job.overrides, shared))
            if parallel:
                print(f"{count} of {total} {outcome}", flush=True)
            else:  # the reason of a failure was printed by the job
                print(f"FAILED {finished.job.name}" if finished.error else outcome, flush=True)
            has_trained = not finished.error and not finished.was_done
            if said := self.durations.end(finished.job.overrides, finished.job.directory if has_trained else None):
                print(said, flush=True)
            yield finished
            if finished.error and not isinstance(finished.error, JobError):
                raised = raised or finished.error
        if raised is not None:  # HYDRA_FULL_ERROR=1 asks for the traceback
            raise raised
        if is_last:
            self.conclude()
        if failures:
            print("\nFailed:", *failures, sep="\n  ", file=sys.stderr)
        if failures and raises:
            failed = "1 job" if len(failures) == 1 else f"{len(failures)} jobs"
            raise SweepError(f"{failed} of {total} failed, see above; the same command retries all that are not DONE")

    def _outcomes(
        self, jobs: Iterator[tuple[int, Sequence[str]]], total: int, shared: Collection[str]
    ) -> Iterator[FinishedJob]:
        """Yield the outcomes of jobs. If the sweep is stopped, print the command that continues it."""
        ended = 0

        def running() -> dict[str, Path]:
            return {name_of(job.overrides, shared): job.directory for job in [*self.launcher.running.values()]}

        def summary() -> str:
            seconds = self.durations.remaining()
            left = "" if seconds is None else f", about {format_seconds(seconds)} left"
            return f"{ended} of {total} jobs have ended{left}"

        try:
            with show_running_jobs(running, summary) if self.launcher.in_other_processes else nullcontext():
                for finished in self.launcher.run(jobs):
                    ended += 1
                    yield finished
        except (Interrupted, KeyboardInterrupt):
            print(f"Stopped. To continue the sweep: {command_line()}", file=sys.stderr, flush=True)
            raise

    def conclude(self) -> None:
        """Print the end of the sweep; called when all jobs have ended, before failed ones are listed."""


def command_line() -> str:
    """Return the command of this process as a user types it."""
    words = list(map(undefer_option, sys.argv[1:]))
    if any(word.startswith("sweep=") for word in words):
        words = [word for word in words if word not in ("-m", "--multirun")]
    return typed([*program("train"), *words])


def check_launched(arguments: Sequence[str]) -> None:
    """Raise `UserError` in processes that a launcher has started to train one model: each would run the whole sweep."""
    place = launched()
    uses_ddp = any(word.startswith(("trainer=", "trainer.strategy=")) and "ddp" in word for word in arguments)
    if place is not None and (uses_ddp or place.launcher == "torchrun"):
        reason = f"{place.launcher} started {place.size} processes, each of which would run this sweep"
        refuse(place, UserError(f"{reason}; start it once: launcher=slurm starts the processes of each job"))


class Grid(BaseSweeper):
    """Runs every combination of the axes' values.

    Args:
        params: see `BaseSweeper`.
        choose: lists of values by key, and a `seed`. Every combination first runs with each of these values and this
            seed, and then, with its own seeds, with the values that were the best on the validation split. A key that
            the command line has is not chosen.
        together: keys whose values vary together, or a list of such lists, see `gyral.config.overrides.combine`.
    """

    def __init__(
        self,
        params: dict[str, Any] | None = None,
        choose: dict[str, Any] | None = None,
        together: Sequence[Any] = (),
    ) -> None:
        super().__init__(params)
        self.together = list(together or ())
        self.choose = dict(choose or {})

    def sweep(self, arguments: list[str]) -> None:
        if "experiment" in self.params and any(word.startswith("model=") for word in arguments):
            # a model of the user's own, by the protocol of the table
            row = self.config.hydra.runtime.choices.experiment
            table = find_generated_choice("experiment", row)
            self.params["experiment"] = row if table is None else f"{load_table(table).experiment}/{PROTOCOL}"
        given = self.overrides(arguments)
        axes_of = {key: [f"{key}={value}" for value in values_of(override)] for key, override in given.items()}
        axes, jobs = list(axes_of.values()), combine(axes_of, self.together)
        self.name_by([key for key, axis in axes_of.items() if len(axis) > 1])
        seed = f"seed={self.choose.pop('seed', 0)}"
        chosen = [
            [f"{key}={written(value)}" for value in values] for key, values in self.choose.items() if key not in given
        ]
        combinations = [tuple(word for word in job if not word.startswith("seed=")) for job in jobs]
        own = dict.fromkeys(combinations)
        trials = [(*words, *values, seed) for words, *values in product(own, *chosen)] if chosen else []
        self.check([job[:-1] for job in trials] or jobs, [*axes, *chosen])
        self.directory.mkdir(parents=True, exist_ok=True)
        write_yaml(self.directory / PLAN, self.config)
        shared = [axis[0] for axis in axes if len(axis) == 1]
        total = len(trials) + len(jobs)
        counted = f"{'1 job' if total == 1 else f'{total} jobs'} in {self.directory}"
        if trials:
            keys = ", ".join(axis[0].partition("=")[0] for axis in chosen)
            counted += f", first {len(trials)} with {seed} to choose {keys}"
        counted += self.describe_work([*trials, *jobs])
        print(counted, f", all with {' '.join(shared)}" if shared else "", sep="", flush=True)
        started = jobs
        if trials:
            outcomes = self.run_jobs(
                enumerate(trials), len(trials), shared, raises=False, is_last=False, planned=trials
            )
            best = best_values(outcomes, len(combinations[0]))
            started = [(*job, *best[own]) for job, own in zip(jobs, combinations, strict=True) if own in best]
        for _ in self.run_jobs(enumerate(started, len(trials)), len(started), shared, planned=started):
            pass
        if len(started) < len(jobs):
            counted = f"{len(jobs) - len(started)} of {len(jobs)} jobs did not start"
            raise SweepError(f"{counted}: the runs with {seed} could not choose {keys} for them, see above")

    def describe_work(self, jobs: Sequence[Sequence[str]]) -> str:
        """Return how many jobs are DONE, and about how long the others take, from measured steps or finished runs."""
        runs = finished_runs(self.directory, jobs)
        left = unfinished_jobs(jobs, self.directory, runs)
        self.durations.done = {*map(words_of, jobs)} - {*map(words_of, left)}
        done = f", {len(jobs) - len(left)} DONE" if len(left) < len(jobs) else ""
        if left and self.launcher.at_once is not None:
            steps = OmegaConf.select(self.compose(left[0]), BUDGET)
            if isinstance(steps, int) and steps * len(left) >= duration.WORTH:
                with line.show("measuring steps of the jobs"):
                    self.durations.measure(left, lambda job, s: self.launcher.measure(self.launcher.compose(0, job), s))
        if not self.durations.measured:
            self.durations.expect(runs)
        taken = self.durations.describe(left) if left else None
        return f"{done}, {taken}" if taken else done

    def name_by(self, varied: Sequence[str]) -> None:
        """Let the directories of jobs also show those of the varied options that do not name directories otherwise."""
        hidden = [str(key) for key in self.config.hydra.job.config.override_dirname.exclude_keys]
        if shown := {*varied} & {*NOT_IN_DIRECTORIES}:
            left = ",".join(key for key in hidden if key not in shown)
            word = f"hydra.job.config.override_dirname.exclude_keys=[{left}]"
            with read_write(self.config):
                self.config.hydra.overrides.hydra = [*self.config.hydra.overrides.hydra, word]

    def check(self, jobs: Sequence[Sequence[str]], axes: Sequence[Sequence[str]]) -> None:
        """Raise the error of an unknown choice or key, or of a value that is not allowed, before the first job starts.

        Several wrong values have a line each.
        """
        # each choice of a group is composed once, and so is each key of an option
        choices_or_keys = {
            word: word if is_group(axis[0]) else axis[0].partition("=")[0] for axis in axes for word in axis
        }
        validated: set[str] = set()
        composed: dict[tuple[str, ...], DictConfig] = {}
        for number, job in enumerate(jobs, 1):
            checked = [choices_or_keys[word] for word in job]
            if not validated.issuperset(checked):
                validated.update(checked)
                try:
                    composed[tuple(job)] = self.compose(job)
                except ConfigCompositionException as error:
                    refusal = explain_refusal(error, number, len(jobs), job, axes)
                    if refusal is error:
                        raise  # with its own cause, from which `describe` makes the line
                    raise refusal from error
        if self.check_options is not None:
            refuse_values(wrong_values(jobs, composed, self.compose, self.check_options))

    def conclude(self) -> None:
        if self.after_sweep is not None:
            self.after_sweep(self.config)


def best_values(trials: Iterable[FinishedJob], count: int) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return, by the first `count` overrides of trials, those that follow them in the best trial, without its seed.

    A trial that has diverged is not the best. One that failed otherwise could be, so nothing is chosen without it.
    """
    best: dict[tuple[str, ...], tuple[float, tuple[str, ...]]] = {}
    missing = set()
    for trial in trials:
        words = tuple(trial.job.overrides)
        if trial.error is not None and DIVERGENCE not in str(trial.error):
            missing.add(words[:count])
        elif trial.error is None and trial.value is not None and math.isfinite(trial.value):
            cost = -trial.value if trial.job.config.task.mode == "max" else trial.value
            best[words[:count]] = min(best.get(words[:count], (math.inf, ())), (cost, words[count:-1]))
    return {own: values for own, (_, values) in best.items() if own not in missing}


def explain_refusal(
    error: Exception, number: int, total: int, job: Sequence[str], axes: Sequence[Sequence[str]]
) -> Exception:
    """Return the error of a job that cannot be composed; if its model lacks an option of another, with what to write.

    Args:
        error: the error of the composition.
        number: number of the job, from 1.
        total: number of jobs.
        job: its overrides.
        axes: the values of each axis of the sweep.
    """
    words, message = [override.partition("=") for override in job], describe(error)
    axis_of = {word: axis for axis in axes for word in axis}
    for group, _, choice in words:
        axis = axis_of[f"{group}={choice}"]
        others = [value.partition("=")[2] for value in axis if value != f"{group}={choice}"]
        for key, _, value in words:
            if not others or not key.startswith(f"{group}.") or not message.startswith(f"{key}: "):
                continue
            other, option = others[0], key.removeprefix(f"{group}.")
            own = variant_of(group, other, option, value)
            if own is None:
                *sections, name = option.split(".")
                node = "".join(f"{section}: {{" for section in sections) + f"{name}: {value}" + "}" * len(sections)
                own = f"my_{other}"
                file = f" with a file conf/{group}/{own}.yaml of `defaults: [{other}, _self_]` and `{node}`"
            else:
                file = ""
            allowed = message.partition("allowed: ")[2]
            reason = f"{group}={choice} has no such option (job {number} of {total}); it has {allowed}"
            return OptionError(key, value, f"{reason}. Write {group}={own},{choice} instead{file}")
    return error


def variant_of(group: str, choice: str, option: str, value: str) -> str | None:
    """Return the choice of a group that is another choice with this value of an option alone, or None."""
    for name in choices(group):
        node = load_choice(group, name)
        named, changes = node.pop("defaults", []), dict(flatten(OmegaConf.to_container(node)))
        if choice in named and list(changes) == [option] and str(changes[option]) in (value, f"{value}.0"):
            return name
    return None


def values_of(override: Override) -> list[str]:
    """Return the values of an axis, each as it is written on the command line.

    Raises:
        OptionError: the axis is an interval, which has no finite list of values, or it has no value at all.
    """
    if not override.is_sweep_override():
        return [override.get_value_element_as_str()]
    key, _, value = str(override.input_line).partition("=")
    if not override.is_discrete_sweep():
        raise OptionError(key, value, "must be a list of values; sweep=tune searches intervals")
    values = list(override.sweep_string_iterator())
    if not values:
        is_glob = isinstance(override.value(), Glob)
        names = choices(key.partition("@")[0]) if is_glob else []
        reason = f"matches none of {', '.join(names)}" if names else "has no values"
        own = "; glob() is for choices of groups" if is_glob and not names else ""
        raise OptionError(key, value, f"{reason}{own}, so that the sweep has no job")
    return values
