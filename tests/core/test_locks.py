"""Locks between processes: exclusive, listed by the system, kept on disk."""

import fcntl
import threading
from pathlib import Path

import pytest

from gyral.core.locks import lock_file


def is_listed(path: Path) -> bool:
    return f":{path.stat().st_ino} " in Path("/proc/locks").read_text(encoding="utf-8")


def test_a_lock_is_exclusive_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with lock_file(path):
        with pytest.raises(BlockingIOError, match="locked by another process"):
            lock_file(path)
        with path.open() as file, pytest.raises(BlockingIOError):  # a lock of the operating system
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with lock_file(path):
        pass


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system does not list locks")
def test_the_file_stays_and_the_system_lists_its_lock(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with lock_file(path):
        inode = path.stat().st_ino
        assert is_listed(path)
    assert path.stat().st_ino == inode
    assert not is_listed(path)


def test_a_process_may_wait_for_a_lock(tmp_path: Path) -> None:
    acquired = threading.Event()

    def wait() -> None:
        with lock_file(tmp_path / ".lock", seconds=None):
            acquired.set()

    thread = threading.Thread(target=wait)
    with lock_file(tmp_path / ".lock"):
        thread.start()
        assert not acquired.wait(0.1)
    thread.join()
    assert acquired.is_set()


def test_a_folder_that_cannot_be_created_is_another_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file") as caught:
        lock_file(tmp_path / "file" / ".lock")
    assert not isinstance(caught.value, BlockingIOError)
