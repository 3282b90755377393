"""An HTML page of summaries next to their articles: attention, copied words and metrics."""

import base64
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gyral.applications.summarization import rouge
from gyral.applications.summarization.data.files import join_words
from gyral.core.html import strengths, write_html


class Shown(NamedTuple):
    """A summary with the attention that produced it.

    Attributes:
        place: location of the article in the input, shown to the user.
        article: the S words of the article that the model read.
        reference: sentences of the reference summary; empty if there is none.
        summary: sentences of the model's summary, T words.
        attention: (T, S) attention to the words of the article.
        copied: (T,) fraction of each word's probability that is due to copying.
        others: names and sentences of summaries by other runs.
        rouge_tokens: what ROUGE counts, see `gyral.applications.summarization.rouge.score`.
    """

    place: str
    article: Sequence[str]
    reference: Sequence[Sequence[str]]
    summary: Sequence[Sequence[str]]
    attention: np.ndarray
    copied: np.ndarray
    others: Sequence[tuple[str, Sequence[str]]] = ()
    rouge_tokens: str = rouge.ENGLISH


def write_page(path: Path, shown: Sequence[Shown], title: str) -> None:
    """Write a self-contained HTML page.

    Args:
        path: path of the page.
        shown: the summaries.
        title: title of the page.
    """
    write_html(path, __file__, title=title, sections=map(_section, shown))


class _Section(NamedTuple):
    """Data of a summary for the page.

    Attributes:
        shown: the summary.
        facts: the metrics of the summary.
        article: the words of the article with their strengths of color.
        summary: the words of each sentence with the fraction that was copied.
        steps: bytes of the strengths (T, S) as base64.
    """

    shown: Shown
    facts: dict[str, float]
    article: list[tuple[str, float]]
    summary: list[list[tuple[str, float]]]
    steps: str


def _section(shown: Shown) -> _Section:
    mean = shown.attention.mean(axis=0) if len(shown.attention) else np.zeros(len(shown.article))
    steps = np.round(255 * strengths(shown.attention)).astype(np.uint8)
    copied = iter(shown.copied.tolist())
    return _Section(
        shown,
        measure(shown),
        list(zip(shown.article, strengths(mean).tolist(), strict=True)),
        [[(word, next(copied)) for word in sentence] for sentence in shown.summary],
        base64.b64encode(steps.tobytes()).decode(),
    )


def measure(shown: Shown) -> dict[str, float]:
    """Return the metrics of a summary in percent, by their usual names."""
    written = list(chain.from_iterable(shown.summary))
    facts = {}
    if shown.reference:
        scores = rouge.score(
            [join_words(shown.reference)], [join_words(shown.summary)], tokens=shown.rouge_tokens, samples=1
        )
        facts = {name.replace("rouge", "ROUGE-"): found.f1 for name, found in scores.items()}
    facts["copied"] = 100 * float(shown.copied.mean()) if len(shown.copied) else 0.0
    facts["repeated 3-grams"] = rouge.repetition(shown.summary)["3-grams"]
    facts["novel 2-grams"] = rouge.novel_ngrams(shown.article, written, 2)
    return facts
