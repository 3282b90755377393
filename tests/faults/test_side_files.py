"""Files that formats keep beside a file: no command deletes, creates or changes anything because of one.

Somebody else has written the directory of a search, or a corpus. The commands may write to that directory alone.
"""

import itertools
import os
import pickle
import random
import shutil
import signal
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gyral.core.errors import UserError
from gyral.runs.database import check_database
from tests.faults import forks
from tests.faults.databases import SEARCH, SIDE_FILES, STATEMENTS, names, page
from tests.faults.hostile import CANARY, COMMAND, PRECIOUS, TOUCH, evaluated
from tests.faults.loaders import LOADERS
from tests.helpers.attacks import Attack

pytest.importorskip("optuna.storages")

COMMANDS = {
    "search": ("train", *SEARCH, "hydra.sweeper.n_trials=3"),
    "another search": (
        *("train", *SEARCH[:-1], "hydra.sweep.dir=own", "hydra.sweeper.n_trials=3"),
        *("hydra.sweeper.storage=sqlite:///search/study.db", "hydra.sweeper.study=search"),
    ),
    "more choices": ("train", *SEARCH, "model.cell.hidden_size=4,8,12,16", "hydra.sweeper.n_trials=3"),
    "report": ("report", "sweep=search"),
}
ATTACKS = {**SIDE_FILES, **STATEMENTS}
CASES = list(itertools.product(ATTACKS, COMMANDS))
random.Random(int(os.environ.get("SEED", "0"))).shuffle(CASES)


def files(directory: Path) -> dict[str, bytes | None]:
    """Return all that is in a directory, with the content of the files."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in directory.rglob("*")
    }


@pytest.mark.attacks(sampled=3, whole=len(CASES))
def test_files_beside_a_database_change_no_others(attack: Attack, searched: Path, tmp_path: Path) -> None:
    name, command = CASES[attack.number]
    shutil.copytree(searched, tmp_path / "here")
    user = tmp_path / "user"
    user.mkdir()
    (user / PRECIOUS).write_text(PRECIOUS)
    database = tmp_path / "here" / "search" / "study.db"
    runs = files(database.parent / "trial_0")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "here")
        ATTACKS[name](database, user / PRECIOUS)
    entry, *words = COMMANDS[command]
    ended = forks.run(*words, entry=entry, directory=tmp_path / "here", limit=30)
    where = f"{name}, {command}: {ended}"
    assert files(user) == {PRECIOUS: PRECIOUS.encode()}, where
    assert files(database.parent / "trial_0") == runs, where
    assert {path.name for path in tmp_path.iterdir()} == {"here", "user"}, where
    assert {path.name for path in (tmp_path / "here").iterdir()} <= {"search", "own"}, where
    assert "Traceback" not in ended.out + ended.err, where
    if ended.status == 0:
        assert command == "report", where
        attack.record("not read")
    else:
        assert ended.status == 1, where
        assert "study.db" in ended.error, where
        attack.record("refused")


def test_the_attacks_work_where_nothing_is_checked(tmp_path: Path) -> None:
    """SQLite deletes the file that a journal names."""
    database, precious = tmp_path / "study.db", tmp_path / PRECIOUS
    with closing(sqlite3.connect(database)) as opened:
        opened.execute("CREATE TABLE trials (number INTEGER)")
    precious.write_text(PRECIOUS)
    names(lambda *_: precious, page)(database, precious)
    with closing(sqlite3.connect(database)) as opened:
        opened.execute("SELECT * FROM trials").fetchall()
    assert not precious.exists()


def kill_while_writing(database: Path) -> None:
    """Leave what a search leaves whose process is killed in a transaction that has reached the file."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            opened = sqlite3.connect(database, isolation_level=None)
            opened.execute("PRAGMA cache_size = 1")  # pages that do not fit are written before the end
            opened.execute("BEGIN IMMEDIATE")
            opened.execute("UPDATE trials SET state = 'FAIL'")
            opened.execute("DELETE FROM trial_values")
            opened.execute("CREATE TABLE large AS SELECT zeroblob(500000)")
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_database_is_checked_while_a_search_writes_and_removes_its_journal(tmp_path: Path) -> None:
    journal, ends = tmp_path / "study.db-journal", threading.Event()

    def write() -> None:
        while not ends.is_set():
            journal.touch()
            journal.unlink()

    search = threading.Thread(target=write)
    search.start()
    try:
        for _ in range(2000):
            check_database(tmp_path / "study.db")
    finally:
        ends.set()
        search.join()


def test_the_journal_of_a_killed_search_is_rolled_back(searched: Path, tmp_path: Path) -> None:
    shutil.copytree(searched, tmp_path, dirs_exist_ok=True)
    database, journal = tmp_path / "search" / "study.db", tmp_path / "search" / "study.db-journal"
    kill_while_writing(database)
    assert journal.stat().st_size > 512
    check_database(database)
    entry, *words = COMMANDS["search"]
    ended = forks.run(*words, entry=entry, directory=tmp_path, limit=60)
    assert ended.status == 0, ended
    assert not journal.exists()
    with closing(sqlite3.connect(database)) as opened:
        states = [state for (state,) in opened.execute("SELECT state FROM trials ORDER BY number")]
    assert states == ["COMPLETE"] * 3


READ = [name for name in LOADERS if not name.endswith(" wrong")]
random.Random(int(os.environ.get("SEED", "0"))).shuffle(READ)
# Ends of names of files that formats and programs keep beside a file, and names of such files in its folder.
ENDS = ("-journal", "-wal", "-shm", ".crc", ".tmp", ".part", ".lock", ".json", ".idx", ".aux.xml", ".sha256", "~")
NAMES = ("_metadata", "_common_metadata", "_SUCCESS", "corpus.json", "words.txt", "__init__.py", "conftest.py")


def plant(folder: Path, files: list[Path], precious: Path, chosen: random.Random) -> None:
    """Put links to a file of the user, pickles and programs beside the files of an input."""
    contents = (
        lambda path: path.symlink_to(precious),
        lambda path: path.symlink_to(precious.with_name("new")),
        lambda path: path.write_bytes(pickle.dumps(evaluated())),
        lambda path: path.write_text(f"{TOUCH}\n"),
        lambda path: path.write_text(f"!!python/object/apply:os.system ['{COMMAND}']\n"),
        lambda path: path.write_text(str(precious)),
    )
    for path in [*(file.with_name(file.name + end) for file in files for end in ENDS), *map(folder.joinpath, NAMES)]:
        if not os.path.lexists(path) and path.parent.is_dir():
            chosen.choice(contents)(path)


@pytest.mark.attacks(sampled=2, whole=len(READ))
@pytest.mark.filterwarnings("default")
def test_files_beside_inputs_change_no_others(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice: with files beside the input, and with links at the places of the locks of its caches."""
    user, folder = tmp_path / "user", tmp_path / "theirs"
    user.mkdir(), folder.mkdir()
    (user / PRECIOUS).write_text(PRECIOUS)
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(folder)
    given = LOADERS[READ[attack.number]](folder, attack.random, monkeypatch)
    for again in (False, True):
        if again:
            for lock in (*folder.rglob("*.lock"), *(tmp_path / "cache").rglob("*.lock")):
                lock.unlink()
                lock.symlink_to(user / PRECIOUS)
            for cached in (*folder.glob(".cache/*"), *tmp_path.glob("cache/*")):
                if cached.is_dir() and not cached.is_symlink():
                    shutil.rmtree(cached)
        else:
            plant(folder, given.files, user / PRECIOUS, attack.random)
        try:
            given.read()
            attack.record("read")
        except (UserError, OSError):
            attack.record("refused")
        assert files(user) == {PRECIOUS: PRECIOUS.encode()}, READ[attack.number]
        assert not (folder / CANARY).exists(), READ[attack.number]
