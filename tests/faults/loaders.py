"""Everything that Gyral reads as data: small inputs, the options that name them, and what reads them."""

import csv
import functools
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from gyral.applications.babi.generation import read_lines
from gyral.applications.summarization.data.files import Output, read_articles
from gyral.data import download
from gyral.data.babi import release
from gyral.data.catalogue import PublishedCorpus, PublishedFile
from gyral.data.records import Report
from gyral.data.text import ngrams
from gyral.data.text.corpora import TEXT_CORPORA, load_file
from gyral.data.text.synthetic import synthetic_text
from gyral.data.vocabulary import Vocabulary
from gyral.generation.surprisal import read_text
from gyral.training import build
from tests.data.babi.conftest import RELEASE, packed, put, written
from tests.helpers.examples import article, example, write_chunk, write_lines, write_story
from tests.helpers.running import compose_config

LETTERS = "the quick brown fox jumps over the lazy dog "  # so that training has all letters
TEXT = LETTERS + synthetic_text()[:2000].lower() + LETTERS
STORY = "1 Mary moved to the bathroom.\n2 Where is Mary?\tbathroom\t1\n"
RUN = (
    *("model.backend=reference", "optimizer=adam", "trainer=cpu", "trainer.max_steps=2", "threads=1"),
    *("logger=none", "callbacks=none"),
)
MODEL = ("model=gru", "model.cell.hidden_size=4", *RUN)
TEXT_SIZES = {"batch_size": 2, "window": 10, "eval_batch_size": 2, "warm_up": 2}
SIZES = ("model.embedding_size=4", "model.encoder.hidden_size=4", "model.decoder.hidden_size=4")
SUMMARIZER = ("model=pointer_generator", *SIZES, *RUN)
SUMMARY_SIZES = {
    **{"batch_size": 2, "article_length": 12, "summary_length": 8, "decoded": 1},
    **{"decoding.beam": 1, "decoding.min_length": 1, "decoding.max_length": 3},
}


@dataclass
class Input:
    """An input of a command.

    Attributes:
        files: the files of which one is damaged.
        options: an error must name one of these options. Empty if no option selects the files.
        read: reads the input as the command does.
        words: words of the command line of `gyral train`; empty if another command reads the input.
        expected: what is read, if the files are derived from others, so that damaged ones are made again.
        is_remote: whether the files are downloaded, so that they are damaged files at worst, and no pipes.
    """

    files: list[Path]
    options: tuple[str, ...]
    read: Callable[[], Any]
    words: tuple[str, ...] = ()
    expected: Any = None
    is_remote: bool = False


Maker = Callable[[Path, Random, pytest.MonkeyPatch], Input]


def train_on(overrides: tuple[str, ...], options: dict[str, Any], files: list[Path], named: tuple[str, ...]) -> Input:
    """Return the input of a task, which is read by building the task and taking a batch of each split."""

    def read() -> None:
        config = compose_config(*overrides)
        for name, value in options.items():  # much faster than composing again
            OmegaConf.update(config.task, name, value)
        task = build.build_task(config)
        for split in ("train", "val", "test"):
            batch = next(iter(task.data.loader(split)))
            assert task.loss(task(batch), batch).isfinite()

    words = (*overrides, *(f"task.{name}={json.dumps(value)}" for name, value in options.items()))
    return Input(files, tuple(f"task.{name}" for name in named), read, words)


def text_file(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    path = folder / "my text.txt"
    path.write_text(TEXT)
    level = random.choice(("char", "word", "byte"))
    options = {"corpus.path": str(path), "corpus.data_dir": str(folder), "corpus.level": level, **TEXT_SIZES}
    named = ("corpus.path", "batch_size", "window")
    return train_on(("task=text_file", *MODEL), options, [path], named)


def published_text(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """Files in the form of ptb_char, ptb_word, text8 or enwik8, with their own checksums."""
    name = random.choice(("ptb_char", "ptb_word", "text8", "enwik8"))
    corpus = TEXT_CORPORA[name]
    files = []
    for file in corpus.files:
        content = b"".join(b"%c " % letter for letter in TEXT.encode()) if name == "ptb_char" else TEXT.encode()
        put(folder / corpus.folder / file.name, content.decode())
        files.append(PublishedFile(file.name, len(content), hashlib.sha256(content).hexdigest()))
    patch.setitem(TEXT_CORPORA, name, corpus._replace(files=tuple(files)))
    options = {"corpus.data_dir": str(folder), **TEXT_SIZES}
    paths = [folder / corpus.folder / file.name for file in files]
    return train_on((f"task={name}", *MODEL), options, paths, ("corpus.name",))


def babi(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """A release of small files, packed or unpacked."""
    patch.setattr(release, "SIZES", {"1k": 20, "10k": 60})
    patch.setattr(release, "TEST_SIZE", 10)
    patch.setattr(release, "PUBLISHED_DIGESTS", {1: {}})
    unpacked = folder / "babi" / RELEASE
    paths = [
        put(unpacked / "en" / "qa1_any_train.txt", written(1, 20)),
        put(unpacked / "en" / "qa1_any_test.txt", written(1, 10, seed=2)),
    ]
    options = {"data_dir": str(folder), "size": "1k"}
    if random.random() < 0.3:
        paths = [packed(unpacked, folder / "tasks.tar.gz")]
        options["path"] = str(paths[0])
    return train_on(("task=babi", *MODEL), options, paths, ("path" if "path" in options else "data_dir",))


def articles(folder: Path, form: str) -> tuple[str, list[Path]]:
    """Write nine articles in a form; return the value of the option and the files of which one is damaged."""
    rows = [article(number) for number in range(9)]
    if form in ("jsonl", "json"):
        path = write_lines(folder / f"articles.{form}", rows)
        return str(path), [path]
    if form == "csv":
        path = folder / "articles.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(["article", "highlights"])
            lines.writerows([row["article"], "\n".join(row["highlights"])] for row in rows)
        return str(path), [path]
    if form == "bin":
        texts = [(row["article"].replace("\n", " "), " ".join(row["highlights"])) for row in rows]
        chunks = [example(article=text, abstract=f"<s> {summary} </s>") for text, summary in texts]
        paths = [write_chunk(folder / f"chunk_{number}.bin", chunks[number::3]) for number in range(3)]
        return str(folder / "chunk_*.bin"), paths
    marked = [row["article"] + "".join(f"\n\n@highlight\n\n{line}" for line in row["highlights"]) for row in rows]
    paths = [write_story(folder / "stories", f"http://a/{number}", text) for number, text in enumerate(marked)]
    if form == "story":
        return str(folder / "stories"), paths
    addresses = folder / "all.txt"
    addresses.write_text("".join(f"http://a/{number}\n" for number in range(len(rows))))
    return str(addresses), [addresses, addresses, *paths]


def own_articles(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    others = str(write_lines(folder / "others.jsonl", [article(number) for number in range(20, 26)]))
    form = random.choice(("jsonl", "json", "csv", "bin", "story", "list"))
    split = random.choice(("train", "val", "test"))
    path, files = articles(folder, form)
    options = {f"corpus.{name}": others for name in ("train", "val", "test")} | {f"corpus.{split}": path}
    if form in ("jsonl", "csv") and random.random() < 0.3:
        options["corpus.mode"] = "sh2s"
    more = {"corpus.data_dir": str(folder), **SUMMARY_SIZES}
    return train_on(("task=summarization_jsonl", *SUMMARIZER), options | more, files, (f"corpus.{split}",))


def cnn_dailymail(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    place = folder / "cnn_dailymail"
    splits = {
        name: write_lines(place / f"{name}.jsonl", [article(number) for number in range(5)])
        for name in ("train", "val", "test")
    }
    options = {"corpus.data_dir": str(folder), **SUMMARY_SIZES}
    return train_on(("task=cnn_dailymail", *SUMMARIZER), options, list(splits.values()), ("corpus.data_dir",))


def sequences(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """A file of sequences, some of whose arrays have another type or shape than the task reads."""
    generator = np.random.default_rng(random.randrange(2**32))
    arrays: dict[str, Any] = {
        "inputs": generator.integers(0, 5, (12, 6)),
        "targets": np.arange(12) % 3,
        "lengths": generator.integers(1, 7, 12),
        "split": np.array(["train", "val", "test"] * 4),
    }
    path = folder / random.choice(("numbers.npz", "numbers.npz", "numbers.parquet"))
    for name in random.sample(list(arrays), random.choice((0, 1, 1, 2))):
        arrays[name] = random.choice(WRONG_ARRAYS)(arrays[name])
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        try:
            columns = {name: pyarrow.array(array.tolist()) for name, array in arrays.items()}
            parquet.write_table(pyarrow.table(columns), path)
        except (pyarrow.ArrowException, TypeError, OverflowError):  # what Parquet cannot hold
            return sequences(folder, random, patch)
    return train_on(("task=sequences", *MODEL), {"data": str(path)}, [path], ("data", "inputs", "targets", "lengths"))


WRONG_ARRAYS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    lambda array: array.astype(str),
    lambda array: array.astype("S"),
    lambda array: np.array([b"\xff\xfe"] * len(array)),
    lambda array: np.zeros(len(array), "datetime64[s]"),
    lambda array: np.zeros(len(array), np.complex64),
    lambda array: np.zeros(len(array), [("a", "i4"), ("b", "f8")]),
    lambda array: np.array([None, "a", 3, [1]] * 3, dtype=object),
    lambda array: np.full(array.shape, np.nan),
    lambda array: np.full(array.shape, np.inf),
    lambda array: np.full(array.shape, -1),
    lambda array: np.full(array.shape, 2**62),
    lambda array: np.full(array.shape, 2**64 - 1, np.uint64),
    lambda array: np.zeros(array.shape, bool),
    lambda array: array[:-1],
    lambda array: array[:0],
    lambda array: array[:, None],
    lambda array: array.reshape(len(array), -1)[:, :0],
    lambda array: np.broadcast_to(array[..., None, None], (*array.shape, 2, 2)),
    lambda array: np.array(3),
)


def cached_text(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """The cache of a text; the same is read from it, or made again."""
    patch.setenv("GYRAL_CACHE", str(folder / "user"))
    path = folder / "text.txt"
    path.write_text(TEXT)

    def read() -> list[Any]:
        corpus = load_file(path, folder)
        return [corpus.vocabulary.symbols, *(corpus.splits[name].tolist() for name in ("train", "val", "test"))]

    expected = read()
    return Input([*(folder / ".cache").iterdir()], (), read, expected=expected)


def cached_ngrams(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    (folder / "text.txt").write_text(TEXT)
    read = functools.partial(ngrams.evaluate_once, load_file(folder / "text.txt", folder), 2, [folder / "scores"])
    expected = read()
    return Input([*(folder / "scores").iterdir()], (), read, expected=expected)


def cached_articles(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """The cache of a corpus of articles, or a part of it that an interrupted preparation has left."""
    from gyral.applications.summarization.data import corpus, preparation

    patch.setenv("GYRAL_CACHE", str(folder / "user"))
    path = write_lines(folder / "articles.jsonl", [article(number) for number in range(20)])
    patch.setattr(preparation, "BLOCK", 8)

    def read(data_dir: Path = folder) -> list[Any]:
        found = corpus.load(data_dir, train=path, val=path, test=path, processes=1)
        bounds = {split: numbers.tolist() for split, numbers in found.bounds.items()}
        return [found.words, found.vocabulary.symbols, found.tokens.tolist(), bounds]

    (folder / "other").mkdir()
    expected = read(folder / "other")
    if random.random() < 0.5:
        with patch.context() as stopped:
            stopped.setattr(preparation, "_join", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                read()
        parts = sorted((folder / ".cache").glob("*.parts/*.npz"))
        assert len(parts) == 9
        return Input(parts, (), read, expected=expected)
    read()
    return Input(sorted((folder / ".cache").glob("*/*")), (), read, expected=expected)


def generated_from(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """A file that `gyral generate` reads."""
    option = random.choice(("surprisal", "story", "input", "out"))
    path = folder / "given.txt"
    if option == "surprisal":
        level = random.choice(("char", "word", "byte"))
        vocabulary = Vocabulary.of(Vocabulary(level, ()).segment(TEXT), level, 1)
        path.write_text(TEXT)
        return Input([path], (option,), lambda: read_text(str(path), vocabulary))
    if option == "story":
        path.write_text(STORY)
        return Input([path], (option,), lambda: list(read_lines(str(path))))
    if option == "input":
        name, files = articles(folder, random.choice(("jsonl", "csv", "bin", "story", "list")))
        return Input(files, (option,), lambda: list(read_articles(name, Report())))
    write_lines(path, [{"number": number, "place": "a", "summary": ["b"], "score": 0.5} for number in range(1, 4)])

    def read() -> None:
        with Output(path):
            pass

    return Input([path], (option,), read)


def downloaded(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """An archive that `gyral fetch` downloads, or what an interrupted download has left."""
    content = TEXT.encode()
    file = PublishedFile("text.txt", len(content), hashlib.sha256(content).hexdigest())
    archive = folder / "from" / random.choice(("text.zip", "text.tgz", "text.txt"))
    archive.parent.mkdir()
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed_file:
            packed_file.writestr("a/text.txt", content)
    elif archive.suffix == ".tgz":
        with tarfile.open(archive, "w:gz") as tarred:
            info = tarfile.TarInfo("a/text.txt")
            info.size = len(content)
            tarred.addfile(info, io.BytesIO(content))
    else:
        archive.write_bytes(content)
    catalogue = {"small": PublishedCorpus((file,), (archive.as_uri(),), "free")}
    left = folder / "small" / f"{archive.name}.part"
    left.parent.mkdir()
    left.write_bytes(archive.read_bytes()[:100])
    (folder / "small" / "text.txt").write_bytes(content)
    damaged = random.choice(([archive], [left], [folder / "small" / "text.txt"]))
    if damaged != [folder / "small" / "text.txt"]:
        (folder / "small" / "text.txt").unlink()

    def read() -> bytes:
        download.fetch("small", folder, catalogue)
        return (folder / "small" / "text.txt").read_bytes()

    return Input(damaged, (), read, is_remote=damaged == [archive])


COMMANDS: tuple[Maker, ...] = (text_file, own_articles, sequences, published_text, babi, cnn_dailymail)
LOADERS: tuple[Maker, ...] = (*COMMANDS, cached_text, cached_articles, cached_ngrams, generated_from, downloaded)
