"""Summaries of any articles."""

import logging
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gyral.applications.summarization import rouge
from gyral.applications.summarization.data.batches import EncodedSummaries, SummaryBatch, encode_pairs
from gyral.applications.summarization.data.files import (
    STANDARD_INPUT,
    Article,
    Output,
    join_words,
    read_articles,
    read_summaries,
)
from gyral.applications.summarization.data.parsing import Pair
from gyral.applications.summarization.page import Shown, write_page
from gyral.applications.summarization.task import SummaryTask, Written
from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.inputs import path_of
from gyral.data.raw_examples import Report
from gyral.tasks.predicted import Tables

log = logging.getLogger(__name__)
ON_PAGE = 20  # number of summaries on a page; larger pages open slowly
LOG_INTERVAL = 10.0  # seconds between two log lines about progress


def summarize(
    task: SummaryTask,
    *,
    input: str,
    out: str | None = None,
    html: str | None = None,
    beside: str | Sequence[str] | None = None,
    batch_size: int | None = None,
    beam: int | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
    length_penalty: float | None = None,
    block_ngrams: int | None = None,
) -> Iterator[str]:
    """Summarize articles batch by batch. Examples that cannot be used are skipped and counted in the log.

    Args:
        task: a trained task.
        input: path of a `gyral.applications.summarization.data.sources.ArticleSource`, or "-": standard input, with
            one article or lines of JSON.
        out: output file, one line of JSON per summary. An existing file is continued.
        html: page that shows the first `ON_PAGE` summaries.
        beside: one or several files that other runs have written for the same input by `out`. The page shows their
            summaries beside those of this run.
        batch_size: articles per batch; None: the run's eval_batch_size.
        beam, min_length, max_length, length_penalty, block_ngrams: see `BeamSearch`; None: the value of the run.

    Yields:
        The summaries, one line each, if there is no output file.

    Raises:
        UserError: the input does not exist; the output file belongs to another input, or cannot be written.
    """
    given = {
        "beam": beam,
        "min_length": min_length,
        "max_length": max_length,
        "length_penalty": length_penalty,
        "block_ngrams": block_ngrams,
    }
    task.decoding = task.decoding.changed(**{name: value for name, value in given.items() if value is not None})
    size = task.data.eval_batch_size if batch_size is None else check_integer("batch_size", batch_size)
    files = beside if isinstance(beside, Sequence) and not isinstance(beside, str) else [beside]
    others = {str(file): read_summaries(str(file)) for file in files if file is not None}
    report, shown = Report(), list[Shown]()
    with Output(None if out is None else path_of(out)) as output, _Progress(report) as progress:
        articles = output.remaining(read_articles(input, report, task.data.corpus.fields))
        while batch := list(islice(articles, size)):
            encoded = _encode(task, [article.pair for article in batch], task.data.summary_length)
            written = task.write(_batch(task, encoded), encoded)
            for article, summary in zip(batch, written, strict=True):
                sentences = join_words(summary.sentences)
                output.add(article, sentences, summary.score)
                if out is None:
                    yield f"{' '.join(sentences)}\n"
            if html is not None:
                explained = explain(task, batch[: ON_PAGE - len(shown)], written)
                shown += [each._replace(others=_found(others, each.place)) for each in explained]
            progress.add(len(batch))
    if output.pairs:
        references, candidates = zip(*output.pairs, strict=True)
        rouge.warn_of_unscored(references, task.rouge_tokens)
        scores = rouge.score(references, candidates, tokens=task.rouge_tokens)
        log.info("of %s with a summary: %s", f"{len(references):,}", describe(scores))
    if html is not None:
        source = "standard input" if input == STANDARD_INPUT else Path(input).name
        write_page(path_of(html), shown, f"Summaries of {source}")
        log.info("%s shows %d", html, len(shown))


def predict_summaries(task: SummaryTask, data: Any) -> Tables:
    """Articles: a text, .jsonl, .story, .bin or other file of articles, with or without their summaries.

    Args:
        task: a trained task.
        data: path of a `gyral.applications.summarization.data.sources.ArticleSource`; "-": standard input, with one
            article or lines of JSON. Examples that cannot be used are left out and counted in the log.

    Raises:
        OptionError: the file cannot be read, or has no article.
    """
    report, row, pairs = Report(), 0, list[tuple[list[str], list[str]]]()
    articles = read_articles(str(data), report, task.data.corpus.fields, option="data")
    while batch := list(islice(articles, task.data.eval_batch_size)):
        encoded = _encode(task, [article.pair for article in batch], task.data.summary_length)
        written = task.write(_batch(task, encoded), encoded)
        references = [join_words(article.pair.sentences) for article in batch]
        summaries = [join_words(summary.sentences) for summary in written]
        pairs += [pair for pair in zip(references, summaries, strict=True) if pair[0]]
        yield {
            "row": range(row, row + len(batch)),
            "place": [article.place for article in batch],
            "prediction": list(map(" ".join, summaries)),
            "score": [summary.score for summary in written],
            "target": list(map(" ".join, references)),
        }
        row += len(batch)
    if not row:
        raise OptionError("data", data, f"has no article{report.oddities()}")
    log.info("%s%s", f"{row:,} articles", report.oddities())
    scores = rouge.score(*zip(*pairs, strict=True), tokens=task.rouge_tokens) if pairs else {}
    return {name: score.f1 for name, score in scores.items()}


def _found(others: dict[str, dict[str, list[str]]], place: str) -> list[tuple[str, list[str]]]:
    """Return the names and sentences of the summaries that other runs have written for the article of a place."""
    return [(name, summaries[place]) for name, summaries in others.items() if place in summaries]


def explain(task: SummaryTask, articles: Sequence[Article], written: Sequence[Written]) -> list[Shown]:
    """Return articles and summaries with the attention at each word and the words that were copied."""
    if not articles:
        return []
    pairs = [
        article.pair._replace(sentences=tuple(summary.sentences))
        for article, summary in zip(articles, written, strict=False)
    ]
    lengths = [sum(map(len, pair.sentences)) for pair in pairs]
    batch = _batch(task, _encode(task, pairs, 1 + max(lengths)))  # the end of a summary is a step
    with torch.no_grad():
        attention, copied = (part.cpu().numpy() for part in task.model.trace(batch))
    return [
        Shown(
            article.place,
            article.pair.article[:size],
            article.pair.sentences,
            pair.sentences,
            attention[row, :length, :size],
            copied[row, :length],
            rouge_tokens=task.rouge_tokens,
        )
        for row, (article, pair, length, size) in enumerate(
            zip(articles, pairs, lengths, batch.lengths.tolist(), strict=True)
        )
    ]


def describe(scores: dict[str, rouge.Rouge]) -> str:
    """Return ROUGE scores as a line of text."""
    names = ("ROUGE-1", "ROUGE-2", "ROUGE-L")
    return ", ".join(
        f"{name} {score.f1:.2f} ({score.low:.2f} to {score.high:.2f})"
        for name, score in zip(names, scores.values(), strict=True)
    )


class _Progress:
    """Logs the number of articles and the speed, every `LOG_INTERVAL` seconds and at the end; a context manager.

    Args:
        report: skipped and unusual examples, logged at the end.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._count = 0

    def __enter__(self) -> "_Progress":
        self._started = self._logged = time.monotonic()
        return self

    def add(self, count: int) -> None:
        self._count += count
        if time.monotonic() - self._logged > LOG_INTERVAL:
            self._logged = time.monotonic()
            log.info("%s articles, %.3g a second so far", f"{self._count:,}", self._rate())

    def _rate(self) -> float:
        return self._count / max(time.monotonic() - self._started, 1e-9)

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None:
            noun = "article" if self._count == 1 else "articles"
            log.info("%s %s, %.3g a second%s", f"{self._count:,}", noun, self._rate(), self._report.oddities())


def _encode(task: SummaryTask, pairs: Sequence[Pair], max_summary: int) -> EncodedSummaries:
    numbered = encode_pairs(pairs, task.data.corpus.vocabulary)
    return EncodedSummaries(numbered, "test", max_article=task.data.article_length, max_summary=max_summary)


def _batch(task: SummaryTask, encoded: EncodedSummaries) -> SummaryBatch:
    return task.transfer_batch_to_device(encoded.batch(np.arange(len(encoded))), task.device, 0)
