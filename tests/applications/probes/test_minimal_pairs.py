"""Accuracy on minimal pairs: ties are wrong, shares inside the vocabulary, tables beside published numbers."""

import json
import math

import pytest
import torch

from gyral.applications.probes import minimal_pairs, published
from gyral.applications.probes.data.pairs import AGREEMENT, CONTRASTS, LOADERS, POLARITY, PairSet
from gyral.applications.probes.minimal_pairs import judge, report_pairs, tally
from gyral.cells.on_lstm import ONLSTMCell
from gyral.tasks.text import TextTask
from tests.applications.probes.models import language_model

PAIRS = [
    ("the author laughs", "the author laugh"),
    ("the authors laugh", "the authors laughs"),
    ("the cats laugh", "the cats laughs"),  # an unknown word in both
    ("the author runs", "the author run"),  # two unknown forms
    ("the author", "the runs"),
]


def preferring(*words: str) -> TextTask:
    """Return a model that gives these words, wherever they are, higher probabilities than all others."""
    task = language_model(ONLSTMCell, chunk_size=2)
    with torch.no_grad():
        task.model.head.weight.zero_()
        task.model.head.bias.zero_()
        for word in words:
            task.model.head.bias[task.data.corpus.vocabulary.index[word]] = 2
    return task


def test_results_by_hand() -> None:
    (found,) = judge(preferring("laughs"), [PairSet("group", "name", PAIRS)])
    assert found == [
        (True, True, True),
        (False, True, True),
        (False, True, False),
        (False, False, False),  # a tie
        (False, False, False),  # a tie: a model without preference gives all words one probability
    ]
    assert tally(found) == (5, 20, 3, pytest.approx(100 / 3), 2, 50)
    assert math.isnan(tally([]).accuracy)


def test_blimp_is_shown_by_phenomenon() -> None:
    phenomena = [name for name in published.BLIMP if name != "overall"]
    sets = [PairSet(phenomenon, f"{phenomenon} {part}", PAIRS[:2]) for phenomenon in phenomena for part in (1, 2)]
    report = report_pairs(preferring("laughs"), "blimp", sets, "model")
    assert [row[0] for row in report.rows if row] == [*phenomena, "overall"]
    assert report.rows[-1] == ["overall", "48", "50.0", "100.0 %", "50.0", "100.0 %", "50.0", "69.8"]
    assert report.numbers["overall/accuracy"] == report.numbers["ellipsis/ellipsis 1/known_accuracy"] == 50


def test_every_row_of_the_evaluation_has_published_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    names = [(phenomenon, name) for phenomenon, name, _ in AGREEMENT]
    names += [(phenomenon, f"{name}: {contrast}") for phenomenon, name, _ in POLARITY for contrast, _, _ in CONTRASTS]
    assert {name for _, name in names} == set(published.SYNEVAL)
    sets = [PairSet(phenomenon, name, PAIRS[3:4]) for phenomenon, name in names]
    report = report_pairs(preferring("laughs"), "syneval", sets, "model")
    simple = ["simple", "1", "0.0", "0.0 %", "–", "0.0 %", "–", "100.0", "99.0"]
    assert report.rows[0] == simple
    assert f"| {' | '.join(simple)} |" in report.markdown()
    assert json.loads(report.json())["numbers"]["short dependencies/simple/known_accuracy"] is None
    report.show()
    assert all(name in capsys.readouterr().out for name in ("short VP coordination",))


def test_every_benchmark_has_a_title_and_a_source() -> None:
    assert set(minimal_pairs.TITLES) == set(minimal_pairs.SOURCES) == set(LOADERS)
