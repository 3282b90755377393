"""Accuracy of a language model on minimal pairs: how often the grammatical sentence is more probable."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gyral.applications.probes import published
from gyral.applications.probes.data.encoding import EncodedSentence, SentenceEncoder
from gyral.applications.probes.data.pairs import PairSet
from gyral.applications.probes.scoring import log_probabilities
from gyral.core.errors import OptionError
from gyral.runs.evaluation_report import NO_VALUE, EvaluationReport, number
from gyral.tasks.base import SequenceTask
from gyral.tasks.text import TextTask


class PairResult(NamedTuple):
    """The result of a model for a pair.

    Attributes:
        right: whether the grammatical sentence is strictly more probable.
        forms_known: whether the vocabulary has all words that only one of the sentences has.
        known: whether the vocabulary has all words.
    """

    right: bool
    forms_known: bool
    known: bool


class Tally(NamedTuple):
    """Accuracies in percent, NaN without pairs, and the numbers of pairs."""

    pairs: int
    accuracy: float
    with_forms: int
    forms_accuracy: float
    known: int
    known_accuracy: float


def judge(task: TextTask, sets: Sequence[PairSet]) -> list[list[PairResult]]:
    """Return the results of the pairs of each set.

    `SentenceEncoder` describes the input. The score of a sentence is the sum of the log-probabilities of all its
    symbols after the first line end, including its end.

    Args:
        task: a trained task.
        sets: pairs.

    Raises:
        UserError: the vocabulary lacks a word and `<unk>`.
    """
    encoder = SentenceEncoder(task.data.corpus)
    sentences = dict.fromkeys(sentence for one in sets for pair in one.pairs for sentence in pair)
    encoded = {sentence: encoder.encode(sentence) for sentence in sentences}
    task.eval()
    scores = log_probabilities(task.model, [one.tokens for one in encoded.values()])
    score = dict(zip(sentences, scores.tolist(), strict=True))
    return [
        [
            PairResult(score[good] > score[bad], _forms_known(encoded[good], encoded[bad]), not unknown)
            for good, bad in one.pairs
            for unknown in [encoded[good].unknown | encoded[bad].unknown]
        ]
        for one in sets
    ]


def _forms_known(good: EncodedSentence, bad: EncodedSentence) -> bool:
    unknown = good.unknown | bad.unknown
    if not unknown:
        return True
    counts = Counter(good.words), Counter(bad.words)
    return not unknown & ((counts[0] - counts[1]).keys() | (counts[1] - counts[0]).keys())


def tally(results: Iterable[PairResult]) -> Tally:
    """Return the accuracies over all pairs and over the pairs in the vocabulary."""
    pairs = list(results)
    forms = [pair for pair in pairs if pair.forms_known]
    known = [pair for pair in pairs if pair.known]
    return Tally(len(pairs), _accuracy(pairs), len(forms), _accuracy(forms), len(known), _accuracy(known))


def _accuracy(pairs: Sequence[PairResult]) -> float:
    return 100 * sum(pair.right for pair in pairs) / len(pairs) if pairs else float("nan")


def report_pairs(task: SequenceTask, name: str, sets: Sequence[PairSet], model: str) -> EvaluationReport:
    """Return the table of a benchmark, by contrast ("syneval") or by phenomenon ("blimp").

    Args:
        task: a trained task.
        name: the benchmark.
        sets: its pairs.
        model: description of the model.

    Raises:
        OptionError: the task is not a language model.
    """
    if not isinstance(task, TextTask):
        raise OptionError("pairs", name, f"needs a language model; this is a run of {type(task).__name__}")
    results = judge(task, sets)
    numbers = {}
    for one, own in zip(sets, results, strict=True):
        for field, value in tally(own)._asdict().items():
            numbers[f"{one.phenomenon}/{one.name}/{field}"] = float(value)
    phenomena = {"overall": [pair for own in results for pair in own]}
    for one, own in zip(sets, results, strict=True):
        phenomena.setdefault(one.phenomenon, []).extend(own)
    for phenomenon, own in phenomena.items():
        numbers |= {f"{phenomenon}/{field}": float(value) for field, value in tally(own)._asdict().items()}
    rows = (_syneval_rows if name == "syneval" else _blimp_rows)(sets, results)
    published_heads = ["LSTM, published", "ON-LSTM, published"] if name == "syneval" else ["LSTM, published"]
    heads = ["accuracy, %", "pairs", "all pairs", "forms known", "on those", "all words known", "on those"]
    return EvaluationReport(
        f"{TITLES[name]}: {model}", [*heads, *published_heads], rows, [*NOTES, SOURCES[name]], numbers
    )


def _cells(name: str, counted: Tally, *published_values: float | None) -> list[str]:
    def share(count: int) -> str:
        return f"{100 * count / counted.pairs:.1f} %" if counted.pairs else NO_VALUE

    return [
        name,
        f"{counted.pairs:,}",
        number(counted.accuracy),
        share(counted.with_forms),
        number(counted.forms_accuracy),
        share(counted.known),
        number(counted.known_accuracy),
        *map(number, published_values),
    ]


def _syneval_rows(sets: Sequence[PairSet], results: Sequence[list[PairResult]]) -> list[list[str]]:
    rows: list[list[str]] = []
    for phenomenon in dict.fromkeys(one.phenomenon for one in sets):
        own = [(one, pairs) for one, pairs in zip(sets, results, strict=True) if one.phenomenon == phenomenon]
        for one, pairs in own:
            values = [100 * value for value in published.SYNEVAL[one.name]]
            rows.append(_cells(one.name, tally(pairs), *values))
        rows += [_cells(phenomenon, tally(pair for _, pairs in own for pair in pairs), None, None), []]
    return rows


def _blimp_rows(sets: Sequence[PairSet], results: Sequence[list[PairResult]]) -> list[list[str]]:
    phenomena: dict[str, list[PairResult]] = {}
    for one, pairs in zip(sets, results, strict=True):
        phenomena.setdefault(one.phenomenon, []).extend(pairs)
    rows = [
        _cells(phenomenon, tally(pairs), published.BLIMP.get(phenomenon)) for phenomenon, pairs in phenomena.items()
    ]
    everything = tally(pair for pairs in phenomena.values() for pair in pairs)
    return [*rows, [], _cells("overall", everything, published.BLIMP["overall"])]


Rows = Callable[[Sequence[PairSet], Sequence[list[PairResult]]], list[list[str]]]
TITLES = {"syneval": "Targeted syntactic evaluation", "blimp": "BLiMP"}
NOTES = (
    "A pair is right if the grammatical sentence has the higher probability; a tie, such as two unknown words, is "
    "wrong. Forms known: the words that only one of the sentences has are in the vocabulary.",
)
SOURCES = {
    "syneval": "Pairs: Marvin and Linzen (EMNLP 2018). Published: Shen et al. (ICLR 2019), models trained on 90 "
    "million words of Wikipedia, not on this corpus.",
    "blimp": "Pairs: Warstadt et al. (TACL 2020). Published there: the LSTM of Gulordava et al. (2018), trained on 83 "
    "million words of Wikipedia, not on this corpus. Overall there: 5-gram 61.2, Transformer-XL 69.6, GPT-2 83.0, "
    "people 88.6.",
}
