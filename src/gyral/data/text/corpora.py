"""Corpora for language modelling: published ones, any file, and a small text of our own.

A corpus is encoded once. Its numbers are kept in a cache and mapped into memory from there, so that a large one is at
hand at once and processes share it.
"""

import hashlib
import json
import logging
import os
import random
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gyral.core.checks import check_choice, check_integer, check_real
from gyral.core.errors import OptionError
from gyral.data.download import SOURCES, File, is_there, sha256
from gyral.data.vocabulary import LEVELS, Symbols, Vocabulary, split_words

log = logging.getLogger(__name__)

SPLITS = ("train", "val", "test")
CACHE = ".cache"  # in the data folder
FORMAT = 1  # of what is cached; another number leaves all that was cached before unused
OWN_TEXT = "own_text"
OWN_SIZE = 300_000  # characters


@dataclass(frozen=True)
class Corpus:
    """A text in three splits.

    Attributes:
        name: of the corpus.
        vocabulary: of its symbols, which are characters, words or bytes: `vocabulary.level`.
        splits: "train", "val" and "test", each (n,) unsigned integers of type `vocabulary.dtype`, mapped from a file
            and read-only.
    """

    name: str
    vocabulary: Vocabulary
    splits: dict[str, np.ndarray]

    @property
    def level(self) -> str:
        """What a symbol is: "char", "word" or "byte"."""
        return self.vocabulary.level


class Published(NamedTuple):
    """A corpus as it is used in publications.

    Attributes:
        source: its name in `gyral.data.download.SOURCES`.
        files: one a split, or one that is cut 90/5/5.
        level: of its vocabulary.
        read: makes the symbols from a file's content.
    """

    source: str
    files: tuple[File, ...]
    level: str
    read: Callable[[bytes], Symbols]


PUBLISHED = {
    # each character is followed by a space, and a space is written _
    "ptb_char": Published(
        "ptb", SOURCES["ptb"].derived, "char", lambda content: content[::2].decode().replace("_", " ")
    ),
    "ptb_word": Published("ptb", SOURCES["ptb"].files, "word", lambda content: split_words(content.decode())),
    "text8": Published("text8", SOURCES["text8"].files, "char", bytes.decode),
    "enwik8": Published("enwik8", SOURCES["enwik8"].files, "byte", bytes),
}


def load(name: str, data_dir: str | Path) -> Corpus:
    """Return a published corpus from its files, whose checksums are checked.

    The vocabulary is that of the training split; of text8 and enwik8, which are one file, it is that of the file, as
    the 27 and 205 symbols of publications are.

    ==========  ==========================  ===========  =========  =========  =======
    name        symbols                     train        val        test       number
    ==========  ==========================  ===========  =========  =========  =======
    ptb_char    characters                  5,017,482    393,042    442,423    50
    ptb_word    words, `<eos>` ends a line  929,589      73,760     82,430     10,000
    text8       characters                  90,000,000   5,000,000  5,000,000  27
    enwik8      bytes                       90,000,000   5,000,000  5,000,000  205
    ==========  ==========================  ===========  =========  =========  =======

    Args:
        name: as above.
        data_dir: the data folder; the files lie in its folder `ptb`, `text8` or `enwik8`.

    Raises:
        OptionError: another name; a file is not there, or is not the published one.
    """
    published = PUBLISHED[check_choice("name", name, tuple(PUBLISHED))]
    folder = Path(data_dir) / published.source
    for file in published.files:
        try:
            found = is_there(folder, file)
        except OptionError as error:
            raise OptionError(f"name={name}: {error}") from None
        if not found:
            origin = SOURCES[published.source].origin
            raise OptionError(f"name={name}: {folder / file.name} is not there; `make data` fetches it {origin}")

    def build() -> tuple[Vocabulary, dict[str, Symbols]]:
        texts = [published.read((folder / file.name).read_bytes()) for file in published.files]
        pieces = dict(zip(SPLITS, texts, strict=True)) if len(texts) == len(SPLITS) else cut(texts[0], 0.05, 0.05)
        return Vocabulary.of(texts[0], published.level), pieces

    return _cached(name, [file.sha256 for file in published.files], data_dir, build, f"name={name}")


def load_file(
    path: str | Path | None,
    data_dir: str | Path,
    *,
    level: str = "char",
    val_fraction: float = 0.05,
    test_fraction: float = 0.05,
    minimum_count: int | None = None,
) -> Corpus:
    """Return any text file as a corpus: its end is the test split, what is before that the validation split.

    Args:
        path: of a file, in UTF-8 unless the level is "byte"; line ends are left as they are. None: `own_text()`.
        data_dir: the data folder, where the cache lies.
        level: what a symbol is, see `gyral.data.vocabulary.Vocabulary`.
        val_fraction, test_fraction: of the symbols.
        minimum_count: with 2 or more, symbols that training has less often are `<unk>`; with 1 a symbol that training
            lacks is an error. None: 2 for words, of which every longer text has new ones, and 1 for the others.

    Raises:
        OptionError: no such file, an empty one, or one that is not in UTF-8; an option out of its bounds; a split of
            less than two symbols; a symbol that training lacks.
    """
    check_choice("level", level, LEVELS)
    fractions = check_real("val_fraction", val_fraction, above=0), check_real("test_fraction", test_fraction, above=0)
    if sum(fractions) >= 1:
        raise OptionError(f"test_fraction={test_fraction}: must be less than 1 with val_fraction, {val_fraction}")
    least = (2 if level == "word" else 1) if minimum_count is None else check_integer("minimum_count", minimum_count)
    file = None if path is None else Path(path)

    def build() -> tuple[Vocabulary, dict[str, Symbols]]:
        content = own_text().encode() if file is None else file.read_bytes()
        pieces = cut(_symbols(content, level, f"path={path}"), *fractions)
        for split, piece in pieces.items():
            if len(piece) < 2:
                raise OptionError(f"path={path}: its {split} split has {len(piece)} {level}s, and must have at least 2")
        return Vocabulary.of(pieces["train"], level, least), pieces

    try:
        if file is not None and file.stat().st_size == 0:
            raise OptionError(f"path={path}: is empty")
        digest = hashlib.sha256(own_text().encode()).hexdigest() if file is None else sha256(file)
    except OSError as error:
        raise OptionError(f"path={path}: cannot be read ({error.strerror})") from None
    name = OWN_TEXT if file is None else file.name
    return _cached(name, [digest, level, *fractions, least], data_dir, build, f"path={path}")


def cut(text: Symbols, val_fraction: float, test_fraction: float) -> dict[str, Symbols]:
    """Cut a text into splits: the last symbols are for testing, those before for validation; fractions are rounded."""
    test, val = round(len(text) * test_fraction), round(len(text) * val_fraction)
    end = len(text) - test
    return {"train": text[: end - val], "val": text[end - val : end], "test": text[end:]}


def _symbols(content: bytes, level: str, place: str) -> Symbols:
    if level == "byte":
        return content
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise OptionError(
            f"{place}: is not UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}; convert it, or set "
            "level=byte, which reads any file"
        ) from None
    return split_words(text) if level == "word" else text


def _cached(
    name: str,
    key: list[Any],
    data_dir: str | Path,
    build: Callable[[], tuple[Vocabulary, dict[str, Symbols]]],
    place: str,
) -> Corpus:
    """Return the corpus that the key stands for, from a cache; where none has it whole, build, encode and keep it.

    A corpus is two files, numbers and what describes them, whose content depends on the key alone: it does not matter
    which process writes which of them last. An error in the text begins with `place`, the option that named it.
    """
    digest = hashlib.sha256(json.dumps([FORMAT, name, *key]).encode()).hexdigest()[:16]
    stem = f"{name[:40]}-{digest}"
    folders = cache_folders(Path(data_dir))
    for folder in folders:
        corpus = _read(folder, stem, name)
        if corpus is not None:
            return corpus
    log.info("encoding %s, once", name)
    vocabulary, pieces = build()
    encoded = [vocabulary.encode(pieces[split], f"{place}: {split} split") for split in SPLITS]
    for folder in folders:
        try:
            _write(folder, stem, vocabulary, encoded)
            break
        except OSError as error:
            log.warning("%s: %s", folder, error.strerror)
    corpus = _read(folder, stem, name)
    if corpus is None:
        raise OptionError(f"data_dir={data_dir}: neither it nor {folder} can be written, to keep {name} in")
    return corpus


def cache_folders(data_dir: Path) -> list[Path]:
    """Return where encoded corpora may be kept: the data folder, if it is there and writable, and the user's cache."""
    own = os.environ.get("GYRAL_CACHE")
    user = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gyral"
    # by its mode as well: root may write anywhere, and a folder that is protected is so for a reason
    writable = data_dir.is_dir() and data_dir.stat().st_mode & 0o222 and os.access(data_dir, os.W_OK)
    return [data_dir / CACHE, user] if writable else [user]


def _read(folder: Path, stem: str, name: str) -> Corpus | None:
    """Return a corpus from a cache, None where it is not or is damaged."""
    try:
        saved = json.loads((folder / f"{stem}.json").read_text())
        numbers = np.load(folder / f"{stem}.npy", mmap_mode="r")
        description = saved["description"]
        if saved["checksum"] != _checksum(numbers, description):
            raise ValueError("checksum")
        bounds = np.cumsum([0, *description["lengths"]])
        splits = {split: numbers[bounds[i] : bounds[i + 1]] for i, split in enumerate(SPLITS)}
        return Corpus(name, Vocabulary.from_json(description["vocabulary"]), splits)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        log.warning("%s: is damaged (%s) and made anew", folder / stem, error)
        return None


def _write(folder: Path, stem: str, vocabulary: Vocabulary, encoded: list[np.ndarray]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    numbers = np.concatenate(encoded)
    description = {"lengths": [len(piece) for piece in encoded], "vocabulary": vocabulary.to_json()}
    saved = {"description": description, "checksum": _checksum(numbers, description)}
    with tempfile.TemporaryDirectory(dir=folder) as made:
        np.save(Path(made, f"{stem}.npy"), numbers)
        Path(made, f"{stem}.json").write_text(json.dumps(saved))
        for suffix in ("npy", "json"):
            os.replace(Path(made, f"{stem}.{suffix}"), folder / f"{stem}.{suffix}")


def _checksum(numbers: np.ndarray, description: dict[str, Any]) -> int:
    return zlib.crc32(numbers.data, zlib.crc32(json.dumps(description, sort_keys=True).encode()))


# A grammar of our own: what it writes needs no file and no licence, and the same seed writes the same for ever.
NOUNS = {
    "singular": ["dog", "cat", "child", "farmer", "teacher", "key", "boat", "letter", "river", "house"],
    "plural": ["dogs", "cats", "children", "farmers", "teachers", "keys", "boats", "letters", "rivers", "houses"],
}
VERBS = {
    "singular": ["sees", "likes", "follows", "hears", "finds", "holds"],
    "plural": ["see", "like", "follow", "hear", "find", "hold"],
}
RESTING = {
    "singular": ["sleeps", "waits", "sings", "falls", "was old", "was small", "was near home"],
    "plural": ["sleep", "wait", "sing", "fall", "were old", "were small", "were near home"],
}
NAMES = {"herself": ["anna", "maria", "julia"], "himself": ["paul", "peter", "oscar"]}
ADJECTIVES = ["old", "small", "red", "quiet", "happy", "strange"]
PLACES = ["near", "behind", "beside", "under"]
SPEECH = ["says", "thinks", "writes", "believes"]
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))


def own_text(size: int = OWN_SIZE, seed: int = 1) -> str:
    """Return sentences of a small grammar, for trying things out on a fresh machine, and for what a model has learnt.

    A sentence is a line, its words and signs separated by spaces, as in the Penn Treebank. Beyond the spelling of a
    hundred words it takes memory to predict

    - a verb's number, from its subject: "the dog that the farmers near the river follow sleeps .", with up to three
      clauses and their own subjects in between;
    - "herself" or "himself", from the name that is the subject, however much is inserted after it;
    - which bracket closes next, "( [ { } ] )", up to five deep, and that each quotation mark is closed.

    Args:
        size: characters, at least; the last sentence is written to its end.
        seed: of the choices.
    """
    uniform = random.Random(seed).random  # the one generator that Python promises to keep

    def choose(words: Any) -> Any:
        return words[int(uniform() * len(words))]

    def noun_phrase(number: str, depth: int) -> str:
        noun = choose(NOUNS[number])
        phrase = f"the {choose(ADJECTIVES)} {noun}" if uniform() < 0.3 else f"the {noun}"
        chance = uniform()
        other = choose(("singular", "plural"))
        if depth < 3 and chance < 0.15:
            return f"{phrase} {choose(PLACES)} {noun_phrase(other, depth + 1)}"
        if depth < 3 and chance < 0.3:
            return f"{phrase} that {noun_phrase(other, depth + 1)} {choose(VERBS[other])}"
        if depth < 3 and chance < 0.4:
            return f"{phrase} that {choose(VERBS[number])} {noun_phrase(other, depth + 1)}"
        return phrase

    def aside(depth: int) -> str:
        opening, closing = choose(BRACKETS)
        inner = clause(depth + 1) if uniform() < 0.6 else choose(ADJECTIVES)
        nested = f" {aside(depth + 1)}" if depth < 4 and uniform() < 0.4 else ""
        return f"{opening} {inner}{nested} {closing}"

    def clause(depth: int) -> str:
        inserted = f" {aside(depth)}" if depth < 4 and uniform() < 0.15 else ""
        chance = uniform()
        if chance < 0.2:
            pronoun = choose(tuple(NAMES))
            return f"{choose(NAMES[pronoun])}{inserted} {choose(VERBS['singular'])} {pronoun}"
        if chance < 0.35 and depth < 2:
            return f'{choose(NAMES[choose(tuple(NAMES))])}{inserted} {choose(SPEECH)} " {clause(depth + 1)} "'
        number, other = choose(("singular", "plural")), choose(("singular", "plural"))
        subject = noun_phrase(number, depth) + inserted
        if chance < 0.7:
            return f"{subject} {choose(RESTING[number])}"
        return f"{subject} {choose(VERBS[number])} {noun_phrase(other, depth)}"

    sentences, written = [], 0
    while written < size:
        sentences.append(f"{clause(0)} .\n")
        written += len(sentences[-1])
    return "".join(sentences)
