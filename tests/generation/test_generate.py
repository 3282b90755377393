"""The command `generate`: the choice of a function by the given options, errors in one line, and output."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from gyral.applications import offers as offered
from gyral.config import command_line, offers
from gyral.core.errors import UserError
from gyral.core.streams import CLOSED
from gyral.generation.output import write
from gyral.models.prediction import sample
from gyral.runs.directory import resolve
from tests.generation.conftest import Trained
from tests.helpers.running import SMALL_COPY, compose_config, invoke, spawn


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"temperature": -0.1}, "temperature=-0.1: must be a finite number ≥ 0"),
        ({"temperature": "hot"}, "temperature=hot: must be a finite number ≥ 0"),
        ({"top_p": 0}, "top_p=0: must be a finite number > 0 and ≤ 1"),
        ({"top_p": 1.1}, "top_p=1.1: must be a finite number > 0 and ≤ 1"),
        ({"top_k": 0}, "top_k=0: must be an integer ≥ 1"),
        ({"top_k": 2.5}, "top_k=2.5: must be an integer ≥ 1"),
        ({"top_k": "all"}, "top_k=all: must be an integer ≥ 1"),
        ({"top_k": 3, "temperature": 0}, "top_k=3: must be left out with temperature=0, which takes the likeliest *"),
        ({"top_p": 0.9, "temperature": 0}, "top_p=0.9: must be left out with temperature=0, which takes *"),
        ({"length": 0}, "length=0: must be an integer ≥ 1"),
        ({"length": 1.5}, "length=1.5: must be an integer ≥ 1"),
        ({"seed": -1}, "seed=-1: must be an integer from 0 to 4294967295"),
        ({"prompt": "the zoo"}, "prompt: 'z' (U+007A) at position 4 does not occur in the training text: *"),
        ({"surprisal": "{}/none.txt"}, "surprisal={}/none.txt: cannot be read (No such file or directory)"),
        ({"surprisal": "{}"}, "surprisal={}: cannot be read (Is a directory)"),
        ({"surprisal": "{}/empty.txt"}, "surprisal={}/empty.txt: is empty"),
        ({"surprisal": "{}/short.txt"}, "surprisal={}/short.txt: has 1 chars, and must have at least 2"),
        ({"surprisal": "{}/latin.txt"}, "surprisal={}/latin.txt: is not UTF-8: byte 0xfc at offset 1"),
        ({"surprisal": "{}/pipe"}, "surprisal={}/pipe: is a named pipe, and must be a file"),
        ({"surprisal": "{}/zoo.txt"}, "surprisal={}/zoo.txt: 'z' (U+007A) at position 0 does not occur *"),
    ],
)
def test_bad_values_are_errors_of_one_line(
    options: dict[str, Any], expected: str, trained: Trained, tmp_path: Path
) -> None:
    for name, content in (("empty", b""), ("short", b"t"), ("latin", b"t\xfc"), ("zoo", b"zoo")):
        (tmp_path / f"{name}.txt").write_bytes(content)
    os.mkfifo(tmp_path / "pipe")
    given_options = {name: str(value).format(tmp_path) for name, value in options.items()}
    generators = offered("generators", type(trained.task))
    generator, values = offers.choose([*generators.values()], given_options, "task")
    with pytest.raises(UserError) as caught:
        list(generator(trained.task, **values))
    assert matches(expected.format(tmp_path), str(caught.value)), caught.value


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["top_p=2"], "top_p=2: must be a finite number > 0 and ≤ 1"),
        (["checkpoint=first"], "checkpoint=first: must be one of best, last"),
        (["promt=x"], "promt=x: run=*gyral.tasks.text.TextTask, takes prompt, *; did you mean prompt?"),
        pytest.param(["surprisal=-", "length=5"], "surprisal, length: run=*", marks=pytest.mark.slow),
        pytest.param(["surprisal={}/text.txt", "html={}"], "{}: Is a directory", marks=pytest.mark.slow),
        (["surprisal={}/text.txt", "html={}/text.txt/x"], "{}/text.txt: File exists"),
    ],
)
def test_the_command_ends_with_one_line(options: list[str], expected: str, trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat")
    error = trained.generate(*(option.format(tmp_path) for option in options)).error
    assert matches(expected.format(tmp_path), error), error


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tale": "x"}, "tale=x: TextTask takes prompt, length, *, or else surprisal, html"),
        ({"html": "x"}, "html: TextTask takes prompt, length, *, or else surprisal, html"),
        ({"surprisal": "-", "length": "5"}, "surprisal, length: TextTask takes *"),
    ],
)
def test_options_of_no_generator_are_refused(options: dict[str, str], expected: str, trained: Trained) -> None:
    generators = offered("generators", type(trained.task))
    with pytest.raises(UserError) as caught:
        offers.choose([*generators.values()], options, "TextTask")
    assert matches(expected, str(caught.value)), caught.value


def matches(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern; * matches any part of a line."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


def test_runs_that_cannot_generate_are_refused_in_one_line(tmp_path: Path) -> None:
    assert invoke("prompt=a", entry="generate").error == "run=<nothing>: must be a run directory"
    missing = invoke(f"run={tmp_path}/none", entry="generate").error
    assert missing == f"run={tmp_path}/none: must be a run directory, one that holds config.yaml"
    config = resolve(compose_config(*SMALL_COPY))
    OmegaConf.save(config, tmp_path / "config.yaml")
    error = invoke(f"run={tmp_path}", "prompt=a", entry="generate").error
    assert error == f"run={tmp_path}: its task, gyral.tasks.copy.CopyTask, has no generator"


def test_help_needs_no_torch() -> None:
    script = "import sys; from gyral.generate import main; main()"
    outcome = spawn("-c", f"{script}; sys.exit('torch' in sys.modules)", "--help", "prompt=the dog's, ")
    assert outcome.status == 0, outcome.err
    assert 'gyral generate run=outputs/my_run prompt="the "' in outcome.out
    assert not outcome.err


def test_ctrl_c_keeps_the_written_lines_complete(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any, **options: Any) -> Iterator[int]:
        yield from islice(sample(*arguments, **options), 20)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    monkeypatch.setattr("gyral.generation.text.sample", interrupted)
    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    outcome = trained.generate("prompt=the cat", "temperature=0")
    signal.signal(signal.SIGINT, former)
    assert outcome.status == command_line.INTERRUPTED
    assert len(outcome.out.rstrip("\n")) >= len("the cat") + 19
    assert outcome.out.endswith("\n")
    assert "Traceback" not in outcome.err
    assert "error" not in outcome.err


def test_a_closed_pipe_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "leave_out_current_directory", lambda: None)  # of this process
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit, match=str(CLOSED)), command_line.one_line_errors():
            write(iter(["some text"]))
