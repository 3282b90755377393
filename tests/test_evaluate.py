"""Evaluation gives the numbers that training ended with."""

import json
import re
from pathlib import Path

import pytest
from matplotlib import image

from gyral.core.measures import OF_OBJECTIVES
from gyral.core.measures import printed as printed_metric
from gyral.runs.metrics_file import read_metrics
from tests.helpers.running import (
    SMALL_COPY,
    Outcome,
    invoke,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose best checkpoint is not its last one."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    # with the highest loss as the best the first validation wins
    learning = ["optimizer=adam", "optimizer.lr=0.05", "task.monitor=val/loss", "task.mode=max"]
    outcome = invoke(*SMALL_COPY, "model=gru", *learning, f"hydra.run.dir={directory}", plot=True)
    assert outcome.status == 0, outcome.err
    return directory


NAMES = {
    "test/loss": "test loss (nats)",
    "test/accuracy": "test accuracy",
    "test/sequence_accuracy": "test sequences all correct",
    "test/baseline": "memoryless baseline (nats)",
}  # of the metrics of the run in the terminal, as at the end of training


def table(outcome: Outcome) -> dict[str, str]:
    """Return the rows of a printed table."""
    assert outcome.status == 0, outcome.err
    return dict(re.findall(r"│ (\S.*?) +│ (.*?) +│", outcome.out))


def as_printed(name: str, value: float) -> str:
    return printed_metric(name, value, OF_OBJECTIVES)


def test_evaluation_equals_the_final_metrics_of_training(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    printed = table(invoke(f"run={run}", "split=test", entry="evaluate"))
    results = json.loads((run / "DONE").read_text())
    assert {name: printed[name] for name in NAMES.values()} == {
        name: as_printed(metric, results[metric]) for metric, name in NAMES.items()
    }
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == before


def test_the_numbers_are_saved(run: Path, tmp_path: Path) -> None:
    printed = table(invoke(f"run={run}", f"save={tmp_path / 'a.json'}", entry="evaluate"))
    saved = json.loads((tmp_path / "a.json").read_text())
    assert re.fullmatch(r"GRU\S*, step 8", saved["title"])
    printed.pop("baseline beaten")
    assert {NAMES[metric]: as_printed(metric, value) for metric, value in saved["numbers"].items()} == printed
    assert printed["test accuracy"] == f"{100 * saved['numbers']['test/accuracy']:.1f} %"
    invoke(f"run={run}", f"save={tmp_path / 'a.md'}", entry="evaluate")
    assert f"| test/loss | {printed['test loss (nats)']} |\n" in (tmp_path / "a.md").read_text()


def test_a_file_of_another_kind_is_refused(run: Path, tmp_path: Path) -> None:
    outcome = invoke(f"run={run}", f"save={tmp_path / 'a.html'}", entry="evaluate")
    assert outcome.err == f"error: save={tmp_path / 'a.html'}: must end in one of .md, .json\n"
    assert not list(tmp_path.iterdir())


def test_other_splits_and_checkpoints_have_other_metrics(run: Path, tmp_path: Path) -> None:
    scores = {}
    for split, checkpoint in (("test", "best"), ("val", "best"), ("train", "best"), ("val", "last")):
        words = (f"run={run}", f"split={split}", f"checkpoint={checkpoint}", f"save={tmp_path / 'a.json'}")
        assert invoke(*words, entry="evaluate").status == 0
        scores[split, checkpoint] = json.loads((tmp_path / "a.json").read_text())["numbers"][f"{split}/loss"]
    assert len(set(scores.values())) == 4
    results = json.loads((run / "DONE").read_text())
    assert float(scores["test", "best"]) == pytest.approx(results["test/loss"], abs=1e-6)
    steps, values = read_metrics(run, "val/loss")
    assert float(scores["val", "last"]) == pytest.approx(values[-1], abs=1e-6)
    assert float(scores["val", "best"]) == pytest.approx(max(values), abs=1e-6)
    assert steps == [8, 16, 24]


def test_losses_are_drawn(run: Path) -> None:
    picture = image.imread(run / "loss.png")
    height, width, _ = picture.shape
    assert height > 300
    assert width > 500
    colours = {tuple(pixel) for pixel in (picture[:, :, :3] * 255).astype(int).reshape(-1, 3)[::3]}
    assert len(colours) > 20, "the figure is empty"
