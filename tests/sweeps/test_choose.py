"""Sweeps whose columns differ in several options, and which choose options on the validation split."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pytorch_lightning import Trainer

from gyral.reports import catalogue
from gyral.runs.directory import Run
from gyral.tasks.base import Task
from gyral.training import loop
from gyral.training.callbacks.finite_guard import NonFiniteError
from tests.helpers.running import invoke

TABLE: dict[str, Any] = {
    "experiment": "tiny",
    "report": {
        "layout": "solved",
        "title": "Tiny",
        "measure": "last_accuracy",
        "also": ["sequence_accuracy_2x"],
        "column": "column",
        "solved": 0,
    },
    "columns": {
        "parity": {"task.group": "Z2", "trainer.max_steps": 2},
        "sums": {"task": "regular", "task.name": "cycle_navigation", "trainer.max_steps": 4},
    },
    "sweep": {"seed": [1]},
    "choose": {"optimizer.lr": [0.001, 1000.0], "seed": 0},
    "protocol": {
        "task": "group",
        "task.test_factors": [1, 2],
        "model.cell.hidden_size": 4,
        "trainer.val_check_interval": 2,
        "trainer.accelerator": "cpu",
    },
    "rows": {"gru": {"name": "A GRU", "model": "gru"}, "lstm": {"model": "lstm"}},
}
SMALL = ("task.length=4", "task.batch_size=2", "task.val_batches=1", "task.test_batches=1")
GIVEN = ("sweep=tiny", *SMALL, "logger=none", "~callbacks.progress_bar")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "table").mkdir(parents=True)
    catalogue.load.cache_clear()
    write(TABLE)
    return TABLE


def write(content: dict[str, Any]) -> None:
    Path("conf/table/tiny.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def runs(folder: str) -> list[str]:
    """Return the runs of a row that are DONE, without the options of the test."""
    own = {"~callbacks.progress_bar", *(word.partition("=")[0] for word in SMALL)}
    found = []
    for path in Path(f"outputs/sweep/tiny/{folder}").glob("*/DONE"):
        words = [word for word in path.parent.name.split(",") if word.partition("=")[0] not in own and "=" in word]
        found.append(" ".join(words))
    return sorted(found)


# by column, the learning rate with the lower loss in the validation; the other one is better in the test
BEST = {"parity": 0.001, "sums": 1000.0}


def results_of(_trainer: Trainer, _task: Task, run: Run) -> dict[str, Any]:
    """Return the results of a run that was not trained."""
    column = "sums" if run.config.task.get("name") == "cycle_navigation" else "parity"
    is_best = run.config.optimizer.lr == BEST[column]
    accuracies = dict.fromkeys(("test/last_accuracy", "test/sequence_accuracy_2x"), 0.1 if is_best else 0.9)
    sizes = {"parameters": 1, "steps": run.config.trainer.max_steps}
    return {"monitor": 0.2 if is_best else 0.8, "test/loss": 1.0, "test/baseline": 1.0, **accuracies, **sizes}


def test_options_are_chosen_on_the_validation_split_for_each_row_and_column(
    table: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "fit", lambda *_: None)
    monkeypatch.setattr(loop, "test", results_of)
    outcome = invoke(*GIVEN, "experiment=tiny/gru")
    assert outcome.status == 0, outcome.err
    assert "6 jobs in outputs/sweep/tiny, first 4 with seed=0 to choose optimizer.lr, all with" in outcome.out
    expected = [f"column=tiny-{name} optimizer.lr={lr} seed=0" for name in BEST for lr in BEST.values()]
    expected += [f"column=tiny-{name} optimizer.lr={lr} seed=1" for name, lr in BEST.items()]
    assert runs("gru") == sorted(expected)
    for path in Path("outputs/sweep/tiny/gru").glob("*/DONE"):
        steps, config = json.loads(path.read_text())["steps"], (path.parent / "config.yaml").read_text()
        assert (steps, "cycle_navigation" in config) in ((2, False), (4, True))
    again = invoke(*GIVEN, "experiment=tiny/gru")
    assert again.out.count("was DONE") == 6

    # the report: the runs that chose are in no number
    assert "A GRU" in outcome.out
    assert "1/1: " in outcome.out
    given = ("sweep=tiny", "records=archive", "missing=false", "save=heat.png", "plot=heatmap")
    report = invoke(*given, entry="report")
    assert report.status == 0, report.err
    assert "optimizer.lr" not in report.out
    assert Path("heat.png").stat().st_size > 1000
    assert "the records of 6 finished runs" in report.out

    # nor is a run with a value that they did not choose
    other = invoke(*GIVEN, "experiment=tiny/gru", "column=tiny/parity", f"optimizer.lr={BEST['sums']}", "seed=1,2")
    assert other.status == 0, other.err
    rows = [line for line in other.out.splitlines() if line.lstrip().startswith("A GRU")]
    assert rows
    assert rows == [line for line in outcome.out.splitlines() if line.lstrip().startswith("A GRU")]

    # a model that is no row runs by the protocol; an option that is given is not chosen
    outcome = invoke(*GIVEN, "model=rnn", "column=tiny/parity", "optimizer.lr=0.01", "seed=1")
    assert outcome.status == 0, outcome.err
    assert "1 job in outputs/sweep/tiny" in outcome.out
    assert runs("_protocol") == ["column=tiny-parity model=rnn optimizer.lr=0.01 seed=1"]
    lines = [line.split() for line in invoke("sweep=tiny", "missing=false", entry="report").out.splitlines()]
    assert any(line[:1] == ["rnn"] and line[1] == "1/1:" for line in lines)
    assert any(line[:2] == ["A", "GRU"] and line[2] == "1/1:" for line in lines)


def test_without_a_finished_trial_the_others_do_not_start(table: dict[str, Any]) -> None:
    write(TABLE | {"choose": {"task.monitor": ["val/nothing"], "trainer.gradient_clip_val": [None], "seed": 0}})
    outcome = invoke(*GIVEN, "experiment=tiny/gru", "column=tiny/parity")
    assert outcome.status == 1
    assert (
        "error: 1 of 1 jobs did not start: the runs with seed=0 could not choose task.monitor, trainer" in outcome.err
    )
    assert runs("gru") == []


def test_only_a_trial_that_has_diverged_is_passed_over(table: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(_trainer: Trainer, _task: Task, run: Run) -> None:
        if run.config.optimizer.lr == 1000:
            raise NonFiniteError("step 1") if "gru" in str(run.directory) else MemoryError("no memory is left")

    monkeypatch.setattr(loop, "fit", fit)
    monkeypatch.setattr(loop, "test", results_of)
    outcome = invoke(*GIVEN, "column=tiny/parity")
    assert outcome.status == 1
    assert "1 of 2 jobs did not start: the runs with seed=0 could not choose optimizer.lr for them" in outcome.err
    trial = "column=tiny-parity optimizer.lr=0.001 seed=0"
    assert (runs("gru"), runs("lstm")) == ([trial, trial.replace("seed=0", "seed=1")], [trial])


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"columns": ["parity"]}, "columns: must have options for each column"),
        ({"choose": {"optimizer.lr": [0.1]}}, "choose: must have lists of values and a `seed`"),
        ({"hydra": {"sweeper": {"together": ["seed", "optimizer.lr"]}}}, "hydra.sweeper: the sections sweep, columns"),
        ({"choose": {"optimizer.lr": 0.1, "seed": 0}}, "choose.optimizer.lr=0.1: must be a list of values"),
    ],
)
def test_wrong_sections_are_refused_in_one_line(table: dict[str, Any], sections: dict[str, Any], message: str) -> None:
    write(TABLE | sections)
    outcome = invoke("sweep=tiny", "--cfg", "job")
    assert outcome.status == 1
    assert message in outcome.error
    assert "\n" not in outcome.error.strip()
