"""Optional dependencies."""

import importlib
from typing import Any

from gyral.core.errors import UserError


def import_extra(package: str, option: str, extra: str) -> Any:
    """Import an optional dependency.

    Args:
        package: package to import.
        option: the option that needs the package, for the error: `launcher=slurm`.
        extra: extra of pyproject.toml that installs the package.

    Raises:
        UserError: the package is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        raise UserError(f"{option}: needs the package {package}: pip install 'gyral[{extra}]'") from None
