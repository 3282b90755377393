"""How good summaries are: ROUGE (Lin 2004), repetition, and what is not from the article."""

import functools
import itertools
from collections.abc import Callable, Hashable, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.parallel import spread

MEASURES = {"rouge1": "rouge1", "rouge2": "rouge2", "rougeL": "rougeLsum"}  # our names and the library's
BLOCK = 250  # pairs that a process scores at once
ORDERS = (1, 2, 3, 4)  # of the n-grams of `repetition`


class Rouge(NamedTuple):
    """A ROUGE measure in percent, the mean over the summaries.

    Attributes:
        precision: share of the candidate that is in the reference.
        recall: share of the reference that is in the candidate.
        f1: their harmonic mean, of each summary.
        low, high: bounds of the 95 % interval of `f1`.
    """

    precision: float
    recall: float
    f1: float
    low: float
    high: float


def score(
    references: Sequence[Sequence[str]],
    candidates: Sequence[Sequence[str]],
    *,
    samples: int = 1000,
    seed: int = 0,
    processes: int | None = None,
) -> dict[str, Rouge]:
    """Return ROUGE-1, ROUGE-2 and ROUGE-L of summaries, computed by the library rouge-score.

    They are those of ROUGE-1.5.5 with `-m -n 2 -c 95 -r 1000`: words are stemmed, irregular ones by a list of
    WordNet's, everything but a to z and 0 to 9 is left out, ROUGE-L is that of whole summaries, sentence by sentence
    (Lin 2004, section 3.2). The interval is that of the means of samples of the summaries, drawn with replacement.

    Args:
        references: of each summary the sentences.
        candidates: the same.
        samples: of the bootstrap.
        seed: of the samples.
        processes: that score; None: as many as cores.

    Returns:
        "rouge1", "rouge2" and "rougeL".

    Raises:
        OptionError: no summaries, or not as many candidates as references; no samples.
    """
    check_integer("samples", samples)
    if len(references) != len(candidates) or not references:
        raise OptionError(
            f"candidates={len(candidates)}: must be as many as references, {len(references)}, and at least one"
        )
    blocks = (
        (references[start : start + BLOCK], candidates[start : start + BLOCK])
        for start in range(0, len(references), BLOCK)
    )
    scores = 100 * np.concatenate(list(spread(_score_block, blocks, processes)))
    generator = np.random.default_rng(seed)
    count = len(scores)
    means = np.empty((samples, len(MEASURES)))
    for sample in means:
        drawn = np.bincount(generator.integers(count, size=count), minlength=count)
        sample[:] = drawn @ scores[:, :, 2] / count
    low, high = np.percentile(means, (2.5, 97.5), axis=0)
    return {
        measure: Rouge(*map(float, (*scores[:, index].mean(0), low[index], high[index])))
        for index, measure in enumerate(MEASURES)
    }


class _Words:
    """The library's words of a text, with their stems as ROUGE-1.5.5 has them.

    It takes WordNet's list of irregular forms first, "were" is "be", and Porter's rules for the others. The list makes
    a quarter of a percent on CNN / Daily Mail; it lies in the package py-rouge, of which nothing else is used. A word's
    stem is computed once: that takes most of the time otherwise.
    """

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer
        from rouge_score import tokenize

        lines = Path(str(distribution("py-rouge").locate_file("rouge/wordnet_key_value.txt"))).read_text().splitlines()
        irregular = dict(line.split("|", 1) for line in lines)
        porter = PorterStemmer(PorterStemmer.ORIGINAL_ALGORITHM).stem
        self._tokenize = tokenize.tokenize
        self.stem = functools.lru_cache(maxsize=200_000)(lambda word: irregular.get(word) or porter(word))

    def tokenize(self, text: str) -> list[str]:
        return self._tokenize(text, self)


@functools.cache
def _scorer() -> Callable[[str, str], dict[str, tuple[float, float, float]]]:
    """Return the library's function, whose import takes a second."""
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(list(MEASURES.values()), tokenizer=_Words()).score


def _score_block(references: Sequence[Sequence[str]], candidates: Sequence[Sequence[str]]) -> np.ndarray:
    """Return (n, measures, 3): precision, recall and F1 of each summary."""
    scores = [
        _scorer()("\n".join(reference), "\n".join(candidate))
        for reference, candidate in zip(references, candidates, strict=True)
    ]
    return np.array([[tuple(found[name]) for name in MEASURES.values()] for found in scores])


def repetition(candidate: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return which share of a summary it has said before, in percent (See et al. 2017, figure 4).

    Args:
        candidate: its sentences, each its words.

    Returns:
        "1-grams" to "4-grams" and "sentences": 100 · (1 − different ones / all), 0 where there are none. N-grams go
        across the ends of sentences.
    """
    words = list(itertools.chain(*candidate))
    rates = {f"{order}-grams": _repeated(_ngrams(words, order)) for order in ORDERS}
    return {**rates, "sentences": _repeated([tuple(sentence) for sentence in candidate])}


def novel_ngrams(article: Sequence[str], candidate: Sequence[str], order: int) -> float:
    """Return which share of a summary's n-grams its article has not, in percent (See et al. 2017, figure 6).

    Args:
        article, candidate: words.
        order: n.

    Returns:
        of all n-grams of the summary, repeated ones counted as often as they occur; 0 where there are none.

    Raises:
        OptionError: an order below 1.
    """
    known = set(_ngrams(article, check_integer("order", order)))
    written = _ngrams(candidate, order)
    return 100 * sum(ngram not in known for ngram in written) / max(len(written), 1)


def _ngrams(words: Sequence[str], order: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(order)), strict=False))


def _repeated(items: Sequence[Hashable]) -> float:
    return 100 * (1 - len(set(items)) / len(items)) if items else 0.0
