"""The nouns of WordNet 3.0 from its own files, as described in its manual page wndb(5WN).

Synsets have the names of NLTK, such as dog.n.01: the first word, the part of speech, and the number of the synset among
the meanings of that word.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from gyral.applications.boxes.data.files import find_file
from gyral.core.errors import OptionError
from gyral.core.inputs import excerpt, open_input

DECIMAL, HEXADECIMAL = re.compile("[0-9]{1,4}"), re.compile("[0-9a-f]{2}")  # numbers of words in a line
HYPERNYMS = ("@", "@i")  # symbols of pointers to a more general synset, and to the synset of which this is an instance


def read_hypernyms(folder: Path) -> list[tuple[str, str]]:
    """Return the direct hypernyms of all nouns: general and specific synsets.

    Args:
        folder: WordNet's folder with data.noun and index.noun, or both with .gz at the end of their names.

    Raises:
        OptionError: a file is missing, cannot be read, or is not in WordNet's format.
    """
    names, hypernyms = _read_synsets(folder)
    pairs = [(general, specific) for specific, found in hypernyms.items() for general in found]
    if missing := next((general for general, _ in pairs if general not in names), None):
        raise OptionError("hierarchy", folder, f"{folder / 'data.noun'}: has no synset {excerpt([missing])}")
    return [(names[general], names[specific]) for general, specific in pairs]


def _read_synsets(folder: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the names and the offsets of the direct hypernyms of all nouns by their offsets in data.noun."""
    meanings: dict[tuple[str, str], int] = {}  # the number of a synset among the meanings of a word
    for fields in _lines(folder / "index.noun", DECIMAL):
        offsets = fields[int(fields[3]) + 6 :]
        meanings.update({(fields[0], offset): number for number, offset in enumerate(offsets, start=1)})
    names, hypernyms = {}, {}
    for fields in _lines(folder / "data.noun", HEXADECIMAL):
        offset, word, words = fields[0], fields[4].lower(), int(fields[3], 16)
        if (word, offset) not in meanings:
            reason = f"the synset {excerpt([offset])} is not one of {excerpt([word])} in index.noun"
            raise OptionError("hierarchy", folder, f"{folder / 'data.noun'}: {reason}")
        names[offset] = f"{word}.n.{meanings[word, offset]:02d}"
        pointers = fields[5 + 2 * words :]  # symbol, offset, part of speech, source and target of each
        symbols = zip(pointers[0::4], pointers[1::4], strict=False)
        hypernyms[offset] = [target for symbol, target in symbols if symbol in HYPERNYMS]
    return names, hypernyms


def _lines(path: Path, form: re.Pattern[str]) -> Iterator[list[str]]:
    """Yield the fields of each line of one of WordNet's files, without the license at its beginning and glosses.

    The fourth field, a number, must have a form.
    """
    with open_input("hierarchy", path.parent, find_file(path) or path) as file:
        for number, content in enumerate(file, start=1):
            line = content.decode(errors="replace")
            fields = line.partition(" | ")[0].split()
            if line.startswith("  "):
                continue
            if len(fields) < 6 or not form.fullmatch(fields[3]):
                raise OptionError("hierarchy", path.parent, f"{path}, line {number}: is not in WordNet's format")
            yield fields
