"""Corpora of articles with summaries: prepared once, cached as integers, and memory-mapped.

Every word of a corpus has a number; the most frequent word of the training split has the lowest. A model's vocabulary
is the start of that list. Words outside the vocabulary keep their numbers, so that a network can copy them from the
article.

This module does not import torch, because many worker processes import it.
"""

import itertools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from gyral.applications.summarization.data.parsing import SPECIAL, STOP, Fields
from gyral.applications.summarization.data.sources import ArticleSource, parse_examples
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError
from gyral.core.measures import SPLITS
from gyral.data import preparation
from gyral.data.preparation import EncodedCorpus, Kind, Part
from gyral.data.raw_examples import RawExample, Report
from gyral.data.vocabulary import Vocabulary

log = logging.getLogger(__name__)

FORMAT = 2  # version of the encoding; increment it to invalidate all earlier caches
SIZE = 50_000  # vocabulary size

# File names and folders of the versions of the CNN / Daily Mail corpus, relative to its data folder.
NAMES = ("{}.jsonl", "{}.csv", "{}.bin", "{}_*.bin", "all_{}.txt")
FOLDERS = (".", "chunked", "finished_files", "finished_files/chunked", "url_lists")
NAMES_OF_SPLITS = {"train": ("train",), "val": ("val", "validation"), "test": ("test",)}
# The start of the validation split and of the test split. Results on this excerpt are not comparable to published ones.
EXCERPT = ("validation_first1000.jsonl[:900]", "validation_first1000.jsonl[900:]", "test_first500.jsonl")


@dataclass(frozen=True)
class SummaryCorpus:
    """Articles with summaries in three splits.

    Attributes:
        name: name of the corpus.
        vocabulary: the model's vocabulary: `<pad>`, `<unk>`, `<s>` and `</s>` are 0 to 3; then come the words of the
            training split, in articles and summaries, sorted by descending frequency and then by code points.
        tokens: for each split (n,) word numbers, memory-mapped and read-only: for each pair the article and then the
            summary, with `</s>` after each sentence. A number beyond the vocabulary is a word outside it.
        bounds: for each split (2p + 1,) the starts of articles and summaries in `tokens`, alternating, and the end of
            the last one.
        fields: the names of the parts of an example of the training split.
        encoded: the whole corpus, with counts of the kept and skipped examples.
    """

    name: str
    vocabulary: Vocabulary
    tokens: dict[str, np.ndarray]
    bounds: dict[str, np.ndarray]
    fields: Fields
    encoded: EncodedCorpus

    @cached_property
    def words(self) -> list[str]:
        """All words of the corpus by their numbers, including those outside the vocabulary."""
        return self.encoded.words()


def load_cnn_dailymail(
    part: str, data_dir: str | Path, *, size: int = SIZE, processes: int | None = None
) -> SummaryCorpus:
    """Return the CNN / Daily Mail corpus (Hermann et al. 2015; See et al. 2017), or an excerpt of it.

    Args:
        part: "full": 287,113 (287,227 without 114 empty articles, which are skipped), 13,368 and 11,490 pairs, read
            from the folder `cnn_dailymail` of the data folder: `train`, `val` or `validation`, and `test` as `.jsonl`
            or `.csv`, as `.bin` files or chunks of See et al., or as lists `all_train.txt` next to folders of stories.
            "excerpt": trains on the first 900 pairs of the validation split, validates on the following 100, and tests
            on the first 500 of the test split. Almost all of these articles are from CNN.
        data_dir: data folder.
        size: vocabulary size, including the four special symbols.
        processes: number of worker processes; None: one for each available core.

    Raises:
        OptionError: `part` is not one of these; the files do not exist; as `load`.
    """
    name = "cnn_dailymail_excerpt" if part == "excerpt" else "cnn_dailymail"
    with _of_data_dir(data_dir):
        return load(data_dir, **_paths(part, data_dir), size=size, name=name, processes=processes)


def check_load_cnn_dailymail(part: str, data_dir: str | Path) -> None:
    """Raise the errors of `load_cnn_dailymail` about files, which `gyral train` does before it imports PyTorch."""
    with _of_data_dir(data_dir):
        check_load(**_paths(part, data_dir))


@contextmanager
def _of_data_dir(data_dir: str | Path) -> Iterator[None]:
    """Turn errors about the files of a split into errors about the data folder, the option of this task."""
    try:
        yield
    except OptionError as error:
        if error.option not in SPLITS:
            raise
        raise OptionError("data_dir", data_dir, f"{error.value}: {error.reason}") from None


def _paths(part: str, data_dir: str | Path) -> dict[str, str]:
    """Return the path of each split of the CNN / Daily Mail corpus."""
    folder = Path(data_dir) / "cnn_dailymail"
    if check_choice("part", part, ("full", "excerpt")) == "excerpt":
        return {split: str(folder / name) for split, name in zip(SPLITS, EXCERPT, strict=True)}
    return {split: _find(folder, *names) for split, names in NAMES_OF_SPLITS.items()}


def _find(folder: Path, *splits: str) -> str:
    for place, name, split in itertools.product(FOLDERS, NAMES, splits):
        if any(folder.glob(f"{place}/{name.format(split)}")):
            return str(folder / place / name.format(split))
    raise OptionError(
        "data_dir",
        folder.parent,
        f"{folder} has no {splits[0]} split: put {splits[0]}.jsonl or {splits[0]}.csv (article, highlights), See et "
        f"al.'s chunks {splits[0]}_*.bin, or all_{splits[0]}.txt and the folders of stories there; or set part=excerpt",
    )


def load(
    data_dir: str | Path,
    *,
    train: str | Path | None,
    val: str | Path | None,
    test: str | Path | None,
    mode: str = "s2s",
    source: str | None = None,
    target: str | None = None,
    size: int = SIZE,
    name: str = "articles",
    processes: int | None = None,
) -> SummaryCorpus:
    """Return articles with summaries from any files, prepared once and cached.

    The preparation of 287,000 articles takes minutes on all cores. It shows a progress bar on a terminal, its memory
    use does not grow with the number of articles, and it resumes after an interruption. The cache is identified by the
    names, sizes and modification times of the files.

    Args:
        data_dir: data folder, which contains the cache if it is writable.
        train, val, test: see `gyral.applications.summarization.data.sources.ArticleSource`. The splits may be from
            different corpora, to train a model on one and test it on another.
        mode: input and output of the model, see `gyral.applications.summarization.data.sources.ArticleSource`.
        source, target: names of the fields or columns of article and summary, see there.
        size: maximum vocabulary size, including the four special symbols.
        name: name of the corpus.
        processes: number of worker processes; None: one for each available core.

    Raises:
        OptionError: as `ArticleSource`; a split without a path or without pairs; a size below 5; no cache directory is
            writable.
    """
    check_integer("size", size, len(SPECIAL) + 1)
    paths = dict(zip(SPLITS, (train, val, test), strict=True))
    sources = {split: _source(split, path, mode, source, target) for split, path in paths.items()}
    fields = sources["train"].fields

    def read(encoded: EncodedCorpus) -> SummaryCorpus:
        vocabulary = Vocabulary("word", encoded.words(min(size, encoded.trained)))
        tokens = {split: arrays["words"] for split, arrays in encoded.splits.items()}
        bounds = {split: np.append(0, np.cumsum(arrays["lengths"])) for split, arrays in encoded.splits.items()}
        return SummaryCorpus(name, vocabulary, tokens, bounds, fields, encoded)

    corpus = preparation.load(name, KIND, sources, data_dir, processes, read)
    for split, report in corpus.encoded.reports.items():
        log.info("%s, %s: %s", name, split, report)
    return corpus


def check_load(
    train: str | Path | None,
    val: str | Path | None,
    test: str | Path | None,
    mode: str = "s2s",
    source: str | None = None,
    target: str | None = None,
) -> None:
    """Raise the errors of `load` about files, which `gyral train` does before it imports PyTorch."""
    for split, path in zip(SPLITS, (train, val, test), strict=True):
        _source(split, path, mode, source, target)


def encode(examples: list[RawExample], form: str, mode: str, fields: Fields) -> Part:
    """Encode examples.

    The arrays of the part are `words`, for each of p pairs the article and then the summary with `STOP` after each
    sentence, and `lengths`, (2p,) the number of words of each article and each summary.
    """
    report = Report()
    index = {STOP: 0}
    words: list[int] = []
    lengths: list[int] = []
    for pair in parse_examples(examples, form, mode, fields, report):
        summary = (word for sentence in pair.sentences for word in (*sentence, STOP))
        for text in (pair.article, summary):
            start = len(words)
            words += [index.setdefault(word, len(index)) for word in text]
            lengths.append(len(words) - start)
    arrays: dict[str, np.ndarray] = {
        "words": np.array(words, dtype=np.uint32),
        "lengths": np.array(lengths, dtype=np.int64),
    }
    return Part(list(index), arrays, report)


KIND = Kind(FORMAT, encode, SPECIAL, "pair of an article and a summary", "pairs")


def _source(split: str, path: str | Path | None, mode: str, source: str | None, target: str | None) -> ArticleSource:
    if path is None:
        raise OptionError(split, path, "must be a file of articles with summaries, such as articles.jsonl")
    return ArticleSource(path, mode=mode, source=source, target=target, option=split)
