"""An input of a command, of which a suite of faults damages a file."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from omegaconf import OmegaConf

from gyral.training import build
from tests.helpers.running import compose_config

RUN = (
    *("model.backend=reference", "optimizer=adam", "trainer=cpu", "trainer.max_steps=2", "threads=1"),
    *("logger=none", "callbacks=none"),
)
MODEL = ("model=gru", "model.cell.hidden_size=4", *RUN)


@dataclass
class Input:
    """An input of a command.

    Attributes:
        files: the files of which one is damaged.
        options: an error must name one of these options. Empty if no option selects the files.
        read: reads the input as the command does.
        words: words of the command line of `gyral train`; empty if another command reads the input.
        expected: what is read, if the files are derived from others, so that damaged ones are made again.
        is_remote: whether the files are downloaded, so that they are damaged files at worst, and no pipes.
        names_folder: whether an error may name the folder of the files, because each may be fine and all be too few.
    """

    files: list[Path]
    options: tuple[str, ...]
    read: Callable[[], Any]
    words: tuple[str, ...] = ()
    expected: Any = None
    is_remote: bool = False
    names_folder: bool = False


Maker = Callable[[Path, Random, pytest.MonkeyPatch], Input]


def train_on(
    overrides: tuple[str, ...],
    options: dict[str, Any],
    files: list[Path],
    named: tuple[str, ...],
    names_folder: bool = False,
) -> Input:
    """Return the input of a task, which is read by building the task and taking a batch of each split."""

    def read() -> None:
        config = compose_config(*overrides)
        for name, value in options.items():  # much faster than composing again
            OmegaConf.update(config.task, name, value)
        task = build.build_task(config)
        for split in ("train", "val", "test"):
            batch = next(iter(task.data.loader(split)))
            assert task.loss(task(batch), batch).isfinite()

    words = (*overrides, *(f"task.{name}={json.dumps(value)}" for name, value in options.items()))
    return Input(files, tuple(f"task.{name}" for name in named), read, words, names_folder=names_folder)
