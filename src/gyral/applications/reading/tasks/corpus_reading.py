"""Base class of reading tasks whose questions come from files of a corpus, prepared once."""

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torchmetrics import MeanMetric

from gyral.applications.reading.data.prepared import ReadingCorpus
from gyral.applications.reading.data.questions import ReadingBatch
from gyral.applications.reading.tasks.base import ReadingData, ReadingMetrics, ReadingTask
from gyral.core.measures import percentage
from gyral.data.batching import IGNORED
from gyral.tasks.data_task import DataOptionsTask


class MentionMetrics(ReadingMetrics):
    """Metrics of questions whose answers are mentioned in their documents.

    `context_accuracy` is the accuracy on the questions whose answer is one of the candidates, so that `accuracy` is its
    product with `answerable`, the share of these questions and the highest possible accuracy.
    `most_mentioned` is the accuracy of a predictor that returns the first candidate with the most mentions.

    Args:
        candidates: largest number of candidates of a question.
        ignored: indices of words whose mentions do not count for `most_mentioned`, such as articles.
    """

    names = (*ReadingMetrics.names, "context_accuracy", "answerable", "most_mentioned")

    def __init__(self, candidates: int, ignored: Collection[int] = ()) -> None:
        super().__init__()
        self.context_accuracy = MeanMetric()
        self.answerable = MeanMetric()
        self.most_mentioned = MeanMetric()
        self._candidates = candidates
        self._ignored = torch.tensor(sorted(ignored))

    def update(self, logits: Tensor, batch: ReadingBatch, loss: Tensor) -> None:
        """Add one batch: its logits (B, C) and its mean loss."""
        super().update(logits, batch, loss)
        is_answerable = (batch.targets != IGNORED).float()
        self.answerable.update(is_answerable)
        self.context_accuracy.update((logits.argmax(dim=-1) == batch.targets).float(), weight=is_answerable)
        counted = ~torch.isin(batch.inputs, self._ignored.to(batch.inputs.device))
        counts = torch.zeros(len(counted), self._candidates + 1, dtype=torch.float32, device=counted.device)
        counts.scatter_add_(1, batch.mentions, counted.float())
        self.most_mentioned.update((counts[:, 1:].argmax(dim=1) == batch.targets).float())


class CorpusData(ReadingData):
    """Questions of a corpus that is prepared once.

    Args:
        batch_size, eval_batch_size, data_seed: see `gyral.applications.reading.tasks.base.ReadingData`.

    Attributes:
        corpus: the questions.
        ignored: words whose mentions do not count for `most_mentioned`; see `MentionMetrics`.
    """

    ignored: ClassVar[Collection[str]] = ()

    corpus: ReadingCorpus = field(init=False)

    def __post_init__(self) -> None:
        self.corpus = self.load()
        self.splits, self.vocabulary = self.corpus.splits, self.corpus.vocabulary

    @abstractmethod
    def load(self) -> ReadingCorpus:
        """Return the corpus."""


class CorpusReadingTask(DataOptionsTask[ReadingData], ReadingTask):
    """Questions about documents that mention the candidates, from a corpus that is prepared once.

    A question whose answer is not a candidate is left out in training and counts as wrong in evaluation. The baseline
    is the loss on the test split of a predictor that gives all candidates of a question the same probability. The
    metric `substitute` is 1 if the questions do not come from the corpus that the task is named after.

    Args:
        model: makes the model from the sizes of the task and the readout.
        **options: those of `data_class`, a subclass of `CorpusData`, and see `gyral.tasks.base.SequenceTask`:
            optimizer, scheduler, monitor, mode, overfit, prefetch.
    """

    measures = (
        *ReadingTask.measures,
        percentage("context_accuracy", "accuracy, answer in the document"),
        percentage("answerable", "answer among the candidates", at_end=True),
        percentage("most_mentioned", "most mentioned candidate", at_end=True),
    )

    @classmethod
    def arguments(cls, data: ReadingData) -> dict[str, Any]:
        assert isinstance(data, CorpusData)
        corpus, index = data.corpus, data.vocabulary.index
        candidates = max(int(questions.candidates.max(initial=1)) for questions in corpus.splits.values())
        test = corpus.splits["test"]
        return {
            "name": corpus.name,
            "baseline": partial(_baseline, corpus),
            "output_size": candidates,
            "in_document": True,
            "edge_types": test.edge_types,
            "substitute": corpus.substitute,
            "metrics": MentionMetrics(candidates, [index[word] for word in data.ignored if word in index]),
        }


def _baseline(corpus: ReadingCorpus, split: str) -> float:
    """Return the loss of a guess among the candidates of each question."""
    found = corpus.splits[split]
    counts = found.candidates[found.answers != IGNORED]
    return float(np.log(counts).mean()) if len(counts) else 0.0
