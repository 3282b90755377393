"""The figures of external memories, and of the answers that need one."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from gyral.core.errors import OptionError
from gyral.figures.keys import animate_keys, keys, read_locations
from gyral.figures.memory import gates, load_trace, read_only_spans, weightings
from gyral.figures.strips import predict_examples, strips
from gyral.plotting.style import save_animation, style
from gyral.report import draw_figure as draw
from gyral.runs.directory import Run, load_run
from gyral.training import build
from tests.helpers.figure_checks import check_figure
from tests.helpers.running import SMALL_ALGORITHM, build_task, invoke
from tests.helpers.sequences import sequences_file


@pytest.fixture
def lantm(memory_run: Path) -> Run:
    return load_run(memory_run)


def test_keys_show_every_write_and_every_read(lantm: Run) -> None:
    _, _, trace = load_trace(lantm)
    assert trace.keys is not None
    with style():
        figure = keys(lantm)
        check_figure(figure)
    axes = figure.axes[0]
    circles, written = axes.collections[0], trace.writable
    assert np.allclose(circles.get_offsets(), trace.keys.write[written])
    assert np.allclose(circles.get_array(), trace.keys.strength[written])
    during, after = (line.get_xydata() for line in axes.lines)
    assert np.allclose(np.where(written[:, None], during, after), trace.keys.read)
    assert np.isnan(during[~written]).all()
    assert np.isnan(after[written]).all()


def test_an_animation_has_a_frame_for_each_validation(lantm: Run, tmp_path: Path) -> None:
    steps, recorded = read_locations(lantm.directory)
    assert steps == [8, 16, 24]
    frames = animate_keys(lantm)
    assert frames is not None
    with style():
        limits = []

        def check(frames: Iterator[Figure]) -> Iterator[Figure]:
            for frame, step, locations in zip(frames, steps, recorded, strict=True):
                assert f"step {step}" in frame.get_suptitle()
                assert np.allclose(frame.axes[0].collections[0].get_offsets(), locations.writes)
                limits.append((frame.axes[0].get_xlim(), frame.axes[0].get_ylim()))
                yield frame

        save_animation(check(frames), tmp_path / "keys.gif")
    with Image.open(tmp_path / "keys.gif") as animation:
        assert animation.n_frames == 3
    assert limits[0] == limits[1] == limits[2]
    (tmp_path / "config.yaml").write_text((lantm.directory / "config.yaml").read_text())
    assert animate_keys(load_run(tmp_path)) is None


@pytest.mark.slow
def test_the_animation_is_saved_beside_the_figure(lantm: Run) -> None:
    path = draw("keys", lantm.directory)[0]
    assert path.with_suffix(".pdf").is_file()
    first = path.with_suffix(".gif").read_bytes()
    assert invoke("figure=keys", f"run={lantm.directory}", entry="report").out.endswith(
        f"keys.pdf\n{path.with_suffix('.gif')}\n"
    )
    assert path.with_suffix(".gif").read_bytes() == first, "the same run gives the same bytes"


def test_the_last_row_of_a_recorded_memory_is_the_memory_of_the_last_checkpoint(lantm: Run) -> None:
    _, step, trace = load_trace(lantm)
    steps, recorded = read_locations(lantm.directory)
    assert trace.keys is not None
    assert step == steps[-1], "the best checkpoint is the last one"
    assert np.allclose(recorded[-1].reads, trace.keys.read, atol=1e-5)
    assert np.array_equal(recorded[-1].after, ~trace.writable)


def test_gates_and_weightings_have_a_panel_each(lantm: Run) -> None:
    _, _, trace = load_trace(lantm)
    with style():
        for figure, shown in ((gates(lantm), trace.gates), (weightings(lantm), trace.weightings)):
            check_figure(figure)
            assert [axes.get_title() or axes.get_ylabel() for axes in figure.axes[: len(shown)]] == list(shown)
    assert trace.weightings["read"].sum(axis=1) == pytest.approx(1, abs=1e-5)


def test_spans_without_writing() -> None:
    assert read_only_spans(np.array([1, 1, 0, 0, 1, 0], dtype=bool)).tolist() == [[1.5, 3.5], [4.5, 5.5]]
    assert read_only_spans(np.ones(3, dtype=bool)).tolist() == []


def test_strips_show_answers(lantm: Run) -> None:
    with style():
        figure = strips(lantm)
        check_figure(figure)
    task, _, _ = load_trace(lantm)
    examples = predict_examples(task)
    assert examples is not None
    batch = next(iter(task.data.loader("val")))
    for example, row, panels in zip(examples, range(4), np.reshape(np.array(figure.axes), (-1, 3)), strict=True):
        assert example.target[-1] == task.end, "the end symbol"
        assert example.target.tolist() == [each for each in batch.targets[row].tolist() if each >= 0]
        target, prediction, wrong = (panel.images[0].get_array().ravel() for panel in panels)
        assert np.array_equal(wrong, target != prediction)
        assert f"{wrong.sum()} wrong" in panels[0].get_title(loc="left")


def test_unsupported_cells_and_tasks_are_refused(lantm: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def use(*overrides: str) -> None:
        task = build_task(*overrides, "model.cell.hidden_size=4").eval()
        monkeypatch.setattr(build, "load_trained", lambda run, checkpoint: (task, 0))

    use(*SMALL_ALGORITHM, "model=lstm")
    for figure in (keys, gates, weightings):
        with pytest.raises(
            OptionError, match=r"needs a cell with an external memory, such as LANTMCell; this is LSTMCell"
        ):
            figure(lantm)
    use(*SMALL_ALGORITHM, "model=ntm", "model.cell.slots=6")
    with pytest.raises(
        OptionError, match=r"needs a cell with keys in a plane, such as LANTMCell; this is \w+, NTMCell$"
    ):
        keys(lantm)
    use("task=adding", "task.length=4", "task.train_size=50", "task.val_size=4", "task.test_size=4", "model=rnn")
    with pytest.raises(OptionError, match=r"needs a task with a target for each step; this is AddingTask$"):
        strips(lantm)


@pytest.mark.parametrize(
    "options",
    [
        ("task=repeat_copy", "task.val_batches=1"),
        ("task=sequences", f"task.data={sequences_file()}"),  # one real value per step
    ],
)
def test_vectors_are_drawn_as_columns(options: tuple[str, ...], lantm: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    task = build_task(*options, "task.batch_size=4", "model=rnn", "model.cell.hidden_size=4").eval()
    monkeypatch.setattr(build, "load_trained", lambda run, checkpoint: (task, 0))
    examples = predict_examples(task)
    assert examples is not None
    with style():
        figure = strips(lantm)
        check_figure(figure)
    assert [panel.get_ylabel() for panel in figure.axes[:3]] == ["target", "prediction", "difference"]
    lines = [panel.yaxis.label.get_window_extent() for panel in figure.axes]
    assert not any(one.overlaps(other) for one, other in pairwise(lines))
    for example, panels in zip(examples, np.reshape(np.array(figure.axes), (-1, 3)), strict=True):
        target, prediction, difference = (panel.images[0].get_array() for panel in panels)
        assert np.array_equal(target.T, example.target)
        assert np.array_equal(difference, abs(target - prediction))
