"""Handwritten digits pixel by pixel."""

import math
import sys

import numpy as np
import pytest
import torch

from gyral.core.errors import UserError
from gyral.tasks import digits
from gyral.tasks.digits import PIXELS
from tests.helpers.running import build_task

# for the contract of tasks
OPTIONS = {"permuted": True}
RUN = ("model=gru", "scheduler=cosine")  # of small_runs.py in tests/faults


@pytest.fixture(autouse=True)
def _scikit_learn() -> None:
    pytest.importorskip("sklearn")


def test_each_image_is_in_exactly_one_split() -> None:
    from sklearn.datasets import load_digits

    task = build_task("task=digits", "model=gru")
    pixels, classes = load_digits(return_X_y=True)
    rows = torch.cat([task.data.rows(split) for split in ("train", "val", "test")])
    assert [len(task.data.rows(split)) for split in ("train", "val", "test")] == [1097, 200, 500]
    images = np.column_stack([pixels, classes]).astype(int).tolist()
    assert sorted(rows.tolist()) == sorted(images) != rows.tolist()
    frequencies = [
        task.data.rows(split)[:, PIXELS].bincount() / len(task.data.rows(split)) for split in ("val", "test")
    ]
    assert (frequencies[0] - frequencies[1]).abs().max() < 0.1  # no digit is rare in one of them
    batch = task.data.assemble(rows)
    assert (batch.inputs.min(), batch.inputs.max()) == (0, 1)
    assert task.baseline == pytest.approx(math.log(10), rel=1e-2)  # digits are nearly equally frequent


def test_permutation_is_the_same_for_all_images_and_depends_only_on_its_seed() -> None:
    plain = build_task("task=digits", "model=gru")
    permuted = build_task("task=digits", "model=gru", "seed=5", permuted=True)
    other = build_task("task=digits", "model=gru", permuted=True, permutation_seed=1)
    image = torch.arange(PIXELS + 1, dtype=torch.uint8).unsqueeze(0)
    orders = [(task.data.assemble(image).inputs[0, :, 0] * 16).int().tolist() for task in (plain, permuted, other)]
    assert orders[0] == list(range(PIXELS))
    assert all(sorted(order) == orders[0] for order in orders)
    assert orders[0] != orders[1] != orders[2]
    assert orders[1] == (build_task("task=digits", "model=gru", permuted=True).data.order).tolist()


def test_pixels_are_drawn_as_shades() -> None:
    task = build_task("task=digits", "model=gru")
    batch = next(iter(task.data.loader("train")))
    lines = task.render(batch, torch.full((64,), 7), 0).splitlines()
    assert len(lines[0]) == len("prediction  ") + PIXELS
    assert lines[1:] == [f"target      {batch.targets[0]}", "prediction  7"]
    assert lines[0][12:].count(" ") == (batch.inputs[0] < 0.5 / 9).sum()


def test_missing_scikit_learn_is_an_error_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    digits.load_images.cache_clear()
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UserError, match=r"^task=digits: needs the package sklearn: pip install 'gyral\[digits\]'$"):
        digits.load_images()
