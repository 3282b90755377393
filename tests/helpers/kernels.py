"""Kernels compiled for other processors than this machine's."""

import functools
from pathlib import Path

import pytest

from gyral.ops.native import library


def compile_for(monkeypatch: pytest.MonkeyPatch, directory: Path, *processor: str) -> None:
    """Compile kernels from now on with these flags in the place of -march=native, into a directory."""
    others = [flag for flag in library.FLAGS if flag != "-march=native"]
    assert len(others) < len(library.FLAGS)
    monkeypatch.setattr(library, "FLAGS", (*others, *processor))
    monkeypatch.setattr(library, "load", functools.cache(library._load))
    monkeypatch.setattr(library, "cache_directory", lambda: directory)
