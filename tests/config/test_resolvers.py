"""Resolvers of the configuration."""

import pytest

from gyral.config.resolvers import data_dir
from tests.helpers.running import invoke


def test_the_data_directory_is_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_DIR", "/somewhere/else")
    assert "data_dir: /somewhere/else" in invoke("--cfg", "job", "--resolve").out
    monkeypatch.delenv("DATA_DIR")
    assert "data_dir: data\n" in invoke("--cfg", "job", "--resolve").out
    monkeypatch.setenv("DATA_DIR", "")
    assert data_dir() == "data"
