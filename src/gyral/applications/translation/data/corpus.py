"""Parallel corpora: prepared once with subwords of both languages, cached as integers, and memory-mapped."""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from gyral.applications.translation.data.sources import Pair, PairSource
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError
from gyral.core.extras import import_extra
from gyral.core.measures import SPLITS
from gyral.core.signals import Interrupted
from gyral.data.corpus_cache import Prepared, Writer, load_or_prepare
from gyral.data.raw_examples import Report, restore_report
from gyral.data.vocabulary import PADDING, PADDING_ID, UNKNOWN

log = logging.getLogger(__name__)

FORMAT = 1  # version of the encoding; increment it to invalidate all earlier caches
UNKNOWN_ID, START_ID, STOP_ID = 1, 2, 3
LEARNED_FROM = 2_000_000  # sentences, drawn at random, from which the subwords are learned
BLOCK = 10_000  # pairs that are encoded together
COVERAGE = 0.9999  # share of the characters of the training text that have subwords
EVALUATED = ("val", "test")

sentencepiece = import_extra("sentencepiece", "task.corpus", "applications")


@dataclass(frozen=True)
class TranslationCorpus:
    """Pairs of sentences in three splits.

    Attributes:
        name: name of the corpus.
        tokens: for each split (n,) numbers of subwords, memory-mapped and read-only: the source and then the target of
            each pair.
        bounds: for each split (2p + 1,) the starts of sources and targets in `tokens`, alternating, and the end of the
            last one.
        reports: for each split the counts of kept and skipped pairs.
        model: the subwords, as sentencepiece stores them.
    """

    name: str
    tokens: dict[str, np.ndarray]
    bounds: dict[str, np.ndarray]
    reports: dict[str, Report]
    model: bytes
    _texts: np.ndarray

    @cached_property
    def subwords(self) -> Any:
        """The `sentencepiece.SentencePieceProcessor`; `<pad>`, `<unk>`, `<s>` and `</s>` are 0 to 3."""
        return sentencepiece.SentencePieceProcessor(model_proto=self.model)

    @cached_property
    def size(self) -> int:
        """The number of subwords, V."""
        return int(self.subwords.get_piece_size())

    @cached_property
    def texts(self) -> dict[str, list[Pair]]:
        """The pairs of the validation and test split as they were read."""
        saved = json.loads(self._texts.tobytes())
        return {split: [Pair(*pair) for pair in pairs] for split, pairs in saved.items()}

    def pair(self, split: str, row: int) -> Pair:
        """Return a pair of a split as text; of the training split, as its subwords spell it."""
        if split in self.texts:
            return self.texts[split][row]
        start, middle, end = self.bounds[split][2 * row : 2 * row + 3]
        tokens = self.tokens[split]
        return Pair(*(self.subwords.decode(side.tolist()) for side in (tokens[start:middle], tokens[middle:end])))

    @property
    def pieces(self) -> list[str]:
        """The subwords in the order of their numbers."""
        return [self.subwords.id_to_piece(number) for number in range(self.size)]


def load(
    data_dir: str | Path,
    *,
    train: str | Path | list[str] | None,
    val: str | Path | list[str] | None,
    test: str | Path | list[str] | None,
    source: int | str = 0,
    target: int | str = 1,
    size: int = 8000,
    kind: str = "bpe",
    name: str = "translation",
) -> TranslationCorpus:
    """Return pairs of sentences from any files, prepared once and cached.

    The subwords are learned from both sides of the training split together, by the library sentencepiece. Text enters
    unchanged but for white space, and subwords become text again without a loss, except for characters that are too
    rare to have one. The cache is identified by the options and by the names, sizes and modification times of the
    files.

    Args:
        data_dir: data folder, which contains the cache if it is writable.
        train, val, test: see `gyral.applications.translation.data.sources.PairSource`.
        source, target: columns of .tsv files, or languages in .jsonl and .parquet files.
        size: V, number of subwords, including the four special symbols.
        kind: how subwords are learned: "bpe", byte-pair encoding (Sennrich et al. 2016), or "unigram" (Kudo 2018).
        name: name of the corpus.

    Raises:
        OptionError: as `PairSource`; a split without a path or without pairs; the training text is too small for
            `size`, or has more characters; no cache directory is writable.
    """
    check_integer("size", size, minimum=STOP_ID + 2, maximum=2**16)
    check_choice("kind", kind, ("bpe", "unigram"))
    paths = dict(zip(SPLITS, (train, val, test), strict=True))
    sources = {split: PairSource(path, source, target, split) for split, path in paths.items()}

    def read(prepared: Prepared) -> TranslationCorpus:
        arrays = prepared.arrays
        tokens = {split: arrays[f"{split}-tokens"] for split in SPLITS}
        bounds = {split: np.append(0, np.cumsum(arrays[f"{split}-lengths"])) for split in SPLITS}
        reports = {split: restore_report(report) for split, report in prepared.about["reports"].items()}
        return TranslationCorpus(name, tokens, bounds, reports, arrays["subwords"].tobytes(), arrays["texts"])

    key = [FORMAT, size, kind, [sources[split].fingerprint() for split in SPLITS]]
    corpus = load_or_prepare(name, key, data_dir, lambda: partial(_prepare, sources, size, kind), read)
    for split, report in corpus.reports.items():
        log.info("%s, %s: %s", name, split, report)
    return corpus


def check_load(train: Any, val: Any, test: Any, source: int | str = 0, target: int | str = 1) -> None:
    """Raise the errors of `load` about files, which `gyral train` does before it imports PyTorch."""
    for split, path in zip(SPLITS, (train, val, test), strict=True):
        PairSource(path, source, target, split)


def _prepare(sources: Mapping[str, PairSource], size: int, kind: str, writer: Writer) -> None:
    model = _learn(sources["train"], size, kind)
    writer.append("subwords", model)
    subwords = sentencepiece.SentencePieceProcessor(model_proto=model)
    texts: dict[str, list[Pair]] = {split: [] for split in EVALUATED}
    reports: dict[str, Any] = {}
    for split, source in sources.items():
        report = Report()
        pairs = source.pairs(report)
        while block := list(islice(pairs, BLOCK)):
            encoded = subwords.encode([side for pair in block for side in pair], num_threads=1)
            writer.append(f"{split}-tokens", np.array([token for side in encoded for token in side], dtype=np.uint16))
            writer.append(f"{split}-lengths", np.array([len(side) for side in encoded], dtype=np.int64))
            if split in EVALUATED:
                texts[split] += block
        if not report.kept:
            raise OptionError(source.option, source.path, f"contains no pair{report.oddities()}")
        reports[split] = asdict(report)
    writer.append("texts", json.dumps(texts).encode())
    writer.about["reports"] = reports


def _learn(source: PairSource, size: int, kind: str) -> bytes:
    """Return a model of subwords that is learned from the sentences of both languages."""
    model = BytesIO()
    sentencepiece.set_random_generator_seed(0)  # of the sentences that are drawn, if there are very many
    report = Report()
    faults: list[BaseException] = []  # sentencepiece raises another error for those of its iterator

    def sentences() -> Iterator[str]:
        try:
            for pair in source.pairs(report):
                yield from pair
        except (Exception, KeyboardInterrupt, Interrupted) as error:
            faults.append(error)
            raise

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences(),
            model_writer=model,
            vocab_size=size,
            model_type=kind,
            character_coverage=COVERAGE,
            input_sentence_size=LEARNED_FROM,
            normalization_rule_name="identity",
            num_threads=1,  # so that the result depends on the text alone
            pad_id=PADDING_ID,
            unk_id=UNKNOWN_ID,
            bos_id=START_ID,
            eos_id=STOP_ID,
            pad_piece=PADDING,
            unk_piece=UNKNOWN,
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:
        if faults:
            raise faults[0] from None
        if not report.kept:
            raise OptionError(source.option, source.path, f"contains no pair{report.oddities()}") from None
        reason = str(error).strip().splitlines()[-1].rpartition("] ")[2]
        raise OptionError("size", size, f"sentencepiece learns no such subwords from {source.path}: {reason}") from None
    return model.getvalue()
