"""The picture of a run's losses."""

from pathlib import Path

import pytest
from matplotlib import image

from gyral.figures.loss_curve import plot_losses
from tests.helpers.written import metrics


@pytest.mark.parametrize(
    "text",
    [
        "step\n",
        "step,train/loss,train/baseline,val/loss\n4,0.5,0.9,\n4,,,0.0\n",
        "step,train/loss,val/loss\n4,nan,\n4,,inf\n",
    ],
    ids=["empty", "zero", "not finite"],
)
def test_a_picture_is_drawn_of_any_metrics(tmp_path: Path, text: str) -> None:
    path = plot_losses(metrics(tmp_path, text))
    assert image.imread(path).shape[2] == 4


def test_the_picture_shows_the_baseline(tmp_path: Path) -> None:
    rows = "".join(f"{step},{0.5 / step},{{}}\n" for step in range(1, 9))
    with_line = plot_losses(metrics(tmp_path, "step,train/loss,train/baseline\n" + rows.format(*[0.2] * 8)))
    first = image.imread(with_line)
    without = plot_losses(metrics(tmp_path, "step,train/loss,train/baseline\n" + rows.format(*[""] * 8)))
    assert (first != image.imread(without)).any()
