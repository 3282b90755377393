"""Files beside a database of SQLite, and statements in it, by which somebody else tries to change other files."""

import os
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.helpers.running import SMALL_COPY

SEARCH = (
    "sweep=tune",
    *(option for option in SMALL_COPY if "hidden_size" not in option and "max_steps" not in option),
    "trainer.max_steps=4",
    "trainer.val_check_interval=4",
    "model=rnn",
    "optimizer.lr=tag(log,interval(0.001,0.1))",
    "model.cell.hidden_size=range(4,17,4)",
    "optimizer=adam",
    "model.cell.nonlinearity=tanh,relu",
    "hydra.sweep.dir=search",
)
SECTOR = 512
PAGE = 4096
MAGIC = bytes.fromhex("d9d505f920a163d7")
ENDLESS = "WITH RECURSIVE endless(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM endless) SELECT"
Attack = Callable[[Path, Path], object]  # called with the database and the file of the user


def header(database: Path, nonce: int = 1) -> bytes:
    """Return the header of a journal that has no page: a transaction that changed nothing yet."""
    pages = database.stat().st_size // PAGE
    return (MAGIC + struct.pack(">IIIII", 0, nonce, pages, SECTOR, PAGE)).ljust(SECTOR, b"\0")


def another_journal(name: bytes) -> bytes:
    """Return the end of a journal that names another one."""
    return struct.pack(">I", 0x40000001) + name + struct.pack(">II", len(name), sum(name)) + MAGIC


def names(of: Callable[[Path, Path], object], before: Callable[[Path], bytes] = header) -> Attack:
    """Return an attack: a journal that names another file as a journal of several databases."""

    def write(database: Path, precious: Path) -> None:
        content = before(database) + another_journal(os.fsencode(str(of(database, precious))))
        database.with_name(f"{database.name}-journal").write_bytes(content)

    return write


def listed(database: Path, precious: Path) -> None:
    """A journal of several databases that lists the file of the user, whose own journal does not name it."""
    other = database.with_name("trials.csv-mj0000")
    other.write_bytes(os.fsencode(precious) + b"\0")
    names(lambda *_: other)(database, precious)


def page(database: Path) -> bytes:
    """Return a journal that writes the first page of the database, as it is."""
    first = database.read_bytes()[:PAGE]
    nonce = 7
    checksum = nonce + sum(first[place] for place in range(PAGE - 200, 0, -200))
    start = MAGIC + struct.pack(">IIIII", 1, nonce, database.stat().st_size // PAGE, SECTOR, PAGE)
    return start.ljust(SECTOR, b"\0") + struct.pack(">I", 1) + first + struct.pack(">I", checksum % 2**32)


def link(end: str) -> Attack:
    return lambda database, precious: database.with_name(database.name + end).symlink_to(precious)


def new_link(end: str) -> Attack:
    return lambda database, precious: database.with_name(database.name + end).symlink_to(precious.with_name("new"))


def pipe(end: str) -> Attack:
    return lambda database, precious: os.mkfifo(database.with_name(database.name + end))


def folder(end: str) -> Attack:
    return lambda database, precious: database.with_name(database.name + end).mkdir()


def with_wal(attack: Attack) -> Attack:
    """Return an attack on a database that has a log in place of a journal."""

    def change(database: Path, precious: Path) -> None:
        with closing(sqlite3.connect(database)) as opened:
            opened.execute("PRAGMA journal_mode = WAL")
        attack(database, precious)

    return change


def sql(*statements: str, hidden: bool = False) -> Attack:
    """Return an attack by statements; hidden, the schema calls everything a table."""

    def change(database: Path, precious: Path) -> None:
        with closing(sqlite3.connect(database)) as opened, opened:
            opened.create_function("regexp", 2, lambda pattern, text: True, deterministic=True)
            for statement in statements:
                opened.execute(statement)
            if hidden:
                opened.execute("PRAGMA writable_schema = ON")
                opened.execute("UPDATE sqlite_master SET type = 'table', rootpage = 2 WHERE rootpage = 0")

    return change


SIDE_FILES: dict[str, Attack] = {
    "a journal that names a file": names(lambda database, precious: precious),
    "by a relative path": names(lambda database, precious: os.path.relpath(precious)),
    "by a path with dots": names(lambda database, precious: precious.parent / "user" / ".." / precious.name),
    "a journal that names a folder": names(lambda database, precious: precious.parent),
    "a journal that names itself": names(lambda database, precious: f"{database}-journal"),
    "a journal that names the database": names(lambda database, precious: database),
    "a journal that names the run": names(lambda database, precious: database.parent / "trial_0" / "config.yaml"),
    "a journal that names the best checkpoint": names(
        lambda database, precious: database.parent / "trial_0" / "checkpoints" / "best.ckpt"
    ),
    "a journal that names no file": names(lambda database, precious: precious.with_name("nothing")),
    "a journal that names a long name": names(lambda database, precious: precious.parent / ("a" * 400)),
    "a journal with a page": names(lambda database, precious: precious, page),
    "a journal with two headers": names(lambda database, precious: precious, lambda database: header(database) * 2),
    "a journal that begins with nothing": names(lambda database, precious: precious, lambda database: bytes(SECTOR)),
    "a journal that begins with text": names(lambda database, precious: precious, lambda database: b"text" * 128),
    "a journal of a larger database": names(
        lambda database, precious: precious,
        lambda database: (MAGIC + struct.pack(">IIIII", 0, 1, 2**31 - 1, SECTOR, PAGE)).ljust(SECTOR, b"\0"),
    ),
    "a journal that lists a file": listed,
    **{f"a link {end} to a file": link(end) for end in ("-journal", "-wal", "-shm")},
    **{f"a link {end} to a new file": new_link(end) for end in ("-journal", "-wal", "-shm")},
    **{f"a link {end} of a database with a log": with_wal(link(end)) for end in ("-journal", "-wal", "-shm")},
    **{f"a new link {end} of a database with a log": with_wal(new_link(end)) for end in ("-wal", "-shm")},
    **{f"a pipe {end}": with_wal(pipe(end)) for end in ("-journal", "-wal", "-shm")},
    **{f"a folder {end}": with_wal(folder(end)) for end in ("-journal", "-wal", "-shm")},
}
STATEMENTS: dict[str, Attack] = {
    f"{name}{', hidden' * hidden}": sql(*statements, hidden=hidden)
    for hidden in (False, True)
    for name, statements in {
        "an endless view": ("DROP TABLE trial_values", f"CREATE VIEW trial_values AS {ENDLESS} n FROM endless"),
        "an endless view of studies": ("DROP TABLE studies", f"CREATE VIEW studies AS {ENDLESS} n FROM endless"),
        "an endless trigger": (
            f"CREATE TRIGGER evil AFTER INSERT ON trials BEGIN {ENDLESS} count(*) FROM endless; END",
        ),
        "an endless trigger of attributes": (
            f"CREATE TRIGGER evil AFTER INSERT ON trial_user_attributes BEGIN {ENDLESS} count(*) FROM endless; END",
        ),
        "a trigger that deletes": ("CREATE TRIGGER evil AFTER INSERT ON trials BEGIN DELETE FROM trials; END",),
        "a trigger of updates": (
            "CREATE TRIGGER evil AFTER UPDATE ON trials BEGIN UPDATE trial_params SET param_value = 1e300; END",
        ),
        "a view that nothing reads": ("CREATE VIEW evil AS SELECT * FROM trials",),
        "a table of a module": ("CREATE VIRTUAL TABLE evil USING fts5(a)",),
        "a table of a module that reads pages": ("CREATE VIRTUAL TABLE evil USING rtree(a, b, c)",),
    }.items()
} | {
    "a check by a function of Python": sql(
        "ALTER TABLE trials RENAME TO t",
        "CREATE TABLE trials (trial_id INTEGER PRIMARY KEY, number INTEGER, study_id INTEGER, state VARCHAR, "
        "datetime_start DATETIME, datetime_complete DATETIME, "
        f"CHECK ('{'a' * 40}b' REGEXP '(a+)+$' OR TRUE), CHECK ('{'a' * 40}b' REGEXP '(a+)+$'))",
        "INSERT INTO trials SELECT * FROM t",
        "DROP TABLE t",
    ),
}
