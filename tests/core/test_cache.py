"""Cache directories: the variables, and data folders that may not be written."""

from pathlib import Path

import pytest

from gyral.core.cache import cache_candidates, cache_directory


def test_variables_name_the_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GYRAL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_directory() == tmp_path / ".cache" / "gyral"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "gyral"
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"


def test_a_data_folder_is_preferred_if_it_may_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "own"))
    assert cache_candidates(tmp_path) == [tmp_path / ".cache", tmp_path / "own"]
    assert cache_candidates(tmp_path / "missing") == [tmp_path / "own"]
    tmp_path.chmod(0o555)
    assert cache_candidates(tmp_path) == [tmp_path / "own"]
    tmp_path.chmod(0o755)
