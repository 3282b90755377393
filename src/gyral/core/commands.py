"""Commands: as a user types them in a shell, those of other programs, and where modules and programs are searched."""

import functools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

PACKAGES = str(Path(__file__).resolve().parents[2])  # the directory of the package gyral
# variables with paths of modules, libraries and headers; an empty entry means the current directory
PATHS = (
    *("PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "COMPILER_PATH"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
)


def leave_out_current_directory() -> None:
    """Keep this process and its children from importing modules or starting programs of the current directory.

    The current directory may be a run or a corpus of somebody else, with a file torch.py or a program git. Python puts
    it first on the path of modules for `python -m`, for `python -c`, and for an empty entry of PYTHONPATH, as
    `PYTHONPATH=$PYTHONPATH:/more` makes one. What is imported before this call, and libraries that this process loads,
    may still be found there. Entries that PYTHONPATH names stay. An own directory follows after the installed packages,
    see `gyral.config.own_modules`.
    """
    here = os.getcwd()
    named = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    library = os.path.dirname(os.__file__)  # script and PYTHONPATH are before it, installed packages after it
    own = sys.path.index(library) if library in sys.path else len(sys.path)
    if here not in (PACKAGES, *named):
        sys.path[:own] = [entry for entry in sys.path[:own] if entry and os.path.abspath(entry) != here]
    for variable in (*PATHS, "PATH"):
        if variable in os.environ:
            os.environ[variable] = _entries(variable, os.path.isabs if variable == "PATH" else bool)
    os.environ["PYTHONSAFEPATH"] = "1"  # of all Python processes that this one starts


def limit_spinning() -> None:
    """Let idle threads of GNU OpenMP, which PyTorch uses, sleep after less than 1 ms, unless the environment says when.

    By default, a thread that waits for others spins for several milliseconds. If another program takes turns with them
    on the cores, they spend most of their time so. OpenMP reads the variable when PyTorch is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def find_program(name: str) -> str | None:
    """Return the full path of a program of PATH, not one of the current directory; None if it is not installed."""
    return shutil.which(name, path=_entries("PATH", os.path.isabs))


def _entries(variable: str, keep: Callable[[str], bool]) -> str:
    return os.pathsep.join(filter(keep, os.environ.get(variable, os.defpath).split(os.pathsep)))


def typed(words: list[str]) -> str:
    """Return a command as a user types it in bash, zsh or fish: words with Hydra's single quotes get double quotes."""
    return " ".join(map(_quoted, words))


@functools.lru_cache(1024)  # the runs of a sweep share most of their words
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
    """Print the version, for --version of every command."""
    print(f"gyral {version()}")


def output_of(*command: str, folder: Path | None = None, seconds: float = 10.0) -> str:
    """Return the output of another program; bytes that are not UTF-8 become lone surrogates.

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
