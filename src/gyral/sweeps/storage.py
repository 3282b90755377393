"""The storage of a search: its driver, its password and its errors. Imports no torch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gyral.core.errors import OptionError, SweepError, UserError, hide_passwords, one_line
from gyral.runs.trial import STORAGE

DRIVERS = ("psycopg", "pymysql")  # in the extra `databases`


def url_of_file(path: Path) -> str:
    """Return the URL of a database of SQLite, with escapes for signs such as ? that have a meaning in URLs."""
    from sqlalchemy import URL

    return str(URL.create("sqlite", database=str(path)))


def check_storage(url: str) -> None:
    """Raise `OptionError` if a text is not the URL of a database, or the driver of the database is not installed."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    shown = hide_passwords(url)
    try:
        make_url(url).get_dialect().import_dbapi()
    except ImportError as error:
        install = "pip install 'gyral[databases]'" if error.name in DRIVERS else "see docs/how-to/search.md"
        raise OptionError("hydra.sweeper.storage", shown, f"needs the package {error.name}: {install}") from None
    except (ArgumentError, ValueError):
        example = "sqlite:///study.db or postgresql://user:password@host/database"
        raise OptionError("hydra.sweeper.storage", shown, f"cannot be used: must be a URL such as {example}") from None


@contextmanager
def storage_for_jobs(url: str) -> Iterator[None]:
    """Provide a URL that has a password to the jobs in their environment, which no file contains."""
    if hide_passwords(url) != url:
        os.environ[STORAGE] = url
    try:
        yield
    finally:
        os.environ.pop(STORAGE, None)


@contextmanager
def storage_errors(storage: str) -> Iterator[None]:
    """Report errors of Optuna in one line. A database that somebody else has written makes it raise almost any."""
    try:
        yield
    except (UserError, SweepError):
        raise
    except Exception as error:
        reason = f"cannot be used: {one_line(error.__cause__ or error)}"
        raise OptionError("hydra.sweeper.storage", storage, reason) from error
