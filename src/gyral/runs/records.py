"""Records of finished and unfinished runs, read from their directories or record files. Imports no torch."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gyral.config.roles import settings_of
from gyral.core.errors import UserError
from gyral.core.measures import Measure, is_number
from gyral.runs.directory import CONFIG, DONE, FAILED, LOCK, METRICS, read_results
from gyral.runs.measures import read_measures
from gyral.runs.metrics_file import read_curves
from gyral.runs.provenance import DIFF, OVERRIDES, PROVENANCE, read_overrides, read_provenance
from gyral.runs.record_files import SUFFIX, read_record
from gyral.runs.run_record import Log, Provenance, RunRecord, by_key, check_shape, curve_names, thin
from gyral.runs.saved_files import read_bytes, read_config

BASELINE = "train/baseline"
LONGEST_REASON = 240  # characters


def read(directory: Path, known: Mapping[str, RunRecord] | None = None) -> tuple[list[RunRecord], list[str]]:
    """Return the records of all runs below a directory, and a line for each run that is unreadable or incomplete.

    The runs are in run directories or in record files (`gyral.runs.record_files`). Of a run and its copies, such as its
    record file, one counts.

    Args:
        directory: where to search, at any depth.
        known: records that were read before, by place. Those that are DONE are not read again.
    """
    records, notes = [], []
    locks = locked_inodes()
    for path in run_paths(directory):
        seen = (known or {}).get(str(path))
        if seen is not None and seen.results:
            records.append(seen)
            continue
        try:
            record, own_notes = (read_record(path), []) if path.name.endswith(SUFFIX) else _read_record(path, locks)
        except (OSError, ValueError) as error:
            reason = " ".join((str(error) or type(error).__name__).split())
            reason = reason.removeprefix(f"{path}/").removeprefix(f"{path}: ")
            notes.append(f"{path}: cannot be read: {reason[:LONGEST_REASON]}")
            continue
        records.append(record)
        notes += [f"{path}: {note}" for note in own_notes]
    return _without_copies(records, notes), notes


def _without_copies(records: list[RunRecord], notes: list[str]) -> list[RunRecord]:
    """Return the records without those of copies of a finished run, for each of which a note is added."""
    found: dict[tuple[Any, ...], RunRecord] = {}
    # a directory has more than a record file
    for record in sorted(records, key=lambda record: record.place.endswith(SUFFIX)):
        own = record.provenance.started, record.experiment, record.seed, *sorted(settings_of(record.overrides).values())
        results = (record.metrics.get(name) for name in ("test/loss", "monitor", "seconds_a_step"))
        same = found.setdefault((*own, *results) if record.results and own[0] else (record.place,), record)
        if same is not record:
            notes.append(f"{record.place}: is a copy of {same.place}, and does not count")
    kept = {id(record) for record in found.values()}
    return [record for record in records if id(record) in kept]


def read_run(directory: Path) -> RunRecord:
    """Return the record of the run in a directory.

    Raises:
        UserError: the directory holds no run, or one that is unreadable.
    """
    return _read_record(directory, locked_inodes())[0]


def run_paths(directory: Path) -> Iterator[Path]:
    """Yield all run directories below a directory, itself included, and all record files outside of them, in order.

    Also yield directories with the name of a record file, so that reading them reports an error.
    """
    for path, folders, files in os.walk(directory):
        names = {*folders, *files}
        if not names.isdisjoint((OVERRIDES, CONFIG)):
            folders.clear()
            yield Path(path)
        else:
            yield from (Path(path, name) for name in sorted(names) if name.endswith(SUFFIX))
        folders[:] = sorted(name for name in folders if not name.endswith(SUFFIX))


def locked_inodes() -> set[int]:
    """Return the inodes of all locked files, or an empty set if the system does not list them."""
    try:
        return {int(inode) for inode in re.findall(r" \w+:\w+:(\d+) ", Path("/proc/locks").read_text(encoding="utf-8"))}
    except OSError:
        return set()


def _read_record(directory: Path, locks: set[int]) -> tuple[RunRecord, list[str]]:
    """Return the record of a run, and notes about its unreadable parts.

    What the run has logged is read now if the run is not DONE, for its step, and otherwise when it is asked for.
    """
    files = {*os.listdir(directory)}
    config = read_config(directory / CONFIG)
    check_shape(config, directory / CONFIG)
    measures, remarks = read_measures(directory)
    given = read_overrides(directory)
    results = read_results(directory) if DONE in files else None
    logged, steps, cut_off = (Log(), 0, False) if results else _read_log(directory, measures)
    failed = directory / FAILED
    lock = directory / LOCK
    running = LOCK in files and lock.is_file() and lock.stat().st_ino in locks
    notes = [f"the last line of {METRICS} is cut off and left out"] if cut_off and not running else []
    try:
        provenance = Provenance.of(read_provenance(directory), DIFF in files and (directory / DIFF).is_file())
    except UserError:
        provenance = Provenance()
        notes.append(f"{PROVENANCE} cannot be read: no commit or command is known")
    record = RunRecord(
        str(directory),
        config,
        by_key(given),
        results and {name: value for name, value in results.items() if value is not None},
        reason_of(read_bytes(failed).decode(errors="replace")) if FAILED in files else None,
        running,
        int(results["steps"]) if results else steps,
        (lambda: _read_log(directory, measures)[0]) if results else (lambda: logged),
        provenance,
        measures=measures,
        remarks=remarks,
    )
    return record, notes


def _read_log(directory: Path, measures: Sequence[Measure]) -> tuple[Log, int, bool]:
    """Return the log of a run, its last step, and whether the last line of the file is cut off."""
    if not os.path.lexists(directory / METRICS):  # a run that failed before its first step has logged nothing
        return Log(), 0, False
    names = curve_names(measures)
    curves, cut_off = read_curves(directory, (*names, BASELINE, "step"))
    baseline = next(filter(is_number, curves[BASELINE][1]), None)
    log = Log({name: thin(*curves[name]) for name in names if curves[name][0]}, baseline)
    return log, max(curves["step"][0], default=0), cut_off


def reason_of(text: str) -> str:
    """Return the last error of a traceback in one line: its type and message."""
    lines = text.rstrip().splitlines()
    inside = [index for index, line in enumerate(lines) if line.startswith(("  ", "Traceback"))]
    last = lines[inside[-1] + 1 :] if inside else lines[-1:]
    reason = " ".join(" ".join(last).split()) or "no reason was written"
    return reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1]}…"
