"""Packages that may be missing: those of extras, and those of the framework where only the layers are installed."""

import importlib
from typing import Any

from gyral.core.errors import MissingPackageError

OF_EXTRAS = {"matplotlib": "figures", "pandas": "frames"}  # the packages that many modules import


def import_extra(package: str, option: str, extra: str) -> Any:
    """Import an optional dependency.

    Args:
        package: package to import.
        option: the option that needs the package, for the error: `launcher=slurm`.
        extra: extra of pyproject.toml that installs the package.

    Raises:
        MissingPackageError: the package is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingPackageError(f"{option}: {_needs(package, extra)}") from None


def missing_extra(error: BaseException) -> str | None:
    """Return which package of an extra an import has not found, and how to install it; None for other errors."""
    package = _missing(error)
    return _needs(package, OF_EXTRAS[package]) if package in OF_EXTRAS else None


def import_framework(module: str, user: str) -> Any:
    """Import a module of Gyral that needs the framework, which `pip install --no-deps gyral` does not install.

    Args:
        module: the module.
        user: what needs it, for the error: `gyral train`.

    Raises:
        MissingPackageError: a package of the framework is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = _missing(error)
        if package in ("", "gyral"):
            raise
        raise MissingPackageError(f"{user}: {_needs(package, OF_EXTRAS.get(package))}") from None


def _missing(error: BaseException) -> str:
    """Return the package that an import has not found, or ""."""
    return (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""


def _needs(package: str, extra: str | None) -> str:
    installed = f"'gyral[{extra}]'" if extra else "gyral"
    return f"needs the package {package}: pip install {installed}"
