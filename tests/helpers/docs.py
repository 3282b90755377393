"""The scripts of docs/, such as docs/results.py, which makes the tables of the pages."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers.running import ROOT


def load_script(name: str, folder: Path = ROOT / "docs") -> ModuleType:
    """Return a script as a module, by default docs/<name>.py."""
    spec = importlib.util.spec_from_file_location(f"{folder.name}_{name}", folder / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)  # as if the file were run
        spec.loader.exec_module(module)
    return module
