"""Helpers of the tests that compose configurations and run the programs, in this process or in another one."""

import contextlib
import copy
import csv
import functools
import importlib.metadata
import io
import logging
import logging.config
import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.basecontainer import BaseContainer

from gyral import dashboard, evaluate, export, fetch, generate, predict, report, sweep
from gyral import train as train_command
from gyral.config.groups import choices as choices
from gyral.config.groups import load_choice
from gyral.config.own_modules import user_config_path
from gyral.core.errors import UserError
from gyral.data.text.corpora import Corpus
from gyral.data.text.synthetic import synthetic_text
from gyral.tasks.base import Task
from gyral.training import build
from tests.helpers import slices
from tests.helpers.composing import each_once

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"

# Data and steps of a run that takes about a second. Checkpoints, validations and log lines fall on the same steps and
# on different ones.
SMALL = (
    "logger=none",
    "threads=1",
    "trainer.accelerator=cpu",
    "callbacks.checkpoints.every=3",
    "~callbacks.progress_bar",
    "trainer.max_steps=24",
    "trainer.val_check_interval=8",
    "trainer.log_every_n_steps=2",
    "model.cell.hidden_size=8",
    "task.batch_size=8",
    "task.train_size=64",
    "task.val_size=16",
    "task.test_size=16",
)
SMALL_COPY = (*SMALL, "task=copy", "task.eval_batch_size=8", "task.delay=3", "task.recalled=2")
# A digit is added after every second validation, because no answer is correct.
SMALL_PROGRAMS = (
    *(item for item in SMALL if not item.startswith(("task.train", "task.val", "task.test"))),
    "trainer.val_check_interval=4",
    "task=programs",
    "task.curriculum=combined",
    "task.patience=1",
    "task.val_batches=2",
    "task.test_batches=2",
)
SMALL_RECALL = (*SMALL, "task=recall", "task.eval_batch_size=8", "task.length=4")
# Sequences of 2 to 4 symbols, two batches of each evaluation.
SMALL_ALGORITHM = (
    *(item for item in SMALL if "_size=" not in item or item.startswith(("model.", "task.batch_size"))),
    "task=algorithm",
    "task.vocabulary_size=9",
    "task.train_lengths=[2,4]",
    "task.test_factors=[1]",
    "task.val_batches=2",
    "task.test_batches=2",
)
# Our own text or, with task.corpus.path, any: two windows an evaluation of 100 to 300 tokens.
SMALL_TEXT = (
    *(item for item in SMALL if "_size=" not in item or item.startswith(("model.", "task.batch_size"))),
    "task=text_file",
    "task.window=40",
    "task.eval_batch_size=4",
    "task.warm_up=10",
)


def small_text(folder: Path, size: int = 3000) -> tuple[str, ...]:
    """Return the options of a run of a second on the beginning of the synthetic text, in a file beside its cache.

    With 3000 characters a pass is 9 steps.
    """
    (folder / "text.txt").write_text(synthetic_text()[:size])
    return (*SMALL_TEXT, f"task.corpus.path={folder / 'text.txt'}", f"paths.data_dir={folder}")


# Metrics that no two runs share.
MEASURED = (
    "test/sentences_a_second",
    "train/seconds_a_step",
    "train/tokens_a_second",
    "train/examples_a_second",
    "train/peak_memory_mb",
    "train/share_outside_step",
    "train/share_outside_recurrence",
)


def compose_config(*overrides: str, name: str = "train", hydra_too: bool = False) -> DictConfig:
    """Return the configuration that these overrides give, resolved but for Hydra's own section."""
    config: DictConfig = pickle.loads(_compose(overrides, name, hydra_too))
    return config


@functools.cache
def _compose(overrides: tuple[str, ...], name: str, hydra_too: bool) -> bytes:
    """Return a pickled configuration: reading it takes a sixth of the time of `copy.deepcopy`."""
    with initialize_config_dir(str(CONF), version_base="1.3"), each_once():
        config = compose(name, list(overrides), return_hydra_config=hydra_too)
    if not hydra_too:
        OmegaConf.resolve(config)
    return pickle.dumps(config)


@functools.cache
def compose_choices(group: str) -> dict[str, dict[str, Any]]:
    """Return every choice of a group with its defaults merged; see `read_choice`."""
    return {name: read_choice(group, name) for name in choices(group)}


def read_choice(group: str, name: str, overridden: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a choice of a group with its defaults, without composing; interpolations are not resolved.

    Composing takes 50 ms, which is too long for the collection of tests.

    Args:
        group: the group.
        name: the choice.
        overridden: other choices of its defaults, by their places, such as {"/cell@cell": "rnn"}.
    """
    content: dict[str, Any] = pickle.loads(
        _read(group, name) if user_config_path() is None else _read_anew(group, name)
    )
    defaults = [entry if isinstance(entry, dict) else {"": entry} for entry in content.pop("defaults", [])]
    chosen = {place: value for entry in defaults for place, value in entry.items()} | (overridden or {})
    others = {place.removeprefix("override "): value for place, value in chosen.items() if "override " in place}
    merged: dict[str, Any] = {}
    for place, value in ((place, value) for entry in defaults for place, value in entry.items()):
        if value == "_self_" or place.startswith("override "):
            continue
        target, _, package = place.partition("@")
        found = read_choice(target.strip("/"), chosen[place]) if place else read_choice(group, value, others)
        for key in reversed(package.split(".") if package else []):
            found = {key: found}
        merged = _merge(merged, found)
    return _merge(merged, content)


def _read_anew(group: str, name: str) -> bytes:
    return pickle.dumps(OmegaConf.to_container(load_choice(group, name)))


_read = functools.cache(_read_anew)


def _merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the union of two nested dictionaries; the second has priority."""
    both = {key: _merge(one[key], other[key]) for key in one if isinstance(one[key], dict) and key in other}
    return {**one, **other, **both}


def task_class(task: str) -> Any:
    """Return the class of a task of conf/task."""
    return get_object(read_choice("task", task)["_target_"])


def model_for(task: str, cell: str, size: int) -> tuple[str, ...]:
    """Return the overrides of a small model, of a kind that a task takes, with a cell of conf/model."""
    options = slices.first("model_options", task_class(task).model_type, cell, size)
    return options or (f"model={cell}", f"model.cell.hidden_size={size}")


def classes_of(task: Task) -> int:
    """Return the number of classes of a model; for words, the size of its vocabulary."""
    return slices.first("classes_of", task) or task.objective.output_size


def build_task(*overrides: str, **options: Any) -> Any:
    """Return the task that these overrides and then these options of the section `task` give, by dotted names."""
    config = compose_config(*overrides)
    for name, value in options.items():  # much faster than composing again for each of their values
        OmegaConf.update(config.task, name, value)
    return build_or_skip(config)


def absent_corpora() -> str:
    """Return a pattern of the errors of tasks whose corpus or package is absent."""
    absent = (
        r"name=\w+: \S+ does not exist; `gyral fetch \w+` downloads it",
        r"needs the package \w+: pip install",
        *slices.listed("ABSENT"),
    )
    return "|".join(absent)


def build_or_skip(config: DictConfig) -> Any:
    """Return the task of a configuration; skip the test, with the message, without its corpus or a package."""
    try:
        return build.build_task(config)
    except UserError as error:
        if re.search(absent_corpora(), str(error)):
            pytest.skip(str(error).replace(".of.", "."))
        raise


def excerpt(of: DictConfig, lengths: dict[str, int]) -> Any:
    """Return the beginnings of the splits of a corpus, with its whole vocabulary, for use in configurations."""
    corpus = _load_corpus(OmegaConf.to_yaml(of))
    shortened = slices.first("excerpt", corpus, lengths)
    if shortened is not None:
        return shortened
    return Corpus(corpus.name, corpus.vocabulary, {name: corpus.splits[name][:size] for name, size in lengths.items()})


@functools.cache
def _load_corpus(node: str) -> Any:
    try:
        return instantiate(OmegaConf.create(node))
    except InstantiationException as error:
        raise error.__cause__ or error from None


def keep_small(config: DictConfig, **options: Any) -> None:
    """Set the given options, by dotted names, that the task of a configuration has.

    `<application>/<name>` is for the tasks of an application, if others have an option of this name.
    """
    for name, value in options.items():
        application, _, option = name.rpartition("/")
        if application and not config.task._target_.startswith(f"gyral.applications.{application}."):
            continue
        if OmegaConf.select(config.task, option, default=config) is not config:
            OmegaConf.update(config.task, option, value)


def shorten(config: DictConfig, **lengths: int) -> None:
    """Replace the corpus of a task, if it has one, by the beginnings of its splits."""
    if "corpus" in config.task:
        excerpted = {"_target_": "tests.helpers.running.excerpt", "_recursive_": False, "lengths": lengths}
        with open_dict(config):
            config.task.corpus = {**excerpted, "of": config.task.corpus}


class Outcome(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str
    handlers_put_back: bool = True

    @property
    def error(self) -> str:
        """The one line that tells the error; checks that there is exactly one and no traceback."""
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert self.status == 1, (self.status, self.out, self.err)
        assert len(lines) == 1, self.err
        assert self.err.rstrip().splitlines()[-1] == lines[0], "the error is not the last line"
        assert "Traceback" not in self.err + self.out
        return lines[0].removeprefix("error: ")


ENTRIES = {
    "train": train_command.main,
    "evaluate": evaluate.main,
    "export": export.main,
    "generate": generate.main,
    "predict": predict.main,
    "report": report.main,
    "sweep": sweep.main,
    "dashboard": dashboard.main,
    "fetch": fetch.main,
}


@contextlib.contextmanager
def as_a_process(arguments: list[str]) -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Lend the process-wide state that a program uses and put it back: arguments, environment, paths, logging, …"""
    argv, environment, paths, finders = sys.argv, dict(os.environ), sys.path[:], sys.meta_path[:]
    Plugins.instance()  # before the copies: it also registers the kinds of sources
    # as Singleton.get_state, but for what only imports change, which takes most of its time
    fixed = (Plugins, ConfigStore)
    singletons = {kind: one if kind in fixed else copy.deepcopy(one) for kind, one in Singleton._instances.items()}
    resolvers, root = dict(BaseContainer._resolvers), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    loggers = [logging.getLogger(name) for name in list(logging.Logger.manager.loggerDict)]
    states = [(logger, logger.level, logger.disabled) for logger in loggers]
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    out, err = io.StringIO(), io.StringIO()
    try:
        GlobalHydra.instance().clear()
        sys.argv = arguments
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield out, err
    finally:
        sys.argv, sys.path[:], sys.meta_path[:] = argv, paths, finders
        os.environ.clear()
        os.environ.update(environment)
        os.environ.pop("WANDB_SERVICE", None)  # W&B's process of this one, which may have ended meanwhile
        for handler in set(root.handlers) - set(handlers):
            handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)
        for logger, old_level, disabled in states:
            if logger.level != old_level:  # setting a level empties the caches of all loggers
                logger.setLevel(old_level)
            logger.disabled = disabled
        for number, handler in signals.items():
            signal.signal(number, handler)
        Singleton._instances, BaseContainer._resolvers = singletons, resolvers
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(False)


find_entry_points = functools.cache(importlib.metadata.entry_points)
handle_loggers = logging.config._handle_existing_loggers  # type: ignore[attr-defined]


def handle_loggers_at_once(*arguments: Any) -> None:
    """Set the levels of existing loggers; empty the caches of all loggers once, not once a logger."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.Manager, "_clear_cache", lambda _: None)
        handle_loggers(*arguments)
    logging.root.manager._clear_cache()  # type: ignore[attr-defined]


def invoke(*arguments: str, entry: str = "train", plot: bool = False) -> Outcome:
    """Run `python -m src.<entry> <arguments>` in this process, which saves the seconds that importing torch takes.

    The losses of a training run are plotted only on request: the plot would take half of the time of a small run.
    """
    status, handler = 0, signal.getsignal(signal.SIGINT)
    words = [f"src/{entry}.py", *map(str, arguments)]
    plots = contextlib.nullcontext() if plot else without_plots()
    with as_a_process(words) as (out, err), plots, each_once(), pytest.MonkeyPatch.context() as patch:
        # Lightning's reads the metadata of all packages
        patch.setattr("lightning_fabric.utilities.registry.entry_points", find_entry_points)
        patch.setattr(logging.config, "_handle_existing_loggers", handle_loggers_at_once)
        sets_mode = r".*hydra\.mode|(sweep|experiment)=" if entry == "train" else r".*hydra\.mode"
        if not any(re.match(sets_mode, word) for word in words):
            # Hydra composes everything once more before, for its mode alone, which few files set
            patch.setattr(Hydra, "get_mode", lambda *_, **__: None)
        try:
            ENTRIES[entry]()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        handlers_put_back = signal.getsignal(signal.SIGINT) is handler
    return Outcome(status, out.getvalue(), err.getvalue(), handlers_put_back)


@contextlib.contextmanager
def without_plots() -> Iterator[None]:
    """Have training runs of this process end without the plot of their losses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_command, "loss_curve", lambda *_: None)
        yield


def train(directory: Path, *arguments: str) -> Path:
    """Run `gyral train` into a directory, which is returned."""
    outcome = invoke(*arguments, f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    return directory


def spawn(*arguments: str, cwd: Path = ROOT, **environment: str | None) -> Outcome:
    """Run `python <arguments>` in a new process without a terminal; None removes an environment variable."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    completed = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={name: value for name, value in variables.items() if value is not None},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=300,
        check=False,
    )
    return Outcome(completed.returncode, completed.stdout, completed.stderr)


def load_last(directory: Path) -> dict[str, Any]:
    """Return the last checkpoint of a run."""
    return torch.load(directory / "checkpoints" / "last.ckpt", weights_only=True)


def read_rows(directory: Path) -> list[dict[str, str]]:
    """Return the rows of metrics.csv without the columns that are measured."""
    with (directory / "metrics.csv").open(newline="") as file:
        return [{key: value for key, value in row.items() if key not in MEASURED} for row in csv.DictReader(file)]


def assert_same(first: Any, second: Any, where: str = "") -> None:
    """Check that two structures of containers, numbers and tensors are equal to the bit."""
    assert type(first) is type(second), where
    if isinstance(first, dict):
        assert list(first) == list(second), where
        for key in first:
            assert_same(first[key], second[key], f"{where}.{key}")
    elif isinstance(first, list | tuple):
        assert len(first) == len(second), where
        for index, pair in enumerate(zip(first, second, strict=True)):
            assert_same(*pair, f"{where}[{index}]")
    elif isinstance(first, torch.Tensor):
        assert torch.equal(first, second), where
    else:
        assert first == second, where


def assert_same_run(first: Path, second: Path) -> None:
    """Check that two runs ended alike: weights, optimizer, schedule, random state, carried state, metrics, results."""
    left, right = load_last(first), load_last(second)
    for key in ("global_step", "state_dict", "optimizer_states", "lr_schedulers", "callbacks", "losses_since_logged"):
        assert_same(left[key], right[key], key)
    for key in ("plateau", "carried", "curriculum"):  # the state carried on in a text; the position in a curriculum
        assert_same(left.get(key), right.get(key), key)
    assert read_rows(first) == read_rows(second)
