"""The scripts of docs/, such as docs/results.py, which makes the tables of the pages."""

import importlib.util
from types import ModuleType

import pytest

from tests.helpers.running import ROOT


def load_script(name: str) -> ModuleType:
    """Return docs/<name>.py as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")  # as if the file were run
        spec.loader.exec_module(module)
    return module
