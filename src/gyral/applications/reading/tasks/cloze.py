"""Cloze questions about entities: read an article and a sentence about it that lacks an entity.

The candidates are the entities of the article. Edges join consecutive mentions of the same entity:

    input       @entity1 met @entity0 in @entity2 . @entity0 left . | @begin @placeholder saw @entity0 @end
    edges       @entity0 → @entity0 → @entity0
    target      @entity1
"""

from pathlib import Path
from typing import Any, ClassVar

from gyral.applications.reading.data.cloze import load_cloze
from gyral.applications.reading.data.prepared import SIZE
from gyral.applications.reading.tasks.corpus_reading import CorpusReadingTask
from gyral.core.checks import check_integer
from gyral.tasks.base import ModelFactory


class ClozeTask(CorpusReadingTask):
    """Cloze questions with a reader: CNN or Daily Mail (Hermann et al. 2015, arXiv:1506.03340), or Who-did-What.

    Without the files, the task logs its substitute; see `gyral.applications.reading.data.cloze.load_cloze`.

    Args:
        model: makes the model from the sizes of the task and the readout.
        data_dir, source, path, edges, document_length, hypernyms, vocabulary_size: see
            `gyral.applications.reading.data.cloze.load_cloze`.
        question_seed: seed of the questions from highlights or of generated questions.
        batch_size, eval_batch_size, data_seed: see `gyral.applications.reading.tasks.base.ReadingData`.
        **options: see `gyral.tasks.base.SequenceTask`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Raises:
        UserError: an option is out of bounds; the data is missing or cannot be used.
    """

    small: ClassVar = {"source": "generated", "document_length": 20}

    def __init__(
        self,
        model: ModelFactory,
        *,
        data_dir: str | Path,
        source: str = "auto",
        path: str | Path | None = None,
        edges: str = "entities",
        document_length: int | None = None,
        hypernyms: str | Path | None = None,
        vocabulary_size: int = SIZE,
        question_seed: int = 0,
        batch_size: int = 32,
        eval_batch_size: int = 64,
        data_seed: int = 0,
        **options: Any,
    ) -> None:
        corpus = load_cloze(
            data_dir,
            source=source,
            path=path,
            edges=edges,
            document_length=document_length,
            hypernyms=hypernyms,
            vocabulary_size=vocabulary_size,
            seed=check_integer("question_seed", question_seed, minimum=0),
        )
        super().__init__(
            model,
            corpus,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            data_seed=data_seed,
            **options,
        )
