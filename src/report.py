"""What runs measured, for people: tables in the terminal, loss curves as pictures. Imports no torch.

    python -m src.report sweep=rum_paper_table1

See `python -m src.report --help`.
"""

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from omegaconf import DictConfig
from rich import box
from rich.console import Console
from rich.table import Table

from src import cli, runs, sweeps
from src.checks import OptionError
from src.sweeps import Job, Row, Sweep

LOSS_CURVE = "loss.png"
LOSS_CURVES = "loss_curves"  # of a sweep, .png and .pdf

# Okabe and Ito's colours, which the colour-blind tell apart, and four more; black is the baseline's. Colours, dashes
# and markers are gone through side by side: neighbours differ in all three, and no two of 180 curves are alike.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#332288", "#56b4e9", "#e69f00", "#8c510a", "#a0a000", "#7f7f7f")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")
UNBOUNDED = 1000  # characters a line where there is no terminal to fit into
SCALES = {"accuracy": (100, 1), "bits": (1, 3), "perplexity": (1, 1)}  # factor and digits of a sweep's measure
MAJORITY = "majority"
MARKS = {  # of results by what a run says of its data: sign and meaning
    "stand_ins": ("°", "trained on the 1k file, as the 10k one is not there"),
    "generated": ("*", "on GENERATED stories, which are not bAbI's"),
}
LINEAR = 2  # the linear axis ends at so many baselines: before learning the loss is 50 times as high


# What tasks measure besides their loss: name, label, format.
MEASURES = (
    ("bits", "test bits per symbol", ".4f"),
    ("perplexity", "test perplexity", ".2f"),
    ("accuracy", "test accuracy", ".2%"),
    ("majority", "most frequent answer", ".2%"),
    ("sequence_accuracy", "sequences all right", ".2%"),
)


def print_results(directory: Path, results: dict[str, float]) -> None:
    """Print the short table that ends a run."""
    loss, baseline = results["test/loss"], results["test/baseline"]
    here = Path.cwd()
    factor = baseline / loss if loss > 0 else math.inf
    beaten = f"yes, by a factor of {factor:.4g}" if factor > 1 else "no"
    measured = {
        label: format(results[f"test/{name}"], form) for name, label, form in MEASURES if f"test/{name}" in results
    }
    rows = {
        "test loss (nats)": f"{loss:.4g}",
        **measured,
        "memoryless baseline (nats)": f"{baseline:.4g}",
        "baseline beaten": beaten,
        **({"data": "GENERATED stories"} if results.get("test/generated") else {}),
        "parameters": f"{results['parameters']:,.0f}",
        "seconds a step": f"{seconds:.3g}" if (seconds := results["seconds_a_step"]) else "not measured",
        "run directory": str(directory.relative_to(here) if directory.is_relative_to(here) else directory),
    }
    _print_table(rows)


def print_metrics(title: str, metrics: dict[str, float]) -> None:
    """Print metrics with all their digits, so that two evaluations can be compared."""
    _print_table({"checkpoint": title, **{name: f"{value:.8g}" for name, value in metrics.items()}})


def _print_table(rows: dict[str, str]) -> None:
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)


def plot_losses(directory: Path) -> Path:
    """Draw training and validation loss against the memoryless baseline; return the picture's path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    positive = False
    for name, label, style in (
        ("train/loss", "training", {"linewidth": 1}),
        ("val/loss", "validation", {"linewidth": 1.8, "marker": "o", "markersize": 4}),
    ):
        steps, values = runs.read_metrics(directory, name)
        positive |= any(value > 0 for value in values)
        axes.plot(steps, values, label=label, **style)
    _, baseline = runs.read_metrics(directory, "train/baseline")
    if baseline:
        axes.axhline(baseline[0], color="black", linestyle="--", linewidth=1.2, label="memoryless baseline")
    axes.set(
        xlabel="optimizer steps", ylabel="loss (nats)", yscale="log" if positive else "linear", title=directory.name
    )
    axes.grid(alpha=0.3)
    axes.legend()
    FigureCanvasAgg(figure).print_png(directory / LOSS_CURVE)
    return directory / LOSS_CURVE


def report(config: DictConfig) -> None:
    """Show a sweep's results, or draw a figure of one run."""
    if config.figure is not None:
        from src import figures

        print(figures.draw(str(config.figure), None if config.run is None else Path(str(config.run))))
    elif config.run is not None:
        raise OptionError(f"run={config.run}: is what a figure is drawn of; figure=<name> says which")
    elif config.sweep is None:
        allowed = ", ".join(sweeps.names())
        raise OptionError(f"sweep=<nothing>: must be one of {allowed}, or a directory that holds runs; or give figure=")
    else:
        report_sweep(str(config.sweep))


def report_sweep(where: str) -> None:
    """Print the tables and draw the figures whose rows were run in a directory.

    Args:
        where: a name in conf/sweep, or a directory.

    Raises:
        OptionError: there is no such directory, or no run of any sweep's rows in it.
    """
    directory = sweeps.find(where)
    jobs, broken = sweeps.read(directory)
    names = sweeps.names()
    known = [sweeps.load(name) for name in ([where] if where in names else names)]
    shown = [sweep for sweep in known if any(job.experiment in sweep.papers for job in jobs)]
    if not shown:
        found = f"none of the {len(jobs)} runs there is" if jobs else "there is no run there, let alone one"
        said = f"; {len(broken)} cannot be read, the first {broken[0]}" if broken else ""
        raise OptionError(f"sweep={where}: {found} of a row of {', '.join(s.name for s in known)}{said}")
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = UNBOUNDED
    for sweep in shown:
        mine = [job for job in jobs if job.experiment in sweep.papers]
        rows = sweeps.rows_of(sweep, mine)
        if sweep.layout == "table":
            references, absent = _ngrams(sweep, rows)
            console.print(_paper_table(sweep, rows, references))
            console.print(*absent, end="", soft_wrap=True)
        elif sweep.layout == "tasks":
            apart = _joint_apart(sweep, rows)
            console.print(_averages_table(sweep, apart), _lines_table(sweep, apart), sep="\n")
            for mark, meaning in MARKS.values():
                if any(mark in _marks(row.jobs) for row in apart):
                    console.print(f"{mark} {meaning}", soft_wrap=True)
        else:
            console.print(_curves_table(sweep, rows))
            console.print(f"Drawn: {draw_curves(sweep, rows, directory)}", soft_wrap=True)
        _print_shortfall(console, sweep, rows, directory)
    for line in broken:
        console.print(line, soft_wrap=True)


def _paper_table(sweep: Sweep, rows: list[Row], references: dict[str, float]) -> Table:
    """Return the sweep's measure and the size of each row beside the paper's, for each value of the sweep's column.

    Below them stand references, of which nothing is trained.
    """
    columns = _columns(sweep, rows)
    table = _new_table(sweep, _shared_setting(rows))
    for column in columns:
        name = f"{sweep.column.split('.')[-1]}={column}" if sweep.column else "measured"
        table.add_column(name, justify="right", min_width=13)
        table.add_column("paper", justify="right", min_width=5)
    table.add_column("parameters", justify="right", min_width=10)
    table.add_column("paper", justify="right", min_width=5)
    _, digits = SCALES[sweep.measure]
    for row in rows:
        cells, sizes = [], []
        for column in columns:
            jobs = _in_column(sweep, row, column)
            published = row.paper.get(sweep.measure)
            if isinstance(published, dict):
                published = published.get(column)
            cells += [_measured(sweep, jobs), "–" if published is None else f"{published:.{digits}f}"]
            sizes += [f"{job.results['parameters']:,.0f}" for job in jobs if job.results]
        parameters = row.paper.get("parameters")
        published = "–" if parameters is None else thousands(parameters)
        table.add_row(_label(row, rows), *cells, "\n".join(dict.fromkeys(sizes)) or "–", published)
    for name, value in references.items():
        table.add_row(name, f"{value:.{digits}f}", "–", "–", "–")
    return table


def _averages_table(sweep: Sweep, rows: list[Row]) -> Table:
    """Return the average of each row over the lines of the sweep's column, and how many of them it solved."""
    table = _new_table(sweep, _common_settings(rows))
    for name in ("average", "paper", f"solved\n(≥ {sweep.solved:g})", "parameters"):
        table.add_column(name, justify="right", min_width=5)
    lines = _lines(sweep)
    _, digits = SCALES[sweep.measure]
    for row in rows:
        means = [fmean(scores) for line in lines if (scores := _scores(sweep, row, line))]
        average = "missing"
        if means:
            average = f"{fmean(means):.{digits}f}{_marks(row.jobs)}"
            average += f"\nof {len(means)} of {len(lines)}" if len(means) < len(lines) else ""
        published = row.paper.get(sweep.measure)
        sizes = sorted({f"{job.results['parameters']:,.0f}" for job in row.jobs if job.results}, key=len)
        table.add_row(
            _own_label(row, rows),
            average,
            "–" if published is None else f"{published:.{digits}f}",
            f"{sum(mean >= sweep.solved for mean in means)} of {len(means)}" if means else "–",
            " to ".join(dict.fromkeys((min(sizes), max(sizes)))) if sizes else "–",
        )
    return table


def _lines_table(sweep: Sweep, rows: list[Row]) -> Table:
    """Return the measure on each line of the sweep's column of the rows that were run."""
    run = [row for row in rows if row.jobs]
    table = Table(box=box.HORIZONTALS, padding=(0, 1, 0, 0))
    table.add_column(_line_name(sweep), justify="right")
    for row in run:
        table.add_column(_own_label(row, rows).replace(", ", "\n").replace(" (", "\n("), justify="right", min_width=6)
    table.add_column("majority", justify="right", min_width=8)
    scale, digits = SCALES[sweep.measure]
    for line in _lines(sweep):
        cells, majority = [], "–"
        for row in run:
            scores = _scores(sweep, row, line)
            jobs = _in_column(sweep, row, line)
            told = [f"{fmean(scores):.{digits}f}{_marks(jobs)}"] if scores else []
            told += [f"± {stdev(scores):.{digits}f}"] if len(scores) > 1 else []
            told += [job.state for job in jobs if not job.results]
            cells.append("\n".join(told) or "–")
            for job in jobs:
                if job.results and f"test/{MAJORITY}" in job.results:
                    majority = f"{scale * job.results[f'test/{MAJORITY}']:.{digits}f}"
        table.add_row(line, *cells, majority)
    return table


def _own_label(row: Row, rows: list[Row]) -> str:
    """Return a row's name, with what was overridden in it and not in all rows."""
    common = _common_settings(rows)
    return "\n".join((row.paper["row"], *(said for said in row.setting if said not in common)))


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


def _scores(sweep: Sweep, row: Row, line: str) -> list[float]:
    """Return the measure on a line of each run that is done; one for all lines has it under a name with the line's."""
    scale, _ = SCALES[sweep.measure]
    found = []
    for job in row.jobs:
        own = "" if sweeps.column_of(sweep, job) == line else f"_{_line_name(sweep)}{line}"
        value = (job.results or {}).get(f"test/{sweep.measure}{own}")
        found += [] if value is None else [scale * value]
    return found


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
    configs = [job.config for row in rows for job in row.jobs if "corpus" in job.config.task]
    if not sweep.ngrams or not configs:
        return {}, []
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    from src.data import ngrams

    try:
        corpus = instantiate(configs[0].task.corpus)
    except InstantiationException as error:
        return {}, [f"No n-grams: {error.__cause__}\n"]
    scores = {score.order: score._asdict()[sweep.measure] for score in ngrams.evaluate(corpus, max(sweep.ngrams))}
    return {f"{order}-gram (Witten–Bell)": scores[order] for order in sweep.ngrams}, []


def _curves_table(sweep: Sweep, rows: list[Row]) -> Table:
    """Return how each row ended, beside what the paper says of it."""
    table = _new_table(sweep, _shared_setting(rows))
    table.add_column("test loss\n(nats)", justify="right", min_width=9)
    table.add_column("loss /\nbaseline", justify="right", min_width=8)
    table.add_column("accuracy on\ntest in %", justify="right", min_width=13)
    table.add_column("the paper says")
    for row in rows:
        losses = _mean(row.jobs, lambda results: results["test/loss"])
        factors = _mean(row.jobs, lambda results: results["test/loss"] / results["test/baseline"])
        accuracy = _measured(sweep, row.jobs)
        table.add_row(_label(row, rows), losses, factors, accuracy, row.paper.get("finding", "–"))
    return table


def _new_table(sweep: Sweep, shared: Sequence[str]) -> Table:
    """Return a table without columns but the rows' names, which says which overrides all runs share."""
    caption = "mean ± standard deviation over seeds, of the checkpoints best on validation"
    if shared:
        caption += f"; all with {' '.join(shared)}"
    table = Table(title=sweep.title, caption=caption, box=box.HORIZONTALS, show_lines=True, padding=(0, 1, 0, 0))
    table.add_column("row", min_width=12)
    return table


def _shared_setting(rows: list[Row]) -> tuple[str, ...]:
    """Return what was overridden in all runs alike, nothing where they differ."""
    settings = {row.setting for row in rows if row.jobs}
    return settings.pop() if len(settings) == 1 else ()


def _common_settings(rows: list[Row]) -> list[str]:
    """Return each override that all runs have."""
    settings = [row.setting for row in rows if row.jobs]
    return [said for said in settings[0] if all(said in setting for setting in settings)] if settings else []


def _label(row: Row, rows: list[Row]) -> str:
    """Return a row's name, with what was overridden in it where not all rows share that."""
    own = () if row.setting == _shared_setting(rows) else row.setting
    return "\n".join((row.paper["row"], *own))


def _columns(sweep: Sweep, rows: list[Row]) -> list[str]:
    """Return the values of the sweep's column, then others that were run; one empty one where there is no column."""
    expected = sweep.axes[sweep.column] if sweep.column else [""]
    found = {sweeps.column_of(sweep, job) for row in rows for job in row.jobs}
    return [*expected, *sorted(found - {*expected})]


def _in_column(sweep: Sweep, row: Row, column: str) -> list[Job]:
    return [job for job in row.jobs if sweeps.column_of(sweep, job) == column]


def _mean(jobs: list[Job], figure: Callable[[dict[str, float]], float]) -> str:
    values = [figure(job.results) for job in jobs if job.results]
    return f"{fmean(values):.4f}" if values else "–"


def _measured(sweep: Sweep, jobs: list[Job]) -> str:
    """Return the sweep's measure on test with the seeds and steps it stands for, and the seeds that it lacks."""
    if not jobs:
        return "missing"
    lines = []
    done = [(job, job.results) for job in jobs if job.results]
    if done:
        scale, digits = SCALES[sweep.measure]
        values = [scale * results[f"test/{sweep.measure}"] for _, results in done]
        steps = sorted({job.steps for job, _ in done})
        lines += [
            f"{fmean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""),
            f"{'seed' if len(done) == 1 else 'seeds'} {', '.join(job.seed for job, _ in done)}",
            f"{steps[0]:,} steps" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,} steps",
        ]
    lines += [f"seed {job.seed} {job.state}" for job in jobs if not job.results]
    lines += [f"seed {seed} missing" for seed in _absent(jobs, sweep.axes["seed"])]
    return "\n".join(lines)


def _absent(jobs: list[Job], seeds: list[str]) -> list[str]:
    """Return the seeds that no run has."""
    there = {job.seed for job in jobs}
    return [seed for seed in seeds if seed not in there]


def _print_shortfall(console: Console, sweep: Sweep, rows: list[Row], directory: Path) -> None:
    """Print where the runs lie that are not DONE, how many were not started, and the command that goes on."""
    stopped = [job for row in rows for job in row.jobs if not job.results]
    for job in stopped:
        reason = (job.directory / runs.FAILED).read_text().strip().splitlines()[-1:] if job.failed else []
        console.print(": ".join((job.state, str(job.directory), *reason)), soft_wrap=True)
    seeds, columns = sweep.axes["seed"], sweep.axes[sweep.column] if sweep.column else [""]
    absent = sum(len(_absent(_in_column(sweep, row, column), seeds)) for row in rows for column in columns)
    if stopped or absent:
        command = ["python", "-m", "src.train", f"sweep={sweep.name}", *_shared_setting(rows)]
        if directory != sweeps.DIRECTORY / sweep.name:
            command.append(f"hydra.sweep.dir={directory}")
        console.print(
            f"Runs missing: {absent}, not done: {len(stopped)}. To go on: {shlex.join(command)}", soft_wrap=True
        )


def draw_curves(sweep: Sweep, rows: list[Row], directory: Path) -> Path:
    """Draw the training losses of all runs against the memoryless baseline, on a logarithmic and on a linear axis.

    Written are loss_curves.png and loss_curves.pdf in the directory; returned is the first.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 11}):
        figure = Figure(figsize=(9, 9.5), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        baselines: set[float] = set()
        intervals: set[int] = set()
        for index, row in enumerate(rows):
            style: dict[str, Any] = {
                "color": COLOURS[index % len(COLOURS)],
                "linestyle": DASHES[index % len(DASHES)],
                "marker": MARKERS[index % len(MARKERS)],
            }
            # the axis shows how many steps there were, the title what all runs share
            shared = _common_settings(rows)
            own = [said for said in row.setting if said not in shared and not said.startswith("trainer.max_steps=")]
            label = "\n".join((row.paper["row"], *own))
            label += "" if all(job.results for job in row.jobs) else " (not done)"
            for job in row.jobs:
                logged = runs.read_metrics(job.directory, "train/loss") if job.steps else ([], [])
                points = [(step, loss) for step, loss in zip(*logged, strict=True) if math.isfinite(loss)]
                if not points:
                    continue
                marks = (index / len(rows) / 8, 0.125)  # beside, not on one another
                for axes in (upper, lower):
                    axes.plot(
                        *zip(*points, strict=True), label=label, linewidth=1.4, markersize=5, markevery=marks, **style
                    )
                label = "_"  # one entry in the legend for all seeds
                baselines.update(runs.read_metrics(job.directory, "train/baseline")[1][:1])
                intervals.add(logged[0][0])
        for axes in (upper, lower):
            for index, baseline in enumerate(sorted(baselines)):
                label = "_" if index else "memoryless baseline"
                axes.axhline(baseline, color="black", linewidth=3, zorder=1.5, label=label)
            axes.grid(alpha=0.3)
            axes.set_ylabel("training loss (nats)")
        positive = any(value > 0 for line in upper.lines for value in line.get_ydata())
        upper.set_yscale("log" if positive else "linear")
        lower.set_xlabel("optimizer steps")
        if baselines:
            lower.set_ylim(0, LINEAR * max(baselines))
            lower.set_title(f"linear, cut off at {LINEAR} times the baseline", loc="left", fontsize="medium")
        upper.set_title("logarithmic", loc="left", fontsize="medium")
        means = ", ".join(map(str, sorted(intervals)))
        told = (sweep.title, " ".join(_common_settings(rows)), f"each point is the mean of {means} steps")
        figure.suptitle("; ".join(filter(None, told)), x=0.01, ha="left")
        figure.legend(*upper.get_legend_handles_labels(), loc="outside lower center", ncols=3, handlelength=3.5)
        figure.align_ylabels()
        figure.savefig(directory / f"{LOSS_CURVES}.pdf", metadata={"CreationDate": None})
        figure.savefig(directory / f"{LOSS_CURVES}.png", dpi=150)
    return directory / f"{LOSS_CURVES}.png"


if __name__ == "__main__":
    cli.main(report, "_report/report")
