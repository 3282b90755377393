"""Metrics of summaries: ROUGE (Lin 2004), repetition, and novel n-grams."""

import functools
import itertools
import logging
import re
from collections.abc import Callable, Hashable, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError
from gyral.core.extras import import_extra
from gyral.core.parallel import parallel_map
from gyral.data.text.words import unicode_words

log = logging.getLogger(__name__)
MEASURES = {"rouge1": "rouge1", "rouge2": "rouge2", "rougeL": "rougeLsum"}  # the names here and in the library
BLOCK = 250  # number of pairs that a process scores in one call
ENGLISH = "english"
TOKENS = (ENGLISH, "unicode")  # what a score counts, see `score`
ORDERS = (1, 2, 3, 4)  # of the n-grams in `repetition`

import_extra("rouge_score", "ROUGE", "applications")  # before a run, whose end needs the scores


class Rouge(NamedTuple):
    """A ROUGE measure in percent, as means over the summaries.

    Attributes:
        precision: fraction of the candidate that is in the reference.
        recall: fraction of the reference that is in the candidate.
        f1: harmonic mean of precision and recall, computed for each summary.
        low, high: bounds of the 95 % confidence interval of `f1`.
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
    tokens: str = ENGLISH,
    samples: int = 1000,
    seed: int = 0,
    processes: int | None = None,
) -> dict[str, Rouge]:
    """Return ROUGE-1, ROUGE-2 and ROUGE-L of summaries, computed with the library rouge-score.

    The scores equal those of ROUGE-1.5.5 with `-m -n 2 -c 95 -r 1000`: words are stemmed, irregular words with a list
    from WordNet; all characters except a to z and 0 to 9 are ignored; ROUGE-L is the summary-level variant, computed
    sentence by sentence (Lin 2004, section 3.2). The confidence interval is a bootstrap interval of the mean.

    Text in other scripts therefore scores 0 by default. `tokens="unicode"` counts the words of all scripts, and single
    characters in scripts without spaces between words. It does not stem, so that English scores lower with it.

    Args:
        references: the sentences of each reference summary.
        candidates: the sentences of each candidate summary.
        tokens: "english", as in published numbers; or "unicode", see `gyral.data.text.words.unicode_words`.
        samples: number of bootstrap samples.
        seed: seed of the bootstrap.
        processes: number of processes; None: one per core.

    Returns:
        the measures "rouge1", "rouge2" and "rougeL".

    Raises:
        OptionError: there are no summaries, the numbers of candidates and references differ, `samples` is below 1, or
            `tokens` is another word.
    """
    check_integer("samples", samples)
    check_choice("tokens", tokens, TOKENS)
    if len(references) != len(candidates) or not references:
        raise OptionError(
            "candidates", len(candidates), f"must be as many as references, {len(references)}, and at least one"
        )
    blocks = (
        (references[start : start + BLOCK], candidates[start : start + BLOCK], tokens)
        for start in range(0, len(references), BLOCK)
    )
    scores = 100 * np.concatenate(list(parallel_map(_score_block, blocks, processes)))
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


def warn_of_unscored(references: Sequence[Sequence[str]], tokens: str = ENGLISH) -> None:
    """Log a warning if some summaries have no token that `score` counts, because their scores are 0.

    Args:
        references, tokens: see `score`.
    """
    texts = [" ".join(reference) for reference in references]
    found = [re.search("[a-z0-9]", text.lower()) if tokens == ENGLISH else unicode_words(text) for text in texts]
    unscored = sum(bool(text.strip()) and not each for text, each in zip(texts, found, strict=True))
    if unscored:
        english = "a to z and 0 to 9 alone; task.rouge_tokens=unicode counts the words of all scripts"
        counted = english if tokens == ENGLISH else "letters and digits alone"
        log.warning("%d of %d reference summaries score 0: ROUGE counts %s", unscored, len(texts), counted)


class _UnicodeTokenizer:
    """Tokenizer of rouge-score for all scripts."""

    def tokenize(self, text: str) -> list[str]:
        return unicode_words(text)


class _StemmingTokenizer:
    """Tokenizer of rouge-score with the stemmer of ROUGE-1.5.5.

    The stemmer looks a word up in WordNet's list of irregular forms ("were" is "be"), and applies the rules of Porter
    to words that are not in it. The list changes scores on CNN / Daily Mail by 0.25 %. It is the only file of the
    package py-rouge that is used. Stems are cached, because stemming would take most of the time.
    """

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer
        from rouge_score import tokenize

        file = Path(str(distribution("py-rouge").locate_file("rouge/wordnet_key_value.txt")))
        lines = file.read_text(encoding="utf-8").splitlines()
        irregular = dict(line.split("|", 1) for line in lines)
        porter = PorterStemmer(PorterStemmer.ORIGINAL_ALGORITHM).stem
        self._tokenize = tokenize.tokenize
        self.stem = functools.lru_cache(maxsize=200_000)(lambda word: irregular.get(word) or porter(word))

    def tokenize(self, text: str) -> list[str]:
        return self._tokenize(text, self)


@functools.cache
def _scorer(tokens: str) -> Callable[[str, str], dict[str, tuple[float, float, float]]]:
    """Return the scoring function of the library, whose import takes a second."""
    from rouge_score.rouge_scorer import RougeScorer

    tokenizer = _StemmingTokenizer() if tokens == ENGLISH else _UnicodeTokenizer()
    return RougeScorer(list(MEASURES.values()), tokenizer=tokenizer).score


def _score_block(references: Sequence[Sequence[str]], candidates: Sequence[Sequence[str]], tokens: str) -> np.ndarray:
    """Return precision, recall and F1 of each summary, (n, measures, 3)."""
    scores = [
        _scorer(tokens)("\n".join(reference), "\n".join(candidate))
        for reference, candidate in zip(references, candidates, strict=True)
    ]
    return np.array([[tuple(found[name]) for name in MEASURES.values()] for found in scores])


def repetition(candidate: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the percentage of a summary that repeats earlier parts of it (See et al. 2017, figure 4).

    Args:
        candidate: the sentences of the summary, as lists of words.

    Returns:
        values for "1-grams" to "4-grams" and "sentences": 100 · (1 − distinct / all), 0 if there are none. N-grams
        cross sentence boundaries.
    """
    words = list(itertools.chain(*candidate))
    rates = {f"{order}-grams": _repeated(_ngrams(words, order)) for order in ORDERS}
    return {**rates, "sentences": _repeated([tuple(sentence) for sentence in candidate])}


def novel_ngrams(article: Sequence[str], candidate: Sequence[str], order: int) -> float:
    """Return the percentage of the n-grams of a summary that its article does not contain (See et al. 2017, figure 6).

    Repeated n-grams count as often as they occur. A summary without n-grams has 0.

    Args:
        article, candidate: words.
        order: n.

    Raises:
        OptionError: `order` is below 1.
    """
    known = set(_ngrams(article, check_integer("order", order)))
    written = _ngrams(candidate, order)
    return 100 * sum(ngram not in known for ngram in written) / max(len(written), 1)


def _ngrams(words: Sequence[str], order: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(order)), strict=False))


def _repeated(items: Sequence[Hashable]) -> float:
    return 100 * (1 - len(set(items)) / len(items)) if items else 0.0
