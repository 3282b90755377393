"""Databases of SQLite that somebody else may have written: what is checked before SQLite opens them.

When SQLite opens a database, it rolls back the transaction of a killed process from the file `<name>-journal`. If that
journal names another one, as those of transactions over several databases do, SQLite deletes the file of that name,
wherever it is. If a journal is a link, SQLite writes to the file that the link leads to. SQLite executes the views and
triggers of a database when a program reads and writes its tables, and they may never end.
"""

import os
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path

from gyral.core.errors import UserError, one_line
from gyral.core.inputs import excerpt, find_fault

JOURNAL = "-journal"
SIDE_FILES = (JOURNAL, "-wal", "-shm")  # ends of the names of the files that SQLite reads and writes beside a database
MAGIC = bytes.fromhex("d9d505f920a163d7")  # what a journal ends with if it names another one
TIMEOUT = 60  # seconds to wait for the write of another process
# What Optuna has not made: all but tables and indices. SQLite executes the text, whatever the other columns say.
FOREIGN = """SELECT name FROM sqlite_master WHERE sql NOT LIKE 'CREATE TABLE %'
    AND sql NOT LIKE 'CREATE INDEX %' AND sql NOT LIKE 'CREATE UNIQUE INDEX %'"""


class Database(sqlite3.Connection):
    """A connection to a database whose schema may use the functions of SQLite alone, and none that a program adds."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.execute("PRAGMA trusted_schema = OFF")


def check_database(path: Path) -> None:
    """Check that SQLite changes no other file when it opens a database, and that the database has no views or triggers.

    A journal that a killed process has left is allowed: SQLite recovers the database from it.

    Args:
        path: path of the database, which need not exist.

    Raises:
        UserError: a file beside the database is a link or not a file, or is a journal that names another file; the
            database has views or triggers; or it is not a database.
    """
    path = Path(os.path.realpath(path))  # SQLite's other files are beside the file that a link leads to
    for end in SIDE_FILES:
        _check_side_file(path.with_name(path.name + end))
    if not path.exists():
        return
    if fault := find_fault(path):
        raise UserError(f"{path}: {fault}")
    try:
        with closing(sqlite3.connect(path, timeout=TIMEOUT, factory=Database)) as database:
            found = database.execute(FOREIGN).fetchone()
    except (sqlite3.Error, UnicodeError) as error:
        raise UserError(f"{path}: cannot be used: {one_line(error)}") from None
    if found is not None:
        name = excerpt([str(found[0])])
        raise UserError(f"{path}: {name} is neither a table nor an index, and no search makes views or triggers")


def _check_side_file(side: Path) -> None:
    with suppress(FileNotFoundError):  # another process that writes removes its journal at any moment
        mode = side.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise UserError(f"{side}: is a link, through which SQLite would write")
        if not stat.S_ISREG(mode):
            raise UserError(f"{side}: {find_fault(side)}")
        if side.name.endswith(JOURNAL) and _names_another(side):
            raise UserError(f"{side}: names another file, which SQLite would delete; no search writes such a journal")


def _names_another(journal: Path) -> bool:
    """Return whether a journal ends as one does that names another journal."""
    with journal.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(MAGIC)))
        return file.read() == MAGIC
