"""Commands as a user types them in a shell."""

import shlex
import sys
from pathlib import Path


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
        script: the process's script, `sys.argv[0]`; by default the script of this process.
    """
    is_stub = Path(script or sys.argv[0]).parent.name == "src"
    return ["python", "-m", f"src.{command}"] if is_stub else ["gyral", command]
