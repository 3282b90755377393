"""Abstractive summarization: read an article, write a summary of it.

    input       zully broussard decided to give one of her kidneys to a stranger . it resulted in six …
    target      zully broussard decided to give a kidney to a stranger . a new computer program …
    prediction  zully broussard decided to give a kidney to a stranger .

Words are from a vocabulary, or from the article if the vocabulary does not contain them.
"""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor
from torchmetrics import MeanMetric

from gyral.applications.summarization import rouge
from gyral.applications.summarization.data.batches import EncodedSummaries, SummaryBatch
from gyral.applications.summarization.data.corpus import SummaryCorpus
from gyral.applications.summarization.data.files import join_words
from gyral.applications.summarization.models.summarizer import Predictions, Summarizer, summary_mean
from gyral.core.checks import check_choice, check_integer, check_real
from gyral.core.collectives import all_gather_object, rank
from gyral.core.files import replace_when_written
from gyral.core.measures import Measure
from gyral.core.options import PositiveInt
from gyral.data.batching import IGNORED
from gyral.data.text.penn import split_sentences
from gyral.generation.beam import BeamSearch, Hypotheses
from gyral.tasks.base import ModelFactory
from gyral.tasks.data_module import ExampleData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import Metrics

log = logging.getLogger(__name__)
SAMPLE = 20_000  # number of training pairs whose words are counted for the baseline
LINE_WIDTH = 108  # columns of a rendered example


class SummaryData(ExampleData):
    """Articles with summaries.

    Args:
        corpus: the articles.
        article_length: maximum number of words of an article that the model reads.
        summary_length: maximum number of words of a summary in training.
        batch_size, eval_batch_size, data_seed: see `gyral.tasks.data_module.ExampleData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"article_length": 12, "summary_length": 8, "batch_size": 8, "eval_batch_size": 8}

    corpus: SummaryCorpus = field()
    article_length: PositiveInt = 400
    summary_length: PositiveInt = 100
    batch_size = 16

    def __post_init__(self) -> None:
        log.info(
            "%s: %s words; one pass over the training split takes %s steps",
            self.corpus.name,
            f"{len(self.corpus.vocabulary):,}",
            f"{-(-len(self.examples('train')) // self.batch_size):,}",
        )

    def examples(self, split: str) -> EncodedSummaries:
        """Return the encoded pairs of a split."""
        return EncodedSummaries(self.corpus, split, max_article=self.article_length, max_summary=self.summary_length)


class SummaryMetrics(Metrics):
    """Means over summaries of the training loss, of −log P per word (`nll`), and of the coverage loss per step."""

    names = ("loss", "nll", "coverage")

    def __init__(self) -> None:
        super().__init__()
        self.nll = MeanMetric()
        self.coverage = MeanMetric()

    def update(self, predictions: Any, batch: SummaryBatch, loss: Tensor) -> None:
        """Add the predictions and the mean loss of one batch."""
        size = len(batch.rows)
        self.loss.update(loss, weight=size)
        self.nll.update(summary_mean(-predictions.log_probabilities, batch.targets), weight=size)
        self.coverage.update(summary_mean(predictions.repetition, batch.targets), weight=size)


class Written(NamedTuple):
    """A generated summary: number of the pair in its split, sentences as lists of words, and score of the search."""

    row: int
    sentences: list[list[str]]
    score: float


class SummaryTask(DataTask[SummaryData]):
    """Summarization as in See et al. (ACL 2017) and Dangovski et al. (TACL 2019, Table 4).

    The loss is the mean over summaries of the mean of −log P over the words of a summary, in nats. For a model with
    coverage, the coverage loss is added with weight `coverage_weight`. The baseline is the first term for a predictor
    that knows the frequency of each word in the summaries of the training split; it treats words that are not in the
    vocabulary as one word.

    A test also generates summaries. It measures their ROUGE, and the percentages of repetition and of n-grams that are
    not in the article. It saves the summaries in the run directory, one line of JSON each.

    Args:
        model: makes the model from the sizes of the task.
        corpus: the articles.
        decoding: the search for summaries.
        article_length, summary_length, batch_size, eval_batch_size, data_seed: see `SummaryData`.
        coverage_weight: λ, weight of the coverage loss, ≥ 0.
        decoded: number of pairs, the first ones of a split, whose summaries a test generates; None: all.
        rouge_tokens: what ROUGE counts: "english", as in published numbers, or "unicode" for text in all scripts; see
            `gyral.applications.summarization.rouge.score`.
        **options: see `gyral.tasks.base.SequenceTask`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Raises:
        OptionError: an option is out of bounds.
    """

    measures = (Measure("rouge1", "ROUGE-1"), Measure("rouge2", "ROUGE-2"), Measure("rougeL", "ROUGE-L"))
    data_class = SummaryData
    model_type = Summarizer
    generators: ClassVar = {"summarize": "gyral.applications.summarization.generation.summarize"}
    predictor = "gyral.applications.summarization.generation.predict_summaries"
    small: ClassVar = {"decoding": {"beam": 2, "min_length": 2, "max_length": 6}}

    def __init__(
        self,
        model: ModelFactory,
        corpus: SummaryCorpus,
        *,
        decoding: BeamSearch,
        coverage_weight: float = 1.0,
        decoded: int | None = None,
        rouge_tokens: str = "english",
        **options: Any,
    ) -> None:
        self.coverage_weight = check_real("coverage_weight", coverage_weight, minimum=0)
        self.decoded = decoded if decoded is None else check_integer("decoded", decoded, minimum=0)
        self.rouge_tokens = check_choice("rouge_tokens", rouge_tokens, rouge.TOKENS)
        self.decoding = decoding
        super().__init__(model, corpus=corpus, **options)
        self._written: list[Written] = []

    @classmethod
    def arguments(cls, data: SummaryData) -> dict[str, Any]:
        size = len(data.corpus.vocabulary)
        return {
            "vocabulary_size": size,
            "output_size": size,
            "baseline": partial(frequency_loss, data),
            "metrics": SummaryMetrics(),
        }

    def forward(self, batch: SummaryBatch) -> Predictions:  # type: ignore[override]
        return self.model(batch)

    def targets(self, batch: SummaryBatch) -> Tensor:
        return batch.targets[:, 0]  # each summary counts once in the loss

    def tokens(self, batch: SummaryBatch) -> int:
        return batch.article.numel() + batch.inputs.numel()

    def loss(self, predictions: Any, batch: SummaryBatch) -> Tensor:
        """Return the mean of the loss over the summaries of a batch, in nats."""
        loss = summary_mean(-predictions.log_probabilities, batch.targets)
        if self.model.coverage:
            loss = loss + self.coverage_weight * summary_mean(predictions.repetition, batch.targets)
        return loss

    def predict(self, batch: Any) -> Any:
        """Return the generated summary (1, L) of the first article of a batch; other inputs as `Task.predict` does."""
        if not isinstance(batch, SummaryBatch):
            return super().predict(batch)
        return self.search(SummaryBatch(*(part[:1] for part in batch))).tokens[:, 0]

    def search(self, batch: SummaryBatch) -> Hypotheses:
        """Return the summaries that the search finds for a batch, without dropout."""
        with self.evaluating():
            return self.model.summarize(batch, self.decoding)

    def render(self, batch: SummaryBatch, predicted: Tensor, row: int = 0) -> str:
        """Draw the beginnings of an article, of its summary, and of the generated summary (`predicted`, (B, L))."""
        encoded = EncodedSummaries(self.data.corpus, "val")
        own = batch.own_words[row]
        article, target = batch.article_extended[row, : batch.lengths[row]], batch.targets[row]
        lines = {"input": article, "target": target[target != IGNORED], "prediction": predicted[row]}
        return "\n".join(f"{name:<11} {_beginning(encoded.words(line.tolist(), own))}" for name, line in lines.items())

    def predict_step(self, batch: SummaryBatch, index: int) -> list[str]:
        """Return the generated summaries of a batch as texts, with a sentence on each line."""
        written = self.write(batch, EncodedSummaries(self.data.corpus, "test"))
        return ["\n".join(join_words(found.sentences)) for found in written]

    def test_step(self, batch: Any, index: int) -> None:
        super().test_step(batch, index)
        chosen = batch.rows < (math.inf if self.decoded is None else self.decoded)
        if not chosen.any():
            return
        encoded: EncodedSummaries = self.trainer.test_dataloaders.examples
        part = SummaryBatch(*(part[chosen] for part in batch))
        self._written += self.write(part, encoded)

    def write(self, batch: SummaryBatch, encoded: EncodedSummaries) -> list[Written]:
        """Return the generated summaries of a batch."""
        found = self.search(batch)
        rows = (batch.rows.tolist(), found.tokens[:, 0].tolist(), batch.own_words, found.scores[:, 0].tolist())
        return [
            Written(row, list(islice(split_sentences(encoded.words(tokens, own)), self.model.max_sentences)), score)
            for row, tokens, own, score in zip(*rows, strict=True)
        ]

    def test_results(self) -> dict[str, float]:
        results = super().test_results()
        written = sorted(
            (summary for part in all_gather_object(self._written) for summary in part), key=lambda found: found.row
        )
        self._written.clear()
        if written:
            encoded: EncodedSummaries = self.trainer.test_dataloaders.examples
            results |= measure(written, encoded, self.rouge_tokens)
            if rank() == 0:
                save(written, encoded, Path(self.trainer.default_root_dir) / f"summaries_{encoded.split}.jsonl")
        return results

    def symbols(self) -> Sequence[str]:
        return self.data.corpus.vocabulary.symbols


def _beginning(words: Sequence[str]) -> str:
    """Return the words that fit in one line."""
    text = " ".join(words)
    return text if len(text) <= LINE_WIDTH else f"{text[: LINE_WIDTH - 2].rpartition(' ')[0]} …"


def measure(
    written: Sequence[Written], encoded: EncodedSummaries, rouge_tokens: str = rouge.ENGLISH
) -> dict[str, float]:
    """Return ROUGE (F1 with confidence interval), repetition and novel n-grams, as means over summaries in percent."""
    references = [join_words(encoded.reference(summary.row)) for summary in written]
    rouge.warn_of_unscored(references, rouge_tokens)
    scores = rouge.score(references, [join_words(summary.sentences) for summary in written], tokens=rouge_tokens)
    results: dict[str, float] = {}
    for name, found in scores.items():
        results |= {name: found.f1, f"{name}_low": found.low, f"{name}_high": found.high}
    repeated = [rouge.repetition(summary.sentences) for summary in written]
    results |= {f"repeated_{name}": fmean(rates[name] for rates in repeated) for name in repeated[0]}
    for order in rouge.ORDERS:
        rates = [
            rouge.novel_ngrams(encoded.article(summary.row), [w for s in summary.sentences for w in s], order)
            for summary in written
        ]
        results[f"novel_{order}-grams"] = fmean(rates)
    return results


def save(written: Sequence[Written], encoded: EncodedSummaries, path: Path) -> None:
    """Write summaries with their references to a file, one line of JSON each."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            for summary in written:
                line = {
                    "row": summary.row,
                    "reference": join_words(encoded.reference(summary.row)),
                    "summary": join_words(summary.sentences),
                    "score": summary.score,
                }
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

    replace_when_written(path, write)


def frequency_loss(data: SummaryData, split: str = "test") -> float:
    """Return the loss on a split, in nats, of the word frequencies in the summaries of the training split.

    The words of `SAMPLE` pairs are counted. Counts start at 1 (add-one smoothing), so that no word has probability 0.
    """
    train, test = data.examples("train"), data.examples(split)
    size = len(data.corpus.vocabulary)
    counts = np.ones(size)
    for row in range(min(len(train), SAMPLE)):
        np.add.at(counts, train.summary(row), 1)
    losses = -np.log(counts / counts.sum())
    return float(np.mean([losses[test.summary(row)].mean() for row in range(len(test))]))
