"""The interface of models that summarize articles."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor, nn

from gyral.applications.summarization.data.batches import SummaryBatch
from gyral.data.batching import IGNORED
from gyral.generation.beam import BeamSearch, Hypotheses


class Predictions(NamedTuple):
    """Predictions for the targets of a batch, both (B, T) and zero at positions whose target is `IGNORED`.

    Attributes:
        log_probabilities: log P(w*_t).
        repetition: the coverage loss Σ_i min(a_{t,i}, c_{t,i}).
    """

    log_probabilities: Tensor
    repetition: Tensor


class Trace(NamedTuple):
    """How a model produced each target.

    Attributes:
        attention: (B, T, S) attention a_t to the words of the article.
        copied: (B, T) fraction of P(w*_t) that is due to copying.
    """

    attention: Tensor
    copied: Tensor


class Summarizer(nn.Module, ABC):
    """A model that summarizes articles.

    Attributes:
        vocabulary_size: V.
        coverage: whether the loss has a coverage term.
        max_sentences: number of sentences of a summary, the first ones that `summarize` returns; None: all.
    """

    vocabulary_size: int
    coverage: bool = False
    max_sentences: int | None = None

    @abstractmethod
    def forward(self, batch: SummaryBatch) -> Predictions:
        """Return the predictions for the targets of a batch."""

    @abstractmethod
    def summarize(self, batch: SummaryBatch, search: BeamSearch) -> Hypotheses:
        """Return the summaries of a batch, in words of the vocabulary and extended numbers."""

    @abstractmethod
    def trace(self, batch: SummaryBatch) -> Trace:
        """Return how the model produces the targets of a batch; values where a target is `IGNORED` are undefined."""

    @abstractmethod
    def state_size(self) -> int:
        """Return the number of recurrent state values that are carried from step to step for one sequence."""


def summary_mean(values: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over the batch of the means over each summary's steps, as in See et al. (2017, eq. 7).

    A word of a short summary therefore has more weight than a word of a long one.

    Args:
        values: (B, T), zero at positions without a target.
        targets: (B, T); a row in which all targets are `IGNORED` has the mean 0.
    """
    return (values.sum(dim=1) / (targets != IGNORED).sum(dim=1).clamp(min=1)).mean()
