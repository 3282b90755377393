"""Kernels compiled for other processors than this machine's."""

import functools
from pathlib import Path

import pytest

from gyral.ops import kernels
from gyral.ops.native import library


def forget_kernels() -> None:
    """Let this process look for kernels again, as a new one would."""
    for cached in (kernels.load_or_reason, library.load_or_reason, library.function):
        cached.cache_clear()


def compile_for(monkeypatch: pytest.MonkeyPatch, directory: Path, *processor: str) -> None:
    """Compile kernels from now on with these flags in the place of -march=native, into a directory."""
    others = [flag for flag in library.FLAGS if flag != "-march=native"]
    assert len(others) < len(library.FLAGS)
    monkeypatch.setattr(library, "FLAGS", (*others, *processor))
    monkeypatch.setattr(library, "load", functools.cache(library._load))
    monkeypatch.setattr(library, "function", functools.cache(library.function.__wrapped__))
    monkeypatch.setattr(library, "cache_directory", lambda: directory)
