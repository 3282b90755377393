"""Corpora of articles with summaries: read once, kept as numbers, and mapped into memory from there.

Every word of a corpus has a number, the most frequent of training the lowest. A model's vocabulary is the start of that
list, so that the words it lacks are still known by their numbers: a network may copy them from the article.
"""

import fcntl
import hashlib
import itertools
import json
import logging
import os
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError
from gyral.core.parallel import spread
from gyral.data.summaries.articles import SPECIAL, Part, Record, Report, Source, read_part, restore_report, write_part
from gyral.data.text.corpora import SPLITS, cache_folders
from gyral.data.vocabulary import Vocabulary

log = logging.getLogger(__name__)

FORMAT = 1  # of what is cached; another number leaves all that was cached before unused
BLOCK = 1000  # records a part; a stopped preparation goes on behind its last whole part
SIZE = 50_000  # of a vocabulary

# The corpus CNN / Daily Mail as its users have it, in its folder of the data folder: what a split's file is named.
NAMES = ("{}.jsonl", "{}.csv", "{}.bin", "{}_*.bin", "all_{}.txt")
FOLDERS = (".", "chunked", "finished_files", "finished_files/chunked", "url_lists")
# The start of its validation split and that of its test split, for who has no more: no result is comparable with a
# published one.
EXCERPT = ("validation_first1000.jsonl[:900]", "validation_first1000.jsonl[900:]", "test_first500.jsonl")


class OtherVocabularyError(OptionError):
    """A checkpoint was trained with another vocabulary."""


@dataclass(frozen=True)
class SummaryCorpus:
    """Articles with summaries in three splits.

    Attributes:
        name: of the corpus.
        folder: where it is kept.
        vocabulary: the model's: `<pad>`, `<unk>`, `<s>` and `</s>` are 0 to 3, then come the words of training, those
            of articles and of summaries, the most frequent first, of equally frequent ones by their code points.
        tokens: (n,) numbers of words, mapped from a file and read-only: of each pair its article and then its summary,
            in which `</s>` is behind each sentence. A number beyond the vocabulary is that of a word it lacks.
        bounds: of each split (2p + 1,) where articles and summaries start in `tokens`, in turn, and where the last
            ends.
        reports: of each split what was kept and what was left out.
    """

    name: str
    folder: Path
    vocabulary: Vocabulary
    tokens: np.ndarray
    bounds: dict[str, np.ndarray]
    reports: dict[str, Report]

    @cached_property
    def words(self) -> list[str]:
        """All words of the corpus by their numbers, those beyond the vocabulary, too."""
        return (self.folder / "words.txt").read_bytes().decode().split("\n")

    @cached_property
    def digest(self) -> str:
        """What names the vocabulary: the same words in the same order have the same, wherever they come from."""
        return hashlib.sha256("\n".join(self.vocabulary.symbols).encode()).hexdigest()[:16]

    def check_digest(self, digest: str) -> None:
        """Check that a checkpoint was trained with this vocabulary.

        Raises:
            OtherVocabularyError: it was not.
        """
        if digest != self.digest:
            raise OtherVocabularyError(
                f"the checkpoint has another vocabulary ({digest}) than {self.name} ({self.digest}, "
                f"{len(self.vocabulary):,} words): evaluate it with the training split and the vocabulary's size it had"
            )


def load_cnn_dailymail(
    part: str, data_dir: str | Path, *, size: int = SIZE, processes: int | None = None
) -> SummaryCorpus:
    """Return the corpus CNN / Daily Mail (Hermann et al. 2015; See et al. 2017), or an excerpt of it.

    Args:
        part: "full": 287,113 pairs (287,227 less 114 empty articles, which are left out), 13,368 and 11,490, from what
            lies in `cnn_dailymail` of the data folder: `train`, `val` or `validation`, and `test` as `.jsonl` or
            `.csv`, as See et al.'s `.bin` or chunks, or as lists `all_train.txt` beside folders of stories. "excerpt":
            trains on the first 900 pairs of the validation split, validates on 100 more, and tests on the first 500 of
            the test split, almost all of them CNN's.
        data_dir: the data folder.
        size: of the vocabulary, with the four signs that are no words.
        processes: that read it; None: as many as cores.

    Raises:
        OptionError: another part; the files are not there; as `load`.
    """
    folder = Path(data_dir) / "cnn_dailymail"
    if check_choice("part", part, ("full", "excerpt")) == "excerpt":
        train, val, test = (str(folder / name) for name in EXCERPT)
        name = "cnn_dailymail_excerpt"
    else:
        train, val, test = (_find(folder, *names) for names in (("train",), ("val", "validation"), ("test",)))
        name = "cnn_dailymail"
    return load(data_dir, train=train, val=val, test=test, size=size, name=name, processes=processes)


def _find(folder: Path, *splits: str) -> str:
    for place, name, split in itertools.product(FOLDERS, NAMES, splits):
        if any(folder.glob(f"{place}/{name.format(split)}")):
            return str(folder / place / name.format(split))
    raise OptionError(
        f"{folder}: has no {splits[0]} split: put {splits[0]}.jsonl or {splits[0]}.csv (article, highlights), See et "
        f"al.'s chunks {splits[0]}_*.bin, or all_{splits[0]}.txt and the folders of stories there; or set part=excerpt"
    )


def load(
    data_dir: str | Path,
    *,
    train: str | Path | None,
    val: str | Path | None,
    test: str | Path | None,
    mode: str = "s2s",
    size: int = SIZE,
    name: str = "articles",
    processes: int | None = None,
) -> SummaryCorpus:
    """Return articles with summaries from any files, prepared once and kept in the cache.

    The preparation of 287,000 articles takes minutes on all cores; it shows a bar on a terminal, its memory does not
    grow with the number of articles, and it goes on where it was stopped. What is cached is known by the names, sizes
    and times of the files.

    Args:
        data_dir: the data folder, where the cache lies if it can be written.
        train, val, test: see `gyral.data.summaries.articles.Source`. They may be of different corpora: a model is trained on one
            and tested on another.
        mode: what is the input and what the output, see `gyral.data.summaries.articles.Source`.
        size: of the vocabulary, at most, with the four signs that are no words.
        name: of the corpus.
        processes: that read it; None: as many as cores.

    Raises:
        OptionError: as `Source`; no path of a split, or one without pairs; a size below 5; nowhere to keep it.
    """
    check_integer("size", size, len(SPECIAL) + 1)
    sources = {}
    for split, path in zip(SPLITS, (train, val, test), strict=True):
        if path is None:
            raise OptionError(f"{split}=None: must be a file of articles with summaries, as articles.jsonl")
        try:
            sources[split] = Source(path, mode=mode)
        except OptionError as error:
            raise OptionError(str(error).replace("path=", f"{split}=", 1)) from None
    key = [FORMAT, BLOCK, [source.fingerprint() for source in sources.values()]]
    stem = f"{name[:40]}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}"
    folders = cache_folders(Path(data_dir))
    for folder in folders:
        if corpus := _read(folder / stem, name, size):
            return corpus
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _lock(folder / f"{stem}.lock"):
                corpus = _read(folder / stem, name, size)  # another process may have made it
                if corpus is None:
                    _prepare(name, sources, folder / stem, processes)
                    corpus = _read(folder / stem, name, size)
        except OSError as error:
            log.warning("%s: %s", folder, error.strerror or error)
            continue
        if corpus is not None:
            return corpus
    raise OptionError(f"data_dir={data_dir}: neither it nor {folders[-1]} can be written, to keep {name} in")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Wait until no other process prepares the same corpus."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("%s: waiting for another process, which prepares it", path.stem)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _prepare(name: str, sources: dict[str, Source], target: Path, processes: int | None) -> None:
    """Tokenize the sources part by part, in many processes, and put the parts together."""
    log.info("preparing %s, once", name)
    working = target.with_name(f"{target.name}.parts")
    parts: dict[str, list[Path]] = {split: [] for split in SPLITS}

    def jobs(split: str, source: Source) -> Iterator[tuple[Path, list[Record], str, str]]:
        records = source.records()
        while block := list(itertools.islice(records, BLOCK)):
            parts[split].append(working / f"{split}-{len(parts[split]):06}.npz")
            advance(block[-1].progress)
            if not parts[split][-1].exists():  # else an earlier preparation came this far
                yield parts[split][-1], block, source.form, source.mode

    for split, source in sources.items():
        with _progress(f"{name}, {split}") as advance:
            for _ in spread(write_part, jobs(split, source), processes):
                pass
        if not any(read_part(path).report.kept for path in parts[split]):
            reports = [read_part(path).report for path in parts[split]]
            shutil.rmtree(working, ignore_errors=True)
            raise OptionError(f"path={source.path}: has no pair of article and summary ({_total(reports)})")
    _join(parts, target)
    shutil.rmtree(working)


@contextmanager
def _progress(title: str) -> Iterator[Any]:
    """Show a bar on standard error, if that is a terminal; give a function that sets it, 0 to 1."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=1.0)
        yield lambda done: progress.update(task, completed=done)


def _total(reports: list[Report]) -> Report:
    total = Report()
    for report in reports:
        total.update(report)
    return total


def _join(parts: dict[str, list[Path]], target: Path) -> None:
    """Number all words of the parts and write the corpus: a folder that is there whole or not at all."""
    words, trained = _word_list(parts)
    index = {word: number for number, word in enumerate(words)}
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.") as made:
        folder = Path(made) / "corpus"
        folder.mkdir()
        text = "\n".join(words).encode()
        (folder / "words.txt").write_bytes(text)
        lengths, reports, end = {}, {}, 0
        with (folder / "tokens.bin").open("wb") as file:
            for split, paths in parts.items():
                bounds, found = [np.array([end])], []
                for path in paths:
                    part = read_part(path)
                    numbers = np.array([index[word] for word in part.words], dtype=np.uint32)
                    numbers[part.tokens].tofile(file)
                    bounds.append(part.bounds + end)
                    end += len(part.tokens)
                    found.append(part.report)
                np.save(folder / f"{split}.npy", np.concatenate(bounds))
                lengths[split] = sum(map(len, bounds))
                reports[split] = asdict(_total(found))
        description = {"tokens": end, "lengths": lengths, "trained": trained, "reports": reports}
        saved = {"description": description, "words": zlib.crc32(text)}
        (folder / "corpus.json").write_text(json.dumps(saved))
        if target.exists():
            shutil.rmtree(target)  # it is damaged
        os.replace(folder, target)


def _word_list(parts: dict[str, list[Path]]) -> tuple[list[str], int]:
    """Return all words of a corpus in their order, and how many of them training has, the special ones included."""
    counts: Counter[str] = Counter()
    others: set[str] = set()
    for split, paths in parts.items():
        for path in paths:
            part: Part = read_part(path)
            if split == "train":
                for word, count in zip(part.words, part.counts.tolist(), strict=True):
                    counts[word] += count
            else:
                others.update(part.words)
    for word in SPECIAL:
        counts.pop(word, None)
    known = sorted(counts, key=lambda word: (-counts[word], word))
    return [*SPECIAL, *known, *sorted(others - counts.keys() - set(SPECIAL))], len(SPECIAL) + len(known)


def _read(folder: Path, name: str, size: int) -> SummaryCorpus | None:
    """Return a corpus from the cache, None where it is not or is damaged."""
    try:
        saved = json.loads((folder / "corpus.json").read_text())
        description = saved["description"]
        text = (folder / "words.txt").read_bytes()
        tokens = np.memmap(folder / "tokens.bin", dtype=np.uint32, mode="r")
        bounds = {split: np.load(folder / f"{split}.npy") for split in SPLITS}
        lengths = {split: len(array) for split, array in bounds.items()}
        # the words' checksum, but of the numbers, a gigabyte, only how many there are
        if (saved["words"], description["tokens"], description["lengths"]) != (zlib.crc32(text), len(tokens), lengths):
            raise ValueError("checksum")
        end = min(size, description["trained"])
        symbols = text.decode().split("\n", end)[:end]
        reports = {split: restore_report(report) for split, report in description["reports"].items()}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        log.warning("%s: is damaged (%s) and made anew", folder, error)
        return None
    for split, report in reports.items():
        log.info("%s, %s: %s", name, split, report)
    return SummaryCorpus(name, folder, Vocabulary("word", symbols), tokens, bounds, reports)
