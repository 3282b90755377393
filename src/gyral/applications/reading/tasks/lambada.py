"""LAMBADA as reading comprehension: read a passage and predict its last word among the words of the document.

The document ends at the last " . ", and the question follows it. The candidates are the words of the document other
than punctuation marks. Edges join equal words, such as the two "rowan":

    input       gavriel nodded to rowan . rowan was frowning . | @begin gavriel murmured , good luck , @end
    edges       rowan → rowan, gavriel → gavriel
    target      rowan
"""

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from gyral.applications.reading.data.encoded import SPECIAL
from gyral.applications.reading.data.lambada import EDGES, SOURCES, load_lambada
from gyral.applications.reading.data.ngrams import ngram_accuracy
from gyral.applications.reading.data.prepared import SIZE, ReadingCorpus
from gyral.applications.reading.data.words import BEGIN, END, FUNCTION_WORDS
from gyral.applications.reading.tasks.corpus_reading import CorpusData, CorpusReadingTask
from gyral.core.checks import check_integers
from gyral.core.options import NonNegativeInt, OneOf, Range
from gyral.tasks.base import ModelFactory


class LambadaData(CorpusData):
    """Passages without their last word.

    Args:
        data_dir, source, edges, max_chains, chains, hypernyms, vocabulary_size: see
            `gyral.applications.reading.data.lambada.load_lambada`.
        batch_size, eval_batch_size, data_seed: see `gyral.applications.reading.tasks.base.ReadingData`; `data_seed` is
            also the seed of generated passages.

    Raises:
        UserError: an option is out of bounds; the data is missing or cannot be used.
    """

    ignored = FUNCTION_WORDS
    small: ClassVar = {"source": "generated", "max_chains": 1}

    data_dir: str | Path = field()
    source: Annotated[str, OneOf(SOURCES)] = "auto"
    edges: Annotated[str, OneOf(EDGES)] = "matches"
    max_chains: NonNegativeInt = 14
    chains: str | Path | None = None
    hypernyms: str | Path | None = None
    vocabulary_size: Annotated[int, Range(len(SPECIAL) + 1)] = SIZE
    batch_size = 64
    eval_batch_size = 256

    def load(self) -> ReadingCorpus:
        return load_lambada(
            self.data_dir,
            source=self.source,
            edges=self.edges,
            max_chains=self.max_chains,
            chains=self.chains,
            hypernyms=self.hypernyms,
            vocabulary_size=self.vocabulary_size,
            seed=self.data_seed,
        )


class LambadaTask(CorpusReadingTask):
    """LAMBADA with a reader (Chu et al. 2017, arXiv:1610.08431; Dhingra et al. 2017, arXiv:1703.02620).

    The metric `answerable` is the share of passages whose last word is in the document: .811 of the development and
    .808 of the test passages. For `most_mentioned`, function words do not count. Without the files, the task logs its
    substitute; see `gyral.applications.reading.data.lambada.load_lambada`.

    Args:
        model: makes the model from the sizes of the task and the readout.
        ngrams: orders of the n-gram models (`gyral.data.text.ngrams`) whose accuracy a test reports as
            `ngram_<order>_accuracy`. They are trained on the training split and choose among the same candidates.
        **options: see `LambadaData`, and `gyral.tasks.base.SequenceTask` for optimizer, scheduler, monitor, mode,
            overfit, prefetch.

    Raises:
        UserError: an option is out of bounds; the data is missing or cannot be used.
    """

    data_class = LambadaData
    label_notes = (
        "Dhingra et al. (2017, arXiv:1703.02620), table 4: on 100 passages with labels of seven categories, GA is "
        "right on 51 %, and GA with MAGE on 61 %.",
    )

    def __init__(self, model: ModelFactory, *, ngrams: Sequence[int] = (), **options: Any) -> None:
        self.ngrams = check_integers("ngrams", ngrams)
        super().__init__(model, **options)

    def test_results(self) -> dict[str, float]:
        results = super().test_results()
        assert self.trainer.test_dataloaders is not None
        assert isinstance(self.data, LambadaData)
        # `gyral evaluate` may use another split.
        tested = self.trainer.test_dataloaders.examples
        if self.ngrams and tested is not self.data.corpus.splits["train"]:
            index = self.data.corpus.vocabulary.index
            added = [index[word] for word in (BEGIN, END) if word in index]
            accuracies = ngram_accuracy(self.data.corpus.splits["train"], tested, len(index), max(self.ngrams), added)
            results |= {f"ngram_{order}_accuracy": accuracies[order - 1] for order in self.ngrams}
        return results
