"""Locks between processes."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout


def lock_file(path: Path, *, seconds: float | None = 0) -> AbstractContextManager[Any]:
    """Acquire an exclusive lock on a file and return a context manager that releases it.

    The file is created if it does not exist. It stays when the lock is released, because deleting it would let two
    processes hold locks on different files of the same name. The operating system releases the lock of a process that
    ends. The lock is an `flock`, so that /proc/locks lists it by the inode of the file.

    Args:
        path: the lock file, in a directory that exists.
        seconds: how long to wait while another process holds the lock. None: for ever.

    Raises:
        BlockingIOError: another process still holds the lock.
        OSError: the file cannot be opened or locked.
    """
    lock = FileLock(path, thread_local=False, preserve_lock_file=True)
    try:
        return lock.acquire(timeout=-1 if seconds is None else seconds)
    except Timeout as error:
        raise BlockingIOError(f"{path} is locked by another process") from error
