"""Real engines for tests: each is started in a folder of the test, on free ports, and ended by its process id."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

# where Debian puts daemons, besides the PATH of a user
FOLDERS = ("/usr/sbin", "/sbin", "/usr/local/sbin", *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin"))))


def find_program(name: str) -> str | None:
    """Return the path of a program, or None if it is not installed."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *FOLDERS]))


def require(engine: str, *programs: str) -> list[str]:
    """Return the paths of the programs of an engine; skip the test if one is not installed."""
    paths = {name: find_program(name) for name in programs}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        pytest.skip(f"{engine} is not installed ({', '.join(missing)}); see make test-cluster-install")
    return [str(path) for path in paths.values()]


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until(condition: Callable[[], object], seconds: float = 60, what: str = "") -> None:
    """Wait until a condition holds; fail if it does not within some seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} seconds: {what or condition}"
        time.sleep(0.05)


@contextmanager
def daemon(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None, seconds: float = 20
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that runs in the foreground; end it, by its process id, when the context exits.

    Args:
        command: the program and its arguments.
        log: the file for its output.
        environment: its environment variables. None: those of this process.
        seconds: how long it may take to end after SIGTERM, before it is killed.
    """
    with log.open("ab") as file:
        process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
