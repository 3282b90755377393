"""Files of coreference chains."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from gyral.core.errors import UserError
from gyral.core.inputs import find_fault
from gyral.data.mentions import Chain, Mention

CONLL_BEGIN = re.compile(r"#begin document \((.*)\)")
CONLL_PART = re.compile(r"(\()?(\d+)(\))?")  # a part of the last column


def read_chains(path: str | Path) -> dict[str, list[Chain]]:
    """Return the coreference chains of each document in a file; words are counted from 0 in each document.

    Two formats are accepted. CoNLL-2012 (Pradhan et al. 2012), whose last column has the chains: `(3` where a mention
    of chain 3 begins, `3)` where it ends, `(3)` for one word, joined by `|`, and `-` elsewhere. The parts of a document
    follow each other. In JSON lines, each line is one document:

        {"document": "test 17", "chains": [[[0, 1], [5, 5]], [[3, 3], [9, 9], [12, 13]]]}

    with a name and, for each mention of each chain, the numbers of its first and last word.

    Raises:
        UserError: the file cannot be read or is in neither format; the message names the line.
    """
    path = Path(path)
    if fault := find_fault(path):
        raise UserError(f"{path}: {fault}")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 at offset {error.start}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    first = next((line.lstrip() for line in lines if line.strip()), "")
    return _read_json_lines(path, lines) if first.startswith("{") else _read_conll(path, lines)


def _read_json_lines(path: Path, lines: list[str]) -> dict[str, list[Chain]]:
    documents: dict[str, list[Chain]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            read = json.loads(line)
            name, chains = read["document"], [tuple(map(_mention, chain)) for chain in read["chains"]]
        except (ValueError, TypeError, KeyError):
            example = '{"document": "name", "chains": [[[0, 1], [5, 5]]]}'
            raise UserError(f"{path}, line {number}: must be a document with its chains, such as {example}") from None
        if not isinstance(name, str) or name in documents:
            raise UserError(f"{path}, line {number}: the document {name!r} must be a text, and must not occur twice")
        documents[name] = [tuple(sorted(chain)) for chain in chains]
    return documents


def _mention(span: Any) -> Mention:
    first, last = span
    if type(first) is not int or type(last) is not int or not 0 <= first <= last:
        raise ValueError
    return Mention(first, last)


def _read_conll(path: Path, lines: list[str]) -> dict[str, list[Chain]]:
    documents: dict[str, list[Chain]] = {}
    words = Counter[str]()  # of each document, over all of its parts
    name = None
    for number, line in enumerate(map(str.strip, lines), start=1):
        place = f"{path}, line {number}"
        if matched := CONLL_BEGIN.match(line):
            name = matched[1]
            chains: dict[str, list[Mention]] = {}  # of this part
            begun: dict[str, list[int]] = {}  # first words of the mentions that have not ended, by chain
        elif line.startswith("#end document") and name is not None:
            if unfinished := [chain for chain, firsts in begun.items() if firsts]:
                raise UserError(f"{place}: a mention of chain {unfinished[0]} has no end in document {name}")
            ordered = sorted(tuple(sorted(mentions)) for mentions in chains.values())
            documents[name] = documents.get(name, []) + ordered
            name = None
        elif line and not line.startswith("#"):
            if name is None:
                raise UserError(f"{place}: must be within '#begin document (name); part 000' and '#end document'")
            _add_word(f"{place}, document {name}", line.split()[-1], words[name], chains, begun)
            words[name] += 1
    if name is not None:
        raise UserError(f"{path}: has no end of document {name}: the file is truncated")
    return documents


def _add_word(
    place: str, column: str, word: int, chains: dict[str, list[Mention]], begun: dict[str, list[int]]
) -> None:
    """Add the mentions that begin or end at a word, from the last column of its line."""
    for part in column.split("|") if column not in ("-", "_") else ():
        matched = CONLL_PART.fullmatch(part)
        if matched is None or not (matched[1] or matched[3]):
            raise UserError(f"{place}: the last column has {column!r}, and must have parts such as (3), (3 or 3), or -")
        begins, chain, ends = matched.groups()
        if begins:
            begun.setdefault(chain, []).append(word)
        if ends:
            if not begun.get(chain):
                raise UserError(f"{place}: a mention of chain {chain} ends that has not begun")
            chains.setdefault(chain, []).append(Mention(begun[chain].pop(), word))
