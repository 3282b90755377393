"""The nouns of WordNet 3.0 from its own files, as described in its manual page wndb(5WN).

Synsets have the names of NLTK, such as dog.n.01: the first word, the part of speech, and the number of the synset among
the meanings of that word.
"""

from collections.abc import Iterator
from pathlib import Path

from gyral.core.errors import UserError
from gyral.core.inputs import check_readable

HYPERNYMS = ("@", "@i")  # symbols of pointers to a more general synset, and to the synset of which this is an instance


def read_hypernyms(folder: Path) -> list[tuple[str, str]]:
    """Return the direct hypernyms of all nouns: general and specific synsets.

    Args:
        folder: WordNet's folder with data.noun and index.noun.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    names, hypernyms = _read_synsets(folder)
    return [(names[general], names[specific]) for specific, found in hypernyms.items() for general in found]


def _read_synsets(folder: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the names and the offsets of the direct hypernyms of all nouns by their offsets in data.noun."""
    meanings: dict[tuple[str, str], int] = {}  # the number of a synset among the meanings of a word
    for fields in _lines(folder / "index.noun"):
        offsets = fields[int(fields[3]) + 6 :]
        meanings.update({(fields[0], offset): number for number, offset in enumerate(offsets, start=1)})
    names, hypernyms = {}, {}
    for fields in _lines(folder / "data.noun"):
        offset, word, words = fields[0], fields[4].lower(), int(fields[3], 16)
        names[offset] = f"{word}.n.{meanings[word, offset]:02d}"
        pointers = fields[5 + 2 * words :]  # symbol, offset, part of speech, source and target of each
        symbols = zip(pointers[0::4], pointers[1::4], strict=False)
        hypernyms[offset] = [target for symbol, target in symbols if symbol in HYPERNYMS]
    return names, hypernyms


def _lines(path: Path) -> Iterator[list[str]]:
    """Yield the fields of each line of one of WordNet's files, without the license at its beginning and glosses."""
    with check_readable("hierarchy", path.parent, path), path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            fields = line.partition(" | ")[0].split()
            if line.startswith("  "):
                continue
            if len(fields) < 6 or not fields[3].isalnum():
                raise UserError(f"{path}, line {number}: is not in WordNet's format")
            yield fields
