"""Migration of what commit 23c1191, the last one before version 0.2.0, wrote to today's names. Imports no torch.

A migration rewrites text: no name in a file is imported, and nothing in it is executed. Each file is replaced at once,
so that a migration that was interrupted can be started again, and a second one changes nothing.
"""

import json
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from gyral.core.errors import UserError
from gyral.core.files import write_atomically
from gyral.runs.measures import FILE, to_plain, write_measures
from gyral.runs.metrics_file import logged_metrics
from gyral.runs.migrated_measures import measures_of_23c1191
from gyral.runs.moved import current_target
from gyral.runs.saved_files import read_json, read_text

TARGET = re.compile(r"""(_target_["']?\s*[:=]\s*["']?)([A-Za-z_][\w.]*)""")
TEXTS = ("config.yaml", "overrides.yaml", "multirun.yaml", "hydra.yaml", "provenance.json", "summary.json")
RECORD, DATABASES, CONFIG, OVERRIDES, DONE = ".run.json", (".db", ".sqlite", ".sqlite3"), *TEXTS[:2], "DONE"


def migrate(directory: Path) -> Iterator[Path]:
    """Migrate the run directories, sweeps, records and Optuna databases below a directory, and yield what changed.

    Raises:
        UserError: a file is damaged or cannot be written.
    """
    for folder, folders, files in os.walk(directory):
        folders.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_symlink():  # it would change a file elsewhere
                continue
            if name in TEXTS:
                changed = _rewrite(path, _renamed(read_text(path)))
            elif name.endswith(RECORD):
                changed = _migrate_record(path)
            else:
                changed = path.suffix in DATABASES and _migrate_database(path)
            if changed:
                yield path
        if {CONFIG, OVERRIDES} <= set(files) and FILE not in files:
            done = read_json(Path(folder, DONE)) if DONE in files else {}
            metrics = logged_metrics(Path(folder)) if "metrics.csv" in files else []
            write_measures(Path(folder), *measures_of_23c1191({*done, *metrics}))
            yield Path(folder, FILE)


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
    content = json.loads(_renamed(read_text(path)))
    if not isinstance(content, dict) or not isinstance(content.get("results"), dict):
        raise UserError(f"{path}: is not a record of a run")
    if "measures" not in content:
        names = {*content["results"], *(content.get("curves") or {})}
        added = to_plain(*measures_of_23c1191(names))
        content = {**content, **added}
    lines = (f'"{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in content.items())
    return _rewrite(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _migrate_database(path: Path) -> bool:
    """Migrate the attributes of studies and trials in a database of Optuna, in one transaction."""
    tables = ("study_user_attributes", "study_system_attributes", "trial_user_attributes", "trial_system_attributes")
    changed = False
    try:
        with closing(sqlite3.connect(path, timeout=60)) as database, database:
            found = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for table in (table for table in tables if table in found):
                key = f"{table.removesuffix('s')}_id"
                for row, text in database.execute(f"SELECT {key}, value_json FROM {table}").fetchall():
                    if isinstance(text, str) and (renamed := _renamed(text)) != text:
                        database.execute(f"UPDATE {table} SET value_json = ? WHERE {key} = ?", (renamed, row))
                        changed = True
    except sqlite3.Error as error:
        raise UserError(f"{path}: {error}") from None
    return changed
