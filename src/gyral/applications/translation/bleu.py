"""Metrics of translations: BLEU (Papineni et al. 2002) and chrF2 (Popović 2015), by the library sacrebleu."""

from collections.abc import Sequence
from typing import NamedTuple

from gyral.core.extras import import_extra

metrics = import_extra("sacrebleu.metrics", "BLEU", "applications")  # before a run, whose end needs the scores


class Scores(NamedTuple):
    """Metrics of a list of translations.

    Attributes:
        bleu, chrf: in percent.
        ratio: number of words of the translations, relative to the references.
        signature: all that BLEU depends on, in the form of sacrebleu, which belongs beside the number.
    """

    bleu: float
    chrf: float
    ratio: float
    signature: str


def score(references: Sequence[str], candidates: Sequence[str]) -> Scores:
    """Return BLEU and chrF2 of detokenized, cased text with one reference for each, by the defaults of sacrebleu.

    Args:
        references: n ≥ 1 reference translations.
        candidates: n translations.
    """
    bleu = metrics.BLEU()
    found = bleu.corpus_score(candidates, [references])
    chrf = metrics.CHRF().corpus_score(candidates, [references])
    return Scores(found.score, chrf.score, found.ratio, str(bleu.get_signature()))
