"""The accuracy of a reader by the labels of questions."""

import json
from pathlib import Path

import pytest

from gyral.applications.reading.labels import read_labels, score_labels
from gyral.core.errors import OptionError
from gyral.runs.evaluation_report import Request
from tests.applications.reading.test_generation import build


def test_accuracies_equal_those_of_the_labelled_questions(tmp_path: Path) -> None:
    task = build()
    right = [
        bool(task.probabilities(batch).argmax() == batch.targets[0])
        for batch in (task.batch_of("val", [row]) for row in range(3))
    ]
    labels, out = tmp_path / "labels.tsv", tmp_path / "out.json"
    labels.write_text("3\tcoreference\tplace\n1\tcoreference\n")
    found = score_labels(task, Request("model", str(out), "data"), labels=str(labels), split="val")
    assert found == {"all": (right[0] + right[2]) / 2, "coreference": (right[0] + right[2]) / 2, "place": right[2]}
    assert json.loads(out.read_text())["numbers"] == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no labelled question"),
        ("1\ta\n1\tb", "line 2: must begin with the number of another question, from 1 to 3, not 1"),
        ("4\ta", "line 1: must begin with"),
        ("one\ta", "line 1: must begin with"),
        ("1", "line 1: must have a tab and labels"),
        ("1\tall", "line 1: must have a tab and labels after the number, none 'all'"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text(text)
    with pytest.raises(OptionError, match=message):
        read_labels(path, 3)
