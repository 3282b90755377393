"""Vocabularies: the symbols of a text (characters, words or bytes) and their indices."""

import codecs
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np

from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import UserError

LEVELS = ("char", "word", "byte")
UNKNOWN = "<unk>"  # as in the word-level Penn Treebank
PADDING = "<pad>"
PADDING_ID = 0  # index of the padding symbol in every vocabulary that has one
END_OF_LINE = "<eos>"
BLOCK = 2**22  # characters per lookup, so that the memory use does not grow with the text

Symbols: TypeAlias = str | bytes | list[str]  # characters, bytes or words


class Vocabulary:
    """Symbols and their indices, from 0 in the order of `symbols`.

    Bytes are represented by the characters with code points 0 to 255.

    Args:
        level: kind of symbols. "char": characters, that is, Unicode code points; "word": text between white space, and
            `<eos>` for the end of a line; "byte": bytes of the text in UTF-8.
        symbols: different symbols. If `<unk>` is one of them, it replaces every symbol outside the vocabulary.

    Raises:
        OptionError: the level is unknown.
    """

    def __init__(self, level: str, symbols: Iterable[str]) -> None:
        self.level = check_choice("level", level, LEVELS)
        self.symbols = tuple(symbols)
        self.index = {symbol: index for index, symbol in enumerate(self.symbols)}
        self.dtype = np.min_scalar_type(max(len(self.symbols) - 1, 0))  # the smallest unsigned type for all indices
        # index of other symbols: the index of <unk>, or an index that no symbol has
        self._unknown = self.index.get(UNKNOWN, len(self.symbols))
        if level != "word":
            codes = {ord(symbol): index for symbol, index in self.index.items() if symbol != UNKNOWN}
            self._table = np.full(max(codes, default=0) + 2, self._unknown, dtype=np.uint32)
            self._table[list(codes)] = list(codes.values())

    @classmethod
    def of(cls, symbols: Symbols, level: str, minimum_count: int = 1) -> "Vocabulary":
        """Build the vocabulary of a training text.

        Characters and bytes are sorted by code point. Words are sorted by descending frequency and then by code points.
        If `<unk>` is added, it is the last symbol at the levels "char" and "byte".

        Args:
            symbols: symbols of the training text.
            level: kind of the symbols.
            minimum_count: with 2 or more, symbols that occur less often are replaced by `<unk>`, which is added.

        Raises:
            OptionError: `minimum_count` is below 1.
        """
        check_integer("minimum_count", minimum_count)
        counts: Mapping[str, int] = Counter(symbols) if isinstance(symbols, list) else _count(symbols)
        if minimum_count > 1:
            rare = sum(count for symbol, count in counts.items() if count < minimum_count and symbol != UNKNOWN)
            kept = {symbol: count for symbol, count in counts.items() if count >= minimum_count}
            counts = {**kept, UNKNOWN: counts.get(UNKNOWN, 0) + rare}
        if level == "word":
            return cls(level, sorted(counts, key=lambda symbol: (-counts[symbol], symbol)))
        return cls(level, sorted(counts, key=lambda symbol: (symbol == UNKNOWN, symbol)))

    def __len__(self) -> int:
        return len(self.symbols)

    def segment(self, text: str) -> Symbols:
        """Split a text into symbols."""
        if self.level == "word":
            return split_words(text)
        return text.encode() if self.level == "byte" else text

    def encode(self, text: Symbols, place: str = "text") -> np.ndarray:
        """Return the indices of the symbols of a text.

        Args:
            text: a text, or its symbols: words or bytes.
            place: name of the text, for the error.

        Returns:
            (n,) unsigned integers of type `dtype`.

        Raises:
            UserError: neither a symbol nor `<unk>` is in the vocabulary.
        """
        symbols = self.segment(text) if isinstance(text, str) else text
        if isinstance(symbols, list):
            found = map(self.index.get, symbols, repeat(self._unknown))
            return self._checked(np.fromiter(found, dtype=np.uint32, count=len(symbols)), symbols, 0, place)
        encoded = np.empty(len(symbols), dtype=self.dtype)
        for start, codes in _blocks(symbols):
            indices = self._table[np.minimum(codes, np.uint32(len(self._table) - 1))]
            encoded[start : start + len(codes)] = self._checked(indices, symbols, start, place)
        return encoded

    def _checked(self, indices: np.ndarray, symbols: Symbols, start: int, place: str) -> np.ndarray:
        """Return the indices of the symbols from `start` on as `dtype`, after a check that all symbols are known."""
        if UNKNOWN not in self.index and (unseen := indices == self._unknown).any():
            position = start + int(unseen.argmax())
            symbol = symbols[position]
            name = f"byte 0x{symbol:02x}" if isinstance(symbol, int) else repr(symbol)
            if self.level == "char":
                name += f" (U+{ord(str(symbol)):04X})"
            raise UserError(
                f"{place}: {name} at position {position} does not occur in the training text: remove or replace it, "
                f"or train on your own file with task.corpus.minimum_count=2, which replaces rare symbols by {UNKNOWN}"
            )
        return indices.astype(self.dtype)

    def decode(self, indices: Iterable[int]) -> str:
        """Return the text of indices: words are joined by spaces, `<eos>` ends a line, invalid UTF-8 becomes �."""
        decoder = Decoder(self.level)
        return "".join(decoder.add(self.symbols[index]) for index in indices) + decoder.end()

    def to_json(self) -> dict[str, Any]:
        """Return plain containers of strings from which `from_json` restores the vocabulary."""
        return {"level": self.level, "symbols": list(self.symbols)}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "Vocabulary":
        """Restore a vocabulary from the result of `to_json`."""
        return cls(saved["level"], saved["symbols"])


class Decoder:
    """Incremental conversion of symbols to text.

    Args:
        level: level of the vocabulary.
    """

    def __init__(self, level: str) -> None:
        self._level = level
        self._within_line = False
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, symbol: str) -> str:
        """Return the text that a symbol adds; the last byte of a character adds the character."""
        if self._level == "byte":
            return self._bytes.decode(symbol.encode("latin-1"))  # an added <unk> is not a byte; it stays readable
        if self._level == "char":
            return symbol
        ends = symbol == END_OF_LINE
        text = "\n" if ends else f" {symbol}" if self._within_line else symbol
        self._within_line = not ends
        return text

    def end(self) -> str:
        """Return the rest of the text: � if the last character is incomplete."""
        return self._bytes.decode(b"", final=True)


def split_words(text: str) -> list[str]:
    """Split a text at white space; each line end becomes the word `<eos>`."""
    return text.replace("\n", f" {END_OF_LINE} ").split()


def _blocks(symbols: str | bytes) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the code points in blocks, each with its start."""
    for start in range(0, len(symbols), BLOCK):
        block = symbols[start : start + BLOCK]
        if isinstance(block, bytes):
            yield start, np.frombuffer(block, dtype=np.uint8)
        elif block.isascii():
            yield start, np.frombuffer(block.encode(), dtype=np.uint8)
        else:
            yield start, np.frombuffer(block.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _count(symbols: str | bytes) -> dict[str, int]:
    """Return the number of occurrences of each character."""
    counts: Counter[int] = Counter()
    for _, codes in _blocks(symbols):
        found = np.bincount(codes)
        counts.update({int(code): int(found[code]) for code in found.nonzero()[0]})
    return {chr(code): count for code, count in counts.items()}
