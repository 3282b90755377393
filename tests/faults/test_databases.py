"""Databases of Optuna from somebody else: a search executes nothing in them and writes to its own directory alone.

Each attack changes the database of a search of two trials, which is then continued for a third one.
"""

import itertools
import json
import os
import pickle
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.faults import forks
from tests.faults.databases import SEARCH
from tests.faults.hostile import CANARY, COMMAND, MODULE, PRECIOUS, evaluated, imported, loaded_again, system
from tests.helpers.attacks import Attack

pytest.importorskip("optuna.storages")

Change = Callable[[sqlite3.Connection], Any]


def sql(*statements: str) -> Change:
    return lambda database: [database.execute(statement) for statement in statements]


def row(database: sqlite3.Connection, state: str, number: Any = 2) -> int:
    """Add a trial without options and return its id."""
    now = "2026-01-01 00:00:00"
    added = "INSERT INTO trials (number, study_id, state, datetime_start) VALUES (?, 1, ?, ?)"
    found = database.execute(added, (number, state, now)).lastrowid
    assert found is not None
    return found


def trial(name: str, value: Any, state: str = "RUNNING", number: Any = 2) -> Change:
    """Return a change that adds a trial with one option, a text unless the value is a number."""

    def change(database: sqlite3.Connection) -> None:
        if isinstance(value, str):
            stored, kind, attributes = 0.0, "CategoricalDistribution", {"choices": [value]}
        else:
            stored, kind = value, "FloatDistribution"
            attributes = {"step": None, "low": -1e300, "high": 1e300, "log": False}
        distribution = json.dumps({"name": kind, "attributes": attributes})
        added = "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) VALUES (?, ?, ?, ?)"
        own = row(database, state, number)
        database.execute(added, (own, name, stored, distribution))
        if state == "COMPLETE":
            best = "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES (?, 0, -1e9, 'FINITE')"
            database.execute(best, (own,))

    return change


def attribute(value: str) -> Change:
    return lambda database: database.execute("UPDATE study_user_attributes SET value_json = ?", (value,))


EVIL = f"{{_target_: os.system, command: '{COMMAND}'}}"
ROWS: dict[str, Change] = {
    "a callback": trial("+callbacks.evil", EVIL),
    "a callback of a module": trial("+callbacks.evil", "{_target_: canary.make}"),
    "an optimizer": trial("optimizer._target_", "os.system"),
    "a logger": trial("+logger.evil", EVIL),
    "the directory of the sweep": trial("hydra.sweep.dir", "elsewhere"),
    "the directory of the job": trial("hydra.sweep.subdir", "../elsewhere"),
    "the directory of the run": trial("hydra.run.dir", "elsewhere"),
    "a launcher": trial("hydra.launcher._target_", "canary.make"),
    "a searchpath": trial("hydra.searchpath", "[elsewhere]"),
    "a callback of Hydra": trial("+hydra.callbacks.evil", EVIL),
    "trust": trial("trust", "canary"),
    "resume": trial("resume", "elsewhere"),
    "a group": trial("+experiment", "../../elsewhere"),
    "an option beside": trial("trainer.default_root_dir", "elsewhere"),
    "an interpolation": trial("model.cell.nonlinearity", f"${{oc.create:{EVIL}}}"),
    "an interpolation in the name": trial("${oc.env:HOME}", "x"),
    "several values": trial("model.cell.nonlinearity", "tanh,relu"),
    "a line break in the name": trial("optimizer.lr\n+callbacks.evil", EVIL),
    "a number out of bounds": trial("optimizer.lr", 1e9),
    "a number below zero": trial("model.cell.hidden_size", -4.0),
    "a huge size": trial("model.cell.hidden_size", 1e12),
    "no number": trial("optimizer.lr", None),
    "a text as the number of the trial": trial("optimizer.lr", 0.01, number="../elsewhere"),
    "a number of a trial that is there": trial("optimizer.lr", 0.01, number=0),
    "a number of a trial below zero": trial("optimizer.lr", 0.01, number=-1),
    "the best trial": trial("+callbacks.evil", EVIL, state="COMPLETE"),
    "an unknown state": sql("UPDATE trials SET state = 'EVIL'"),
    "a distribution that is no JSON": sql("UPDATE trial_params SET distribution_json = 'x'"),
    "a deep distribution": sql(f"UPDATE trial_params SET distribution_json = '{'[' * 100_000}'"),
    "an unknown distribution": sql("""UPDATE trial_params SET distribution_json = '{"name": "os.system"}'"""),
    "settings that are no JSON": attribute("x"),
    "settings that are a list": attribute("[1]"),
    "settings that are deep": attribute("[" * 100_000),
    "settings of other options": attribute('{"searched": "\\u001b[2J"}'),
    "no table of trials": sql("DROP TABLE trials"),
    "a view of another table": sql("DROP TABLE trial_params", "CREATE VIEW trial_params AS SELECT * FROM trials"),
    "another schema": sql("UPDATE version_info SET schema_version = 99"),
    "another direction": sql("UPDATE study_directions SET direction = 'EVIL'"),
    "values that are text": sql("UPDATE trial_values SET value = '../elsewhere'"),
    "dates that are text": sql("UPDATE trials SET datetime_start = 'yesterday'"),
}


def files_outside(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and "search" not in path.relative_to(directory).parts
    }


@pytest.mark.attacks(sampled=1, whole=len(ROWS))
def test_rows_of_a_database_are_no_words_of_a_command(attack: Attack, searched: Path, tmp_path: Path) -> None:
    name = list(ROWS)[attack.number]
    shutil.copytree(searched, tmp_path, dirs_exist_ok=True)
    (tmp_path / "canary.py").write_text(MODULE)
    (tmp_path / "conf").mkdir()
    before = files_outside(tmp_path)
    with closing(sqlite3.connect(tmp_path / "search" / "study.db")) as database, database:
        ROWS[name](database)
    ended = forks.run(*SEARCH, "hydra.sweeper.n_trials=3", directory=tmp_path, limit=60)
    where = f"{name}: {ended}"
    assert files_outside(tmp_path) == before, where
    assert not (tmp_path / CANARY).exists(), where
    assert {path.name for path in (tmp_path / "search").iterdir() if path.is_dir()} <= {f"trial_{n}" for n in range(4)}
    assert "Traceback" not in ended.out + ended.err, where
    assert "\x1b" not in ended.out + ended.err, where
    assert "evil" not in ended.out.partition("The best")[2], where
    assert ended.status == 0 or "error: " in ended.err, where  # of the search, and before it of a job
    attack.record("refused" if ended.status else "left out")


@pytest.mark.attacks(sampled=1, whole=4)
def test_a_database_that_is_none_is_named(attack: Attack, searched: Path, tmp_path: Path) -> None:
    shutil.copytree(searched, tmp_path, dirs_exist_ok=True)
    (tmp_path / PRECIOUS).write_text(PRECIOUS)
    database = tmp_path / "search" / "study.db"
    database.unlink()
    make: list[Callable[[], Any]] = [
        lambda: database.symlink_to(tmp_path / PRECIOUS),
        lambda: os.mkfifo(database),
        lambda: database.write_bytes(os.urandom(4096)),
        database.mkdir,
    ]
    make[attack.number]()
    ended = forks.run(*SEARCH, "hydra.sweeper.n_trials=3", directory=tmp_path, limit=30)
    assert (tmp_path / PRECIOUS).read_text() == PRECIOUS, ended
    assert ended.status == 1, ended
    assert "search" in ended.error, ended


# numbers of the two trials of a search, and of one that was stopped or that waits, if any
GAPS = [
    (*numbers, *third)
    for numbers in ((0, 7), (7, 0), (1, 2), (0, 2), (2, 0), (3, 9), (2, 3), (0, 10**6))
    for third in ((), (5, "RUNNING"), (1, "WAITING"), (4, "WAITING"))
    if not third or third[0] not in numbers
]


@pytest.mark.attacks(sampled=1, whole=len(GAPS))
def test_a_search_ends_if_the_numbers_of_its_trials_have_gaps(attack: Attack, searched: Path, tmp_path: Path) -> None:
    first, second, *third = GAPS[attack.number]
    shutil.copytree(searched, tmp_path, dirs_exist_ok=True)
    with closing(sqlite3.connect(tmp_path / "search" / "study.db")) as database, database:
        database.execute("UPDATE trials SET number = ? WHERE trial_id = 1", (first,))
        database.execute("UPDATE trials SET number = ? WHERE trial_id = 2", (second,))
        if third:
            own = row(database, third[1], third[0])
            copied = "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) SELECT"
            database.execute(
                f"{copied} ?, param_name, param_value, distribution_json FROM trial_params WHERE trial_id = 1", (own,)
            )
        best = database.execute("SELECT trial_id, value FROM trial_values").fetchall()
    ended = forks.run(*SEARCH, "hydra.sweeper.n_trials=5", directory=tmp_path, limit=60)
    assert ended.status == 0, ended
    with closing(sqlite3.connect(tmp_path / "search" / "study.db")) as database:
        rows = dict(database.execute("SELECT trial_id, number FROM trials"))
        states = dict(database.execute("SELECT trial_id, state FROM trials"))
        values = database.execute("SELECT trial_id, value FROM trial_values").fetchall()
    assert {states[1], states[2]} == {"COMPLETE"}
    assert best == values[:2]
    assert {rows[1], rows[2]} == {first, second}
    taken = [number for identity, number in rows.items() if identity > 2 and states[identity] == "COMPLETE"]
    assert len({*taken}) == len(taken) > 0, (rows, states)
    left = [number for identity, number in rows.items() if states[identity] not in ("COMPLETE", "FAIL", "PRUNED")]
    assert all(number >= 5 for number in left), (rows, states, ended)
    assert all((tmp_path / "search" / f"trial_{number}" / "DONE").is_file() for number in taken)


PICKLES = {
    "a command": lambda: pickle.dumps(system()),
    "an evaluation": lambda: pickle.dumps(evaluated()),
    "an import": lambda: pickle.dumps(imported()),
    "a pickle in a pickle": lambda: pickle.dumps(loaded_again()),
    "a state of evaluations": lambda: pickle.dumps({"_n_dim": evaluated()}),
    "JSON of another class": lambda: json.dumps({"class": "system", "state": {"command": COMMAND}}).encode(),
    "JSON of no class": lambda: json.dumps({"class": ["CMA"], "state": {}}).encode(),
    "JSON of objects": lambda: json.dumps({"array": [1], "dtype": "O", "shape": [1]}).encode(),
    "JSON of a large array": lambda: json.dumps({"array": [1], "dtype": "f8", "shape": [10**12]}).encode(),
    "JSON that is deep": lambda: b"[" * 100_000,
    "JSON of another size": lambda: json.dumps({"class": "SepCMA", "state": {"_n_dim": 10**9}}).encode(),
    "JSON without a state": lambda: json.dumps({"class": "SepCMA", "state": {}}).encode(),
    "a number": lambda: b"3",
    "no bytes": lambda: b"",
}
SAMPLERS = {
    "cma": (),
    "sepcma": ("+hydra.sweeper.sampler.use_separable_cma=true",),
    "cmawm": ("+hydra.sweeper.sampler.with_margin=true",),
}
STUDIES = list(itertools.product(PICKLES, SAMPLERS))


@pytest.mark.attacks(sampled=0, whole=len(STUDIES))  # tests/sweeps/test_cma_states.py has one
def test_no_sampler_unpickles_a_study(attack: Attack, searched: Path, tmp_path: Path) -> None:
    pytest.importorskip("cmaes")
    name, prefix = STUDIES[attack.number]
    shutil.copytree(searched, tmp_path, dirs_exist_ok=True)
    (tmp_path / "canary.py").write_text(MODULE)
    with closing(sqlite3.connect(tmp_path / "search" / "study.db")) as database, database:
        added = "INSERT INTO trial_system_attributes (trial_id, key, value_json) VALUES (2, ?, ?)"
        database.execute(added, (f"{prefix}:optimizer:0", json.dumps(PICKLES[name]().hex())))
    sampler = (
        "hydra.sweeper.sampler._target_=optuna.samplers.CmaEsSampler",
        "hydra.sweeper.sampler.n_startup_trials=1",
    )
    words = (*SEARCH, *sampler, "~hydra.sweeper.sampler.constant_liar", *SAMPLERS[prefix], "hydra.sweeper.n_trials=4")
    ended = forks.run(*words, directory=tmp_path, limit=60)
    assert not (tmp_path / CANARY).exists(), (name, ended)
    assert "Traceback" not in ended.out + ended.err, (name, ended)
    assert ended.status == 0 or (name.startswith("JSON") and ended.error), (name, ended)
    attack.record("refused" if ended.status else "began anew")
