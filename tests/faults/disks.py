"""Disks that fill up: a small file system in memory where this process is root, else a limit on the sizes of files."""

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path


@contextlib.contextmanager
def mounted(directory: Path, size: int) -> Iterator[bool]:
    """Mount a file system of so many bytes on a directory; provide whether that was possible."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    done = os.getuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", "--lazy", str(directory)], check=True)


def resize(directory: Path, size: int) -> None:
    """Change the size of a file system in memory."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(directory)], check=True)


def leave(directory: Path, size: int) -> None:
    """Leave so many free bytes on a file system in memory that processes write to."""
    for _ in range(20):
        state = os.statvfs(directory)
        used = (state.f_blocks - state.f_bfree) * state.f_frsize
        with contextlib.suppress(subprocess.CalledProcessError):  # more has been written in the meantime
            return resize(directory, used + size)
    raise RuntimeError(f"{directory} grows too fast")


def limit_files(size: int, processes: Sequence[int] = (0,)) -> None:
    """Limit the sizes of the files that processes, by default this one, may write; -1 lifts the limit."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            hard = resource.prlimit(process, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(process, resource.RLIMIT_FSIZE, (size, hard))
