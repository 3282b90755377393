"""What a report says of runs: tables whose numbers know the runs behind them, and what is missing. Imports no torch."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev

from gyral import runs
from gyral.config import command_line as cli
from gyral.reports import catalogue as sweeps
from gyral.reports.catalogue import Job, Row, Sweep

# factor and digits of a sweep's measure
SCALES = {
    "accuracy": (100, 1),
    "bits": (1, 3),
    "perplexity": (1, 1),
    "rouge1": (1, 2),
    "rouge2": (1, 2),
    "rougeL": (1, 2),
}
MAJORITY = "majority"
MARKS = {  # of results by what a run says of its data: sign and meaning
    "stand_ins": ("°", "trained on the 1k file, as the 10k one is not there"),
    "generated": ("*", "on GENERATED stories, which are not bAbI's"),
}
MOST_SEEDS = 5  # that are told one by one
CAPTION = "mean ± standard deviation over seeds, of the checkpoints best on validation"


@dataclass(frozen=True)
class Cell:
    """A number of a table, or a word, and the runs that it comes from.

    Attributes:
        text: the number as it is printed; empty where no run is done.
        notes: seeds and steps that it stands for.
        lacks: seeds that are not done, and how far they are.
        jobs: the runs behind it, each with its own value, None while it has none.
        paper: what the paper has in its place.
        mean, deviation: the number with all its digits, and its standard deviation where it has one.
    """

    text: str
    notes: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    jobs: tuple[tuple[Job, float | None], ...] = ()
    paper: float | None = None
    mean: float | None = None
    deviation: float | None = None

    @property
    def lines(self) -> list[str]:
        return [line for line in (*self.text.split("\n"), *self.notes, *self.lacks) if line]

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.jobs if value is not None]

    def measured(self) -> "Cell":
        """Return the cell with the mean and deviation of its runs' values."""
        values = self.values
        spread = deviation(values) if len(values) > 1 else None
        return replace(self, mean=fmean(values), deviation=spread) if values else self


@dataclass(frozen=True)
class Table:
    """A table of a report.

    Attributes:
        title: what it shows, empty where it goes on from the table before.
        caption: what holds for all of its numbers.
        heads: of its columns; the first is that of the rows' names.
        rows: the name of each and its cells.
        prose: whether the last column is text.
    """

    title: str
    caption: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, tuple[Cell, ...]]]
    prose: bool = False


@dataclass(frozen=True)
class Section:
    """What a report says of one sweep, or of the runs of one task that are of none.

    Attributes:
        title: what is shown.
        measure: one of `sweeps.MEASURES`, or "loss".
        rows: the sweep's rows with their runs.
        labels: the name of each row.
        tables: its tables.
        footnotes: what is to be said below them.
        stopped: runs that are not done.
        absent: how many runs were not started.
        commands: what brings those that are missing.
        sweep: the sweep, None of runs that are of none.
    """

    title: str
    measure: str
    rows: list[Row]
    labels: list[str]
    tables: list[Table]
    footnotes: list[str] = field(default_factory=list)
    stopped: list[Job] = field(default_factory=list)
    absent: int = 0
    commands: list[str] = field(default_factory=list)
    sweep: Sweep | None = None

    @property
    def jobs(self) -> list[Job]:
        return [job for row in self.rows for job in row.jobs]

    @property
    def shortfall(self) -> str:
        """How many runs are missing or not done, in a few words; empty where none is."""
        return f"Runs missing: {self.absent}, not done: {len(self.stopped)}." if self.stopped or self.absent else ""


def why(job: Job) -> str:
    """Return where a run lies that is not DONE, and why it failed."""
    return ": ".join(filter(None, (job.state, job.place, job.reason)))


def sections(
    jobs: list[Job], directory: Path | None, only: str | None = None, references: bool = True
) -> list[Section]:
    """Return what there is to say of runs, in sweeps of conf/sweep and, for those of none, by task.

    Args:
        jobs: the runs.
        directory: where they were found, None where they are in Weights & Biases.
        only: the name of the sweep that is shown, alone.
        references: whether rows of which nothing is trained, which take seconds, stand below the others.
    """
    found, left = [], jobs
    for sweep in (sweeps.load(only),) if only else sweeps.named():
        mine = [job for job in jobs if job.experiment in sweep.papers]
        left = [job for job in left if job.experiment not in sweep.papers]
        if mine or only:
            found.append(_of_sweep(sweep, sweeps.rows_of(sweep, mine), directory, references))
    if only:
        return found
    plan = sweeps.planned(directory) if directory else sweeps.Plan()
    others = [_of_task(task, rows, directory, plan) for task, rows in sweeps.others_of(left).items()]
    absent = {*plan.jobs} - {frozenset(job.overrides.values()) for job in left}
    if others and absent:  # of whatever tasks: told below the last
        commands = list(dict.fromkeys((plan.command, *others[-1].commands)))
        others[-1] = replace(others[-1], absent=len(absent), commands=commands)
    return found + others


def _of_sweep(sweep: Sweep, rows: list[Row], directory: Path | None, with_references: bool) -> Section:
    footnotes: list[str] = []
    if sweep.layout == "table":
        references, footnotes = _ngrams(sweep, rows) if with_references else ({}, [])
        tables, labels = [_paper_table(sweep, rows, references)], [_label(row, rows) for row in rows]
    elif sweep.layout == "tasks":
        rows = _joint_apart(sweep, rows)
        tables, labels = [_averages_table(sweep, rows), _lines_table(sweep, rows)], [_own_label(r, rows) for r in rows]
        footnotes = [
            f"{mark} {meaning}" for mark, meaning in MARKS.values() if any(mark in _marks(row.jobs) for row in rows)
        ]
    else:
        tables, labels = [_curves_table(sweep, rows)], [_label(row, rows) for row in rows]
    absent, commands = _shortfall(sweep, rows, directory)
    stopped = [job for row in rows for job in row.jobs if not job.results]
    return Section(sweep.title, sweep.measure, rows, labels, tables, footnotes, stopped, absent, commands, sweep)


def _of_task(task: str, rows: list[Row], directory: Path | None, plan: sweeps.Plan) -> Section:
    """Return the table of runs that are of no sweep: what each row differs in, loss and what else its task measures."""
    measured = [name for name in SCALES if any(f"test/{name}" in (job.results or {}) for r in rows for job in r.jobs)]
    in_all = [said for said in rows[0].setting if all(said in row.setting for row in rows)]
    shared = [said for said in in_all if said not in rows[0].paper["row"].splitlines()]
    table_rows = []
    for row in rows:
        done = [job for job in row.jobs if job.results]
        told = _cell(row.jobs, f"{len(done)} of {len(row.jobs)}", lambda job: None)
        cells = [told, _figure(row.jobs, "test/loss", 4), _over_baseline(row.jobs)]
        cells += [_figure(row.jobs, f"test/{name}", digits, scale) for name, (scale, digits) in _scales(measured)]
        table_rows.append((row.paper["row"], (*cells, _sizes(row.jobs))))
    units = {"accuracy": "accuracy\nin %", "bits": "bits per\nsymbol", "perplexity": "perplexity"}
    heads = ("row", "runs\ndone", "test loss\n(nats)", "loss /\nbaseline", *(units[m] for m in measured), "parameters")
    caption = "; all with ".join(filter(None, (CAPTION, " ".join(shared))))
    stopped = [job for row in rows for job in row.jobs if not job.results]
    jobs = {*plan.jobs}
    again = (
        plan.command if frozenset(job.overrides.values()) in jobs else _resume(job)
        for job in stopped
        if is_stopped(job)
    )
    commands = list(dict.fromkeys(again)) if directory else []
    measure = next((name for name in ("bits", "accuracy", "perplexity") if name in measured), "loss")
    labels = [row.paper["row"] for row in rows]
    title = f"Runs on {task}"
    table = Table(title, caption, heads, table_rows)
    return Section(title, measure, rows, labels, [table], stopped=stopped, commands=commands)


def _scales(names: Sequence[str]) -> list[tuple[str, tuple[int, int]]]:
    return [(name, SCALES[name]) for name in names]


def _cell(jobs: list[Job], text: str, value: Callable[[Job], float | None], paper: float | None = None) -> Cell:
    """Return a number and the runs behind it, with the seeds and steps it stands for."""
    done = [job for job in jobs if job.results]
    notes: tuple[str, ...] = ()
    if done:
        steps = sorted({job.steps for job in done})
        notes = (
            seeds_line([job.seed for job in done]),
            f"{steps[0]:,} steps" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,} steps",
        )
    lacks = tuple(f"seed {job.seed} {job.state}" for job in jobs if not job.results)
    return Cell(text, notes, lacks, tuple((job, value(job) if job.results else None) for job in jobs), paper)


def seeds_line(seeds: list[str]) -> str:
    """Return which seeds a number is of, in a few words."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    numbers = sorted(int(seed) for seed in seeds if seed.isdecimal())
    if len(seeds) <= MOST_SEEDS or len(numbers) < len(seeds):
        return f"seeds {', '.join(sorted(seeds, key=lambda seed: (len(seed), seed)))}"
    is_range = numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    return f"seeds {numbers[0]} to {numbers[-1]}" if is_range else f"{len(seeds)} seeds"


def _figure(jobs: list[Job], name: str, digits: int, scale: float = 1, spread: bool = True) -> Cell:
    """Return the mean and deviation of a result, without the notes of seeds and steps."""

    def value(job: Job) -> float | None:
        measured = (job.results or {}).get(name)
        return None if measured is None else scale * measured

    values = [found for job in jobs if (found := value(job)) is not None]
    text = mean_and_deviation(values, digits) if spread else f"{fmean(values):.{digits}f}" if values else ""
    return Cell(text or "–", jobs=tuple((job, value(job)) for job in jobs)).measured()


def _over_baseline(jobs: list[Job]) -> Cell:
    pairs = [(job, job.results["test/loss"] / job.results["test/baseline"] if job.results else None) for job in jobs]
    values = [value for _, value in pairs if value is not None]
    return Cell(f"{fmean(values):.4f}" if values else "–", jobs=tuple(pairs)).measured()


def mean_and_deviation(values: list[float], digits: int) -> str:
    """Return a mean with, of more than one value, the standard deviation; empty of none."""
    spread = f" ± {deviation(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{spread}" if values else ""


def deviation(values: list[float]) -> float:
    """Return the standard deviation of a sample of at least two, not a number where one of them is not finite."""
    return stdev(values) if all(map(math.isfinite, values)) else math.nan


def _sizes(jobs: list[Job], paper: float | None = None, as_range: bool = False) -> Cell:
    """Return the numbers of parameters, each once, or the smallest and the largest."""
    pairs = tuple((job, job.results["parameters"] if job.results else None) for job in jobs)
    sizes = list(dict.fromkeys(value for _, value in pairs if value is not None))
    if as_range and len(sizes) > 1:
        text = f"{min(sizes):,.0f} to {max(sizes):,.0f}"
    else:
        text = "\n".join(f"{size:,.0f}" for size in sizes)
    return Cell(text or "–", jobs=pairs, paper=paper, mean=sizes[0] if len(sizes) == 1 else None)


def _published(value: float | None, digits: int) -> Cell:
    return Cell("–" if value is None else f"{value:.{digits}f}")


def _paper_table(sweep: Sweep, rows: list[Row], references: dict[str, float]) -> Table:
    """Return the sweep's measures and the size of each row beside the paper's, for each value of the sweep's column.

    Below them stand references, of which nothing is trained.
    """
    columns = _columns(sweep, rows)
    name = sweep.column.split(".")[-1] if sweep.column else ""
    views = [replace(sweep, measure=measure) for measure in (sweep.measure, *sweep.also)]
    plain = [view.measure if sweep.also else "measured" for view in views]
    shown = [f"{name}={column}" for column in columns] if name else plain
    measured = (head for title in shown for head in (title, "paper"))
    heads = ("row", *measured, "parameters", "paper")
    _, digits = SCALES[sweep.measure]
    told: list[tuple[str, tuple[Cell, ...]]] = []
    for row in rows:
        cells: list[Cell] = []
        for view, column in itertools.product(views, columns):
            published = row.paper.get(view.measure)
            if isinstance(published, dict):
                published = published.get(column)
            cells += [_measured(view, _in_column(sweep, row, column), published), _published(published, digits)]
        in_order = [job for column in columns for job in _in_column(sweep, row, column)]
        parameters = row.paper.get("parameters")
        size = Cell("–" if parameters is None else thousands(parameters))
        told.append((_label(row, rows), (*cells, _sizes(in_order, parameters), size)))
    for reference, value in references.items():
        empty = (Cell("–"),) * (len(heads) - 2)
        told.append((reference, (Cell(f"{value:.{digits}f}", mean=value), *empty)))
    return Table(sweep.title, _caption(_shared_setting(rows)), heads, told)


def _measured(sweep: Sweep, jobs: list[Job], paper: float | None = None) -> Cell:
    """Return the sweep's measure on test with the seeds and steps it stands for, and the seeds that it lacks."""
    if not jobs:
        return Cell("", lacks=("missing",), paper=paper)
    _, digits = SCALES[sweep.measure]
    value = _value_of(sweep.measure)
    text = mean_and_deviation([found for job in jobs if (found := value(job)) is not None], digits)
    cell = _cell(jobs, text, value, paper).measured()
    return replace(cell, lacks=(*cell.lacks, *(f"seed {seed} missing" for seed in _absent(jobs, sweep.axes["seed"]))))


def _value_of(measure: str) -> Callable[[Job], float | None]:
    scale = SCALES[measure][0]

    def value(job: Job) -> float | None:
        found = (job.results or {}).get(f"test/{measure}")
        return None if found is None else scale * found

    return value


def _averages_table(sweep: Sweep, rows: list[Row]) -> Table:
    """Return the average of each row over the lines of the sweep's column, and how many of them it solved."""
    lines = _lines(sweep)
    _, digits = SCALES[sweep.measure]
    told = []
    for row in rows:
        means = [fmean(scores) for line in lines if (scores := _scores(sweep, row, line))]
        published = row.paper.get(sweep.measure)
        average = Cell("", lacks=("missing",), paper=published)
        if means:
            average = replace(
                average,
                text=f"{fmean(means):.{digits}f}{_marks(row.jobs)}",
                mean=fmean(means),
                lacks=(f"of {len(means)} of {len(lines)}",) if len(means) < len(lines) else (),
                jobs=tuple((job, _value_of(sweep.measure)(job)) for job in row.jobs),
            )
        solved = Cell(
            f"{sum(mean >= sweep.solved for mean in means)} of {len(means)}" if means else "–",
            jobs=tuple((job, None) for job in row.jobs),
        )
        cells = (average, _published(published, digits), solved, _sizes(row.jobs, as_range=True))
        told.append((_own_label(row, rows), cells))
    heads = ("row", "average", "paper", f"solved\n(≥ {sweep.solved:g})", "parameters")
    return Table(sweep.title, _caption(common_settings(rows)), heads, told)


def _lines_table(sweep: Sweep, rows: list[Row]) -> Table:
    """Return the measure on each line of the sweep's column of the rows that were run."""
    run = [row for row in rows if row.jobs]
    labels = [_own_label(row, rows).replace(", ", "\n").replace(" (", "\n(") for row in run]
    scale, digits = SCALES[sweep.measure]
    told = []
    for line in _lines(sweep):
        cells, majority = [], "–"
        for row in run:
            scores = _scores(sweep, row, line)
            jobs = _in_column(sweep, row, line)
            pairs = [(job, _score(sweep, job, line)) for job in row.jobs]
            behind = [(job, score) for job, score in pairs if score is not None or job in jobs]
            mean = f"{fmean(scores):.{digits}f}{_marks(jobs)}" if scores else ""
            spread = (f"± {deviation(scores):.{digits}f}",) if len(scores) > 1 else ()
            lacks = tuple(job.state for job in jobs if not job.results)
            cells.append(Cell(mean or ("" if lacks else "–"), spread, lacks, tuple(behind)).measured())
            for job in jobs:
                if job.results and f"test/{MAJORITY}" in job.results:
                    majority = f"{scale * job.results[f'test/{MAJORITY}']:.{digits}f}"
        told.append((line, (*cells, Cell(majority))))
    return Table("", "", (_line_name(sweep), *labels, MAJORITY), told)


def _curves_table(sweep: Sweep, rows: list[Row]) -> Table:
    """Return how each row ended, beside what the paper says of it."""
    told = []
    for row in rows:
        cells = (
            _figure(row.jobs, "test/loss", 4, spread=False),
            _over_baseline(row.jobs),
            _measured(sweep, row.jobs),
            Cell(row.paper.get("finding", "–")),
        )
        told.append((_label(row, rows), cells))
    heads = ("row", "test loss\n(nats)", "loss /\nbaseline", "accuracy on\ntest in %", "the paper says")
    return Table(sweep.title, _caption(_shared_setting(rows)), heads, told, prose=True)


def _caption(shared: Sequence[str]) -> str:
    return f"{CAPTION}; all with {' '.join(shared)}" if shared else CAPTION


def _shared_setting(rows: list[Row]) -> tuple[str, ...]:
    """Return what was overridden in all runs alike, nothing where they differ."""
    settings = {row.setting for row in rows if row.jobs}
    return settings.pop() if len(settings) == 1 else ()


def common_settings(rows: list[Row]) -> list[str]:
    """Return each override that all runs have."""
    settings = [row.setting for row in rows if row.jobs]
    return [said for said in settings[0] if all(said in setting for setting in settings)] if settings else []


def _label(row: Row, rows: list[Row]) -> str:
    """Return a row's name, with what was overridden in it where not all rows share that."""
    own = () if row.setting == _shared_setting(rows) else row.setting
    return "\n".join((row.paper["row"], *own))


def _own_label(row: Row, rows: list[Row]) -> str:
    """Return a row's name, with what was overridden in it and not in all rows."""
    common = common_settings(rows)
    return "\n".join((row.paper["row"], *(said for said in row.setting if said not in common)))


def _columns(sweep: Sweep, rows: list[Row]) -> list[str]:
    """Return the values of the sweep's column, then others that were run; one empty one where there is no column."""
    expected = sweep.axes[sweep.column] if sweep.column else [""]
    found = {sweeps.column_of(sweep, job) for row in rows for job in row.jobs}
    return [*expected, *sorted(found - {*expected})]


def _in_column(sweep: Sweep, row: Row, column: str) -> list[Job]:
    return [job for job in row.jobs if sweeps.column_of(sweep, job) == column]


def _joint_apart(sweep: Sweep, rows: list[Row]) -> list[Row]:
    """Give runs whose value is no line of the sweep, as those of one model for all lines, a row of their own."""
    apart = []
    for row in rows:
        groups: dict[tuple[str, ...], list[Job]] = {} if row.jobs else {row.setting: []}
        for job in row.jobs:
            value = sweeps.column_of(sweep, job)
            own = () if value in _lines(sweep) else (f"{sweep.column}={value}",)
            groups.setdefault((*row.setting, *own), []).append(job)
        apart += [replace(row, setting=setting, jobs=jobs) for setting, jobs in sorted(groups.items())]
    return apart


def _lines(sweep: Sweep) -> list[str]:
    assert sweep.column is not None, "a sweep with the layout tasks has a column"
    return sweep.axes[sweep.column]


def _line_name(sweep: Sweep) -> str:
    return str(sweep.column).rpartition(".")[2]


def _score(sweep: Sweep, job: Job, line: str) -> float | None:
    """Return the measure of a run on a line; a run of one model for all lines has it under a name with the line's."""
    own = "" if sweeps.column_of(sweep, job) == line else f"_{_line_name(sweep)}{line}"
    value = (job.results or {}).get(f"test/{sweep.measure}{own}")
    return None if value is None else SCALES[sweep.measure][0] * value


def _scores(sweep: Sweep, row: Row, line: str) -> list[float]:
    return [score for job in row.jobs if (score := _score(sweep, job, line)) is not None]


def _marks(jobs: list[Job]) -> str:
    """Return the marks of what runs were trained on that is not what their row says."""
    return "".join(
        mark for name, (mark, _) in MARKS.items() if any((job.results or {}).get(f"test/{name}") for job in jobs)
    )


def thousands(count: float) -> str:
    """Return a number as papers print those of parameters: 14k, 7.2M."""
    return f"{count / 1000:g}k" if count < 1e6 else f"{count / 1e6:g}M"


def _ngrams(sweep: Sweep, rows: list[Row]) -> tuple[dict[str, float], list[str]]:
    """Return the measure of the sweep's n-gram models on the text of its runs, or a line why there is none."""
    corpora = [corpus for row in rows for job in row.jobs if (corpus := sweeps.select(job.config, "task.corpus"))]
    if not sweep.ngrams or not corpora:
        return {}, []
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    from gyral.data.text import ngrams
    from gyral.data.text.corpora import cache_folders

    try:
        corpus = instantiate(corpora[0])
    except InstantiationException as error:
        return {}, [f"No n-grams: {error.__cause__}"]
    kept = ngrams.evaluate_once(corpus, max(sweep.ngrams), cache_folders(Path(corpora[0].get("data_dir", "data"))))
    scores = {score.order: score._asdict()[sweep.measure] for score in kept}
    return {f"{order}-gram (Witten–Bell)": scores[order] for order in sweep.ngrams}, []


def _absent(jobs: list[Job], seeds: list[str]) -> list[str]:
    """Return the seeds that no run has."""
    there = {job.seed for job in jobs}
    return [seed for seed in seeds if seed not in there]


def _shortfall(sweep: Sweep, rows: list[Row], directory: Path | None) -> tuple[int, list[str]]:
    """Return how many runs were not started, and the commands that start these and go on with those not done.

    Runs of other settings are other sweeps, with a command each. A run that lies where the sweep would not look for it
    is gone on with by itself, one that is running left alone.
    """
    directory = directory and _home(rows, directory)
    axes = {key: values for key, values in sweep.axes.items() if key not in ("experiment", "seed", sweep.column)}
    seeds, columns = sweep.axes["seed"], sweep.axes[sweep.column] if sweep.column else [""]
    given = [_overridden(sweep, row) for row in rows if row.jobs]
    settings = sorted(set(given), key=lambda setting: (-given.count(setting), setting)) or [()]
    absent, commands, alone = 0, [], []
    for setting in settings:
        lacking: dict[str, list[str]] = {"experiment": [], **({sweep.column: []} if sweep.column else {}), "seed": []}
        for row in rows:
            if (_overridden(sweep, row) if row.jobs else settings[0]) != setting:
                continue
            joint = bool(row.jobs) and sweep.layout == "tasks" and not _in_lines(sweep, row)
            for column in () if joint else columns:
                jobs = _in_column(sweep, row, column)
                missing = _absent(jobs, seeds)
                absent += len(missing)
                own = [job for job in jobs if is_stopped(job) and _is_at_home(job, row, directory)]
                if missing or own:
                    lacking["experiment"].append(row.experiment)
                    lacking["seed"] += [*missing, *(job.seed for job in own)]
                    if sweep.column:
                        lacking[sweep.column].append(column)
            alone += [job for job in row.jobs if is_stopped(job) and (joint or not _is_at_home(job, row, directory))]
        if lacking["experiment"]:
            command = ["python", "-m", "src.train", f"sweep={sweep.name}"]
            for key, values in lacking.items():
                expected = sweep.axes[key]
                wanted = [value for value in expected if value in values]
                command += [f"{key}={','.join(wanted)}"] if wanted and len(wanted) < len(expected) else []
            command += [override for override in setting if override.partition("=")[0] not in axes]
            if directory is not None and directory != sweeps.DIRECTORY / sweep.name:
                command.append(cli.plain(f"hydra.sweep.dir={directory}"))
            commands.append(cli.typed(command))
    return absent, commands + [_resume(job) for job in alone if directory]


def _overridden(sweep: Sweep, row: Row) -> tuple[str, ...]:
    """Return what all runs of a row were given besides the axes: a job's directory is named after all of it."""
    axes = {*sweep.axes, "sweep"}
    given = [{o for key, o in job.overrides.items() if key not in axes} for job in row.jobs]
    return tuple(sorted(set.intersection(*given))) if given else ()


def _in_lines(sweep: Sweep, row: Row) -> bool:
    return all(sweeps.column_of(sweep, job) in _lines(sweep) for job in row.jobs)


def is_stopped(job: Job) -> bool:
    """Whether a run is neither done nor running."""
    return not job.results and not job.running


def _home(rows: list[Row], directory: Path) -> Path:
    """Return the folder of the sweep: the one in which most of its runs lie as a sweep puts them."""
    places = [Path(job.place).parent for row in rows for job in row.jobs if _is_in_row(job, row)]
    homes = Counter(place.parent for place in places)
    return homes.most_common(1)[0][0] if homes else directory


def _is_in_row(job: Job, row: Row) -> bool:
    return Path(job.place).parent.name == runs.base_name(row.experiment)


def _is_at_home(job: Job, row: Row, directory: Path | None) -> bool:
    """Whether a run lies where its sweep, started again, goes on with it."""
    return directory is None or Path(job.place).parent == directory / runs.base_name(row.experiment)


def _resume(job: Job) -> str:
    return cli.typed(["python", "-m", "src.train", cli.plain(f"resume={job.place}")])
