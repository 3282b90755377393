"""Abstractive summarization: read an article, write a summary of it.

    input       zully broussard decided to give one of her kidneys to a stranger . it resulted in six …
    target      zully broussard decided to give a kidney to a stranger . a new computer program …
    prediction  zully broussard decided to give a kidney to a stranger .

The words are those of a vocabulary, and those of the article that it lacks.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric

from gyral import runs
from gyral.core.checks import check_integer, check_real
from gyral.core.collectives import gather, rank
from gyral.data.batching import IGNORED, BucketedBatches, SortedBatches, mix_seed
from gyral.data.summaries.articles import Pair, Report, Words
from gyral.data.summaries.batches import EncodedSummaries, SummaryBatch, number
from gyral.data.summaries.corpus import SummaryCorpus
from gyral.data.summaries.files import STANDARD, Article, Output, joined, read
from gyral.data.text.penn import split_sentences
from gyral.generation.summaries import Shown, write_page
from gyral.models.beam import BeamSearch, Hypotheses
from gyral.models.pointer_generator import PointerGenerator, Predictions, summary_mean
from gyral.tasks import rouge
from gyral.tasks.base import Metrics, ModelFactory, SequenceTask, SplitData

log = logging.getLogger(__name__)
SAMPLE = 20_000  # training pairs whose words are counted for the baseline
SHOWN = 108  # letters of an example's line
ON_PAGE = 20  # summaries of a page: more make it slow to open
EVERY = 10.0  # seconds between two lines that tell how many articles were summarized


class SummaryData(SplitData):
    """Articles with summaries: training in batches of similar length, the other splits once.

    Args:
        corpus: what is read.
        article_length, summary_length: of `gyral.data.summaries.batches.EncodedSummaries`.
        batch_size, eval_batch_size: pairs a batch, in training and in evaluation.
        data_seed: of the order of training batches.

    Raises:
        OptionError: an option out of its bounds.
    """

    def __init__(
        self,
        corpus: SummaryCorpus,
        *,
        article_length: int,
        summary_length: int,
        batch_size: int,
        eval_batch_size: int,
        data_seed: int,
    ) -> None:
        super().__init__()
        self.corpus = corpus
        check_integer("article_length", article_length)
        check_integer("summary_length", summary_length)
        self.lengths = {"max_article": article_length, "max_summary": summary_length}
        self.batch_size = check_integer("batch_size", batch_size)
        self.eval_batch_size = check_integer("eval_batch_size", eval_batch_size)
        self.data_seed = check_integer("data_seed", data_seed, minimum=0)

    def encoded(self, split: str) -> EncodedSummaries:
        """Return the pairs of a split as numbers."""
        return EncodedSummaries(self.corpus, split, **self.lengths)

    def loader(self, split: str) -> SortedBatches:
        """Return the pairs of a split, those with the shortest articles first, for evaluation."""
        return SortedBatches(self.encoded(split), self.eval_batch_size)

    def stream(self) -> BucketedBatches:
        """Return the training stream: each pass over the pairs in a new order."""
        seed = mix_seed(self.data_seed, "order")
        return BucketedBatches(self.encoded("train"), self.batch_size, seed=seed, length=self.steps())


class SummaryMetrics(Metrics):
    """Means over summaries of three losses: what is trained on, −log P of a word, and the coverage loss of a step."""

    names = ("loss", "nll", "coverage")

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.loss = MeanMetric()
        self.nll = MeanMetric()
        self.coverage = MeanMetric()

    def update(self, predictions: Any, batch: SummaryBatch, loss: Tensor) -> None:
        """Add one batch: its predictions and its mean loss."""
        size = len(batch.rows)
        self.loss.update(loss, weight=size)
        self.nll.update(summary_mean(-predictions.log_probabilities, batch.targets), weight=size)
        self.coverage.update(summary_mean(predictions.repetition, batch.targets), weight=size)


class Written(NamedTuple):
    """A summary that was written: the pair's number in its split, the sentences, and the search's score."""

    row: int
    sentences: list[Words]
    score: float


class SummaryTask(SequenceTask[SummaryData]):
    """Summarization as See et al. (ACL 2017) and Dangovski et al. (TACL 2019, section 4.5) do it.

    The loss is the mean over summaries of the mean over a summary's words of −log P, in nats, plus, of a model with
    coverage, `coverage_weight` times that of its coverage loss. The baseline is the first for who knows how frequent
    each word is in the summaries of training; words that the vocabulary lacks are one to it.

    A test also has the model write the summaries, measures ROUGE on them, how much they repeat, and how much of them is
    not from their articles, in percent, and keeps them in the run directory, a line of JSON each.

    Args:
        model: makes the model from the task's sizes.
        corpus: what is read.
        decoding: how summaries are searched for.
        article_length: words of an article that are read.
        summary_length: words of a summary that are learned.
        batch_size, eval_batch_size, data_seed: of `SummaryData`.
        coverage_weight: λ of the coverage loss, ≥ 0.
        decoded: so many of a split's pairs, the first ones, are decoded in a test; None: all.
        **options: of `gyral.tasks.base.SequenceTask`: optimizer, scheduler, monitor, mode, overfit.

    Raises:
        OptionError: an option out of its bounds.
    """

    model_type = PointerGenerator

    def __init__(
        self,
        model: ModelFactory,
        corpus: SummaryCorpus,
        *,
        decoding: BeamSearch,
        article_length: int = 400,
        summary_length: int = 100,
        batch_size: int = 16,
        eval_batch_size: int = 16,
        data_seed: int = 0,
        coverage_weight: float = 1.0,
        decoded: int | None = None,
        **options: Any,
    ) -> None:
        data = SummaryData(
            corpus,
            article_length=article_length,
            summary_length=summary_length,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            data_seed=data_seed,
        )
        self.coverage_weight = check_real("coverage_weight", coverage_weight, minimum=0)
        self.decoded = decoded if decoded is None else check_integer("decoded", decoded, minimum=0)
        self.decoding = decoding
        size = len(corpus.vocabulary)
        pairs = len(data.encoded("train"))
        log.info(
            "%s: %s words; a pass over training takes %s steps",
            corpus.name,
            f"{size:,}",
            f"{-(-pairs // batch_size):,}",
        )
        super().__init__(
            model,
            data,
            vocabulary_size=size,
            output_size=size,
            baseline=frequency_loss(data),
            metrics=SummaryMetrics(),
            **options,
        )
        self._written: list[Written] = []

    def forward(self, batch: SummaryBatch) -> Predictions:  # type: ignore[override]
        return self.model(batch)

    def targets(self, batch: SummaryBatch) -> Tensor:
        return batch.targets[:, 0]  # each summary counts once in the loss

    def tokens(self, batch: SummaryBatch) -> int:
        return batch.article.numel() + batch.inputs.numel()

    def loss(self, predictions: Any, batch: SummaryBatch) -> Tensor:
        """Return the mean over a batch's summaries of the loss, in nats."""
        loss = summary_mean(-predictions.log_probabilities, batch.targets)
        if self.model.coverage:
            loss = loss + self.coverage_weight * summary_mean(predictions.repetition, batch.targets)
        return loss

    def predict(self, batch: SummaryBatch) -> Tensor:
        """Return the summary (1, L) that is written of a batch's first article."""
        return self.search(SummaryBatch(*(part[:1] for part in batch))).tokens[:, 0]

    def search(self, batch: SummaryBatch) -> Hypotheses:
        """Return the summaries that the search finds for a batch."""
        training = self.training
        try:
            return self.eval().model.summarize(batch, self.decoding)
        finally:
            self.train(training)

    def render(self, batch: SummaryBatch, predicted: Tensor, row: int = 0) -> str:
        """Draw a pair: the start of its article, its summary, and the one that was written (`predicted` (B, L))."""
        encoded = EncodedSummaries(self.data.corpus, "val")
        own = batch.own_words[row]
        article, target = batch.article_extended[row, : batch.lengths[row]], batch.targets[row]
        lines = {"input": article, "target": target[target != IGNORED], "prediction": predicted[row]}
        return "\n".join(f"{name:<11} {_start(encoded.words(line.tolist(), own))}" for name, line in lines.items())

    def test_step(self, batch: Any, index: int) -> None:
        super().test_step(batch, index)
        chosen = batch.rows < (math.inf if self.decoded is None else self.decoded)
        if not chosen.any():
            return
        encoded: EncodedSummaries = self.trainer.test_dataloaders.examples
        part = SummaryBatch(*(part[chosen] for part in batch))
        self._written += self.write(part, encoded)

    def write(self, batch: SummaryBatch, encoded: EncodedSummaries) -> list[Written]:
        """Return the summaries that are found for a batch of pairs."""
        found = self.search(batch)
        rows = (batch.rows.tolist(), found.tokens[:, 0].tolist(), batch.own_words, found.scores[:, 0].tolist())
        return [
            Written(row, list(split_sentences(encoded.words(tokens, own))), score)
            for row, tokens, own, score in zip(*rows, strict=True)
        ]

    def test_results(self) -> dict[str, float]:
        results = super().test_results()
        written = sorted((summary for part in gather(self._written) for summary in part), key=lambda found: found.row)
        self._written.clear()
        if written:
            encoded: EncodedSummaries = self.trainer.test_dataloaders.examples
            results |= measure(written, encoded)
            if rank() == 0:
                keep(written, encoded, Path(self.trainer.default_root_dir) / f"summaries_{encoded.split}.jsonl")
        return results

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["vocabulary"] = self.data.corpus.digest

    def check_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.data.corpus.check_digest(checkpoint["vocabulary"])

    def generators(self) -> list[Callable[..., Iterator[str]]]:
        return [self.summarize]

    def summarize(
        self,
        *,
        input: str,
        out: str | None = None,
        html: str | None = None,
        batch_size: int | None = None,
        beam: int | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        length_penalty: float | None = None,
        block_ngrams: int | None = None,
    ) -> Iterator[str]:
        """Summarize articles, batch by batch; what cannot be used is named and counted, and the rest goes on.

        Args:
            input: path of `gyral.data.summaries.articles.Source`, or "-": standard input, which has an article, or lines of JSON.
            out: the file of the summaries, a line of JSON each. It is gone on with where it is there.
            html: the page that shows the first `ON_PAGE` of them.
            batch_size: articles that are summarized at once; None: the run's eval_batch_size.
            beam, min_length, max_length, length_penalty, block_ngrams: of `BeamSearch`; None: as the run has them.

        Yields:
            The summaries, a line each, where they are written to no file.

        Raises:
            OptionError: there is no such input; the output is that of another, or cannot be written.
        """
        search = {
            "beam": beam,
            "min_length": min_length,
            "max_length": max_length,
            "length_penalty": length_penalty,
            "block_ngrams": block_ngrams,
        }
        self.decoding = self.decoding.changed(**{name: value for name, value in search.items() if value is not None})
        size = self.data.eval_batch_size if batch_size is None else check_integer("batch_size", batch_size)
        report, shown, count = Report(), list[Shown](), 0
        with Output(None if out is None else Path(out)) as output:
            articles = output.rest(read(input, report))
            started = told = time.monotonic()
            while batch := list(islice(articles, size)):
                encoded = self._encode([article.pair for article in batch], self.data.lengths["max_summary"])
                written = self.write(self._batch(encoded), encoded)
                for article, summary in zip(batch, written, strict=True):
                    sentences = joined(summary.sentences)
                    output.add(article, sentences, summary.score)
                    if out is None:
                        yield f"{' '.join(sentences)}\n"
                if html is not None:
                    shown += self.explain(batch[: ON_PAGE - len(shown)], written)
                count += len(batch)
                if time.monotonic() - told > EVERY:
                    told = time.monotonic()
                    log.info("%s articles, %.3g a second so far", f"{count:,}", count / (told - started))
            rate = count / max(time.monotonic() - started, 1e-9)
        log.info("%s article%s, %.3g a second%s", f"{count:,}", "" if count == 1 else "s", rate, report.oddities())
        if output.pairs:
            references, candidates = zip(*output.pairs, strict=True)
            log.info("of %s with a summary: %s", f"{len(references):,}", tell(rouge.score(references, candidates)))
        if html is not None:
            write_page(Path(html), shown, f"Summaries of {'standard input' if input == STANDARD else Path(input).name}")
            log.info("%s shows %d", html, len(shown))

    def _encode(self, pairs: Sequence[Pair], max_summary: int) -> EncodedSummaries:
        numbered = number(pairs, self.data.corpus.vocabulary)
        return EncodedSummaries(numbered, "test", max_article=self.data.lengths["max_article"], max_summary=max_summary)

    def _batch(self, encoded: EncodedSummaries) -> SummaryBatch:
        return self.transfer_batch_to_device(encoded.batch(np.arange(len(encoded))), self.device, 0)

    def explain(self, articles: Sequence[Article], written: Sequence[Written]) -> list[Shown]:
        """Return articles with what was written of them: where the model looked at each word, and what it copied."""
        if not articles:
            return []
        pairs = [
            article.pair._replace(sentences=tuple(summary.sentences))
            for article, summary in zip(articles, written, strict=False)
        ]
        batch = self._batch(self._encode(pairs, self.decoding.max_length))
        with torch.no_grad():
            attention, copied = (part.cpu().numpy() for part in self.model.trace(batch))
        return [
            Shown(
                article.place,
                article.pair.article[:length],
                article.pair.sentences,
                pair.sentences,
                attention[row, : sum(map(len, pair.sentences)), :length],
                copied[row, : sum(map(len, pair.sentences))],
            )
            for row, (article, pair, length) in enumerate(zip(articles, pairs, batch.lengths.tolist(), strict=True))
        ]


def _start(words: Sequence[str]) -> str:
    """Return the words that fit into a line."""
    text = " ".join(words)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 2].rpartition(' ')[0]} …"


def tell(scores: dict[str, rouge.Rouge]) -> str:
    """Return ROUGE as a line of text."""
    names = ("ROUGE-1", "ROUGE-2", "ROUGE-L")
    return ", ".join(
        f"{name} {found.f1:.2f} ({found.low:.2f} to {found.high:.2f})"
        for name, found in zip(names, scores.values(), strict=True)
    )


def measure(written: Sequence[Written], encoded: EncodedSummaries) -> dict[str, float]:
    """Return ROUGE (F1 and its interval), repetition and novel n-grams of summaries, means in percent."""
    scores = rouge.score(
        [joined(encoded.reference(summary.row)) for summary in written],
        [joined(summary.sentences) for summary in written],
    )
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


def keep(written: Sequence[Written], encoded: EncodedSummaries, path: Path) -> None:
    """Write summaries with their references to a file, a line of JSON each."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            for summary in written:
                line = {
                    "row": summary.row,
                    "reference": joined(encoded.reference(summary.row)),
                    "summary": joined(summary.sentences),
                    "score": summary.score,
                }
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

    runs.replace_when_written(path, write)


def frequency_loss(data: SummaryData) -> float:
    """Return the loss on the test split, in nats, of who knows how frequent each word is in summaries of training.

    The words of `SAMPLE` pairs are counted, each once more than it occurs, so that none is impossible.
    """
    train, test = data.encoded("train"), data.encoded("test")
    size = len(data.corpus.vocabulary)
    counts = np.ones(size)
    for row in range(min(len(train), SAMPLE)):
        np.add.at(counts, train.summary(row), 1)
    losses = -np.log(counts / counts.sum())
    return float(np.mean([losses[test.summary(row)].mean() for row in range(len(test))]))
