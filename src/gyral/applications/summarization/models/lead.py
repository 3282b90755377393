"""LEAD-3: the first three sentences of an article are its summary."""

import math

import torch

from gyral.applications.summarization.data.batches import STOP_ID, SummaryBatch
from gyral.applications.summarization.models.summarizer import Predictions, Summarizer, Trace
from gyral.core.checks import check_integer
from gyral.data.batching import IGNORED
from gyral.generation.beam import BeamSearch, Hypotheses


class Lead(Summarizer):
    """The first sentences of an article are its summary, the baseline LEAD-3 (Nallapati et al. 2017).

    The model copies the article word by word, and has no parameters. Every other summary has probability 0, so that the
    loss is infinite; only ROUGE is meaningful. On CNN / Daily Mail with original entity names, LEAD-3 has ROUGE-1,
    ROUGE-2 and ROUGE-L F1 of 40.34, 17.70 and 36.57 (See et al. 2017, table 1).

    Args:
        vocabulary_size: V.
        output_size: number of classes that a task passes to every model; unused.
        sentences: number of sentences.

    Raises:
        OptionError: `sentences` is below 1.
    """

    def __init__(self, vocabulary_size: int, output_size: int | None = None, *, sentences: int = 3) -> None:
        super().__init__()
        self.vocabulary_size = vocabulary_size
        self.max_sentences = check_integer("sentences", sentences)

    def forward(self, batch: SummaryBatch) -> Predictions:
        has_target = batch.targets != IGNORED
        zeros = torch.zeros(has_target.shape, device=has_target.device)
        return Predictions(zeros.masked_fill(has_target, -math.inf), zeros)

    def summarize(self, batch: SummaryBatch, search: BeamSearch) -> Hypotheses:
        """Return a copy of each article; `max_sentences` determines the end of the summary.

        The options of the search do not apply.
        """
        words = batch.article_extended
        is_word = torch.arange(words.shape[1] + 1, device=words.device) < batch.lengths.to(words.device).unsqueeze(1)
        tokens = torch.nn.functional.pad(words, (0, 1)).where(is_word, STOP_ID)
        lengths = batch.lengths.to(words.device) + 1
        return Hypotheses(tokens.unsqueeze(1), lengths.unsqueeze(1), torch.zeros(len(words), 1, device=words.device))

    def trace(self, batch: SummaryBatch) -> Trace:
        (rows, steps), words = batch.targets.shape, batch.article.shape[1]
        attention = torch.eye(steps, words, device=batch.article.device).expand(rows, -1, -1)
        return Trace(attention, torch.ones(rows, steps, device=attention.device))

    def state_size(self) -> int:
        return 0
