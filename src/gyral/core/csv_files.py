"""Lines of CSV in which no text is a formula of a spreadsheet: the one writer of CSV, and how to read it back."""

import csv
import io
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

# Spreadsheets take these signs at the start of a cell, full-width ones too, for the start of a formula.
FORMULAS = tuple("=+-@\t\r\n＝＋－＠")
FORMULA = re.compile(rf"[\s']*[{re.escape(''.join(FORMULAS))}]")


def csv_line(values: Iterable[Any], end: str = "\n") -> str:
    """Return a line of CSV. An apostrophe precedes each text that a spreadsheet would take for a formula.

    Args:
        values: the values of the line. Numbers are written as they are.
        end: the end of the line.
    """
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator=end).writerow(map(_without_formula, values))
    return line.getvalue()


def plain_text(cell: str) -> str:
    """Return the text of a cell that `csv_line` has written: without the apostrophe before a formula."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def as_number(text: Any) -> Any:
    """Return the number that a text is the representation of, so that `csv_line` writes it as it is; else the text."""
    for kind in (int, float) if isinstance(text, str) else ():
        with suppress(ValueError):
            if repr(kind(text)) == text:
                return kind(text)
    return text


def _without_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value
