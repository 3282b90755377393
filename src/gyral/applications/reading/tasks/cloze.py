"""Cloze questions about entities: read an article and a sentence about it that lacks an entity.

The candidates are the entities of the article. Edges join consecutive mentions of the same entity:

    input       @entity1 met @entity0 in @entity2 . @entity0 left . | @begin @placeholder saw @entity0 @end
    edges       @entity0 → @entity0 → @entity0
    target      @entity1
"""

from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar

from gyral.applications.reading.data.cloze import EDGES, SOURCES, load_cloze
from gyral.applications.reading.data.encoded import SPECIAL
from gyral.applications.reading.data.prepared import SIZE, ReadingCorpus
from gyral.applications.reading.tasks.corpus_reading import CorpusData, CorpusReadingTask
from gyral.core.options import NonNegativeInt, OneOf, PositiveInt, Range


class ClozeData(CorpusData):
    """Cloze questions.

    Args:
        data_dir, source, path, edges, document_length, hypernyms, vocabulary_size: see
            `gyral.applications.reading.data.cloze.load_cloze`.
        question_seed: seed of the questions from highlights or of generated questions.
        batch_size, eval_batch_size, data_seed: see `gyral.applications.reading.tasks.base.ReadingData`.

    Raises:
        UserError: an option is out of bounds; the data is missing or cannot be used.
    """

    small: ClassVar = {"source": "generated", "document_length": 20}

    data_dir: str | Path = field()
    source: Annotated[str, OneOf(SOURCES)] = "auto"
    path: str | Path | None = None
    edges: Annotated[str, OneOf(EDGES)] = "entities"
    document_length: PositiveInt | None = None
    hypernyms: str | Path | None = None
    vocabulary_size: Annotated[int, Range(len(SPECIAL) + 1)] = SIZE
    question_seed: NonNegativeInt = 0
    eval_batch_size = 64

    def load(self) -> ReadingCorpus:
        return load_cloze(
            self.data_dir,
            source=self.source,
            path=self.path,
            edges=self.edges,
            document_length=self.document_length,
            hypernyms=self.hypernyms,
            vocabulary_size=self.vocabulary_size,
            seed=self.question_seed,
        )


class ClozeTask(CorpusReadingTask):
    """Cloze questions with a reader: CNN or Daily Mail (Hermann et al. 2015, arXiv:1506.03340), or Who-did-What.

    Without the files, the task logs its substitute; see `gyral.applications.reading.data.cloze.load_cloze`.

    Args:
        model: makes the model from the sizes of the task and the readout.
        **options: see `ClozeData`, and `gyral.tasks.base.SequenceTask` for optimizer, scheduler, monitor, mode,
            overfit, prefetch.

    Raises:
        UserError: an option is out of bounds; the data is missing or cannot be used.
    """

    data_class = ClozeData
