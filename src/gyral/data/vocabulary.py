"""Symbols of a text, characters, words or bytes, and the integers that stand for them."""

import codecs
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np

from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError

LEVELS = ("char", "word", "byte")
UNKNOWN = "<unk>"  # as the word-level Penn Treebank has it
END_OF_LINE = "<eos>"
BLOCK = 2**22  # characters that are looked up at once: the memory this takes does not grow with the text

Symbols: TypeAlias = str | bytes | list[str]  # characters, bytes, words: what they are cut into


class Vocabulary:
    """Symbols and their numbers, 0 and up in the order of `symbols`.

    Bytes are named by the characters of the same code points, 0 to 255.

    Args:
        level: "char": a symbol is a character, a code point of Unicode; "word": what stands between white space, and
            the end of a line, `<eos>`; "byte": a byte of the text in UTF-8.
        symbols: all different; with `<unk>` among them it stands for every symbol that is not.

    Raises:
        OptionError: another level.
    """

    def __init__(self, level: str, symbols: Iterable[str]) -> None:
        self.level = check_choice("level", level, LEVELS)
        self.symbols = tuple(symbols)
        self.index = {symbol: index for index, symbol in enumerate(self.symbols)}
        self.dtype = np.min_scalar_type(max(len(self.symbols) - 1, 0))  # the smallest unsigned type that holds all
        # what is not a symbol: <unk>, else a number that no symbol has
        self._unknown = self.index.get(UNKNOWN, len(self.symbols))
        if level != "word":
            codes = {ord(symbol): index for symbol, index in self.index.items() if symbol != UNKNOWN}
            self._table = np.full(max(codes, default=0) + 2, self._unknown, dtype=np.uint32)
            self._table[list(codes)] = list(codes.values())

    @classmethod
    def of(cls, symbols: Symbols, level: str, minimum_count: int = 1) -> "Vocabulary":
        """Make the vocabulary of a training text.

        Characters and bytes are in the order of their code points, words by how often they occur, the most frequent
        first, and of equally frequent ones by their code points. An `<unk>` that is added comes last but among words.

        Args:
            symbols: the training text, of that level.
            minimum_count: with 2 or more, symbols that occur less often are taken for `<unk>`, which is added.

        Raises:
            OptionError: `minimum_count` below 1.
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
        """Return the symbols that a text consists of."""
        if self.level == "word":
            return split_words(text)
        return text.encode() if self.level == "byte" else text

    def encode(self, text: Symbols, place: str = "text") -> np.ndarray:
        """Return the numbers of a text's symbols.

        Args:
            text: a text, or its symbols: words or bytes.
            place: what the text is, for the error.

        Returns:
            (n,) unsigned integers of type `dtype`.

        Raises:
            OptionError: a symbol is not in the vocabulary, which has no `<unk>`.
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
        """Return the indices of symbols from `start` on in the smallest type, if all are in the vocabulary."""
        if UNKNOWN not in self.index and (unseen := indices == self._unknown).any():
            position = start + int(unseen.argmax())
            symbol = symbols[position]
            name = f"byte 0x{symbol:02x}" if isinstance(symbol, int) else repr(symbol)
            if self.level == "char":
                name += f" (U+{ord(str(symbol)):04X})"
            raise OptionError(
                f"{place}: {name} at position {position} does not occur in the training text: remove or replace it, "
                f"or train on a file of your own with minimum_count=2, which takes rare symbols for {UNKNOWN}"
            )
        return indices.astype(self.dtype)

    def decode(self, indices: Iterable[int]) -> str:
        """Return the text of numbers: words between spaces, `<eos>` as the end of a line, broken UTF-8 as �."""
        decoder = Decoder(self.level)
        return "".join(decoder.add(self.symbols[index]) for index in indices) + decoder.end()

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` makes the same vocabulary of: strings in plain containers."""
        return {"level": self.level, "symbols": list(self.symbols)}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "Vocabulary":
        """Return the vocabulary that `to_json` was called on."""
        return cls(saved["level"], saved["symbols"])


class Decoder:
    """Makes text of symbols that come one after another.

    Args:
        level: of the vocabulary.
    """

    def __init__(self, level: str) -> None:
        self._level = level
        self._within_line = False
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, symbol: str) -> str:
        """Return the text that a symbol adds: of a character's bytes, all of it with the last of them."""
        if self._level == "byte":
            return self._bytes.decode(symbol.encode("latin-1"))  # an added <unk> is no byte: it stays readable
        if self._level == "char":
            return symbol
        ends = symbol == END_OF_LINE
        text = "\n" if ends else f" {symbol}" if self._within_line else symbol
        self._within_line = not ends
        return text

    def end(self) -> str:
        """Return what is left: � for a character that lacks bytes."""
        return self._bytes.decode(b"", final=True)


def split_words(text: str) -> list[str]:
    """Return what stands between white space; the end of a line is a word, too: `<eos>`."""
    return text.replace("\n", f" {END_OF_LINE} ").split()


def _blocks(symbols: str | bytes) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the code points block by block, each with where it starts."""
    for start in range(0, len(symbols), BLOCK):
        block = symbols[start : start + BLOCK]
        if isinstance(block, bytes):
            yield start, np.frombuffer(block, dtype=np.uint8)
        elif block.isascii():
            yield start, np.frombuffer(block.encode(), dtype=np.uint8)
        else:
            yield start, np.frombuffer(block.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _count(symbols: str | bytes) -> dict[str, int]:
    """Return how often each character occurs."""
    counts: Counter[int] = Counter()
    for _, codes in _blocks(symbols):
        found = np.bincount(codes)
        counts.update({int(code): int(found[code]) for code in found.nonzero()[0]})
    return {chr(code): count for code, count in counts.items()}
