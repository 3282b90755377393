"""Commands: as a user types them in a shell, and those of other programs."""

import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from gyral.core.search_paths import find_program


def typed(words: list[str]) -> str:
    """Return a command as a user types it in bash, zsh or fish: words with Hydra's single quotes get double quotes."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if "'" in word and not set(word) & set('"$`\\!'):
        return f'"{word}"'
    if word.startswith("="):
        return f"'='{_quoted(word[1:]) if word[1:] else ''}"  # zsh takes =name for the path of a program
    # A backslash is outside of quotes: in single quotes it is an escape in fish, and in the others it is not.
    return r"\\".join(shlex.quote(part) if part else "" for part in word.split("\\")) or "''"


def program(command: str, script: str | None = None) -> list[str]:
    """Return the words that start a command of Gyral, as the user started a process.

    These are `python -m src.train` after a start from the stub in a checkout, and `gyral train` otherwise.

    Args:
        command: name of the command.
        script: the process's script, `sys.argv[0]`; by default the script of this process.
    """
    is_stub = Path(script or sys.argv[0]).parent.name == "src"
    return ["python", "-m", f"src.{command}"] if is_stub else ["gyral", command]


def version() -> str:
    """Return the version of Gyral: of the installed package, or of a checkout without installation."""
    try:
        return metadata.version("gyral")
    except metadata.PackageNotFoundError:
        import tomllib

        project = Path(__file__).parents[3] / "pyproject.toml"
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


def print_version() -> None:
    """Print what --version asks for, in every command."""
    print(f"gyral {version()}")


def output_of(*command: str, folder: Path | None = None, seconds: float = 10.0) -> str:
    """Return what another program prints; bytes that are not UTF-8 become lone surrogates.

    Args:
        *command: the program and its arguments.
        folder: where it runs; None: the current directory.
        seconds: how long it may take.

    Raises:
        TimeoutError: it has not ended in time.
        OSError: it is missing or has failed; the message is one line.
    """
    found = find_program(command[0])
    if found is None:
        raise FileNotFoundError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [found, *command[1:]],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=True,
            timeout=seconds,
        )
    except subprocess.CalledProcessError as error:
        raise OSError(" ".join(error.stderr.split())) from None
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{command[0]} did not answer in {seconds:g} seconds") from None
    return done.stdout
