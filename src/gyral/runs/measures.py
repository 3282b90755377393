"""The measures and remarks of a run as plain data: in its directory, in record files and in W&B. Imports no torch."""

import json
import math
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from gyral.core.errors import UserError
from gyral.core.files import write_atomically
from gyral.core.measures import Measure, Remark
from gyral.runs.moved import earlier_version
from gyral.runs.saved_files import read_json

FILE = "measures.json"
NO_MEASURES = "has no measures, as in earlier versions"
MOST_DIGITS = 20
TYPES: dict[type, tuple[type, ...]] = {
    str: (str,),
    bool: (bool,),
    int: (int,),
    float: (int, float),
}  # of values in JSON
MeasuresAndRemarks = tuple[tuple[Measure, ...], tuple[Remark, ...]]
Kind = TypeVar("Kind", Measure, Remark)


def write_measures(directory: Path, measures: Sequence[Measure], remarks: Sequence[Remark]) -> None:
    """Write the measures and remarks of a run's task to its directory."""
    content = to_plain(measures, remarks)
    lines = (f'"{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in content.items())
    write_atomically(directory / FILE, "{\n" + ",\n".join(lines) + "\n}\n")


def read_measures(directory: Path) -> MeasuresAndRemarks:
    """Return the measures and remarks of the run in a directory.

    Raises:
        UserError: the run has none, because an earlier version wrote it, or the file is damaged.
    """
    if not (directory / FILE).is_file():
        raise earlier_version(directory / FILE, directory, NO_MEASURES)
    return from_plain(str(directory / FILE), read_json(directory / FILE))


def to_plain(measures: Sequence[Measure], remarks: Sequence[Remark]) -> dict[str, list[dict[str, Any]]]:
    """Return measures and remarks as plain containers, without attributes that have their default value."""
    return {"measures": [*map(_plain, measures)], "remarks": [*map(_plain, remarks)]}


def from_plain(where: str, content: Any) -> MeasuresAndRemarks:
    """Return the measures and remarks in plain containers, which may come from somebody else.

    Args:
        where: the start of a message of an error.
        content: what `to_plain` returned, with further keys.

    Raises:
        UserError: the content is not in this form.
    """
    measures, remarks = (content.get(name) if isinstance(content, dict) else None for name in ("measures", "remarks"))
    if not isinstance(measures, list) or not isinstance(remarks, list):
        raise UserError(f"{where}: has no lists of measures and remarks")
    return (
        tuple(_read(f"{where}: measure {number}", Measure, entry) for number, entry in enumerate(measures, 1)),
        tuple(_read(f"{where}: remark {number}", Remark, entry) for number, entry in enumerate(remarks, 1)),
    )


def _plain(offered: Measure | Remark) -> dict[str, Any]:
    values = {field.name: getattr(offered, field.name) for field in fields(offered)}
    return {field.name: values[field.name] for field in fields(offered) if values[field.name] != field.default}


def _read(where: str, kind: type[Kind], entry: Any) -> Kind:
    allowed = {field.name: field for field in fields(kind)}
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    if not isinstance(entry, dict) or not needed <= set(entry) <= set(allowed):
        raise UserError(f"{where}: must have {', '.join(sorted(needed))}, and of others only {', '.join(allowed)}")
    for name, value in entry.items():
        wanted: Any = allowed[name].type
        fits = isinstance(value, TYPES[wanted]) and isinstance(value, bool) == (wanted is bool)
        if (
            not fits
            or (wanted is int and not 0 <= value <= MOST_DIGITS)
            or (wanted is float and not math.isfinite(value))
        ):
            raise UserError(f"{where}: {name} has a value that is not allowed")
    return kind(**entry)
