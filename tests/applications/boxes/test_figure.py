"""The figure of boxes in the plane, and its animation."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gyral.applications.boxes.callback import Boxes
from gyral.applications.boxes.figure import animate_boxes, boxes, read_boxes
from gyral.applications.boxes.model import SmoothedBoxes
from gyral.core.errors import OptionError
from gyral.plotting.style import style
from gyral.report import draw_figure as draw
from gyral.runs.directory import Run, load_run
from gyral.training import build
from tests.applications.boxes.small import FELINES
from tests.helpers.figure_checks import check_figure
from tests.helpers.running import build_task, invoke


def test_the_figure_shows_the_boxes_of_the_model(felines: Run) -> None:
    with style():
        figure = boxes(felines)
        check_figure(figure)
    task, _ = build.load_trained(felines, "best")
    patches = figure.axes[0].patches
    assert len(patches) == 12
    assert {"cat", "big cat", "domestic cat"} <= {patch.get_label() for patch in patches}
    for patch in patches:
        name = next(name for name in task.names if name.partition(".")[0].replace("_", " ") == patch.get_label())
        number = task.names.index(name)
        assert np.allclose(patch.get_xy(), task.model.minimum[number].detach())
        sides = task.model.log_side[number].detach().exp()
        assert np.allclose((patch.get_width(), patch.get_height()), sides)


def test_the_animation_has_a_frame_for_each_validation(felines: Run, tmp_path: Path) -> None:
    steps, names, recorded = read_boxes(felines)
    assert steps == [8, 16, 24]
    assert recorded.shape == (3, len(names), 4)
    frames = animate_boxes(felines)
    assert frames is not None
    with style():
        limits = set()
        for frame, step, corners in zip(frames, steps, recorded, strict=True):
            assert f"step {step}" in frame.get_suptitle()
            assert np.allclose([patch.get_xy() for patch in frame.axes[0].patches], corners[:, :2])
            limits.add((*frame.axes[0].get_xlim(), *frame.axes[0].get_ylim()))
    assert len(limits) == 1
    (tmp_path / "config.yaml").write_text((felines.directory / "config.yaml").read_text())
    assert animate_boxes(load_run(tmp_path)) is None


@pytest.mark.slow
def test_the_figure_and_its_animation_are_saved(felines: Run) -> None:
    path = draw("boxes", felines.directory)[0]
    assert path.with_suffix(".pdf").is_file()
    assert path.with_suffix(".gif").is_file()


def test_a_callback_without_boxes_in_the_plane_is_refused(tmp_path: Path) -> None:
    order = invoke(*FELINES, "model=order", "callbacks=boxes", f"hydra.run.dir={tmp_path / 'order'}")
    assert order.error == "callbacks.boxes: OrderEmbeddings has no boxes; use it with model=smoothed_box"
    three: Any = SimpleNamespace(model=SmoothedBoxes(3, dimension=3))
    with pytest.raises(OptionError, match=r"^model.dimension=3: must be 2 with callbacks=boxes$"):
        Boxes().check_task(three)


def test_a_figure_without_boxes_in_the_plane_is_refused(felines: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    order = build_task("task=hypernyms", "model=order")
    monkeypatch.setattr(build, "load_trained", lambda *_: (order, 0))
    with pytest.raises(OptionError, match="needs boxes in the plane"):
        boxes(felines)
