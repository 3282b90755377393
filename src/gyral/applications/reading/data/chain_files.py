"""Files of coreference chains."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, TypeAdapter, ValidationError

from gyral.core.errors import OptionError
from gyral.core.inputs import excerpt, read_text
from gyral.data.mentions import Chain, Mention

CONLL_BEGIN = re.compile(r"#begin document \((.*)\)")
CONLL_PART = re.compile(r"(\()?(\d+)(\))?")  # a part of the last column


def _check_span(span: tuple[int, int]) -> tuple[int, int]:
    if not 0 <= span[0] <= span[1]:
        raise ValueError("must be in order")
    return span


@dataclass(frozen=True, slots=True)
class Document:
    """A line of the second form; it may have more fields."""

    document: str
    chains: list[list[Annotated[tuple[int, int], AfterValidator(_check_span)]]]


DOCUMENT = TypeAdapter(Document)


def _wrong(path: Path, number: int, reason: str, document: str | None = None) -> OptionError:
    place = "" if document is None else f", document {excerpt([document])}"
    return OptionError("chains", path, f"line {number}{place}: {reason}")


def read_chains(path: str | Path) -> dict[str, list[Chain]]:
    """Return the coreference chains of each document in a file; words are counted from 0 in each document.

    Two formats are accepted. CoNLL-2012 (Pradhan et al. 2012), whose last column has the chains: `(3` where a mention
    of chain 3 begins, `3)` where it ends, `(3)` for one word, joined by `|`, and `-` elsewhere. The parts of a document
    follow each other. In JSON lines, each line is one document:

        {"document": "test 17", "chains": [[[0, 1], [5, 5]], [[3, 3], [9, 9], [12, 13]]]}

    with a name and, for each mention of each chain, the numbers of its first and last word.

    Raises:
        OptionError: the file cannot be read or is in neither format; the message names the line.
    """
    path = Path(path)
    lines = read_text("chains", path).split("\n")
    first = next((line.lstrip() for line in lines if line.strip()), "")
    return _read_json_lines(path, lines) if first.startswith("{") else _read_conll(path, lines)


def _read_json_lines(path: Path, lines: list[str]) -> dict[str, list[Chain]]:
    documents: dict[str, list[Chain]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            read = DOCUMENT.validate_json(line, strict=True)
        except ValidationError:
            example = '{"document": "name", "chains": [[[0, 1], [5, 5]]]}'
            raise _wrong(path, number, f"must be a document with its chains, such as {example}") from None
        name = read.document
        if name in documents:
            raise _wrong(path, number, f"the document {excerpt([name])} must not occur twice")
        documents[name] = [tuple(sorted(Mention(*span) for span in chain)) for chain in read.chains]
    return documents


def _read_conll(path: Path, lines: list[str]) -> dict[str, list[Chain]]:
    documents: dict[str, list[Chain]] = {}
    words = Counter[str]()  # of each document, over all of its parts
    name = None
    for number, line in enumerate(map(str.strip, lines), start=1):
        if matched := CONLL_BEGIN.match(line):
            if name is not None:
                raise _wrong(path, number, "has no end of document before the next one begins", name)
            name = matched[1]
            chains: dict[str, list[Mention]] = {}  # of this part
            begun: dict[str, list[int]] = {}  # first words of the mentions that have not ended, by chain
        elif line.startswith("#end document") and name is not None:
            if unfinished := [chain for chain, firsts in begun.items() if firsts]:
                raise _wrong(path, number, f"a mention of chain {excerpt(unfinished[:1])} has no end", name)
            ordered = sorted(tuple(sorted(mentions)) for mentions in chains.values())
            documents[name] = documents.get(name, []) + ordered
            name = None
        elif line and not line.startswith("#"):
            if name is None:
                raise _wrong(path, number, "must be within '#begin document (name); part 000' and '#end document'")
            _add_word(path, number, name, line.split()[-1], words[name], chains, begun)
            words[name] += 1
    if name is not None:
        raise OptionError("chains", path, f"has no end of document {excerpt([name])}: the file is truncated")
    return documents


def _add_word(
    path: Path,
    number: int,
    document: str,
    column: str,
    word: int,
    chains: dict[str, list[Mention]],
    begun: dict[str, list[int]],
) -> None:
    """Add the mentions that begin or end at a word, from the last column of its line."""
    for part in column.split("|") if column not in ("-", "_") else ():
        matched = CONLL_PART.fullmatch(part)
        if matched is None or not (matched[1] or matched[3]):
            shown = excerpt([repr(column)])
            reason = f"the last column has {shown}, and must have parts such as (3), (3 or 3), or -"
            raise _wrong(path, number, reason, document)
        begins, chain, ends = matched.groups()
        if begins:
            begun.setdefault(chain, []).append(word)
        if ends:
            if not begun.get(chain):
                raise _wrong(path, number, f"a mention of chain {excerpt([chain])} ends that has not begun", document)
            chains.setdefault(chain, []).append(Mention(begun[chain].pop(), word))
