"""Metrics of translations: BLEU (Papineni et al. 2002) and chrF2 (Popović 2015), by the library sacrebleu."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from gyral.core.checks import check_choice
from gyral.core.extras import import_extra
from gyral.data.text.words import has_unspaced_script

log = logging.getLogger(__name__)
TOKENS = ("13a", "intl", "zh", "char", "none")  # the tokenizers of sacrebleu that need no further package
SPACED = ("13a", "intl", "none")  # those that need spaces between words

metrics = import_extra("sacrebleu.metrics", "BLEU", "applications")  # before a run, whose end needs the scores


class Scores(NamedTuple):
    """Metrics of a list of translations.

    Attributes:
        bleu, chrf: in percent.
        ratio: number of words of the translations, relative to the references.
        signature: all that BLEU depends on, in the form of sacrebleu, which belongs to the number.
    """

    bleu: float
    chrf: float
    ratio: float
    signature: str


def score(references: Sequence[str], candidates: Sequence[str], tokens: str = "13a") -> Scores:
    """Return BLEU and chrF2 of detokenized, cased text with one reference for each, by the defaults of sacrebleu.

    Args:
        references: n ≥ 1 reference translations.
        candidates: n translations.
        tokens: the tokenizer of BLEU, by its name in sacrebleu. "13a" is that of published numbers. "zh" separates the
            signs of Chinese, and "char" all characters, as for Japanese and Thai. chrF2 needs no tokenizer.

    Raises:
        OptionError: there is no such tokenizer.
    """
    bleu = metrics.BLEU(tokenize=check_choice("tokens", tokens, TOKENS))
    found = bleu.corpus_score(candidates, [references])
    chrf = metrics.CHRF().corpus_score(candidates, [references])
    return Scores(found.score, chrf.score, found.ratio, str(bleu.get_signature()))


def warn_of_unspaced(references: Sequence[str], tokens: str) -> None:
    """Log a warning if references have no spaces between words, which a tokenizer needs.

    Args:
        references, tokens: see `score`.
    """
    count = sum(map(has_unspaced_script, references))
    if count and tokens in SPACED:
        reason = "which BLEU counts as long words; write task.bleu_tokens=zh for Chinese, char for Japanese or Thai"
        log.warning("%d of %d references have text without spaces, %s", count, len(references), reason)
