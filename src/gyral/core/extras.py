"""Optional dependencies."""

import importlib
from typing import Any

from gyral.core.errors import OptionError


def import_extra(package: str, option: str, extra: str) -> Any:
    """Return a package that comes with an extra of pyproject.toml, else raise `OptionError`."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise OptionError(f"{option}: needs the package {package}: pip install 'gyral[{extra}]'") from None
