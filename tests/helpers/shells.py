"""What bash, zsh and fish read alike, and the commands of documents and messages, which must be written so.

`simple_commands` parses a line without a shell. It accepts what all three, interactive, read as the same words:

* A bare word has only characters without a meaning in all of them. Some expand `[…]`, `{…}`, `?`, `!`, `$`, `~`
  and `=name`; `<name>` is a redirection. All replace `*` by names of files, which is for words that are paths.
* In double quotes are no `$`, backquote, `\\` or `!`; in single quotes no `\\\\` and `\\'`, which are escapes in fish.
* There are no comments, which zsh does not have, and no `<<<`, `<<` and `$'…'`, which fish does not have.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

SPACE = re.compile(r"(?:\\\n|\s)*")
OPERATOR = re.compile(r"(<|>|>>|\||&&)\s")
PIECE = re.compile(
    r"""'(?P<single>(?:[^'\\]|\\(?![\\']))*)'   # a backslash stays
    |"(?P<double>[^"$`\\!]*)"
    |(?P<backslash>\\\\)
    |(?P<bare>[\w@%+=:,./*-]+)""",
    re.VERBOSE,
)
PROGRAMS = ("gyral", "make", "python", "pip", "wandb", "git", "source", "eval", "twine", "echo", "printf", "sed")
COMMAND = re.compile(rf"(?:[A-Z_]+=\S+ )*(?:{'|'.join(PROGRAMS)})\s")
ONLY_BASH = 'eval "$(gyral -sc install=bash)"'  # the text says so


class UnportableWordError(ValueError):
    """A word that the shells do not all read as it is written."""


class Command(NamedTuple):
    """A line of a shell in a file of the repository."""

    file: Path
    line: int
    text: str


def simple_commands(line: str) -> list[list[str]]:
    """Return the words of each simple command of a line, without redirections.

    Raises:
        UnportableWordError: the shells do not agree on a word; the message is this word.
    """
    commands: list[list[str]] = [[]]
    is_file = False
    position = 0
    while (position := SPACE.match(line, position).end()) < len(line):  # type: ignore[union-attr]
        if operator := OPERATOR.match(line, position):
            is_file = operator[1] not in ("|", "&&")
            if not is_file:
                commands.append([])
            position = operator.end()
            continue
        word, position = _word(line, position)
        if not is_file:
            commands[-1].append(word)
        is_file = False
    return commands


def _word(line: str, start: int) -> tuple[str, int]:
    """Return the word at a position of a line, and where it ends."""
    word, end = "", start
    while piece := PIECE.match(line, end):
        word += "\\" if piece["backslash"] else piece[piece.lastgroup or 0]
        end = piece.end()
        is_pattern = "*" in (piece["bare"] or "") and ("=" in word or "/" not in word)
        if is_pattern or (piece.start() == start and piece[0].startswith("=")):
            break
    else:
        if end > start and (end == len(line) or line[end].isspace()):
            return word, end
    raise UnportableWordError(re.split(r"\s", line[start:])[0])


def documented_commands(page: Path) -> Iterator[Command]:
    """Yield the commands of a Markdown page or notebook: in blocks for a shell, in output of Gyral, and in sentences.

    Blocks of the language `sh` are files, which bash runs. A command in a sentence has at least two words; its `<name>`
    and `…` stand for what a reader chooses, and become `x`.
    """
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        for cell in json.loads(text)["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                yield from _in_markdown(page, source)
            else:
                found = re.finditer(r"^!(.*)$", source, re.MULTILINE)
                yield from (Command(page, source.count("\n", 0, line.start()) + 1, line[1]) for line in found)
    else:
        yield from _in_markdown(page, text)


def _in_markdown(page: Path, text: str) -> Iterator[Command]:
    def at(position: int, command: str) -> Command:
        return Command(page, text.count("\n", 0, position) + 1, command)

    rest = text
    for block in re.finditer(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        rest = rest.replace(block[0], re.sub(r"[^\n]", " ", block[0]), 1)
        for line in re.finditer(r"(?:[^\n]*\\\n)*[^\n]+", block[3]):
            is_command = block[2] in ("", "bash") or (block[2] == "text" and COMMAND.match(line[0].strip()))
            if is_command and line[0].strip():
                yield at(block.start(3) + line.start(), line[0].strip())
    for setup in re.finditer(r"<!-- setup: (.*?) -->", rest, re.DOTALL):
        yield at(setup.start(), setup[1])
    for span in re.finditer(r"(?<!`)`([^`]+)`(?!`)", rest):
        if COMMAND.match(span[1]):
            yield at(span.start(), _without_placeholders(span[1]))


def _without_placeholders(text: str) -> str:
    return re.sub(r"<[\w ]+>|…", "x", re.sub(r"\s+", " ", text))


def commands_in_help(file: Path) -> Iterator[Command]:
    """Yield the commands in the template of the help of a configuration file; explanations follow after two spaces."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if found := re.match(r"\s+\$(\w+ .*?)(?:  .*)?$", line):
            yield Command(file, number, f"gyral {found[1]}")


def commands_in_messages(file: Path) -> Iterator[Command]:
    """Yield the commands in the strings of a Python file: in backquotes, alone in a line, or after a colon.

    Each value of an f-string is the word `x`.
    """
    code = file.read_text(encoding="utf-8")
    if not re.search(rf"(?:[\"'`]|^|: )\s*{COMMAND.pattern}", code, re.MULTILINE):
        return  # without the seconds that all syntax trees take
    parts = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            text = node.value
        else:
            continue
        for found in re.finditer(r"`([^`\n]+)`|(?:^|: )\s*(\w[^\n;`]*)(?=$|;)", text, re.MULTILINE):
            command = re.split("  ", found[1] or found[2])[0]
            if COMMAND.match(command):
                yield Command(file, node.lineno, _without_placeholders(command))


def faults(commands: Iterable[Command]) -> list[str]:
    """Return the words of commands that bash, zsh and fish do not all read as they are written, with their places."""
    found = []
    for command in commands:
        try:
            if command.text != ONLY_BASH:
                simple_commands(command.text)
        except UnportableWordError as error:
            found.append(f"{command.file}:{command.line}: {error}")
    return found
