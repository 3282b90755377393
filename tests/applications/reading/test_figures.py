"""Answers after each sentence of readers, of one run and of two."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gyral.applications.reading import figures as reading
from gyral.core.errors import OptionError
from gyral.plotting.style import style
from gyral.report import draw_figure as draw
from gyral.runs.directory import Run
from gyral.training import build
from tests.helpers.figure_checks import check_figure
from tests.helpers.running import invoke


def test_each_row_is_the_answer_after_a_sentence(with_edges: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    task, step = loaded = build.load_trained(with_edges, "best")
    monkeypatch.setattr(build, "load_trained", lambda *_: loaded)
    with style():
        figure = reading.answers(with_edges, with_edges)
        check_figure(figure)
    left, right, _ = figure.axes
    shown = np.asarray(left.images[0].get_array())
    assert shown.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert np.array_equal(shown, np.asarray(right.images[0].get_array()))
    labels = [label.get_text() for label in left.get_yticklabels()]
    assert len(labels) == len(shown) > 1
    assert labels[0].endswith(" . 1")
    # the last row is the answer itself, because the readout attends to the mentions
    row = reading._choose(with_edges, task)
    probabilities = task.probabilities(task.batch_of("val", [row]))[0].numpy()
    assert shown[-1] == pytest.approx(probabilities, abs=1e-6)
    other = task.batch_of("val", [row])
    other.inputs[0, 0] = 0
    with pytest.raises(OptionError, match="must have the same validation questions as"):
        reading._find(with_edges, task, reading.Read(with_edges, task, other, step, shown))
    bold = [label.get_text() for label in left.get_xticklabels() if label.get_fontweight() == "bold"]
    assert bold == [task.candidate(task.batch_of("val", [row]), 0, int(task.batch_of("val", [row]).targets[0]))]


def test_a_second_run_needs_a_figure() -> None:
    assert (
        invoke("beside=a,b", entry="report").error
        == "beside=a,b: needs sweep=<name or directory>, or figure=<name> and run=<run directory>"
    )


def test_runs_that_cannot_be_compared_are_refused(with_edges: Run, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"^beside={with_edges.directory}: figure=strips shows one run$"):
        draw("strips", with_edges.directory, beside=[with_edges.directory])
    with pytest.raises(OptionError, match=f"^beside={tmp_path}: must be a run directory"):
        draw("answers", with_edges.directory, beside=[tmp_path])
    copied = with_edges.config.copy()
    copied.task._target_ = "gyral.tasks.copy.CopyTask"
    with pytest.raises(OptionError, match=f"^run={tmp_path}: must be a run of a task with a reader, .* is CopyTask$"):
        reading.answers(with_edges, replace(with_edges, directory=tmp_path, config=copied))


def test_sentences_end_at_their_marks_and_at_the_end() -> None:
    assert reading.sentence_ends("a b . c ? d".split()) == [2, 4, 5]  # noqa: SIM905
    assert reading.sentence_ends(["a", "."]) == [1]
