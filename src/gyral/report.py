"""What runs measured, for people: tables in the terminal, loss curves as pictures. Imports no torch.

    python -m src.report sweep=rum_paper_table1

See `python -m src.report --help`.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig
from rich.console import Console
from rich.table import Table

from gyral import runs
from gyral.config import command_line as cli
from gyral.core.checks import check_boolean
from gyral.core.errors import OptionError
from gyral.reports import catalogue as sweeps
from gyral.reports import tables
from gyral.reports.catalogue import Job
from gyral.reports.render import formats
from gyral.reports.tables import Section

LOSS_CURVE = "loss.png"
LOSS_CURVES = "loss_curves"  # of a sweep, .png and .pdf
SAVED = (".html", ".md", ".tex", ".csv")
REFRESH = 2  # seconds from one look at a sweep that is watched to the next

# Okabe and Ito's colours, which the colour-blind tell apart, and four more; black is the baseline's. Colours, dashes
# and markers are gone through side by side: neighbours differ in all three, and no two of 180 curves are alike.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#332288", "#56b4e9", "#e69f00", "#8c510a", "#a0a000", "#7f7f7f")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")
LINEAR = 2  # the linear axis ends at so many baselines: before learning the loss is 50 times as high


# What tasks measure besides their loss: name, label, format.
MEASURES = (
    ("bits", "test bits per symbol", ".4f"),
    ("perplexity", "test perplexity", ".2f"),
    ("accuracy", "test accuracy", ".2%"),
    ("rouge1", "ROUGE-1", ".2f"),
    ("rouge2", "ROUGE-2", ".2f"),
    ("rougeL", "ROUGE-L", ".2f"),
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
    """Show what runs came to, or draw a figure of one run."""
    watched = check_boolean("watch", config.watch)
    with_runs = check_boolean("runs", config.runs)
    saved = [
        Path(str(name)) for name in (config.save if isinstance(config.save, ListConfig) else [config.save]) if name
    ]
    for path in saved:
        if path.suffix not in SAVED:
            raise OptionError(f"save={path}: must end in one of {', '.join(SAVED)}")
    if config.figure is not None:
        from gyral.reports import figures

        print(figures.draw(str(config.figure), None if config.run is None else Path(str(config.run))))
    elif config.run is not None:
        raise OptionError(f"run={config.run}: is what a figure is drawn of; figure=<name> says which")
    elif config.sweep is None:
        allowed = ", ".join(cli.choices("sweep"))
        raise OptionError(f"sweep=<nothing>: must be one of {allowed}, or a directory that holds runs; or give figure=")
    else:
        where = str(config.sweep)
        if watched:
            watch(where)
        report_sweep(where, saved, with_runs)


def collect(
    where: str, known: dict[str, Job] | None = None, references: bool = True
) -> tuple[list[Section], list[str], Path | None]:
    """Return what there is to say of the runs of a sweep, a line for each that cannot be read, and where they lie.

    Args:
        where: a name in conf/sweep, a directory, or wandb:<entity>/<project>.
        known: runs that were read before, by place.
        references: as `tables.sections` has it.

    Raises:
        OptionError: there is no such place, or no run there.
    """
    if where.startswith(remote_prefix := "wandb:"):
        from gyral.reports import wandb_runs as remote

        directory = None
        jobs, told = remote.read(where.removeprefix(remote_prefix))
    else:
        directory = sweeps.find(where)
        jobs, told = sweeps.read(directory, known)
    if not jobs:
        broken = f"; {len(told)} cannot be read, the first {told[0]}" if told else ""
        raise OptionError(f"sweep={where}: there is no run there{broken}")
    only = where if where in {sweep.name for sweep in sweeps.named()} else None
    return tables.sections(jobs, directory, only, references), told, directory


def report_sweep(where: str, saved: Sequence[Path] = (), with_runs: bool = False) -> None:
    """Print the tables of the runs of a sweep or a directory, draw their figures, and write them as files.

    Args:
        where: a name in conf/sweep, a directory, or wandb:<entity>/<project>.
        saved: files to write, in the format that their suffix says, one of `SAVED`.
        with_runs: whether to list the runs behind the numbers.

    Raises:
        OptionError: there is no such place, no run there, or a file that cannot be written.
    """
    sections, told, directory = collect(where)
    console = formats.console_for()
    for section in sections:
        formats.print_report(console, [section], [], with_runs)
        if section.sweep and section.sweep.layout == "curves" and directory:
            try:
                console.print(f"Drawn: {draw_curves(section, directory)}", soft_wrap=True)
            except OSError as error:
                console.print(f"Not drawn: {error.filename}: {error.strerror}", soft_wrap=True)
    formats.print_report(console, [], told, with_runs)
    for path in saved:
        runs.write_atomically(path, rendered(path.suffix, where, sections, told, with_runs))
        console.print(f"Written: {path}", soft_wrap=True)


def rendered(suffix: str, where: str, sections: list[Section], told: list[str], with_runs: bool) -> str:
    """Return a report as the text of a file whose name ends in one of `SAVED`."""
    if suffix == ".html":
        from gyral.reports.render import html as page

        return page.render(where, sections, told)
    if suffix == ".md":
        return formats.markdown(sections, told, with_runs)
    return formats.latex(sections, told) if suffix == ".tex" else formats.as_csv(sections)


def watch(where: str) -> None:
    """Show how far the runs of a sweep are, anew every few seconds, until all have ended or Ctrl-C is pressed.

    Where there is no terminal, a line is printed whenever something has changed.
    """
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    console = formats.console_for()
    known: dict[str, Job] = {}
    last = ""
    with Live(console=console, auto_refresh=False, screen=console.is_terminal, vertical_overflow="ellipsis") as live:
        try:
            while True:
                sections, told, _ = collect(where, known, references=False)
                jobs = [job for section in sections for job in section.jobs]
                known = {job.place: job for job in jobs}
                absent = sum(section.absent for section in sections)
                line = progress_line(jobs, absent, told)
                if console.is_terminal:
                    shown = [formats.terminal_table(table) for section in sections for table in section.tables]
                    live.update(Group(Text(f"{line}; Ctrl-C ends this view"), *shown), refresh=True)
                elif line != last:
                    console.print(line, soft_wrap=True)
                last = line
                if not absent and all(job.results or job.failed for job in jobs):
                    return
                time.sleep(REFRESH)
        except KeyboardInterrupt:  # how one ends it
            return


def progress_line(jobs: list[Job], absent: int, told: list[str]) -> str:
    """Return how many runs are how far."""
    done, failed = sum(bool(job.results) for job in jobs), sum(job.failed for job in jobs if not job.results)
    running = [job for job in jobs if job.running and not job.results]
    stopped = len(jobs) - done - failed - len(running)
    counts = {
        "done": done,
        "running": len(running),
        "unfinished": stopped,
        "FAILED": failed,
        "missing": absent,
        "unreadable": len(told),
    }
    steps = f"; running at step {', '.join(f'{job.steps:,}' for job in running)}" if running else ""
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "done") + steps


def draw_curves(section: Section, directory: Path) -> Path:
    """Draw the training losses of all runs against the memoryless baseline, on a logarithmic and on a linear axis.

    Written are loss_curves.png and loss_curves.pdf in the directory; returned is the first.
    """
    import matplotlib
    from matplotlib.figure import Figure

    rows = section.rows
    shared = tables.common_settings(rows)
    with matplotlib.rc_context({"font.size": 11}):
        figure = Figure(figsize=(9, 9.5), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        baselines: set[float] = set()
        intervals: set[int] = set()
        thinned = False
        for index, row in enumerate(rows):
            style: dict[str, Any] = {
                "color": COLOURS[index % len(COLOURS)],
                "linestyle": DASHES[index % len(DASHES)],
                "marker": MARKERS[index % len(MARKERS)],
            }
            # the axis shows how many steps there were, the title what all runs share
            own = [said for said in row.setting if said not in shared and not said.startswith("trainer.max_steps=")]
            label = "\n".join((row.paper["row"], *own))
            label += "" if all(job.results for job in row.jobs) else " (not done)"
            curves = [curve for job in row.jobs if (curve := job.curves.get("train/loss")) and curve.values]
            # a line for all seeds, with gaps between them: a thousand lines take many times as long
            steps = [step for curve in curves for step in (*curve.steps, math.nan)]
            losses = [loss for curve in curves for loss in (*curve.values, math.nan)]
            marks = (index / len(rows) / 8, 0.125)  # beside, not on one another
            for axes in (upper, lower) if curves else ():
                axes.plot(steps, losses, label=label, linewidth=1.4, markersize=5, markevery=marks, **style)
            baselines.update(job.baseline for job in row.jobs if job.baseline is not None)
            intervals.update(curve.interval for curve in curves)
            thinned |= any(curve.logged > len(curve.values) for curve in curves)
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
        told = (section.title, " ".join(shared), f"each point is the mean of {means} steps" + "; thinned" * thinned)
        figure.suptitle("; ".join(filter(None, told)), x=0.01, ha="left")
        figure.legend(*upper.get_legend_handles_labels(), loc="outside lower center", ncols=3, handlelength=3.5)
        figure.align_ylabels()
        figure.savefig(directory / f"{LOSS_CURVES}.pdf", metadata={"CreationDate": None})
        figure.savefig(directory / f"{LOSS_CURVES}.png", dpi=150)
    return directory / f"{LOSS_CURVES}.png"


def main() -> None:
    """Run `gyral report` on the command line's arguments."""
    cli.main(report, "_report/report")


if __name__ == "__main__":
    main()
