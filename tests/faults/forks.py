"""Runs the programs in forks of this process, which has imported torch, with a limit of time."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, NamedTuple

from gyral.ops import operator
from tests.helpers.composing import each_once
from tests.helpers.running import ENTRIES, ROOT

NEVER_ENDED = -1000
MEMORY = 2 * 2**30  # bytes of a command beyond those of this process
PATIENCE = 12  # seconds that a fork may take for each second of its own, while other processes run


class Ended(NamedTuple):
    """How a fork ended.

    Attributes:
        status: the exit status; minus the signal that killed it; `NEVER_ENDED` if it took longer than the limit.
        out, err: what it wrote to standard output and standard error.
        seconds: how long it took.
    """

    status: int
    out: str
    err: str
    seconds: float

    @property
    def error(self) -> str:
        """The one line that tells the error, without its beginning; an empty text if there are none or several."""
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        return lines[0].removeprefix("error: ") if len(lines) == 1 else ""


def fork(
    function: Callable[[], Any], directory: Path, limit: float = 10.0, meanwhile: Callable[[int], None] | None = None
) -> Ended:
    """Call a function in a fork of this process, in a working directory.

    Args:
        function: what the fork calls.
        directory: the working directory.
        limit: seconds after which the fork is killed.
        meanwhile: what this process calls at the same time, with the number of the fork's process.
    """
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as err,
    ):
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 1))
            _be_child(function, directory, out.fileno(), err.fileno())
        if meanwhile is not None:
            meanwhile(child)
        status = _wait(child, started + PATIENCE * limit)
        seconds = time.monotonic() - started
        out.seek(0), err.seek(0)
        return Ended(status, out.read(), err.read(), seconds)


def run(*arguments: str, entry: str = "train", directory: Path, limit: float = 10.0) -> Ended:
    """Run `gyral <entry> <arguments>` in a fork of this process, as from a shell in a directory."""

    def call() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, hard))  # the program must say so if it is not enough
        sys.argv = [f"gyral/{entry}.py", *arguments]
        with each_once():
            ENTRIES[entry]()

    return fork(call, directory, limit)


def import_anew(code: str, *arguments: str, packages: Container[str], directory: Path, limit: float = 20.0) -> Ended:
    """Execute code in a fork of this process in which some packages, Gyral among them, have not been imported yet.

    It takes a fraction of the time of a new process, which imports torch.

    Args:
        code: the code; `sys.modules` has what it imports of the packages.
        *arguments: its `sys.argv[1:]`.
        packages: the packages that are forgotten. A package that cannot be imported twice, such as torch, may be among
            them if the code must not import it.
        directory: the working directory.
        limit: seconds of computation.
    """

    def call() -> None:
        operator.LIBRARY._destroy()  # torch refuses to define an operator twice
        for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
            del sys.modules[name]
        sys.path.insert(0, str(ROOT))
        sys.argv = ["code", *arguments]
        exec(compile(code, "code", "exec"), {"__name__": "__main__"})

    return fork(call, directory, limit)


def spawn(*arguments: str, entry: str = "train", directory: Path, limit: float = 10.0) -> Ended:
    """Run `gyral <entry> <arguments>` in a process of its own, as from a shell in a directory."""
    started = time.monotonic()
    completed = subprocess.run(
        [sys.executable, "-m", "gyral", entry, *arguments],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE * limit,
        check=False,
    )
    return Ended(completed.returncode, completed.stdout, completed.stderr, time.monotonic() - started)


def _be_child(function: Callable[[], Any], directory: Path, out: int, err: int) -> None:
    """Call the function and end this process as Python does."""
    status = 1
    try:
        os.setsid()  # so that its children end with it
        os.chdir(directory)
        os.environ.pop("HYDRA_FULL_ERROR", None)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]
        try:
            function()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        except BaseException:  # the child ends here, whatever happened: print what Python would have printed
            traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
    finally:
        os._exit(status)


def _wait(child: int, until: float) -> int:
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            status = os.waitstatus_to_exitcode(status)
            return NEVER_ENDED if status == -signal.SIGXCPU else status
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return NEVER_ENDED
