"""Small language models for the tests of probes."""

from functools import partial
from typing import Any

from gyral.cells.base import RecurrentCell
from gyral.core.measures import SPLITS
from gyral.data.text.corpora import Corpus
from gyral.data.vocabulary import Vocabulary, split_words
from gyral.models.sequence import SequenceModel
from gyral.tasks.text import TextTask

TEXT = "the author laughs\nthe authors laugh\n<unk> N years old n't\n" * 3


def language_model(
    cell: type[RecurrentCell], text: str = TEXT, level: str = "word", layers: int = 2, **options: Any
) -> TextTask:
    """Return an untrained language model of a text, in eval mode."""
    symbols = split_words(text) if level == "word" else text.encode() if level == "byte" else text
    vocabulary = Vocabulary.of(symbols, level)
    corpus = Corpus("made", vocabulary, {split: vocabulary.encode(symbols) for split in SPLITS})
    factory = partial(cell, hidden_size=6, **options)

    def model(vocabulary_size: int, output_size: int, **_: Any) -> SequenceModel:
        return SequenceModel(factory, vocabulary_size, output_size, num_layers=layers)

    return TextTask(model, corpus, batch_size=2, window=4, eval_batch_size=2, warm_up=0).eval()
