"""`gyral migrate` rewrites what commit 23c1191 wrote; what it has not rewritten names the command in one line."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.utils import get_object

from gyral import migrate as command
from gyral.config.command_line import INTERRUPTED
from gyral.core.errors import UserError
from gyral.runs import migration, records
from gyral.runs.measures import FILE
from gyral.runs.moved import MOVED, current_target
from gyral.runs.record_files import read_record, write_record
from gyral.sweeps.optuna import SETTINGS
from tests.helpers.running import ROOT, SMALL_COPY, Outcome, as_a_process, invoke
from tests.helpers.written import TABLE1, write_run

RELEASED = ROOT / "tests" / "runs" / "released"
# Names of classes of the core that have moved since, as today's runs have them, and as commit 23c1191 wrote them.
EARLIER = {new: old for old, new in MOVED.items() if old.startswith("gyral.training.callbacks.")}
OLD_NAME = re.compile(r"gyral\.training\.callbacks\.[A-Z]")


def make_old(directory: Path) -> Path:
    """Give the files of today's runs and sweeps the names of commit 23c1191."""
    for path in directory.rglob("*"):
        if path.name in (FILE,):
            path.unlink()
        elif path.suffix in (".yaml", ".json"):
            path.write_text(old_text(path.read_text()))
    return directory


def old_text(text: str) -> str:
    return re.sub(r"gyral\.[\w.]+", lambda match: EARLIER.get(match[0], match[0]), text)


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    """Return a run directory of commit 23c1191, which was stopped after 2 of 4 steps."""
    run = tmp_path / "run"
    shutil.copytree(RELEASED, run)
    make_old(run)
    assert OLD_NAME.search((run / "config.yaml").read_text())
    return run


def migrate(directory: Path) -> Outcome:
    status = 0
    with as_a_process(["src/migrate.py", str(directory)]) as (out, err):
        try:
            command.main()
        except SystemExit as end:
            status = int(end.code or 0)
    return Outcome(status, out.getvalue(), err.getvalue())


def contents(directory: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("entry", "option"), [("train", "resume"), ("evaluate", "run"), ("report", "sweep")])
def test_an_old_run_ends_a_command_in_one_line_with_the_command_that_migrates_it(
    entry: str, option: str, old_run: Path
) -> None:
    before = contents(old_run)
    outcome = invoke(f"{option}={old_run}", entry=entry)
    assert outcome.status == 1
    assert outcome.err.count("\n") == 1
    assert outcome.err.endswith(f"to migrate: python -m src.migrate {old_run}\n")
    assert {path: content for path, content in contents(old_run).items() if path.name != ".lock"} == before


def test_a_migrated_run_resumes_evaluates_and_reports_and_a_second_migration_changes_nothing(old_run: Path) -> None:
    outcome = migrate(old_run)
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [str(old_run / "config.yaml"), str(old_run / FILE), "2 files migrated"]

    before = contents(old_run)
    assert migrate(old_run).out == f"{old_run}: nothing to migrate\n"
    assert contents(old_run) == before

    assert invoke(f"resume={old_run}").status == 0
    assert invoke(f"run={old_run}", "split=test", entry="evaluate").status == 0
    assert "RUM" in invoke(f"sweep={old_run}", entry="report").out


def test_a_sweep_of_old_runs_is_left_as_it_is_until_it_is_migrated(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    words = ["-m", "seed=1", *SMALL_COPY, "trainer.max_steps=4", f"hydra.sweep.dir={sweep}"]
    assert invoke(*words).status == 0
    make_old(sweep)
    outcome = invoke(*words)
    assert outcome.status == 1
    assert outcome.err.endswith(f"to migrate: python -m src.migrate {sweep}\n")
    outcome = invoke(f"sweep={sweep}", entry="report")
    assert outcome.err.count("\n") == 1
    assert "1 run of an earlier version is" in outcome.err

    outcome = migrate(sweep)
    assert outcome.out.splitlines()[-2:] == [str(sweep / "multirun.yaml"), "3 files migrated"]
    outcome = invoke(*words)
    assert outcome.status == 0
    assert outcome.out.count("was DONE") == 1


def test_readable_runs_are_reported_beside_old_ones(tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    for name in ("lstm", "rnn"):
        (write_run(tmp_path, f"{TABLE1}/{name}", accuracy=0.25) / FILE).unlink()
    [found], notes = records.read(tmp_path)
    assert found.experiment == f"{TABLE1}/gru"
    [note] = notes
    assert note.startswith(f"{tmp_path}: 2 runs of an earlier version are left out, such as {tmp_path}")
    assert note.endswith(f"; to migrate: gyral migrate {tmp_path}")


def test_a_record_is_migrated_with_its_measures(tmp_path: Path) -> None:
    run = records.read_run(write_run(tmp_path / "runs", f"{TABLE1}/gru", accuracy=0.25))
    path = write_record(run, tmp_path / "records")
    content = json.loads(path.read_text())
    del content["measures"], content["remarks"]
    content["config"]["task"]["_target_"] = "gyral.tasks.babi.BabiTask"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"{path.parent}$"):
        read_record(path)
    assert migrate(tmp_path / "records").out.endswith("1 file migrated\n")
    record = read_record(path)
    assert record.config["task"]["_target_"] == "gyral.applications.babi.task.BabiTask"
    assert record.metrics == run.metrics
    assert [measure.name for measure in record.measures] == ["accuracy", "sequence_accuracy"]
    assert "nothing to migrate" in migrate(tmp_path / "records").out


def test_an_old_search_continues_with_its_trials_after_its_migration(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    directory = tmp_path / "search"
    words = ["sweep=tune", *SMALL_COPY, "trainer.max_steps=2", "model.cell.hidden_size=4,8", "optimizer.lr=0.01"]
    words += ["model.cell.eta=null", f"hydra.sweep.dir={directory}"]
    assert invoke(*words, "hydra.sweeper.n_trials=1").status == 0
    make_old(directory)
    with sqlite3.connect(directory / "study.db") as database:
        [text] = database.execute("SELECT value_json FROM study_user_attributes WHERE key = ?", [SETTINGS]).fetchone()
        database.execute("UPDATE study_user_attributes SET value_json = ? WHERE key = ?", [old_text(text), SETTINGS])
    database.close()
    outcome = invoke(*words, "hydra.sweeper.n_trials=1")
    assert outcome.status == 1
    assert outcome.err.endswith(f"to migrate: python -m src.migrate {directory}\n")

    assert str(directory / "study.db") in migrate(directory).out
    assert "nothing to migrate" in migrate(directory).out
    outcome = invoke(*words, "hydra.sweeper.n_trials=1")
    assert outcome.status == 0, outcome.err
    assert "1 of 1 trials" in outcome.out


def test_the_choices_of_a_searched_class_are_renamed(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    distribution = {"name": "CategoricalDistribution", "attributes": {"choices": ["gyral.tasks.babi.BabiTask", "x"]}}
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE trial_params (param_id INTEGER, param_name TEXT, distribution_json TEXT)")
        database.execute("INSERT INTO trial_params VALUES (1, 'task._target_', ?)", [json.dumps(distribution)])
    database.close()
    assert migrate(tmp_path).out.endswith("1 file migrated\n")
    with sqlite3.connect(path) as database:
        [text] = database.execute("SELECT distribution_json FROM trial_params").fetchone()
    database.close()
    assert json.loads(text)["attributes"]["choices"] == ["gyral.applications.babi.task.BabiTask", "x"]


def test_an_interrupted_migration_leaves_whole_files_and_is_completed(
    old_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "another"
    shutil.copytree(old_run, other)
    before = contents(tmp_path)
    replace, left = os.replace, [1]

    def replace_once(source: Path, target: Path) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        replace(source, target)

    with monkeypatch.context() as context:
        context.setattr(os, "replace", replace_once)
        assert migrate(tmp_path).status == INTERRUPTED
    changed = [path for path, content in contents(tmp_path).items() if content != before.get(path)]
    assert [path.name for path in changed] == ["config.yaml"]
    migrate(tmp_path)
    found, notes = records.read(tmp_path)
    assert (len(found), notes) == (2, [])
    assert "nothing to migrate" in migrate(tmp_path).out


def test_nothing_that_a_file_names_is_imported(old_run: Path, tmp_path: Path) -> None:
    (tmp_path / "spy.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\n")
    config = (old_run / "config.yaml").read_text()
    (old_run / "config.yaml").write_text(f"{config}extra:\n  _target_: spy.run\n  yaml: !!python/name:spy.run\n")
    code = "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); from gyral import migrate"
    words = [sys.executable, "-c", f"{code}; migrate.main()", str(old_run)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert not (tmp_path / "imported").exists()
    text = (old_run / "config.yaml").read_text()
    assert "_target_: spy.run\n  yaml: !!python/name:spy.run" in text
    assert not OLD_NAME.search(text)


def test_files_that_are_not_gyrals_stay_as_they_are(old_run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.yaml"
    outside.write_text("_target_: gyral.tasks.babi.BabiTask\n")
    (old_run / "overrides.yaml").unlink()
    (old_run / "overrides.yaml").symlink_to(outside)
    inner = old_run.parent / "other" / "wandb"
    shutil.copytree(RELEASED, inner.parent)
    inner.mkdir()
    foreign = [inner / "config.yaml", inner.parent / "notes.txt", inner.parent / "cache.db"]
    for path in foreign:
        path.write_text("_target_: gyral.tasks.babi.BabiTask\n")
    os.mkfifo(old_run / "summary.json")
    before = [path.read_bytes() for path in (outside, *foreign)]
    assert migrate(tmp_path).status == 0
    assert [path.read_bytes() for path in (outside, *foreign)] == before


def test_a_damaged_file_is_named_and_the_other_runs_are_migrated(old_run: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(old_run, damaged)
    (damaged / "provenance.json").write_bytes(b"\xff\xfe")
    (tmp_path / "a.run.json").write_text("[1, 2")
    outcome = migrate(tmp_path)
    assert outcome.status == 1
    reasons = {f"error: {damaged / 'provenance.json'}: is not text", f"error: {tmp_path / 'a.run.json'}: is not JSON"}
    assert {line[: len(reason)] for line in outcome.err.splitlines() for reason in reasons if line.startswith(reason)}
    assert outcome.err.count("\n") == 2
    assert not OLD_NAME.search((old_run / "config.yaml").read_text())
    assert migrate(tmp_path / "nowhere").err == f"error: {tmp_path / 'nowhere'}: no such directory\n"


@pytest.mark.parametrize("name", [new for new in EARLIER if not new.startswith("gyral.applications.")])
def test_the_new_name_of_a_class_of_the_core_exists(name: str) -> None:
    assert callable(get_object(name))


def test_names_are_replaced_by_module_not_by_prefix() -> None:
    assert current_target("gyral.tasks.babi.BabiTask") == "gyral.applications.babi.task.BabiTask"
    assert current_target("gyral.tasks.babi_mixed.BabiTask") == "gyral.tasks.babi_mixed.BabiTask"
    assert current_target("my.gyral.tasks.babi.BabiTask") == "my.gyral.tasks.babi.BabiTask"
    assert migration._renamed("- +task._target_=gyral.tasks.babi.BabiTask\n") == (
        "- +task._target_=gyral.applications.babi.task.BabiTask\n"
    )
    assert migration._renamed("path: gyral.tasks.babi.txt\n") == "path: gyral.tasks.babi.txt\n"
