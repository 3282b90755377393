"""LAMBADA as reading comprehension: read a passage and predict its last word among the words of the document.

The document ends at the last " . ", and the question follows it. The candidates are the words of the document other
than punctuation marks. Edges join equal words, such as the two "rowan":

    input       gavriel nodded to rowan . rowan was frowning . | @begin gavriel murmured , good luck , @end
    edges       rowan → rowan, gavriel → gavriel
    target      rowan
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from gyral.applications.reading.data.lambada import load_lambada
from gyral.applications.reading.data.ngrams import ngram_accuracy
from gyral.applications.reading.data.prepared import SIZE
from gyral.applications.reading.data.words import BEGIN, END, FUNCTION_WORDS
from gyral.applications.reading.tasks.corpus_reading import CorpusReadingTask
from gyral.core.checks import check_integer, check_integers
from gyral.tasks.base import ModelFactory


class LambadaTask(CorpusReadingTask):
    """LAMBADA with a reader (Chu et al. 2017, arXiv:1610.08431; Dhingra et al. 2017, arXiv:1703.02620).

    The metric `answerable` is the share of passages whose last word is in the document: .811 of the development and
    .808 of the test passages. For `most_mentioned`, function words do not count. Without the files, the task logs its
    substitute; see `gyral.applications.reading.data.lambada.load_lambada`.

    Args:
        model: makes the model from the sizes of the task and the readout.
        data_dir, source, edges, max_chains, chains, hypernyms, vocabulary_size: see
            `gyral.applications.reading.data.lambada.load_lambada`.
        ngrams: orders of the n-gram models (`gyral.data.text.ngrams`) whose accuracy a test reports as
            `ngram_<order>_accuracy`. They are trained on the training split and choose among the same candidates.
        batch_size, eval_batch_size, data_seed: see `gyral.applications.reading.tasks.base.ReadingData`; `data_seed` is
            also the seed of generated passages.
        **options: see `gyral.tasks.base.SequenceTask`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Raises:
        UserError: an option is out of bounds; the data is missing or cannot be used.
    """

    label_notes = (
        "Dhingra et al. (2017, arXiv:1703.02620), table 4: on 100 passages with labels of seven categories, GA is "
        "right on 51 %, and GA with MAGE on 61 %.",
    )
    small: ClassVar = {"source": "generated", "max_chains": 1}

    def __init__(
        self,
        model: ModelFactory,
        *,
        data_dir: str | Path,
        source: str = "auto",
        edges: str = "matches",
        max_chains: int = 14,
        chains: str | Path | None = None,
        hypernyms: str | Path | None = None,
        vocabulary_size: int = SIZE,
        ngrams: Sequence[int] = (),
        batch_size: int = 64,
        eval_batch_size: int = 256,
        data_seed: int = 0,
        **options: Any,
    ) -> None:
        corpus = load_lambada(
            data_dir,
            source=source,
            edges=edges,
            max_chains=max_chains,
            chains=chains,
            hypernyms=hypernyms,
            vocabulary_size=vocabulary_size,
            seed=check_integer("data_seed", data_seed, minimum=0),
        )
        self.ngrams = check_integers("ngrams", ngrams)
        super().__init__(
            model,
            corpus,
            ignored=FUNCTION_WORDS,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            data_seed=data_seed,
            **options,
        )

    def test_results(self) -> dict[str, float]:
        results = super().test_results()
        assert self.trainer.test_dataloaders is not None
        # `gyral evaluate` may use another split.
        tested = self.trainer.test_dataloaders.examples
        if self.ngrams and tested is not self.corpus.splits["train"]:
            index = self.corpus.vocabulary.index
            added = [index[word] for word in (BEGIN, END) if word in index]
            accuracies = ngram_accuracy(self.corpus.splits["train"], tested, len(index), max(self.ngrams), added)
            results |= {f"ngram_{order}_accuracy": accuracies[order - 1] for order in self.ngrams}
        return results
