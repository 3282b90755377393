"""Directories for files that are expensive to compute: compiled kernels and prepared corpora."""

import os
from pathlib import Path

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
