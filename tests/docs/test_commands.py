"""Every command of documents, help texts and messages pastes into bash, zsh and fish."""

import functools
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from gyral.core.commands import typed
from tests.helpers.found import at_least
from tests.helpers.running import CONF, ROOT
from tests.helpers.shells import (
    ONLY_BASH,
    Command,
    UnportableWordError,
    commands_in_help,
    commands_in_messages,
    documented_commands,
    faults,
    simple_commands,
)

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for folder in ("docs", "src", "benchmarks") for page in sorted((ROOT / folder).rglob("*.md"))),
    *sorted((ROOT / "examples").glob("*.ipynb")),
]
CODE = [file for folder in ("src", "benchmarks", "docs") for file in sorted((ROOT / folder).rglob("*.py"))]
SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "--no-rcs", "--interactive"],
    "fish": ["fish", "--no-config", "--interactive"],
}
WORDS = [
    "task.inputs=[a,b]",
    "optimizer.lr=tag(log,interval(0.0001,0.1))",
    "run=my runs/ä",
    "resume='my runs, 1'",
    "~callbacks.progress_bar",
    "path=~/data",
    "name=$HOME",
    "name={a,b}",
    "name=what?*",
    "wow!",
    "!1",
    "#1",
    "=ls",
    "='x'",
    "a=b=c",
    "back\\slash",
    "two\\\\",
    "\\'",
    "it's $5",
    'said "no" and "it\'s"',
    "`ls`",
    "a;b|c&d>e<f",
    "^caret",
    "%1",
    "",
    "two\nlines",
    "λ=1",
]


@functools.cache
def all_commands() -> list[Command]:
    return [
        *at_least(900, (command for page in at_least(73, PAGES) for command in documented_commands(page))),
        *at_least(28, (command for file in sorted(CONF.rglob("*.yaml")) for command in commands_in_help(file))),
        *at_least(64, (command for file in CODE for command in commands_in_messages(file))),
    ]


def test_commands_of_documents_help_and_messages_paste_into_all_shells() -> None:
    found = all_commands()
    assert {command.text.split()[0] for command in found} >= {"gyral", "make", "python", "pip", "wandb"}
    assert not faults(found)


def test_only_packages_of_extras_and_of_the_release_are_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    simple = [
        words
        for command in all_commands()
        if command.text.startswith("pip install ")
        for words in simple_commands(command.text)
    ]
    named = {word for words in simple for word in words[2:] if not word.startswith(("-", "constraints"))}
    own = {word for word in named if word.startswith(("gyral", ".["))}
    assert named - own <= {".", "build", "twine", "torch", "numpy", "filelock"}
    chosen = {extra for word in own for extra in word.removeprefix("gyral").strip(".[]").split(",") if extra}
    assert chosen <= {*extras, "x"}, "x: of a message"


def test_a_printed_command_is_read_as_its_words() -> None:
    for word in WORDS:
        assert simple_commands(typed(["gyral", "train", word])) == [["gyral", "train", word]]


def test_code_quotes_by_one_function() -> None:
    quoting = [file for file in at_least(540, CODE) if "shlex." in file.read_text(encoding="utf-8")]
    assert quoting == [ROOT / "src" / "gyral" / "core" / "commands.py"]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("gyral report save=[a.pdf,b.tex]", "save=[a.pdf,b.tex]"),
        ("gyral train task=copy ~scheduler", "~scheduler"),
        ("gyral train path=~/data", "path=~/data"),
        ("gyral train =x", "=x"),
        ("gyral train name=what?", "name=what?"),
        ("gyral train name={a,b}", "name={a,b}"),
        ("gyral train name=* task=copy", "name=*"),
        ("gyral train name=$HOME", "name=$HOME"),
        ('gyral train "name=$HOME"', '"name=$HOME"'),
        ('gyral generate prompt="wow!"', 'prompt="wow!"'),
        ("gyral generate text='two\\\\'", "text='two\\\\'"),
        ("make test  # without the slow ones", "#"),
        ("gyral generate story=- <<< $'a'", "<<<"),
        ("gyral train resume=<run directory>", "resume=<run"),
        ("gyral train 'unclosed", "'unclosed"),
        ("gyral train a;ls", "a;ls"),
    ],
)
def test_what_some_shell_reads_otherwise_is_named(line: str, word: str) -> None:
    with pytest.raises(UnportableWordError) as caught:
        simple_commands(line)
    assert str(caught.value) == word
    assert faults([Command(Path("page.md"), 7, line)]) == [f"page.md:7: {word}"]


def test_pipes_files_and_lines_that_go_on_are_parsed() -> None:
    line = "printf 'a\\nb\\n' | gyral generate run=a \\\n  'story=-' > out.txt < in.txt && OMP_NUM_THREADS=1 make test"
    assert simple_commands(line) == [
        ["printf", "a\\nb\\n"],
        ["gyral", "generate", "run=a", "story=-"],
        ["OMP_NUM_THREADS=1", "make", "test"],
    ]


def test_commands_are_found_in_all_parts_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Type `gyral train\nmodel=<name>` or `gyral`.\n\n```bash\nmake test\ngyral train a=1 \\\n  b=2\n```\n\n"
        "```text\nNext:\n    gyral train c=3\nfour\n```\n<!-- setup: gyral train d=4 -->\n"
    )
    assert sorted(command[1:] for command in documented_commands(page)) == [
        (1, "gyral train model=x"),
        (5, "make test"),
        (6, "gyral train a=1 \\\n  b=2"),
        (12, "gyral train c=3"),
        (15, "gyral train d=4"),
    ]


def expanded(line: str) -> list[list[str]]:
    """Return the words of the simple commands of a line, and in place of each pattern the file xxx that matches it."""
    return [
        [word.replace("*", "xxx") if "*" in word and f" {word}" in line else word for word in words]
        for words in simple_commands(line)
    ]


def read_by(shell: str, lines: list[str], folder: Path) -> list[list[list[str]]]:
    """Return the words of each simple command of each line, as an interactive shell reads them; it executes none."""
    log = folder / "log"
    log.touch()
    expected = [expanded(line) for line in lines]
    for name in {word for commands in expected for words in commands for word in words if "xxx" in word}:
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "article.txt").touch()
    (folder / "sentences.txt").touch()
    programs = {words[0] for commands in expected for words in commands if "=" not in words[0]}
    programs |= {words[1] for commands in expected for words in commands if "=" in words[0]}
    arguments, function = ("$argv", "function {}; {}; end") if shell == "fish" else ('"$@"', "{}() {{ {}; }}")
    body = f"command printf '%s\\0' {{}} {arguments} '<end>' >> '{log}'"
    head = [function.format(name, body.format(name)) for name in sorted(programs)]
    head.append(function.format("line_ends", f"command printf '<line>\\0' >> '{log}'"))
    script = "\n".join([*head, *(f"{line}\nline_ends" for line in lines)])
    done = subprocess.run(SHELLS[shell], input=script + "\n", cwd=folder, text=True, capture_output=True, timeout=120)
    read = log.read_text().split("<line>\0")
    assert len(read) == len(lines) + 1, done.stderr
    return [[command.split("\0")[:-1] for command in line.split("<end>\0")[:-1]] for line in read[:-1]]


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_reads_the_words(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    lines = [*dict.fromkeys(command.text for command in all_commands() if command.text != ONLY_BASH)]
    lines += [typed(["gyral", "train", word]) for word in WORDS]
    for line, commands in zip(lines, read_by(shell, lines, tmp_path), strict=True):
        bare = [words[1:] if "=" in words[0] else words for words in expanded(line)]  # behind the variables
        assert sorted(commands) == sorted(bare), line
