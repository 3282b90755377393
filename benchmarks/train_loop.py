"""The overhead of training: a step of `gyral train` in comparison with a bare loop of forward, backward, clip, update.

Usage: python -m benchmarks.train_loop [key=value …]

  case=recall,copy,tiny    sizes to measure; default: all three
                             recall  associative recall T = 50, batch 128, 50 hidden units
                             copy    copying memory with a delay of 500, batch 128, 100 hidden units
                             tiny    almost no computation, which shows the overhead per step in milliseconds
  model=rum,lstm           models, by their file in conf/model; default: rum
  steps=50                 training steps per round, a multiple of trainer.log_every_n_steps
  rounds=7                 a time is the median over the rounds
  json=path                append one line of JSON per case and model to this file

Every other key is an option of `gyral train`: optimizer=adam, threads=1, model.cell.lambd=1, callbacks=none.
With task=… there are no cases, and the sizes are those of the configuration.
Exit status: 0 success, 1 the two loops end with different weights, 2 a key or value is not allowed.
"""

import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning
import torch
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pytorch_lightning import Trainer
from pytorch_lightning.profilers import Profiler
from rich import box
from rich.console import Console
from rich.table import Table
from torch.nn.utils import clip_grad_norm_

from benchmarks.provenance import ROOT
from benchmarks.provenance import provenance as conditions
from gyral.config import resolvers as resolvers  # registers the resolvers of the configuration
from gyral.config.errors import describe
from gyral.config.roles import PROCESS, role_of
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError, UserError
from gyral.data.batching import Batch, ShuffledBatches
from gyral.runs.directory import Run
from gyral.tasks.base import SequenceTask
from gyral.training import build
from gyral.training.loggers import open_loggers

CASES = {
    "recall": ("task=recall", "task.length=50", "task.batch_size=128", "model.cell.hidden_size=50"),
    "copy": ("task=copy", "task.delay=500", "task.batch_size=128", "model.cell.hidden_size=100"),
    "tiny": (
        "task=copy",
        "task.delay=1",
        "task.recalled=1",
        "task.batch_size=2",
        "model.cell.hidden_size=4",
        "threads=1",  # too small for several threads
    ),
}
STRETCH = 5  # steps of one loop before the other loop runs
RESERVED = ("logger", "scheduler", "trainer.max_steps", "trainer.val_check_interval", "callbacks.checkpoints.every")
COLUMNS = {  # titles of the table, with key of the row and format
    "bare ms": ("bare_ms", ".2f"),
    "training ms": ("training_ms", ".2f"),
    "training ×": ("ratio", ".3f"),
    "added ms": ("added_ms", ".2f"),
    "data ms": ("data_ms", ".2f"),
    "callbacks ms": ("callbacks_ms", ".2f"),
    "logging ms": ("logging_ms", ".2f"),
    "Lightning ms": ("lightning_ms", ".2f"),
}


class Settings(NamedTuple):
    """The options of the command line; `overrides` are those of the runs' configuration."""

    case: tuple[str, ...] = tuple(CASES)
    model: tuple[str, ...] = ("rum",)
    steps: int = 50
    rounds: int = 7
    json: str | None = None
    overrides: tuple[str, ...] = ()


def parse(arguments: list[str]) -> Settings:
    """Parse key=value arguments.

    Raises:
        UserError: A key or value is not allowed.
    """
    given: dict[str, Any] = {"overrides": ()}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not (key and equals):
            raise UserError(f"{argument}: must be key=value, see --help")
        if key in RESERVED:
            raise OptionError(key, value, "is set by the benchmark")
        if key in ("case", "model"):
            given[key] = tuple(dict.fromkeys(value.split(",")))
        elif key in ("steps", "rounds"):
            given[key] = check_integer(key, int(value) if value.isdecimal() else value)
        elif key == "json":
            if not value or Path(value).is_dir() or not Path(value).absolute().parent.is_dir():
                raise OptionError(key, value, "must be the path of a file in an existing folder")
            given[key] = value
        else:
            given["overrides"] += (argument,)
    if any(override.startswith("task=") for override in given["overrides"]):
        given["case"] = ("",)
    settings = Settings(**given)
    for case in settings.case:
        check_choice("case", case, (*CASES, ""))
    return settings


def compose_run(case: str, model: str, settings: Settings) -> DictConfig:
    """Return the configuration of a run with the steps of all rounds and one more.

    Raises:
        UserError: An option does not exist, or its value is not allowed.
    """
    overrides = [f"model={model}", *CASES.get(case, ()), "trainer.accelerator=cpu", *settings.overrides, "logger=none"]
    try:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            config = compose("train", overrides)
        OmegaConf.resolve(config)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(describe(error)) from error
    # one more step: validation and checkpoint follow it, after the timing
    config.trainer.max_steps = config.trainer.val_check_interval = (settings.rounds + 2) * settings.steps + 1
    OmegaConf.update(config, "trainer.limit_val_batches", 1, force_add=True)
    if "checkpoints" in (config.callbacks or {}):
        config.callbacks.checkpoints.every = config.trainer.max_steps
    if settings.steps % config.trainer.log_every_n_steps:
        reason = f"must be a multiple of trainer.log_every_n_steps, {config.trainer.log_every_n_steps}"
        raise OptionError("steps", settings.steps, reason)
    build.build_task(config)  # reports wrong options before any measurement
    return config


class BareLoop:
    """A plain training loop with the weights, optimizer and clipping of a run."""

    def __init__(self, config: DictConfig, task: SequenceTask) -> None:
        self.task = build.build_task(config)
        self.task.load_state_dict(task.state_dict())
        self.optimizer = self.task.configure_optimizers()
        self.parameters = list(self.task.parameters())
        self.clip = config.trainer.gradient_clip_val

    def train(self, batches: list[Batch]) -> None:
        """Take one step per batch."""
        for batch in batches:
            loss = self.task.loss(self.task(batch), batch)
            loss.backward()
            if self.clip is not None:
                clip_grad_norm_(self.parameters, self.clip)
            self.optimizer.step()
            self.optimizer.zero_grad()

    def matches(self, task: SequenceTask) -> bool:
        """Return whether a task that has taken the same steps has the same weights."""
        return all(torch.equal(one, other) for one, other in zip(task.parameters(), self.parameters, strict=True))


class Stopwatch(Profiler):
    """Sums the seconds spent in each of Lightning's actions, excluding nested actions."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[tuple[str, float]] = []
        self._last = 0.0

    def start(self, action_name: str) -> None:
        self._switch()
        self._open.append((action_name, self._last))

    def stop(self, action_name: str) -> None:
        if self._open:  # otherwise the action began before the trainer had this profiler
            self._switch()
            self._open.pop()

    def _switch(self) -> None:
        """Add the time since the last switch to the action that ran."""
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1][0]] += now - self._last
        self._last = now

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as a separate action."""

        def timed(*arguments: Any, **named: Any) -> Any:
            with self.profile(name):
                return function(*arguments, **named)

        return timed

    def total(self, prefix: str) -> float:
        """Return the seconds of all actions whose names start with `prefix`."""
        return sum(seconds for name, seconds in self.seconds.items() if name.startswith(prefix))


class TimedBatches:
    """The training batches of a run, which time the trainer and the bare loop.

    Every few steps the trainer waits for its next batch while the bare loop trains on the same batches, so that other
    load on the machine affects both loops. The first round is a warm-up. After the rounds a stopwatch measures, for as
    many steps, how the time is spent.
    """

    def __init__(self, batches: ShuffledBatches, trainer: Trainer, bare: BareLoop, settings: Settings) -> None:
        self.batches = batches
        self.trainer = trainer
        self.bare = bare
        self.settings = settings
        self.training_ms: list[float] = []
        self.bare_ms: list[float] = []
        self.data_ms: list[float] = []
        self.stopwatch = Stopwatch()
        self.shape = torch.Size()
        self.same_weights = False

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        stream = iter(self.batches)
        for _ in range(self.settings.rounds + 1):
            yield from self._round(stream)
        self.same_weights = self.bare.matches(self.trainer.lightning_module)
        yield from self._watched(stream)
        yield from stream

    def _round(self, stream: Iterator[Batch]) -> Iterator[Batch]:
        training = bare = data = 0.0
        for first in range(0, self.settings.steps, STRETCH):
            random_state = torch.get_rng_state()
            served: list[Batch] = []
            start = time.perf_counter()
            for _ in range(min(STRETCH, self.settings.steps - first)):
                requested = time.perf_counter()
                batch = next(stream)
                data += time.perf_counter() - requested
                served.append(batch)
                yield batch
            # the trainer has finished the last step and requests the next batch
            training += time.perf_counter() - start
            torch.set_rng_state(random_state)  # zoneout and dropout draw the same masks
            start = time.perf_counter()
            self.bare.train(served)
            bare += time.perf_counter() - start
        self.shape = batch.inputs.shape
        for times, seconds in ((self.training_ms, training), (self.bare_ms, bare), (self.data_ms, data)):
            times.append(1000 * seconds / self.settings.steps)

    def _watched(self, stream: Iterator[Batch]) -> Iterator[Batch]:
        task, usual = self.trainer.lightning_module, self.trainer.profiler
        log, log_row = task.log, task.log_row
        task.log, task.log_row = self.stopwatch.around("logging", log), self.stopwatch.around("logging", log_row)
        self.trainer.profiler = self.stopwatch
        for _ in range(self.settings.steps):
            yield next(stream)
        self.trainer.profiler = usual
        task.log, task.log_row = log, log_row

    def figures(self) -> dict[str, float]:
        """Return medians in milliseconds per step without the first round, and the parts of the overhead."""
        bare, training, data = (statistics.median(m[1:]) for m in (self.bare_ms, self.training_ms, self.data_ms))
        callbacks, logging = (1000 * self.stopwatch.total(p) / self.settings.steps for p in ("[Callback]", "logging"))
        return {
            "bare_ms": bare,
            "training_ms": training,
            "ratio": training / bare,
            "added_ms": training - bare,
            "data_ms": data,
            "callbacks_ms": callbacks,
            "logging_ms": logging,
            "lightning_ms": training - bare - data - callbacks - logging,
        }


def measure(
    case: str,
    model: str,
    config: DictConfig,
    settings: Settings,
    make_loop: Callable[[DictConfig, Any], BareLoop] = BareLoop,
) -> dict[str, Any] | None:
    """Train one run in a temporary directory; return its row, or None if the loops end with different weights."""
    original_threads = torch.get_num_threads()
    build.configure_process(config)
    task = build.build_task(config)
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):  # the stream of the progress bar
        run = Run(Path(folder), config)
        with open_loggers(run, resumed_at=0) as loggers:
            trainer = build.build_trainer(config, run.directory)
            trainer.loggers = loggers
            timed: list[TimedBatches] = []
            make_batches = task.data.train_dataloader

            def train_dataloader() -> TimedBatches:
                timed.append(TimedBatches(make_batches(), trainer, make_loop(config, task), settings))
                return timed[-1]

            task.data.train_dataloader = train_dataloader
            trainer.fit(task, datamodule=task.data)
    threads = torch.get_num_threads()
    torch.set_num_threads(original_threads)
    if not timed[0].same_weights:
        return None
    batch_size, time_steps = timed[0].shape[:2]
    return {
        "case": case or config.task["_target_"].split(".")[-1],
        "model": model,
        "batch": batch_size,
        "time_steps": time_steps,
        "hidden": config.model.cell.hidden_size,
        "threads": threads,
        **timed[0].figures(),
    }


def provenance(settings: Settings) -> dict[str, Any]:
    """Return the conditions of the measurement: rounds, options, machine, versions, commit, date."""
    about = conditions()
    return {
        "steps": settings.steps,
        "rounds": settings.rounds,
        "overrides": " ".join(word for word in settings.overrides if role_of(word) != PROCESS),
        **{key: about[key] for key in ("cpu", "cores", "torch")},
        "lightning": pytorch_lightning.__version__,
        **{key: about[key] for key in ("commit", "date")},
    }


def report(rows: list[dict[str, Any]], about: dict[str, Any], path: str | None) -> None:
    """Print the rows as a Markdown table, and append them to the file at `path` if it is not None."""
    table = Table(box=box.MARKDOWN)
    for title in ("case", "model", "B × T × N", "threads", *COLUMNS):
        table.add_column(title, justify="right" if title in COLUMNS else "left", no_wrap=True)
    for row in rows:
        sizes = f"{row['batch']} × {row['time_steps']} × {row['hidden']}"
        figures = (format(row[key], form) for key, form in COLUMNS.values())
        table.add_row(row["case"], row["model"], sizes, str(row["threads"]), *figures)
    console = Console(highlight=False)
    console.width = max(console.width, 160)  # rich assumes 80 columns for a pipe, which would truncate figures
    console.print(table)
    conditions = ", ".join(f"{key}={value}" for key, value in about.items() if value != "")
    console.print("Milliseconds per training step, without validation and checkpoints.", conditions, soft_wrap=True)
    if path is not None:
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row | about) + "\n" for row in rows)


def main(arguments: list[str]) -> int:
    """Measure and report; return the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    rows = []
    try:
        settings = parse(arguments)
        pairs = [(case, model) for case in settings.case for model in settings.model]
        configs = {(case, model): compose_run(case, model, settings) for case, model in pairs}
        for (case, model), config in configs.items():
            row = measure(case, model, config, settings)
            if row is None:
                name = " ".join(filter(None, (case, model)))
                print(f"No figures: {name}: training and the bare loop end with different weights", file=sys.stderr)
                return 1
            rows.append(row)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    report(rows, provenance(settings), settings.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
