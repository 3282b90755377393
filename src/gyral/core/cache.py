"""Directories for files that are expensive to compute: compiled kernels and prepared corpora."""

import functools
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

DATA_CACHE = ".cache"  # in the data directory


def cache_directory() -> Path:
    """Return the user's cache directory: $GYRAL_CACHE, else $XDG_CACHE_HOME/gyral, else ~/.cache/gyral."""
    directory = os.environ.get("GYRAL_CACHE")
    if directory:
        return Path(directory)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gyral"


def cache_candidates(data_dir: Path) -> list[Path]:
    """Return the directories in which data derived from the data directory may be cached, the preferred one first.

    These are `.cache` in the data directory, if the data directory exists and is writable, and the user's cache
    directory.
    """
    # The mode is checked as well: root may write anywhere, but a directory without write permission is protected.
    writable = data_dir.is_dir() and data_dir.stat().st_mode & 0o222 and os.access(data_dir, os.W_OK)
    return [data_dir / DATA_CACHE, cache_directory()] if writable else [cache_directory()]


def untrusted_reason(path: Path) -> str | None:
    """Return why another user could have written or replaced a file or directory, or None if nobody could.

    The path, all directories above it and all symbolic links on the way must belong to this user or root, and no other
    user may write to them. A directory with the sticky bit, such as /tmp, is safe: there, others cannot replace what
    they do not own. A group may write if it is its owner's alone, as is the default of some distributions.

    Args:
        path: the path, as it will be used: with its links.

    Raises:
        OSError: the path does not exist or cannot be read.
    """
    if not hasattr(os, "getuid"):  # Windows, which keeps caches in the user's profile
        return None
    path.resolve(strict=True)  # it exists, and its links do not lead in a circle
    for place in _places(path):
        status = place.lstat()
        mode = f"{place} (mode {stat.S_IMODE(status.st_mode):o})"
        if status.st_uid not in (0, os.getuid()):
            return f"{place} belongs to another user"
        if stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
            continue  # the mode of a link has no meaning
        if status.st_mode & stat.S_IWOTH:
            return f"all users may write to {mode}"
        if status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, status.st_uid):
            return f"a group may write to {mode}"
    return None


def _places(path: Path) -> Iterator[Path]:
    """Yield the places that the system visits on the way to a path: directories, links and what they lead to."""
    place, left = Path("/"), [*reversed(Path(os.path.abspath(path)).parts[1:])]
    yield place
    while left:
        part = left.pop()
        place = place.parent if part == ".." else place / part
        yield place
        if place.is_symlink():
            link = place.readlink()
            place = Path("/") if link.is_absolute() else place.parent
            left += reversed(link.parts[link.is_absolute() :])


def _is_private_group(group: int, owner: int) -> bool:
    """Return whether a group has its owner's name and no other member."""
    import grp  # neither module exists on Windows
    import pwd

    try:
        entry, name = grp.getgrgid(group), pwd.getpwuid(owner).pw_name
    except KeyError:
        return False
    return entry.gr_name == name and {*entry.gr_mem} <= {name}


@functools.cache  # keeps the object, whose finalizer removes the directory
def _private_directory() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="gyral-")


def keep_compiler_cache_private() -> None:
    """Set TORCHINDUCTOR_CACHE_DIR, unless the user did, to a folder of the cache directory that others cannot write.

    By default, `torch.compile` loads libraries from /tmp/torchinductor_<user>, which any user may create first.
    """
    if "TORCHINDUCTOR_CACHE_DIR" in os.environ:
        return
    directory = cache_directory() / "torch_compile"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = untrusted_reason(directory)
    except OSError as error:
        reason = f"{directory}: {error.strerror}"
    if reason is not None:
        log.warning("%s; torch.compile compiles for this process alone", reason)
        directory = Path(_private_directory().name)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(directory)
