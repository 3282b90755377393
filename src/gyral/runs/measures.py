"""The measures and remarks of a run as plain data: in its directory, in record files and in W&B. Imports no torch."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from gyral.core.errors import UserError
from gyral.core.files import to_json_lines, write_atomically
from gyral.core.measures import Measure, Remark
from gyral.runs.saved_files import read_bytes, restore, restore_plain

FILE = "measures.json"
MOST_DIGITS = 20  # of a printed number
NO_MEASURES = "has no measures, which every version since 0.2.0 writes"
MOST_KEPT = 64  # files whose content is kept
MeasuresAndRemarks = tuple[tuple[Measure, ...], tuple[Remark, ...]]
_RESTORED: dict[bytes, MeasuresAndRemarks] = {}  # by the content of a file


@dataclass(frozen=True)
class _Offered:
    """The content of measures.json."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    measures: tuple[Measure, ...]
    remarks: tuple[Remark, ...]


def write_measures(directory: Path, measures: Sequence[Measure], remarks: Sequence[Remark]) -> None:
    """Write the measures and remarks of a run's task to its directory."""
    write_atomically(directory / FILE, to_json_lines(to_plain(measures, remarks)))


def read_measures(directory: Path) -> MeasuresAndRemarks:
    """Return the measures and remarks of the run in a directory.

    Raises:
        UserError: the file is missing, because a version before 0.2.0 wrote the run, or it is damaged.
    """
    if not os.path.lexists(directory / FILE):
        raise UserError(f"{directory / FILE}: {NO_MEASURES}")
    path = directory / FILE
    return _restored(str(path), read_bytes(path))


def to_plain(measures: Sequence[Measure], remarks: Sequence[Remark]) -> dict[str, list[dict[str, Any]]]:
    """Return measures and remarks as plain containers, without attributes that have their default value."""
    return {"measures": [*map(_plain, measures)], "remarks": [*map(_plain, remarks)]}


def from_plain(where: str, content: dict[str, Any]) -> MeasuresAndRemarks:
    """Return the measures and remarks in plain containers, which may come from somebody else.

    Args:
        where: the start of a message of an error.
        content: what `to_plain` returned, with further keys.

    Raises:
        UserError: the content is not in this form.
    """
    plain = {name: content[name] for name in ("measures", "remarks") if name in content}
    return _checked(where, restore_plain(where, _Offered, plain))


def _restored(where: str, content: bytes) -> MeasuresAndRemarks:
    """Return the content of measures.json. The runs of a sweep have the same: it is checked once."""
    if content not in _RESTORED:
        checked = _checked(where, restore(where, _Offered, content))
        if len(_RESTORED) >= MOST_KEPT:
            _RESTORED.clear()
        _RESTORED[content] = checked
    return _RESTORED[content]


def _checked(where: str, offered: _Offered) -> MeasuresAndRemarks:
    """Return measures and remarks after checking the numbers by which reports print."""
    for measure in offered.measures:
        if not (0 <= measure.digits <= MOST_DIGITS and math.isfinite(measure.scale)):
            raise UserError(f"{where}: {measure.name}: digits must be from 0 to {MOST_DIGITS}, and the scale finite")
    return offered.measures, offered.remarks


def _plain(offered: Measure | Remark) -> dict[str, Any]:
    values = {field.name: getattr(offered, field.name) for field in fields(offered)}
    return {field.name: values[field.name] for field in fields(offered) if values[field.name] != field.default}
