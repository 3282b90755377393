"""Commands work in locales other than UTF-8, with text that is not English."""

import ast
import functools
import locale
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gyral.core.commands import version
from gyral.core.inputs import path_of, read_text
from tests.faults import forks
from tests.helpers.composing import each_once
from tests.helpers.found import at_least
from tests.helpers.running import ENTRIES, ROOT, SMALL_TEXT, spawn
from tests.helpers.sources import implicit_encodings

TEXT = "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。寒来暑往，秋收冬藏。naïve λ\n" * 60
ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": None}
COVERED = ("src", "benchmarks", "docs", "examples")


def latin1(folder: Path) -> dict[str, str | None]:
    """Return the environment of a locale in ISO-8859-1, which is made in a folder."""
    if shutil.which("localedef") is None:
        pytest.skip("needs localedef")
    command = ["localedef", "-i", "en_US", "-f", "ISO-8859-1", str(folder / "en_US.ISO-8859-1")]
    if subprocess.run(command, capture_output=True, check=False).returncode > 1:
        pytest.skip("the definitions of locales are not installed")
    return {"LOCPATH": str(folder), "LC_ALL": "en_US.ISO-8859-1", "PYTHONUTF8": None, "PYTHONIOENCODING": None}


def test_the_product_opens_no_text_in_the_encoding_of_the_locale() -> None:
    files = at_least(560, (file for folder in COVERED for file in sorted((ROOT / folder).rglob("*.py"))))
    assert [call for file in files for call in implicit_encodings(file)] == []


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("path.read_text()", True),
        ("path.read_text('utf-8')", False),
        ("path.read_text(errors='replace')", True),
        ("(a / b).write_text(text)", True),
        ("path.write_text(text, encoding='ascii')", False),
        ("path.open()", True),
        ("path.open('a', newline='')", True),
        ("path.open('rb')", False),
        ("open(path, 'w')", True),
        ("open(path, mode='wb')", False),
        ("gzip.open(path)", False),
        ("gzip.open(path, 'rt')", True),
        ("tempfile.NamedTemporaryFile()", False),
        ("tempfile.NamedTemporaryFile('w')", True),
        ("os.open(path, os.O_RDONLY)", False),
        ("logging.FileHandler(path)", True),
        ("subprocess.run(words, text=True)", True),
        ("subprocess.run(words, encoding='utf-8')", False),
    ],
)
def test_calls_without_an_encoding_are_found(call: str, found: bool, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(call, encoding="utf-8")
    assert bool([*implicit_encodings(tmp_path / "a.py")]) is found


def commands(folder: Path) -> dict[tuple[str, ...], str]:
    """Return command lines about a Chinese text, with a piece of what each prints, without Chinese characters."""
    (folder / "千字文.txt").write_text(TEXT, encoding="utf-8")
    run = folder / "运行"
    small = [word.replace("max_steps=24", "max_steps=3") for word in SMALL_TEXT if not word.startswith("threads")]
    own = ("trainer.val_check_interval=3", f"task.corpus.path={folder}/千字文.txt", f"hydra.run.dir={run}")
    return {
        ("train", *small, "model=rnn", *own, f"paths.data_dir={folder}"): "run directory: ",
        ("evaluate", f"run={run}", "split=val", f"save={folder}/é.md"): "val loss",
        ("generate", f"run={run}", "prompt=天地", "length=5"): "",
        ("generate", f"run={run}", f"surprisal={folder}/千字文.txt"): "# mean ",
        ("report", f"sweep={run}", f"save=[{folder}/a.html,{folder}/a.tex,{folder}/b.csv]"): "Wrote ",
        ("sweep", "rum_paper_table1"): "name: rum_paper_table1",
        ("fetch", "--version"): version(),
        ("dashboard", "--help"): "Weights & Biases",
    }


def check_run(folder: Path) -> None:
    assert (folder / "运行" / "DONE").is_file()
    assert "千字文.txt" in (folder / "运行" / "config.yaml").read_text(encoding="utf-8")
    assert "天" in (folder / "运行" / "examples.txt").read_text(encoding="utf-8")


WITH_TORCH = ("train", "evaluate", "generate")
# Without `tests.helpers.running`, which takes seconds to import.
RUN_ALL = """
import contextlib, importlib, io, sys
from hydra.core.global_hydra import GlobalHydra
for words in eval(sys.argv.pop()):
    GlobalHydra.instance().clear()
    sys.argv, status, out = [f"gyral/{words[0]}.py", *words[1:]], 0, io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            importlib.import_module(f"gyral.{words[0]}").main()
        except SystemExit as end:
            status = end.code
    print(ascii((int(status or 0) if not isinstance(status, str) else status, out.getvalue())))
"""


def test_all_commands_read_and_write_text_in_an_ascii_locale(tmp_path: Path) -> None:
    """Commands that import torch are forks that change their locale; the others are in a process of such a locale."""
    shown = commands(tmp_path)
    for words, piece in shown.items():
        if words[0] in WITH_TORCH:
            ended = forks.fork(functools.partial(run_in_ascii, *words), tmp_path, limit=60)
            assert (ended.status, "Traceback" in ended.err) == (0, False), ended
            assert piece in ended.out, ended
    light = [words for words in shown if words[0] not in WITH_TORCH]
    given = [tuple(map(as_argument, words)) for words in light]
    outcome = spawn("-c", RUN_ALL, repr(given), **ASCII)
    assert outcome.status == 0, outcome.err
    for words, line in zip(light, outcome.out.splitlines(), strict=True):
        status, out = ast.literal_eval(line)
        assert status == 0, line
        assert shown[words] in out
    check_run(tmp_path)


def run_in_ascii(command: str, *words: str) -> None:
    """Run a command as in an ASCII locale, but for the names of files."""
    os.environ |= {name: value for name, value in ASCII.items() if value is not None}
    locale.setlocale(locale.LC_ALL, "POSIX")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="ascii", errors="strict")  # type: ignore[union-attr]
    assert sys.flags.utf8_mode or locale.getencoding() != "UTF-8"
    sys.argv = [f"gyral/{command}.py", *map(as_argument, words)]
    with each_once():
        ENTRIES[command]()


def as_argument(word: str) -> str:
    """Return a word as a process in an ASCII locale receives it."""
    return word.encode().decode("ascii", "surrogateescape")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_all_commands_work_in_a_locale_other_than_utf8(encoding: str, tmp_path: Path) -> None:
    environment = ASCII if encoding == "ascii" else latin1(tmp_path)
    for words, shown in commands(tmp_path).items():
        outcome = spawn("-m", f"gyral.{words[0]}", *words[1:], cwd=tmp_path, **environment)
        assert outcome.status == 0, outcome.err
        assert shown in outcome.out, outcome
    check_run(tmp_path)


def test_characters_that_the_terminal_lacks_become_escapes() -> None:
    script = r"from gyral.core.streams import open_streams; open_streams(); print('\u5929'); exit('\u5730')"
    outcome = spawn("-c", script, **ASCII)
    assert (outcome.out, outcome.err) == ("\\u5929\n", "\\u5730\n")


def test_paths_in_other_locales_equal_those_of_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import sys; from gyral.core.inputs import read_text; "
        "sys.stdout.buffer.write(read_text('path', '\\u5929.txt').encode())"
    )
    (tmp_path / "天.txt").write_text("地", encoding="utf-8")
    assert spawn("-c", script, cwd=tmp_path, **ASCII).out == "地"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert path_of("~/天.txt") == tmp_path / "天.txt"
    assert read_text("path", "~/天.txt") == "地"
    assert os.fspath(path_of(tmp_path)) == str(tmp_path)
