"""Corpora for language modelling: published corpora, any text file, and a small synthetic text."""

import codecs
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gyral.core.checks import check_choice, check_integer, check_real
from gyral.core.digests import digest_of
from gyral.core.errors import OptionError, UserError
from gyral.core.inputs import decode, is_packed, open_input, path_of, read_bytes
from gyral.core.measures import SPLITS
from gyral.data.catalogue import CATALOGUE, PublishedFile, has_file
from gyral.data.corpus_cache import Prepared, Writer, load_or_prepare
from gyral.data.text.synthetic import synthetic_text
from gyral.data.treebank.sentences import SAMPLE, treebank_sentences
from gyral.data.vocabulary import END_OF_LINE, LEVELS, Symbols, Vocabulary, split_words

FORMAT = 1  # version of the encoding; increment it to invalidate all earlier caches
SYNTHETIC = "own_text"  # name of the synthetic corpus


@dataclass(frozen=True)
class Corpus:
    """A text in three splits.

    Attributes:
        name: name of the corpus.
        vocabulary: the symbols of the text, which are characters, words or bytes: `vocabulary.level`.
        splits: "train", "val" and "test", each (n,) unsigned integers of type `vocabulary.dtype`, memory-mapped and
            read-only.
    """

    name: str
    vocabulary: Vocabulary
    splits: dict[str, np.ndarray]

    @property
    def level(self) -> str:
        """Kind of the symbols: "char", "word" or "byte"."""
        return self.vocabulary.level


class TextCorpus(NamedTuple):
    """The files of a published corpus and their conversion to a text.

    Attributes:
        folder: name of the corpus in `gyral.data.catalogue.CATALOGUE` and of its folder in the data folder.
        files: one file for each split, or one file that is split 90/5/5.
        level: level of the vocabulary.
        read: converts the content of a file to symbols.
    """

    folder: str
    files: tuple[PublishedFile, ...]
    level: str
    read: Callable[[bytes], Symbols]


TEXT_CORPORA = {
    # each character is followed by a space, and a space is written as _
    "ptb_char": TextCorpus(
        "ptb", CATALOGUE["ptb"].derived, "char", lambda content: content[::2].decode().replace("_", " ")
    ),
    "ptb_word": TextCorpus("ptb", CATALOGUE["ptb"].files, "word", lambda content: split_words(content.decode())),
    "text8": TextCorpus("text8", CATALOGUE["text8"].files, "char", bytes.decode),
    "enwik8": TextCorpus("enwik8", CATALOGUE["enwik8"].files, "byte", bytes),
}


def load(name: str, data_dir: str | Path, exclude: str | None = None) -> Corpus:
    """Return a published corpus from its files, whose checksums are verified.

    The vocabulary contains the symbols of the training split. text8 and enwik8 are one file; their vocabulary contains
    the symbols of the whole file, so that it has the 27 and 205 symbols reported in publications.

    ==========  ===========================  ===========  =========  =========  =======
    name        symbols                      train        val        test       number
    ==========  ===========================  ===========  =========  =========  =======
    ptb_char    characters                   5,017,482    393,042    442,423    50
    ptb_word    words, `<eos>` at line ends  929,589      73,760     82,430     10,000
    text8       characters                   90,000,000   5,000,000  5,000,000  27
    enwik8      bytes                        90,000,000   5,000,000  5,000,000  205
    ==========  ===========================  ===========  =========  =========  =======

    Args:
        name: name of the corpus, from the table.
        data_dir: data folder, which contains the files in a folder `ptb`, `text8` or `enwik8`.
        exclude: "treebank": the training split of ptb_word lacks the sentences of the parsed sample of the Treebank, so
            that they are unseen text: 37,519 of 42,068 sentences remain, with 834,228 words. The vocabulary is the
            same. None: the training split is complete.

    Raises:
        OptionError: the name is unknown; a file does not exist or is not the published file; the corpus has no
            sentences to exclude.
    """
    if exclude is not None and check_choice("exclude", exclude, (SAMPLE,)) and name != "ptb_word":
        raise OptionError("exclude", exclude, f"must be null for {name}; ptb_word has sentences")
    check_load(name, data_dir)
    corpus = TEXT_CORPORA[name]
    folder = Path(data_dir) / corpus.folder
    for file in corpus.files:
        try:
            has_file(folder, file)
        except UserError as error:
            raise OptionError("name", name, str(error)) from None
        except OSError as error:
            raise OptionError("name", name, f"{folder / file.name} cannot be read ({error.strerror})") from None

    def build() -> tuple[Vocabulary, dict[str, Symbols]]:
        texts = [corpus.read(read_bytes("name", name, folder / file.name)) for file in corpus.files]
        pieces = dict(zip(SPLITS, texts, strict=True)) if len(texts) == len(SPLITS) else cut(texts[0], 0.05, 0.05)
        vocabulary = Vocabulary.of(texts[0], corpus.level)
        if exclude is not None:
            pieces["train"] = without_sentences(pieces["train"], treebank_sentences(data_dir))
        return vocabulary, pieces

    left_out = [] if exclude is None else [f"without {exclude}", CATALOGUE[exclude].files[0].sha256]
    identity = [*(file.sha256 for file in corpus.files), *left_out]
    return _load_or_build(name, identity, data_dir, build, ("name", name))


def check_load(name: str, data_dir: str | Path) -> None:
    """Check that the files of a corpus exist, which `gyral train` does before it imports PyTorch.

    Args:
        name, data_dir: see `load`.

    Raises:
        OptionError: the name is unknown, or a file does not exist.
    """
    corpus = TEXT_CORPORA[check_choice("name", name, tuple(TEXT_CORPORA))]
    for path in (Path(data_dir) / corpus.folder / file.name for file in corpus.files):
        if not os.path.lexists(path):
            origin = CATALOGUE[corpus.folder].origin
            reason = f"{path} does not exist; `gyral fetch {corpus.folder}` downloads it {origin}"
            raise OptionError("name", name, reason)


def without_sentences(words: Symbols, excluded: set[tuple[str, ...]]) -> list[str]:
    """Return the words of a text without the sentences, between `<eos>` and `<eos>`, that are in a set."""
    kept: list[str] = []
    sentence: list[str] = []
    for word in map(str, words):
        sentence.append(word)
        if word == END_OF_LINE:
            kept += sentence if tuple(sentence[:-1]) not in excluded else []
            sentence = []
    return kept + sentence


def load_file(
    path: str | Path | None,
    data_dir: str | Path,
    *,
    level: str = "char",
    val_fraction: float = 0.05,
    test_fraction: float = 0.05,
    minimum_count: int | None = None,
) -> Corpus:
    """Return any text file as a corpus. The test split is its end, and the validation split precedes it.

    Args:
        path: path of a file, in UTF-8 unless the level is "byte"; line ends are not converted, and a byte order mark is
            removed. None: the synthetic text of `gyral.data.text.synthetic.synthetic_text`.
        data_dir: data folder, which contains the cache.
        level: kind of symbols, see `gyral.data.vocabulary.Vocabulary`.
        val_fraction, test_fraction: fractions of the symbols.
        minimum_count: with 2 or more, symbols that occur less often in the training split become `<unk>`; with 1, a
            symbol that does not occur in the training split is an error. None: 2 for words, because longer texts
            contain new words, and 1 otherwise.

    Raises:
        OptionError: the file cannot be read, is empty, or is not in UTF-8; an option is out of its bounds; a split has
            less than two symbols; a symbol does not occur in the training split.
    """
    check_choice("level", level, LEVELS)
    fractions = check_real("val_fraction", val_fraction, above=0), check_real("test_fraction", test_fraction, above=0)
    if sum(fractions) >= 1:
        reason = f"must be less than 1 in sum with val_fraction, {val_fraction}"
        raise OptionError("test_fraction", test_fraction, reason)
    least = (2 if level == "word" else 1) if minimum_count is None else check_integer("minimum_count", minimum_count)

    def build() -> tuple[Vocabulary, dict[str, Symbols]]:
        content = synthetic_text().encode() if path is None else read_bytes("path", path)
        pieces = cut(_symbols(content, level, path), *fractions)
        for split, piece in pieces.items():
            if len(piece) < 2:
                reason = f"its {split} split has {len(piece)} {level}s, and must have at least 2"
                raise OptionError("path", path, reason)
        return Vocabulary.of(pieces["train"], level, least), pieces

    if path is None:
        name, identity = SYNTHETIC, [hashlib.sha256(synthetic_text().encode()).hexdigest()]
    else:
        name, identity = Path(path).name, _identify(path, level)
    digest, *marks = identity
    return _load_or_build(name, [digest, level, *fractions, least, *marks], data_dir, build, ("path", path))


def _load_or_build(
    name: str,
    key: list[Any],
    data_dir: str | Path,
    build: Callable[[], tuple[Vocabulary, dict[str, Symbols]]],
    option: tuple[str, Any],
) -> Corpus:
    """Return a corpus, encoded once and cached.

    Args:
        name, key, data_dir: see `gyral.data.corpus_cache.load_or_prepare`.
        build: returns the vocabulary and the symbols of each split.
        option: name and value of the option that selects the text, for errors.

    Raises:
        OptionError: a symbol is not in the vocabulary; no cache directory is writable.
    """

    def prepare() -> Callable[[Writer], None]:
        vocabulary, pieces = build()
        try:
            encoded = {split: vocabulary.encode(pieces[split], f"{split} split") for split in SPLITS}
        except UserError as error:
            raise OptionError(*option, str(error)) from None

        def write(writer: Writer) -> None:
            writer.about["vocabulary"] = vocabulary.to_json()
            for split, numbers in encoded.items():
                writer.append(split, numbers)

        return write

    def read(prepared: Prepared) -> Corpus:
        vocabulary = Vocabulary.from_json(prepared.about["vocabulary"])
        return Corpus(name, vocabulary, {split: prepared.arrays[split] for split in SPLITS})

    return load_or_prepare(name, [FORMAT, *key], data_dir, prepare, read)


def _identify(path: str | Path, level: str) -> list[str]:
    """Return the SHA-256 of a file, and a remark if it begins with a byte order mark, which earlier versions kept."""
    with open_input("path", path) as content:
        begin = content.read(len(codecs.BOM_UTF8))
        if not begin:
            raise OptionError("path", path, "is empty")
        content.seek(0)
        if is_packed(file := path_of(path)):
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        else:  # which a run needs, too
            digest = digest_of([("", file)])
    return [digest, *(["without byte order mark"] if level != "byte" and begin == codecs.BOM_UTF8 else [])]


def cut(text: Symbols, val_fraction: float, test_fraction: float) -> dict[str, Symbols]:
    """Split a text: the test split at the end, the validation split before it; split sizes are rounded."""
    test, val = round(len(text) * test_fraction), round(len(text) * val_fraction)
    end = len(text) - test
    return {"train": text[: end - val], "val": text[end - val : end], "test": text[end:]}


def _symbols(content: bytes, level: str, path: str | Path | None) -> Symbols:
    if level == "byte":
        return content
    try:
        text = decode(content)
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8: {error.reason}; convert it, or set level=byte, which reads any file"
        raise OptionError("path", path, reason) from None
    return split_words(text) if level == "word" else text
