"""How often the progress bar is redrawn, and what it shows."""

import csv
from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning.callbacks import TQDMProgressBar

from gyral.core.errors import OptionError
from gyral.training.callbacks import (
    ProgressBar,
)
from tests.helpers.running import (
    SMALL_RECALL,
    invoke,
)


def drawn_steps(monkeypatch: pytest.MonkeyPatch, step_seconds: float, **options: Any) -> list[int]:
    """Return after which of ten steps of so many seconds the bar is drawn."""
    clock = iter(100 + step_seconds * step for step in range(10))
    monkeypatch.setattr("gyral.training.callbacks.progress_bar.time.monotonic", lambda: next(clock))
    drawn: list[int] = []
    monkeypatch.setattr(TQDMProgressBar, "on_train_batch_end", lambda *arguments: drawn.append(arguments[-1]))
    monkeypatch.setattr(ProgressBar, "total_train_batches", 10)
    bar = ProgressBar(**options)
    for index in range(10):
        bar.on_train_batch_end(None, None, None, None, index)  # type: ignore[arg-type]
    return drawn


def test_the_bar_is_drawn_by_the_clock_and_at_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn_steps(monkeypatch, 0.125) == [0, 4, 8, 9]
    assert drawn_steps(monkeypatch, 0.125, seconds=0.25) == [0, 2, 4, 6, 8, 9]
    assert drawn_steps(monkeypatch, 20.0) == list(range(10))
    assert drawn_steps(monkeypatch, 0.001, seconds=0) == list(range(10))


@pytest.mark.parametrize("options", [{"seconds": -1}, {"seconds": "x"}, {"refresh_rate": 0}])
def test_how_often_the_bar_is_drawn_is_checked(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        ProgressBar(**options)


def test_the_bar_shows_the_last_loss(tmp_path: Path) -> None:
    arguments = [argument for argument in SMALL_RECALL if argument != "~callbacks.progress_bar"]
    outcome = invoke(*arguments, "model=gru", "trainer.max_steps=4", f"hydra.run.dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    with (tmp_path / "metrics.csv").open(newline="") as file:
        losses = [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]
    last = outcome.out.split("\r")[-1]
    assert f"train/loss={losses[-1]:.3g}" in last
    assert "4/4" in last
