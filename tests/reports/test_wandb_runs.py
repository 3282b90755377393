"""Runs that lie in Weights & Biases are reported as those of a directory are."""

from types import SimpleNamespace
from typing import Any

import pytest
import wandb

from gyral.reports import wandb_runs
from gyral.reports.tables.sections import make_sections
from gyral.runs.measures import to_plain
from tests.helpers.running import invoke
from tests.helpers.written import MEASURES, REMARKS

INDEX = "trainer/global_step"  # the x axis of earlier versions


def run(
    state: str = "finished", *, seed: int = 1, results: bool = True, resumed_at: int = 0, **config: Any
) -> SimpleNamespace:
    """Return a run as the API of Weights & Biases gives it; an earlier version logged it until `resumed_at`."""
    summary = {
        "steps": 40,
        "train/loss": 0.5,
        "train/baseline": 0.8,
        "val/loss": {"min": 0.4},
        "loss": {"_type": "images/separated"},
    }
    if results:
        summary |= {"test/loss": 0.2, "test/accuracy": 0.25, "test/baseline": 0.8, "parameters": 12_000}
    overrides = ["experiment=rum_paper/table1/gru", f"seed={seed}"]
    recorded = {
        "overrides": overrides,
        **to_plain(MEASURES, REMARKS),
        "command": ["python", "/x/src/train.py", *overrides],
        "git_commit": "abcdef0123456789",
        "changed": True,
        "directory": "outputs/x",
    }
    if resumed_at:
        summary[INDEX] = resumed_at - 1
    curve = [
        {**({INDEX: step - 1} if step <= resumed_at else {"steps": step}), "train/loss": 1 / step, "val/loss": "NaN"}
        for step in (5, 10, 40)
    ]
    return SimpleNamespace(
        url=f"https://wandb.example/runs/{seed}",
        id=f"id{seed}",
        state=state,
        config={"seed": seed, "task": {"length": 30}, "run": recorded, **config},
        summary=summary,
        history=lambda samples, keys, pandas: [{key: row[key] for key in keys} for row in curve if {*keys} <= {*row}],
    )


def test_the_run_of_an_agent_has_the_sections_that_its_sweep_has_chosen(project: list[Any]) -> None:
    chosen = run(seed=1, task="recall", model="rum")  # W&B keeps the choices of the sweep
    chosen.config["run"]["config"] = {
        "task": {"_target_": "gyral.tasks.recall.RecallTask"},
        "model": {"cell": {"_target_": "gyral.cells.rum.RUMCell"}},
    }
    project += [chosen, run(seed=2, model="rum")]
    [record], told = wandb_runs.read("me/gyral")
    assert (record.cell, record.task) == ("RUM", "recall")
    assert told == ["https://wandb.example/runs/2: cannot be read: its configuration: model is not a section"]


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the project `me/gyral` holds."""
    held: list[Any] = []

    def runs(path: str) -> list[Any]:
        if path != "me/gyral":
            raise ValueError(f"Could not find project {path}")
        return held

    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setattr(wandb, "Api", lambda timeout: SimpleNamespace(runs=runs))
    return held


def test_runs_have_results_curves_and_provenance(project: list[Any]) -> None:
    project += [run(seed=1), run("crashed", seed=2, results=False), run("running", seed=3, results=False)]
    [done, crashed, running], told = wandb_runs.read("me/gyral")
    assert not told
    assert (done.state, crashed.state, running.state) == ("DONE", "FAILED", "running at step 40")
    assert crashed.reason == "crashed; see outputs/x for the reason"
    assert (done.steps, done.seed, done.experiment) == (40, "1", "rum_paper/table1/gru")
    assert done.curves["train/loss"].steps == [5, 10, 40]
    assert "val/loss" not in done.curves or not done.curves["val/loss"].values
    assert (done.provenance.identity, done.provenance.code) == ("id1", "abcdef0123 + uncommitted changes")
    [section] = make_sections([done, crashed, running], None)
    entry = section.tables[0].rows[0][1][0]
    assert (entry.text, entry.missing) == ("25.0", ("seed 2 FAILED", "seed 3 running at step 40"))
    # started here, they would be other runs
    assert not any("hydra.sweep.dir" in command or "resume" in command for command in section.commands)


@pytest.mark.parametrize("resumed_at", [10, 40], ids=["resumed with this version", "whole run"])
def test_runs_of_earlier_versions_have_steps_and_curves(project: list[Any], resumed_at: int) -> None:
    project += [run(resumed_at=resumed_at), run("running", seed=2, results=False, resumed_at=resumed_at)]
    if resumed_at == 40:
        del project[1].summary["steps"]
    records, told = wandb_runs.read("me/gyral")
    assert not told
    assert [record.steps for record in records] == [40, 40]
    assert [record.curves["train/loss"].steps for record in records] == 2 * [[5, 10, 40]]


def test_runs_of_other_programs_are_listed(project: list[Any]) -> None:
    project += [run(), run(seed=2, run=None)]
    outcome = invoke("sweep=wandb:me/gyral", entry="report")
    assert outcome.status == 0, outcome.err
    assert "https://wandb.example/runs/2: cannot be read: it was not logged by this framework" in outcome.out
    assert "Table 1" in outcome.out


def test_missing_and_empty_projects_are_refused(project: list[Any]) -> None:
    error = invoke("sweep=wandb:me/nothing", entry="report").error
    assert error == "sweep=wandb:me/nothing: cannot be read: Could not find project me/nothing"
    assert invoke("sweep=wandb:me/gyral", entry="report").error == "sweep=wandb:me/gyral: contains no run"


def test_a_missing_key_is_refused(
    project: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setenv("NETRC", str(tmp_path_factory.mktemp("home") / "none"))
    monkeypatch.setattr("gyral.reports.wandb_runs.has_wandb_key", lambda server: False)
    error = invoke("sweep=wandb:me/gyral", entry="report").error
    assert error.startswith("sweep=wandb:me/gyral: needs a key of Weights & Biases")
