"""Runs of a sweep that are missing, and the commands that start or continue them."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gyral.config.overrides import plain
from gyral.config.trust import trust_words
from gyral.core.commands import program, typed
from gyral.reports.catalogue import DIRECTORY, Sweep, load
from gyral.reports.rows import Row
from gyral.reports.tables.cells import absent_seeds
from gyral.runs.run_record import RunRecord


def find_missing(sweep: Sweep, rows: list[Row], directory: Path | None) -> tuple[int, list[str]]:
    """Return the number of runs that were not started, and commands that run these and the stopped ones.

    Each setting of the rows is a separate sweep command. A run whose directory is not the one that the sweep
    would use gets a command that resumes it alone. Running runs get none.

    Args:
        sweep: the sweep.
        rows: its rows with their runs.
        directory: the directory that contains them, None for runs from Weights & Biases.
    """
    home = directory and _sweep_directory(rows, directory)
    given = [_shared_overrides(sweep, row) for row in rows if row.records]
    settings = sorted(set(given), key=lambda setting: (-given.count(setting), setting)) or [()]
    absent, commands, resumed = 0, [], []
    for setting in settings:
        selected: dict[str, list[str]] = {}
        for row in rows:
            if (_shared_overrides(sweep, row) if row.records else settings[0]) != setting:
                continue
            for column, seeds, stopped in _lacking(sweep, row, home):
                absent += len(seeds)
                selected.setdefault("experiment", []).append(row.experiment)
                if sweep.column:
                    selected.setdefault(sweep.column, []).append(column)
                selected.setdefault("seed", []).extend((*seeds, *stopped))
            joint = _is_joint(sweep, row)
            resumed += [r for r in row.records if is_stopped(r) and (joint or not _is_in_sweep(r, row, home))]
            resumed += filter(is_stopped, row.others)
        if selected:
            commands.append(_sweep_command(sweep, selected, setting, home))
    return absent, commands + [resume_command(record) for record in resumed if directory]


def _lacking(sweep: Sweep, row: Row, home: Path | None) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each column with missing runs of a row, the seeds without a run, and the seeds that the sweep resumes."""
    if _is_joint(sweep, row) or not sweep.trains(row.experiment):
        return
    for column in sweep.axes[sweep.column] if sweep.column else [""]:
        records = [record for record in row.records if sweep.column_of(record) == column]
        seeds = absent_seeds(records, sweep.axes["seed"])
        stopped = [record.seed for record in records if is_stopped(record) and _is_in_sweep(record, row, home)]
        if seeds or stopped:
            yield column, seeds, stopped


def _sweep_command(
    sweep: Sweep, selected: dict[str, list[str]], setting: tuple[str, ...], directory: Path | None
) -> str:
    """Return the command that runs the selected values of a sweep's axes with some overrides."""
    axes = {key for key in sweep.axes if key not in ("experiment", "seed", sweep.column)}
    command = [*program("train"), f"sweep={sweep.name}"]
    for key, values in selected.items():
        expected = load(sweep.name).axes[key] if key == "experiment" else sweep.axes[key]  # of which some are shown
        wanted = [value for value in expected if value in values]
        command += [f"{key}={','.join(wanted)}"] if wanted and len(wanted) < len(expected) else []
    command += [override for override in setting if override.partition("=")[0] not in axes]
    if directory is not None and directory != DIRECTORY / sweep.name:
        command.append(plain(f"hydra.sweep.dir={directory}"))
    return typed(command)


def resume_command(record: RunRecord) -> str:
    """Return the command that continues a run."""
    return typed([*program("train"), f"resume={record.place}", *trust_words(record.config)])


def is_stopped(record: RunRecord) -> bool:
    """Return whether a run is neither done nor running."""
    return not record.results and not record.running


def _shared_overrides(sweep: Sweep, row: Row) -> tuple[str, ...]:
    """Return the overrides, besides the axes, of all runs of a row: the directory of a job is named after them."""
    axes = {*sweep.axes, "sweep"}
    given = [{o for key, o in record.overrides.items() if key not in axes} for record in row.records]
    return tuple(sorted(set.intersection(*given))) if given else ()


def _is_joint(sweep: Sweep, row: Row) -> bool:
    """Return whether the runs of a row are of a model for all lines of a sweep with the layout "tasks"."""
    if not row.records or sweep.layout != "tasks":
        return False
    return not all(sweep.column_of(record) in sweep.lines for record in row.records)


def _sweep_directory(rows: list[Row], directory: Path) -> Path:
    """Return the directory of the sweep: the one that contains most of the runs, in folders named after their rows."""
    folders = [Path(record.place).parent for row in rows for record in row.records if _is_in_folder(record, row)]
    homes = Counter(folder.parent for folder in folders)
    return homes.most_common(1)[0][0] if homes else directory


def _is_in_folder(record: RunRecord, row: Row) -> bool:
    return Path(record.place).parent.name == Path(row.experiment).name


def _is_in_sweep(record: RunRecord, row: Row, directory: Path | None) -> bool:
    """Return whether the sweep, started again in the directory, continues a run."""
    folder = Path(record.place).parent
    return directory is None or (folder.parent == directory and folder.name == Path(row.experiment).name)
