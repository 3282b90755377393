"""Parsed sentences in the form of the evaluation of Shen et al. (ICLR 2019).

Words have one of 36 tags of parts of speech; punctuation marks, currency signs and traces are left out.
Words are in lower case, and each run of digits is `N`. The code of the paper: yikangshen/Ordered-Neurons on GitHub,
data_ptb.py.
"""

import itertools
import re
import zipfile
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

from gyral.core.errors import OptionError, UserError
from gyral.core.inputs import read_text
from gyral.data.catalogue import CATALOGUE, has_file
from gyral.data.treebank.brackets import Node, read_trees
from gyral.data.vocabulary import UNKNOWN

SAMPLE = "treebank"  # name of the sample of the Penn Treebank, sections 00 and 01 of the Wall Street Journal
SUFFIX = ".mrg"
# Parts of speech of words; traces, currency signs and punctuation marks have other tags.
WORD_TAGS = frozenset(
    (
        *("CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS", "MD", "NN", "NNS", "NNP", "NNPS", "PDT"),
        *("POS", "PRP", "PRP$", "RB", "RBR", "RBS", "RP", "SYM", "TO", "UH", "VB", "VBD", "VBG", "VBN", "VBP"),
        *("VBZ", "WDT", "WP", "WP$", "WRB"),
    )
)
CURRENCY_TAGS = frozenset(("$", "#"))  # words of the language model's text, but not of this evaluation
# The text of the language model also writes a percent sign as N.
NUMBER = re.compile(r"[-+]?[\d.,:/\\-]*\d[\d.,:/\\-]*|%")


class Constituent(NamedTuple):
    """A constituent: the words from `start` to before `end`, and its label without functions, such as NP."""

    start: int
    end: int
    label: str


class ParsedSentence(NamedTuple):
    """A sentence and its constituents.

    Attributes:
        words: the words, at least one.
        constituents: all constituents with at least one word, in the order of their opening brackets.
    """

    words: tuple[str, ...]
    constituents: tuple[Constituent, ...]


def load(source: str | Path, data_dir: str | Path, option: str = "parse") -> list[ParsedSentence]:
    """Return the sentences of a treebank that have at least one word.

    Args:
        source: "treebank" for NLTK's sample of the Penn Treebank, 3,914 sentences; or a file in brackets; or a folder
            with files whose names end in .mrg, at any depth.
        data_dir: data folder, which contains the sample.
        option: name of the option that selects the treebank, for errors.

    Raises:
        OptionError: the treebank does not exist, or a file is not in brackets.
    """
    try:
        found = [parse_sentence(tree) for tree in _trees(source, Path(data_dir), option)]
    except OptionError:
        raise
    except UserError as error:
        raise OptionError(option, source, str(error)) from None
    sentences = [sentence for sentence in found if sentence.words]
    if not sentences:
        raise OptionError(option, source, "has no sentence with words tagged as in the Penn Treebank")
    return sentences


def parse_sentence(tree: Node) -> ParsedSentence:
    """Return the words and constituents of a tree."""
    words: list[str] = []
    found: list[tuple[int, Constituent]] = []  # with the numbers of their opening brackets
    brackets = itertools.count()
    outside = Node("", (tree,))
    # the nodes that are open, with the number of the bracket, the first word, and the children that are not read yet
    path = [(next(brackets), 0, outside, iter(outside.children))]
    while path:
        number, start, node, children = path[-1]
        child = next(children, None)
        if child is None:
            path.pop()
            if len(words) > start and node.label:
                found.append((number, Constituent(start, len(words), re.split("[-=]", node.label)[0])))
        elif isinstance(child, Node):
            if child.label in WORD_TAGS and len(child.children) == 1 and isinstance(child.children[0], str):
                words.append(re.sub("[0-9]+", "N", child.children[0].lower()))
            else:
                path.append((next(brackets), len(words), child, iter(child.children)))
    return ParsedSentence(tuple(words), tuple(constituent for _, constituent in sorted(found)))


def treebank_sentences(data_dir: str | Path, known: Container[str] | None = None) -> set[tuple[str, ...]]:
    """Return the sentences of the Treebank's sample in the form of `ptb.train.txt`, to exclude them from training.

    Numbers and the percent sign are `N`, and words that the training text does not have are `<unk>`. In this form
    3,910 of the 3,914 sentences are lines of the training text; it lacks the other four, which are lists of names.

    Args:
        data_dir: data folder, which contains the sample.
        known: the words of the training text. If None, `ptb.train.txt` in the data folder determines them.

    Raises:
        OptionError: the sample or the training text does not exist, or is not the published file.
    """
    if known is None:
        text = Path(data_dir) / "ptb" / "ptb.train.txt"
        known = set(read_text("paths.data_dir", data_dir, text).split())
    return {
        tuple(word if word in known else UNKNOWN for word in _training_words(tree))
        for tree in _trees(SAMPLE, Path(data_dir), "exclude")
    }


def _training_words(tree: Node) -> Iterator[str]:
    """Yield the words of a tree in the form of Mikolov's text, which differs from the form of the evaluation."""
    for tag, word in tree.leaves():
        if tag in WORD_TAGS or tag in CURRENCY_TAGS:
            yield "N" if NUMBER.fullmatch(word) else word.lower()


def _trees(source: str | Path, data_dir: Path, option: str) -> Iterator[Node]:
    for place, text in _texts(source, data_dir, option):
        yield from read_trees(text, place)


def _texts(source: str | Path, data_dir: Path, option: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each file of a treebank, in the order of their names."""
    if source == SAMPLE:
        yield from _sample(data_dir, option)
        return
    path = Path(source)
    files = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not files:
        raise OptionError(option, source, f"has no file whose name ends in {SUFFIX}")
    for file in files:
        yield str(file), read_text(option, source, file)


def _sample(data_dir: Path, option: str) -> Iterator[tuple[str, str]]:
    (archive,) = CATALOGUE[SAMPLE].files
    path = data_dir / SAMPLE / archive.name
    try:
        found = has_file(path.parent, archive)
    except OSError as error:
        raise OptionError(option, SAMPLE, f"{path} cannot be read ({error.strerror})") from None
    if not found:
        reason = f"{path} does not exist; `gyral fetch {SAMPLE}` downloads it {CATALOGUE[SAMPLE].origin}"
        raise OptionError(option, SAMPLE, reason)
    with zipfile.ZipFile(path) as zipped:
        for name in sorted(zipped.namelist()):
            if name.startswith("treebank/combined/") and name.endswith(SUFFIX):
                yield name, zipped.read(name).decode("ascii")
