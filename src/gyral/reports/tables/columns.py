"""The choice of a table's columns."""

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from gyral.config.roles import settings_of
from gyral.core.errors import OptionError
from gyral.reports.tables.sections import Section
from gyral.reports.tables.table import Column, Entry, Table
from gyral.runs.run_record import RunRecord, select

UNIT = re.compile(r" (?:in .*|\(.*\))$")  # of "accuracy in %" and of "test loss (nats)"


EXAMPLES = {
    "columns": "heads of columns or options, such as [optimizer.lr,accuracy]",
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
    is. The key of an option, such as "optimizer.lr", is a column with its values, which comes first. Tables without any
    of the columns are left out.

    Raises:
        OptionError: No table has a column of that name, and no run an option.
    """
    sections = [with_options(section, names) for section in sections]
    tables = [table for section in sections for table in section.tables]
    for name in names:
        if not any(_indices(table, name) for table in tables):
            heads = dict.fromkeys(head_line(head) for table in tables for head in table.heads[1:])
            options = "or an option of the runs, such as optimizer.lr"
            raise OptionError("columns", name, f"must be among {', '.join(heads)}; {options}")
    for section in sections:
        section.tables = [replace(table, columns=own) for table in section.tables if (own := _chosen(table, names))]
    return [section for section in sections if section.tables]


def with_options(section: Section, names: Sequence[str]) -> Section:
    """Return a section whose tables begin with a column for each name that is the key of an option of its runs."""
    heads = (head for table in section.tables for head in table.heads)
    known = {_plain(line) for head in heads for line in (head, *head.split("\n"))}
    keys = [name for name in names if _plain(name) not in known]
    keys = [key for key in keys if any(key in record.options for record in section.records)]
    tables = []
    for table in section.tables:
        columns = [Column(key, [_option_entry(entries, key) for _, entries in table.rows]) for key in keys]
        tables.append(replace(table, columns=[*columns, *table.columns]))
    return replace(section, tables=tables)


def _option_entry(entries: Sequence[Entry], key: str) -> Entry:
    """Return the entry of the values that an option has in the runs behind the entries of a row."""
    records = {record.place: record for entry in entries for record, _ in entry.runs}
    values = [record.options.get(key) for record in records.values()]
    texts = dict.fromkeys(map(describe_value, values))
    numbers = [float(value) if is_number(value) else None for value in values]
    return Entry(", ".join(texts) or "–", runs=tuple(zip(records.values(), numbers, strict=True)))


def describe_value(value: Any) -> str:
    """Return the value of an option as on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether the value of an option is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


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


def varied_numbers(records: Sequence[RunRecord]) -> list[str]:
    """Return the keys of the options that overrides set to numbers and that differ between runs."""
    keys = sorted({key for record in records for key in settings_of(record.overrides)})
    found = {key: [select(record.config, key) for record in records] for key in keys}
    return [key for key, values in found.items() if all(map(is_number, values)) and len({*values}) > 1]
