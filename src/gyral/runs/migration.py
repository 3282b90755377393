"""Migration of what commit 23c1191, the last one before version 0.2.0, wrote to today's names. Imports no torch.

A migration rewrites text: no name in a file is imported, and nothing in it is executed. Each file is replaced at once,
so that a migration that was interrupted can be started again, and a second one changes nothing.
"""

import json
import os
import re
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from gyral.core.errors import UserError
from gyral.core.files import to_json_lines, write_atomically
from gyral.runs.database import TIMEOUT, Database, check_database
from gyral.runs.directory import CONFIG, DONE, METRICS
from gyral.runs.measures import FILE, to_plain, write_measures
from gyral.runs.metrics_file import logged_metrics
from gyral.runs.migrated_measures import measures_of_23c1191
from gyral.runs.moved import current_target
from gyral.runs.provenance import OVERRIDES, PROVENANCE
from gyral.runs.record_files import SUFFIX
from gyral.runs.saved_files import read_json, read_text, restore

TARGET = re.compile(r"""(_target_["']?\s*[:=]\s*["']?)([A-Za-z_][\w.]*)""")
TEXTS = (CONFIG, OVERRIDES, PROVENANCE, "multirun.yaml", "summary.json")
DATABASE = b"SQLite format 3\0"  # what a file begins with
# Tables of Optuna that have texts in JSON, and their columns: the key, the name of what the text is about, the text.
ATTRIBUTES = tuple(f"{owner}_{whose}_attribute" for owner in ("study", "trial") for whose in ("user", "system"))
TABLES = (
    *((f"{name}s", f"{name}_id", "key", "value_json") for name in ATTRIBUTES),
    ("trial_params", "param_id", "param_name", "distribution_json"),
)


def folders_below(directory: Path) -> list[tuple[Path, set[str]]]:
    """Return the folders below a directory, itself included, and the names of the files of each that may be migrated.

    Folders inside of run directories are not Gyral's. The folder of a sweep follows those of its runs, so that it
    counts as migrated only when they are.
    """
    found = []
    for folder, folders, files in os.walk(directory):
        folders.sort()
        found.append((Path(folder), {name for name in files if _is_plain_file(Path(folder, name))}))
        if {CONFIG, OVERRIDES} <= found[-1][1]:
            folders.clear()
    return found[::-1]


def migrate_folder(folder: Path, files: Collection[str]) -> Iterator[Path]:
    """Migrate the run, the plan of a sweep, the records and the studies in a folder, and yield what changed.

    Raises:
        UserError: a file is damaged.
        OSError: a file cannot be written.
    """
    for name in sorted(files):
        path = folder / name
        if name in TEXTS:
            changed = _rewrite(path, _renamed(read_text(path)))
        elif name.endswith(SUFFIX):
            changed = _migrate_record(path)
        else:
            changed = _migrate_study(path)
        if changed:
            yield path
    if {CONFIG, OVERRIDES} <= {*files} and FILE not in files:
        done = read_json(folder / DONE, dict[str, float | None]) if DONE in files else {}
        metrics = logged_metrics(folder) if METRICS in files else []
        write_measures(folder, *measures_of_23c1191({*done, *metrics}))
        yield folder / FILE


def _is_plain_file(path: Path) -> bool:
    """Return whether a path is a file, and not a link, through which a file elsewhere would be changed."""
    return path.is_file() and not path.is_symlink()


def _renamed(text: str) -> str:
    return TARGET.sub(lambda match: match[1] + current_target(match[2]), text)


def _rewrite(path: Path, text: str) -> bool:
    """Replace the content of a file, and return whether it changed."""
    if text == read_text(path):
        return False
    write_atomically(path, text)
    return True


def _migrate_record(path: Path) -> bool:
    """Migrate a record, which has one line for each of its fields."""
    content = restore(str(path), dict[str, Any], _renamed(read_text(path)))
    if not isinstance(content.get("results"), dict):
        raise UserError(f"{path}: is not a record of a run")
    if "measures" not in content:
        names = {*content["results"], *(content.get("curves") or {})}
        content |= to_plain(*measures_of_23c1191(names))
    return _rewrite(path, to_json_lines(content))


def _migrate_study(path: Path) -> bool:
    """Migrate a database of Optuna, in one transaction: the options of its studies, and searched names of classes."""
    with path.open("rb") as file:
        if file.read(len(DATABASE)) != DATABASE:
            return False
    check_database(path)
    changed = False
    try:
        with closing(sqlite3.connect(path, timeout=TIMEOUT, factory=Database)) as database, database:
            found = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for table, key, about, text in (columns for columns in TABLES if columns[0] in found):
                for row, name, before in database.execute(f"SELECT {key}, {about}, {text} FROM {table}").fetchall():
                    after = _renamed_choices(before) if str(name).endswith("_target_") else _renamed(before)
                    if after != before:
                        database.execute(f"UPDATE {table} SET {text} = ? WHERE {key} = ?", (after, row))
                        changed = True
    except (sqlite3.Error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: cannot be migrated: {error}") from None
    return changed


def _renamed_choices(text: str) -> str:
    """Return the distribution of an option that names a class, as Optuna writes it, with today's names."""
    content = restore("distribution", dict[str, Any], text)
    choices = content["attributes"]["choices"]
    content["attributes"]["choices"] = renamed = [current_target(each) for each in choices]
    return text if renamed == choices else json.dumps(content, allow_nan=False)
