"""Predictions of a language model for texts: the surprisal of each, and the likeliest next symbol."""

import pytest
import torch

from gyral.core.errors import OptionError, UserError
from gyral.generation.surprisal import surprisals
from tests.generation.conftest import Trained

TEXTS = ["the cat", "a dog <barks> & runs on the mat", "", "t"]  # the second one is longer than a window


def test_each_text_is_read_from_an_empty_state(trained: Trained) -> None:
    task = trained.task
    frame = task.predict(TEXTS)
    assert frame.text.tolist() == TEXTS
    assert frame.symbols.tolist() == [len(text) for text in TEXTS]
    vocabulary, bits, count = task.data.corpus.vocabulary, 0.0, 0
    for text, row in zip(TEXTS[:2], frame.itertuples(), strict=False):
        expected = [found.bits or 0.0 for found in surprisals(task, text)]
        assert row.bits == pytest.approx(sum(expected), rel=1e-4)
        assert row.bits_per_symbol == pytest.approx(sum(expected) / (len(text) - 1), rel=1e-4)
        with torch.no_grad():
            logits = task.model(torch.from_numpy(vocabulary.encode(text).astype(int))[None])[0][0, -1]
        assert row.prediction == vocabulary.symbols[int(logits.argmax())]
        assert row.probability == pytest.approx(float(logits.softmax(dim=-1).max()), abs=1e-6)
        bits, count = bits + sum(expected), count + len(text) - 1
    assert frame.bits.tolist()[2:] == [0.0, 0.0]
    assert frame.attrs["metrics"]["bits"] == pytest.approx(bits / count, rel=1e-4)


def test_texts_that_cannot_be_read_are_errors_that_name_the_line(trained: Trained) -> None:
    with pytest.raises(UserError, match=r"data=lines, line 2.*ж"):
        trained.task.predict(["the", "ж"])
    with pytest.raises(OptionError, match=r"data=lines: is empty; must have a text on each line"):
        trained.task.predict([])
