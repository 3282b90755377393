"""Overrides and commands as text: in Hydra's grammar, and as a user types them in a shell."""

import re
import shlex
import sys
from pathlib import Path

from hydra.core.override_parser.types import Quote, QuotedString


def quote(override: str) -> str:
    """Return an override key=value whose value Hydra reads as this exact text; a value in quotes stays as it is.

    Hydra parses unquoted text: it strips spaces, sweeps over commas and rejects apostrophes.
    """
    key, equals, value = override.partition("=")
    if not equals or re.fullmatch(r"'.*'|\".*\"", value, re.DOTALL):
        return override
    escaped = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)  # no interpolation
    return f"{key}={QuotedString(escaped, Quote.single).with_quotes()}"


def plain(override: str) -> str:
    """Return an override key=value as a user types it: with quotes only if Hydra would parse its value."""
    return override if re.fullmatch(r"[\w./+@:-]*", override.partition("=")[2]) else quote(override)


def typed(words: list[str]) -> str:
    """Return a command as a user types it in a shell: words with Hydra's single quotes get double quotes."""
    return " ".join(
        f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word) for word in words
    )


def program(command: str, script: str | None = None) -> list[str]:
    """Return the words that start a command of Gyral, as the user started a process.

    These are `python -m src.train` after a start from the stub in a checkout, and `gyral train` otherwise.

    Args:
        command: name of the command.
        script: the process's script, `sys.argv[0]`; by default that of this process.
    """
    is_stub = Path(script or sys.argv[0]).parent.name == "src"
    return ["python", "-m", f"src.{command}"] if is_stub else ["gyral", command]
