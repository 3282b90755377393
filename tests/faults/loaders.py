"""Everything that Gyral reads as data: small inputs, the options that name them, and what reads them."""

import functools
import hashlib
import inspect
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hydra.utils import get_object

from gyral.data import download
from gyral.data.catalogue import PublishedCorpus, PublishedFile
from gyral.data.text import ngrams
from gyral.data.text.corpora import TEXT_CORPORA, load_file
from gyral.data.text.synthetic import synthetic_text
from gyral.data.vocabulary import Vocabulary
from gyral.generation.surprisal import read_text
from tests.data.babi.conftest import put
from tests.faults.inputs import MODEL, Input, Maker, train_on
from tests.helpers.running import compose_choices
from tests.helpers.slices import offered

LETTERS = "the quick brown fox jumps over the lazy dog "  # so that training has all letters
TEXT = LETTERS + synthetic_text()[:2000].lower() + LETTERS
TEXT_SIZES = {"batch_size": 2, "window": 10, "eval_batch_size": 2, "warm_up": 2}


def text_file(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    path = folder / "my text.txt"
    path.write_text(TEXT)
    level = random.choice(("char", "word", "byte"))
    options = {"corpus.path": str(path), "corpus.data_dir": str(folder), "corpus.level": level, **TEXT_SIZES}
    named = ("corpus.path", "batch_size", "window")
    return train_on(("task=text_file", *MODEL), options, [path], named)


def automaton(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    path = folder / "automaton.json"
    rows = {"even": {"0": "even", "1": "odd"}, "odd": {"0": "odd", "1": "even"}}
    path.write_text(json.dumps({"states": [*rows], "alphabet": ["0", "1"], "start": "even", "transitions": rows}))
    options = {"automaton": str(path), "batch_size": 2, "eval_batch_size": 2, "val_batches": 1, "test_batches": 1}
    return train_on(("task=group", *MODEL), options, [path], ("automaton",))


def published_text(folder: Path, random: Random, patch: pytest.MonkeyPatch, name: str) -> Input:
    """Files in the form of ptb_char, ptb_word, text8 or enwik8, with their own checksums."""
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


def sequences(folder: Path, random: Random, patch: pytest.MonkeyPatch, suffix: str, is_wrong: bool) -> Input:
    """A file of sequences; in a wrong one, some arrays have another type or shape than the task reads."""
    generator = np.random.default_rng(random.randrange(2**32))
    arrays: dict[str, Any] = {
        "inputs": generator.integers(0, 5, (12, 6)),
        "targets": np.arange(12) % 3,
        "lengths": generator.integers(1, 7, 12),
        "split": np.array(["train", "val", "test"] * 4),
    }
    path = folder / f"numbers{suffix}"
    for name in random.sample(list(arrays), random.choice((1, 1, 2)) if is_wrong else 0):
        arrays[name] = random.choice(WRONG_ARRAYS)(arrays[name])
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".csv":
        columns = {}
        for name, array in arrays.items():
            texts = np.array([str(value) for value in np.ravel(array)])
            rows = texts.reshape(np.shape(array)) if texts.size and np.ndim(array) else np.full(12, "")
            own = rows.reshape(len(rows), -1).T
            columns |= {f"{name}{step}" if len(own) > 1 else name: cells for step, cells in enumerate(own.tolist())}
        lines = [columns, *zip(*columns.values(), strict=False)]
        path.write_text("".join(f"{','.join(line)}\n" for line in lines))
    elif path.suffix == ".jsonl":
        try:
            columns = {name: array.tolist() for name, array in arrays.items()}
            rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=False))
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        except TypeError:  # what JSON cannot hold
            return sequences(folder, random, patch, suffix, is_wrong)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        try:
            columns = {name: pyarrow.array(array.tolist()) for name, array in arrays.items()}
            parquet.write_table(pyarrow.table(columns), path)
        except (pyarrow.ArrowException, TypeError, OverflowError):  # what Parquet cannot hold
            return sequences(folder, random, patch, suffix, is_wrong)
    return train_on(("task=sequences", *MODEL), {"data": str(path)}, [path], ("data", "inputs", "targets", "lengths"))


def rows_of_steps(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """A CSV file with a step in each row."""
    generator = np.random.default_rng(random.randrange(2**32))
    lines = [
        f"p{row % 9},{row // 9},{generator.normal()},{'ab'[row % 2]}" for row in generator.permutation(36).tolist()
    ]
    path = folder / "steps.csv"
    path.write_text("\n".join(["person,hour,value,tag", *lines]))
    options = {"data": str(path), "sequence": "person", "time": "hour", "inputs": "value", "targets": "tag"}
    return train_on(("task=sequences", *MODEL), options, [path], tuple(options))


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
    return Input([*(folder / ".cache").glob("*/*")], (), read, expected=expected)


def cached_ngrams(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    (folder / "text.txt").write_text(TEXT)
    read = functools.partial(ngrams.evaluate_once, load_file(folder / "text.txt", folder), 2, [folder / "scores"])
    expected = read()
    return Input([*(folder / "scores").iterdir()], (), read, expected=expected)


def generated_from(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """A file that `gyral generate` reads."""
    path = folder / "given.txt"
    level = random.choice(("char", "word", "byte"))
    vocabulary = Vocabulary.of(Vocabulary(level, ()).segment(TEXT), level, 1)
    path.write_text(TEXT)
    return Input([path], ("surprisal",), lambda: read_text(str(path), vocabulary))


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


# What is read, by the option of the task that names it, "<task>.<option>", followed by a word if there are several
# forms, or by another description. `offered`: those of the applications, see tests/helpers/slices.py.
LOADERS: dict[str, Maker] = {
    "text_file.corpus.path": text_file,
    "text_file.corpus.data_dir": cached_text,
    "group.automaton": automaton,
    **{
        f"sequences.data {suffix}{' wrong' * is_wrong}": functools.partial(sequences, suffix=suffix, is_wrong=is_wrong)
        for suffix in (".npz", ".parquet", ".jsonl", ".csv")
        for is_wrong in (False, True)
    },
    "sequences.data .csv with steps": rows_of_steps,
    **{
        f"{name}.corpus.data_dir": functools.partial(published_text, name=name)
        for name in ("ptb_char", "ptb_word", "text8", "enwik8")
    },
    "cache of n-grams": cached_ngrams,
    "gyral generate surprisal": generated_from,
    "gyral fetch": downloaded,
    **offered("LOADERS", "faults"),
}


def options_of_files() -> list[str]:
    """Return the options of the tasks in conf/task whose values are files or folders, as the types of the code say."""
    found = []
    for task, options in compose_choices("task").items():
        sections = {"": options, **{f"{name}.": own for name, own in options.items() if isinstance(own, dict)}}
        for place, section in sections.items():
            if "_target_" in section:
                target = get_object(section["_target_"])
                # a class passes options on, and declares those of its data there
                made = [*inspect.getmro(target)] if inspect.isclass(target) else [target]
                made += [target.data_class] if getattr(target, "data_class", None) else []
                types = [each for one in made for each in inspect.signature(one).parameters.values()]
                names = {each.name for each in types if "Path" in str(each.annotation)}
                found += [f"{task}.{place}{name}" for name in names if name in section]
    return found
