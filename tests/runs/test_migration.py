"""`gyral migrate`: runs, sweeps, records and studies of commit 23c1191 get today's names, and nothing is executed."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from gyral.core.errors import UserError
from gyral.runs import migration
from gyral.runs.migration import migrate
from gyral.runs.moved import MOVED, current_target
from gyral.runs.record_files import read_record
from tests.helpers.running import ROOT, invoke, spawn

RELEASED = ROOT / "tests" / "runs" / "released"
OLD = "gyral.training.callbacks.Statistics"
NEW = "gyral.training.callbacks.statistics.Statistics"
HOSTILE = "os.system"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run directory, a sweep, a record and a study of the earlier version."""
    run = shutil.copytree(RELEASED, tmp_path / "run")
    (run / "measures.json").unlink()
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace(NEW, OLD))
    (run / "overrides.yaml").write_text(f"- model=rum\n- +callbacks.mine._target_={OLD}\n")
    (tmp_path / "multirun.yaml").write_text(f"text: {OLD}\nnode:\n  _target_: {OLD}\nother: {{_target_: {HOSTILE}}}\n")
    record = {
        "config": {"seed": 1, "task": {"_target_": "gyral.tasks.copy.CopyTask"}, "mine": {"_target_": OLD}},
        "overrides": ["task=copy"],
        "results": {"test/loss": 1.0, "test/accuracy": 0.5, "test/baseline": 1.0, "parameters": 5, "steps": 2},
    }
    (tmp_path / "seed=1.run.json").write_text(json.dumps(record))
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("CREATE TABLE study_user_attributes (study_user_attribute_id INTEGER, value_json TEXT)")
        database.execute("INSERT INTO study_user_attributes VALUES (1, ?)", (json.dumps({"_target_": OLD}),))
    database.close()
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_names_are_replaced_where_they_are_targets(folder: Path) -> None:
    migrated = set(migrate(folder))
    names = {"config.yaml", "overrides.yaml", "measures.json", "multirun.yaml", "seed=1.run.json", "study.db"}
    assert {path.name for path in migrated} == names
    sweep = (folder / "multirun.yaml").read_text()
    assert sweep == f"text: {OLD}\nnode:\n  _target_: {NEW}\nother: {{_target_: {HOSTILE}}}\n"
    assert f"+callbacks.mine._target_={NEW}" in (folder / "run" / "overrides.yaml").read_text()
    record = read_record(folder / "seed=1.run.json")
    assert [measure.name for measure in record.measures] == ["accuracy"]
    with sqlite3.connect(folder / "study.db") as database:
        assert json.loads(database.execute("SELECT value_json FROM study_user_attributes").fetchone()[0]) == {
            "_target_": NEW
        }
    database.close()


def test_a_second_migration_changes_nothing(folder: Path) -> None:
    first = spawn("-m", "gyral.migrate", str(folder))
    assert first.status == 0, first.err
    assert first.out.endswith("6 files migrated\n")
    before = contents(folder)
    second = spawn("-m", "gyral.migrate", str(folder))
    assert second.out == f"{folder}: nothing to migrate\n"
    assert contents(folder) == before


def test_an_interrupted_migration_can_be_started_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shutil.copytree(folder, folder.parent / "whole")
    list(migrate(whole))
    step: Iterator[Path] = migrate(folder)
    next(step)
    with monkeypatch.context() as patch:
        patch.setattr(migration, "write_atomically", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
        with pytest.raises(OSError, match="full"):
            list(step)
    list(migrate(folder))
    texts = {path.relative_to(folder): text for path, text in contents(folder).items() if path.suffix != ".db"}
    assert texts == {path.relative_to(whole): t for path, t in contents(whole).items() if path.suffix != ".db"}


def test_what_was_not_migrated_ends_in_one_line_with_the_command(folder: Path) -> None:
    run = folder / "run"
    expected = f"has the name {OLD} of an earlier version; to migrate: python -m src.migrate {run}"
    for words, entry in (([f"run={run}"], "evaluate"), ([f"run={run}"], "generate"), ([f"resume={run}"], "train")):
        assert invoke(*words, entry=entry).error == f"{run / 'config.yaml'}: {expected}"
    with pytest.raises(UserError, match=r"^\S+seed=1.run.json: has the name \S+ of an earlier version"):
        read_record(folder / "seed=1.run.json")


def test_a_migrated_run_resumes(folder: Path) -> None:
    list(migrate(folder))
    (folder / "run" / "overrides.yaml").write_text("- model=rum\n- task=copy\n")
    outcome = invoke(f"resume={folder / 'run'}")
    assert outcome.status == 0, outcome.err


def test_links_are_left_alone(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text(f"_target_: {OLD}\n")
    (folder / "sweep").mkdir()
    (folder / "sweep" / "config.yaml").symlink_to(elsewhere)
    list(migrate(folder))
    assert elsewhere.read_text() == f"_target_: {OLD}\n"


def test_a_damaged_file_is_named(folder: Path) -> None:
    (folder / "study.db").write_bytes(b"no database")
    outcome = spawn("-m", "gyral.migrate", str(folder))
    assert outcome.status == 1
    assert outcome.err.startswith(f"error: {folder / 'study.db'}: ")
    missing = spawn("-m", "gyral.migrate", str(folder / "nowhere"))
    assert missing.err == f"error: {folder / 'nowhere'}: no such directory\n"


@pytest.mark.parametrize("name", [name for name in MOVED.values() if not name.startswith("gyral.applications")])
def test_todays_names_exist(name: str) -> None:
    module, _, last = name.rpartition(".")
    assert hasattr(import_module(module), last) if last[0].isupper() else import_module(name)


def test_names_are_whole() -> None:
    assert current_target("gyral.tasks.babi.BabiTask") == "gyral.applications.babi.task.BabiTask"
    assert current_target("gyral.tasks.babies.Task") == "gyral.tasks.babies.Task"
    assert current_target("gyral.tasks.copy.CopyTask") == "gyral.tasks.copy.CopyTask"
