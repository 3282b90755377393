"""The choice of a table's columns."""

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gyral.core.errors import OptionError
from gyral.reports.tables.sections import Section
from gyral.reports.tables.table import Column, Table

UNIT = re.compile(r" (?:in .*|\(.*\))$")  # of "accuracy in %" and of "test loss (nats)"


EXAMPLES = {
    "columns": "heads of columns, such as [accuracy,parameters]",
    "only": "options, such as [task.delay=500]",
    "beside": "directories, such as [outputs/first,outputs/second]",
}


def read_names(option: str, names: Any) -> list[str]:
    """Return the names in an option, as on the command line: "[length=30,paper]", with or without brackets.

    A name that contains a comma is in double quotes.

    Args:
        option: one of `EXAMPLES`.
        names: its value.

    Raises:
        OptionError: There is no name, or an empty one.
    """
    if names is None or names == "null":
        return []
    text = str(names).strip()
    found = next(csv.reader([text.removeprefix("[").removesuffix("]")], skipinitialspace=True), [])
    if not found or not all(name.strip() for name in found):
        raise OptionError(option, names, f"must be {EXAMPLES[option]}")
    return found


def choose_columns(sections: Sequence[Section], names: Sequence[str]) -> list[Section]:
    """Return sections whose tables have the named columns, in the order of the tables.

    A name is the head of a column, with or without its unit, or one of its lines: "accuracy" or "accuracy in %". A head
    that a table has more than once, such as "paper", belongs to the column at its left and is shown where that column
    is. Tables without any of the columns are left out.

    Raises:
        OptionError: No table has a column of that name.
    """
    found = {name for section in sections for table in section.tables for name in names if _indices(table, name)}
    for name in names:
        if name not in found:
            heads = (head_line(head) for section in sections for table in section.tables for head in table.heads[1:])
            raise OptionError("columns", name, f"must be among {', '.join(dict.fromkeys(heads))}")
    chosen = []
    for section in sections:
        tables = [replace(table, columns=own) for table in section.tables if (own := _chosen(table, names))]
        if tables:
            chosen.append(replace(section, tables=tables))
    return chosen


def without_details(table: Table) -> Table:
    """Return a table without the columns that papers do not show."""
    return replace(table, columns=[column for column in table.columns if not column.is_detail])


def head_line(head: str) -> str:
    """Return the lines of a column's head as one."""
    return " ".join(head.split())


def _plain(text: str) -> str:
    return re.sub(r" ?= ?", "=", head_line(text)).casefold()


def _indices(table: Table, name: str) -> list[int]:
    """Return the positions of the columns with a name: the head, the head without its unit, or one of its lines."""
    heads = [column.head for column in table.columns]
    names = [{_plain(head), UNIT.sub("", _plain(head)), *map(_plain, head.split("\n"))} for head in heads]
    return [index for index, own in enumerate(names) if _plain(name) in own]


def _chosen(table: Table, names: Sequence[str]) -> list[Column]:
    """Return the columns with one of the names; none of them is a detail any more."""
    heads = [column.head for column in table.columns]
    found = {index for name in names for index in _indices(table, name)}
    repeated = {index for index in found if heads.count(heads[index]) > 1}
    shown = found - repeated
    indices = sorted(shown | {index for index in repeated if index - 1 in shown} if shown else repeated)
    return [replace(table.columns[index], is_detail=False) for index in indices]
