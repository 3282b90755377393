"""Log-probabilities of sentences, independent of other sentences."""

import numpy as np
import pytest
import torch

from gyral.applications.probes.scoring import log_probabilities
from gyral.cells.base import RecurrentCell
from gyral.cells.on_lstm import ONLSTMCell
from gyral.cells.rum import RUMCell
from tests.applications.probes.models import language_model


@pytest.mark.parametrize(("cell", "options"), [(ONLSTMCell, {"chunk_size": 2}), (RUMCell, {"lambd": 1.0})])
@torch.no_grad()
def test_scores_of_a_sentence_do_not_depend_on_the_batch(cell: type[RecurrentCell], options: dict) -> None:
    model = language_model(cell, **options).model
    random = np.random.default_rng(0)
    sentences = [[0, *random.integers(4, size=random.integers(6)).tolist()] for _ in range(24)]
    expected = []
    for sentence in sentences:
        logits = model(torch.tensor([sentence]))[0][0].log_softmax(dim=-1)
        expected.append(sum(logits[place, token].item() for place, token in enumerate(sentence[1:])))
    same = [place for place, each in enumerate(sentences) if each == sentences[0]]
    for rows in (0, 1, 5):
        found = log_probabilities(model, sentences, rows=rows)
        assert found.tolist() == pytest.approx(expected, abs=1e-5)
        assert {found[place] for place in same} == {found[0]}


def test_each_prefix_is_read_once() -> None:
    model = language_model(ONLSTMCell, chunk_size=2).model
    read: list[int] = []
    model.register_forward_pre_hook(lambda _, arguments: read.append(len(arguments[0])))
    log_probabilities(model, [[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 3], [0, 1], [0, 2, 3, 1]])
    assert read == [1, 2, 2]
    assert log_probabilities(model, [[0], [0]]).tolist() == [0, 0]
