"""Tables and pictures of runs, and evaluation with the numbers that training ended with."""

import json
import math
import re
from pathlib import Path

import pytest
from matplotlib import image

from src import report
from tests.running import SMALL_COPY, Outcome, invoke

RESULTS = {
    "test/loss": 0.02,
    "test/accuracy": 0.875,
    "test/sequence_accuracy": 0.5,
    "test/baseline": 0.04,
    "monitor": 0.02,
    "parameters": 13_710,
    "seconds_a_step": 0.0123456,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose best checkpoint is not its last one."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    # with the highest loss as the best the first validation wins
    learning = ["optimizer=adam", "optimizer.lr=0.05", "task.monitor=val/loss", "task.mode=max"]
    outcome = invoke(*SMALL_COPY, "model=gru", *learning, f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    return directory


def table(outcome: Outcome) -> dict[str, str]:
    """Return the rows of a printed table."""
    assert outcome.status == 0, outcome.err
    return dict(re.findall(r"│ (\S.*?) +│ (.*?) +│", outcome.out))


@pytest.mark.parametrize("checkpoint", ["best", None])
def test_evaluation_gives_the_numbers_that_training_ended_with(run: Path, checkpoint: str | None) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    choice = [f"checkpoint={checkpoint}"] if checkpoint else []
    printed = table(invoke(f"run={run}", "split=test", *choice, entry="evaluate"))
    results = json.loads((run / "DONE").read_text())
    names = ("test/loss", "test/accuracy", "test/sequence_accuracy", "test/baseline")
    assert {name: float(printed[name]) for name in names} == pytest.approx({n: results[n] for n in names}, abs=1e-6)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == before


def test_other_splits_and_checkpoints_have_numbers_of_their_own(run: Path) -> None:
    scores = {
        (split, checkpoint): table(
            invoke(f"run={run}", f"split={split}", f"checkpoint={checkpoint}", entry="evaluate")
        )[f"{split}/loss"]
        for split, checkpoint in (("test", "best"), ("val", "best"), ("train", "best"), ("val", "last"))
    }
    assert len(set(scores.values())) == 4
    steps, values = report.read_metrics(run, "val/loss")
    assert float(scores["val", "last"]) == pytest.approx(values[-1], abs=1e-6)
    assert float(scores["val", "best"]) == pytest.approx(max(values), abs=1e-6)
    assert steps == [8, 16, 24]


def test_results_table_says_whether_the_baseline_was_beaten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report.print_results(tmp_path, RESULTS)
    printed = capsys.readouterr().out
    for words in ("0.02", "87.50%", "50.00%", "0.04", "yes, by a factor of 2", "13,710", "0.0123"):
        assert words in printed
    assert str(tmp_path) in re.sub(r"[│\s]", "", printed)
    report.print_results(tmp_path, {**RESULTS, "test/loss": 0.05})
    assert re.search(r"baseline beaten +│ no", capsys.readouterr().out)


@pytest.mark.parametrize("changes", [{"test/loss": 0.0}, {"test/loss": math.nan}, {"seconds_a_step": math.nan}])
def test_results_table_copes_with_corner_values(
    changes: dict[str, float], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report.print_results(tmp_path, {**RESULTS, **changes})
    assert "test accuracy" in capsys.readouterr().out


def test_losses_are_drawn(run: Path) -> None:
    picture = image.imread(run / "loss.png")
    height, width, _ = picture.shape
    assert height > 300
    assert width > 500
    colours = {tuple(pixel) for pixel in (picture[:, :, :3] * 255).astype(int).reshape(-1, 3)[::3]}
    assert len(colours) > 20, "nothing but paper"


def metrics(directory: Path, text: str) -> Path:
    (directory / "metrics.csv").write_text(text)
    return directory


@pytest.mark.parametrize(
    "text",
    [
        "step\n",
        "step,train/loss,train/baseline\n4,0.5,0.9\n",
        "step,train/loss,train/baseline,val/loss\n4,0.5,0.9,\n4,,,0.0\n",
        "step,train/loss,val/loss\n4,nan,\n4,,inf\n",
        "step,val/loss\n4,0.0\n",
    ],
    ids=["empty", "one row", "zero", "not finite", "nothing but zero"],
)
def test_a_picture_is_drawn_of_any_metrics(tmp_path: Path, text: str) -> None:
    path = report.plot_losses(metrics(tmp_path, text))
    assert image.imread(path).shape[2] == 4


def test_the_picture_shows_the_baseline(tmp_path: Path) -> None:
    rows = "".join(f"{step},{0.5 / step},{{}}\n" for step in range(1, 9))
    with_line = report.plot_losses(metrics(tmp_path, "step,train/loss,train/baseline\n" + rows.format(*[0.2] * 8)))
    first = image.imread(with_line)
    without = report.plot_losses(metrics(tmp_path, "step,train/loss,train/baseline\n" + rows.format(*[""] * 8)))
    assert (first != image.imread(without)).any()


def test_metrics_are_read_with_the_number_of_steps_taken(tmp_path: Path) -> None:
    metrics(tmp_path, "step,train/loss,val/loss\n4,0.5,\n4,,0.25\n9,0.125,\n")
    assert report.read_metrics(tmp_path, "train/loss") == ([5, 10], [0.5, 0.125])
    assert report.read_metrics(tmp_path, "val/loss") == ([5], [0.25])
    assert report.read_metrics(tmp_path, "nothing") == ([], [])
