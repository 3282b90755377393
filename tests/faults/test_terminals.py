"""Names of files, data, options and errors of others in what commands print: no control sequence reaches a terminal."""

import contextlib
import io
import itertools
import json
import logging
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from gyral.core import progress
from gyral.core.console import Console, Live
from gyral.core.errors import UserError
from gyral.core.streams import PrintableStream, unescaped
from gyral.generation import output
from tests.faults import forks
from tests.helpers.attacks import Attack
from tests.helpers.running import ROOT, SMALL_COPY, SMALL_TEXT, train
from tests.helpers.written import PROVENANCE, write_run

CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
SIGNS = {
    "a color": "\x1b[31m",
    "a title": "\x1b]0;owned\x07",
    "an address": "\x1b]8;;http:x.y\x1b\\",
    "the clipboard": "\x1b]52;c;YQ==\x07",
    "an erased line": "\r\x1b[2K",
    "a sequence of C1": "\x9b31m\x9d0;owned\x9c",
    "another direction": "\u202egnp.exe",
    "an isolate": "\u2066a\u2069\u200f",
    "a backspace": "\b\b\b\x7f\x0e",
    "a line separator": "\u2028\u2029\x85\x0b",
    "bytes that are no text": "\udcff\udc9b",
}
RUN = (*SMALL_COPY, "model=rnn", "trainer.max_steps=2", "trainer.val_check_interval=2")
Words = tuple[str, ...]


def as_file(directory: Path, sign: str, content: str) -> str:
    path = directory / f"a{sign}.txt"
    path.write_text(content, errors="surrogateescape")
    return path.name


def damaged_run(directory: Path, sign: str) -> str:
    run = write_run(directory, "none", accuracy=0.5)
    (run / "config.yaml").write_text(f"a{sign}: [b{sign}", errors="surrogateescape")
    return str(run.rename(directory / f"run{sign}"))


def written_runs(directory: Path, sign: str) -> str:
    """Write a sweep with a run that has ended and one that has failed, with the sign in all of their texts."""
    text = f"a{sign}".encode(errors="replace").decode()
    for seed, accuracy in enumerate((0.5, None)):
        run = write_run(directory / "runs", "none", seed=seed, accuracy=accuracy)
        (run / "overrides.yaml").write_text(yaml.safe_dump([f"seed={seed}", f"+note={text}"]))
        texts = {"command": ["python", text], "id": text, "host": text, "started": text}
        (run / "provenance.json").write_text(json.dumps({**PROVENANCE, **texts}))
        offered = json.loads((run / "measures.json").read_text())
        for measure in offered["measures"]:
            measure |= {"label": text, "unit": text}
        (run / "measures.json").write_text(json.dumps(offered))
        if accuracy is None:
            (run / "FAILED").write_text(f"Traceback\n{text}: {text}")
        run.rename(directory / "runs" / f"run{sign}{seed}")
    return str((directory / "runs").rename(directory / f"runs{sign}"))


def trained_run(directory: Path, sign: str) -> str:
    return str((directory / "run").rename(directory / f"run{sign}"))


# By what is run: the command and its words, after the files are written.
COMMANDS: dict[str, Callable[[Path, str], Words]] = {
    "train into": lambda at, sign: ("train", *RUN, f"hydra.run.dir=out{sign}"),
    "train again": lambda at, sign: ("train", *RUN, f"hydra.run.dir={trained_run(at, sign)}"),
    "resume": lambda at, sign: ("train", f"resume={trained_run(at, sign)}"),
    "a sweep": lambda at, sign: ("train", "-m", *RUN, "seed=1", f"hydra.sweep.dir=out{sign}"),
    "an unknown option": lambda at, sign: ("train", *RUN, f"task.a{sign}=1"),
    "an unknown choice": lambda at, sign: ("train", *RUN, f"model=a{sign}"),
    "an option of text": lambda at, sign: ("train", *RUN, f"weights=a{sign}"),
    "a corpus": lambda at, sign: (
        *("train", *SMALL_TEXT, "model=rnn", "trainer.max_steps=2", "trainer.val_check_interval=2"),
        *(f"task.corpus.path={as_file(at, sign, f'a{sign} b ' * 200)}", f"paths.data_dir={at}", "hydra.run.dir=out"),
    ),
    "a corpus that is too short": lambda at, sign: (
        *("train", *SMALL_TEXT, "model=rnn", f"task.corpus.path={as_file(at, sign, f'a{sign}')}"),
    ),
    "evaluate": lambda at, sign: ("evaluate", f"run={trained_run(at, sign)}", f"save=out{sign}.md"),
    "evaluate a damaged run": lambda at, sign: ("evaluate", f"run={damaged_run(at, sign)}"),
    "generate": lambda at, sign: ("generate", f"run={trained_run(at, sign)}"),
    "report": lambda at, sign: ("report", f"sweep={written_runs(at, sign)}", "runs=true", f"save=out{sign}.md"),
    "report as CSV": lambda at, sign: ("report", f"sweep={written_runs(at, sign)}", f"save=out{sign}.csv"),
    "report in LaTeX": lambda at, sign: ("report", f"sweep={written_runs(at, sign)}", f"save=out{sign}.tex"),
    "report of nothing": lambda at, sign: ("report", f"sweep=a{sign}"),
    "a figure": lambda at, sign: ("report", f"figure=a{sign}", f"run={trained_run(at, sign)}"),
    "a list of figures": lambda at, sign: ("report", "figure=list", f"run={damaged_run(at, sign)}"),
    "fetch": lambda at, sign: ("fetch", f"a{sign}"),
}
CASES = list(itertools.product(SIGNS, COMMANDS))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a run that is DONE."""
    directory = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        train(Path("run"), *RUN)
    return directory


@pytest.mark.attacks(sampled=2, whole=len(CASES))
def test_no_control_sequence_reaches_a_terminal(attack: Attack, finished: Path, tmp_path: Path) -> None:
    name, command = CASES[attack.number * 97 % len(CASES)]
    at = tmp_path / "here"
    shutil.copytree(finished, at)
    entry, *words = COMMANDS[command](at, SIGNS[name])
    words = [word.replace(f"{at}/", "") for word in words]
    ended = forks.run(*words, entry=entry, directory=at, limit=30)
    shown = {"standard output": ended.out, "standard error": ended.err}
    logs = [path for path in at.rglob("*") if path.name in ("train.log", "FAILED", "examples.txt", "metrics.csv")]
    written = [path for path in at.iterdir() if path.name.startswith("out") and path.is_file()]
    own = [path for path in logs if path.parent.name[:4] != "runs" and path.parent.parent.name[:4] != "runs"]
    shown |= {str(path): path.read_text(errors="surrogateescape") for path in (*own, *written)}
    for where, text in shown.items():
        found = CONTROL.search(text)
        assert not found, (name, command, where, text[max(0, found.start() - 200) : found.end() + 50])
    assert "Traceback" not in ended.out + ended.err, (name, command, ended)
    attack.record("escaped" if "\\x" in ended.out + ended.err or "\\u" in ended.out + ended.err else "not shown")


@contextlib.contextmanager
def streams(out: io.StringIO, err: io.StringIO) -> Iterator[None]:
    """Let the standard streams be those of a command."""
    with contextlib.redirect_stdout(PrintableStream(out)), contextlib.redirect_stderr(PrintableStream(err)):
        yield


@pytest.mark.parametrize("sign", SIGNS.values(), ids=SIGNS)
def test_whatever_prints_goes_through_the_streams_of_a_command(sign: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    with streams(out, err):
        print(f"猫 naïve\t{sign}")
        sys.stdout.writelines([sign, "\n"])
        sys.stderr.write(warnings.formatwarning(f"a{sign}", UserWarning, f"file{sign}.py", 1))
        handler = logging.StreamHandler()
        handler.emit(logging.makeLogRecord({"msg": f"a{sign}"}))
        try:
            raise ValueError(f"a{sign}") from UserError(f"b{sign}")
        except ValueError as error:
            sys.excepthook(ValueError, error, error.__traceback__)
        Console().print(f"[red]a{sign}[/]")
        Console(stderr=True).print(f"a{sign}")
    for stream in (out, err):
        assert not CONTROL.search(stream.getvalue()), stream.getvalue()
    assert out.getvalue().startswith("猫 naïve\t\\")
    assert "[red]a\\" in out.getvalue()
    assert err.getvalue().count("a\\") >= 4


class Terminal(io.StringIO):
    """A stream that is a terminal, for rich."""

    def isatty(self) -> bool:
        return True


def test_what_is_printed_above_a_line_of_progress_has_no_control_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    screen = Terminal()
    with streams(Terminal(), screen):
        own = sys.stderr
        with progress.line.show("load\x1b[32ming"):
            progress.line.begin("train[/red]ing\x9b1m", 3000)
            print("\x1b]8;;http://x.y\x1b\\link\x1b]8;;\x1b\\ \x1b[31mred", file=sys.stderr)
            progress.ConsoleHandler().emit(logging.makeLogRecord({"msg": "a\x1b[33m"}))
            progress.line._progress.refresh()
        assert sys.stderr is own
    shown = screen.getvalue()
    assert "\x1b[2K" in shown  # the line is drawn and erased
    assert "train[/red]ing\\x" in shown
    assert "\\x1b]8;;http://x.y\\x1b\\link" in shown
    assert not [part for part in ("\x1b]", "\x1b[31m", "\x1b[33m", "\x1b[32mi", "\x9b") if part in shown]


def test_what_is_printed_above_a_view_has_no_control_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    with streams(screen, Terminal()), Live(console=Console(), auto_refresh=False) as live:
        print("a\x1b[31mb")
        live.update("c\x1b[32md", refresh=True)
    assert "a\\x1b[31mb" in screen.getvalue()
    assert "c\\x1b[32md" in screen.getvalue()
    assert "\x1b[3" not in screen.getvalue()


def test_colors_of_our_own_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    with streams(screen, io.StringIO()):
        Console().print("a", style="red")
        output.write(["b\x1b[31m", output.Styled("\x1b[1mc\x1b[0m"), "\n"])
    assert screen.getvalue() == "\x1b[31ma\x1b[0m\nb\\x1b[31m\x1b[1mc\x1b[0m\n"


@pytest.mark.parametrize("is_pipe", [True, False])
def test_generated_text_keeps_its_letters_in_a_pipe_and_all_of_it_in_a_file(is_pipe: bool, tmp_path: Path) -> None:
    text = "naïve 猫 می\u200cخواهم क्\u200dष 👩\u200d🔬\t\n\x1b[31m\r\u202e\n"
    (tmp_path / "file").touch()
    reading, writing = (
        os.pipe() if is_pipe else (os.open(tmp_path / "file", os.O_RDONLY), os.open(tmp_path / "file", 1))
    )
    with os.fdopen(writing, "w", encoding="utf-8", newline="") as stream, contextlib.redirect_stdout(stream):
        output.write([text])
    with os.fdopen(reading, encoding="utf-8", newline="") as stream:
        assert stream.read() == (text.replace("\x1b[31m\r\u202e", r"\x1b[31m\r\u202e") if is_pipe else text)


def test_messages_of_errors_have_no_control_sequences() -> None:
    assert str(UserError("a\x1b[31m\u202e")) == r"a\x1b[31m\u202e"


def test_the_stream_below_is_found_once() -> None:
    stream = io.StringIO()
    assert unescaped(PrintableStream(stream)) is stream
    assert unescaped(stream) is stream


# By what only one file of the package does: that file.
ONE_PLACE = {
    r"from rich\.console import .*\bConsole\b": "core/console.py",
    r"from rich\.(live|progress) import .*\b(Live|Progress)\b": "core/console.py",
    r"\bcsv\.(writer|DictWriter)\(": "core/files.py",
    r"\bcopytree\(|[^*]\.tmp\b": "core/files.py",
    r"\bFileHandler\b": "core/progress.py",
    r"\btqdm\(": "data/download.py",
}


@pytest.mark.parametrize("pattern", ONE_PLACE)
def test_one_file_writes_for_all(pattern: str) -> None:
    package = ROOT / "src" / "gyral"
    found = [path for path in package.rglob("*.py") if re.search(pattern, path.read_text(encoding="utf-8"))]
    assert found == [package / ONE_PLACE[pattern]]
