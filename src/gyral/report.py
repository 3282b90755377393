"""Report runs next to the published values, or draw a figure of one run. Imports no torch.

    python -m src.report sweep=rum_paper_table1

See `python -m src.report --help`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig

from gyral.config import command_line as cli
from gyral.config.groups import choices
from gyral.core.checks import check_boolean
from gyral.core.errors import OptionError
from gyral.core.inputs import path_of
from gyral.plotting.sizes import SUFFIXES as FIGURE_SUFFIXES
from gyral.reports import sweep_report
from gyral.reports.plots.options import Options
from gyral.reports.render import SUFFIXES
from gyral.reports.tables.columns import read_names
from gyral.runs.directory import Run, load_run

LIST = "list"  # the value of figure= that lists the figures of a run
OF_TABLES = {  # options that figures do not have, with their defaults
    **{"sweep": None, "columns": None, "records": None},
    **{"runs": False, "all": False, "missing": True, "watch": False},
}
PLOT_OPTIONS = ("plot", "x", "y", "log", "seeds")  # that need a file to draw


def report(config: DictConfig) -> None:
    """Print the report of a sweep and write it and its figures to files, or draw a figure of one run."""
    watch, with_runs, everything, missing = (
        check_boolean(name, config[name]) for name in ("watch", "runs", "all", "missing")
    )
    names = config.save if isinstance(config.save, ListConfig) else [config.save]
    saved = [path_of(name) for name in names if name]
    for path in saved:
        if path.suffix not in (*SUFFIXES, *FIGURE_SUFFIXES):
            raise OptionError("save", path, f"must end in one of {', '.join((*SUFFIXES, *FIGURE_SUFFIXES))}")
    options = Options.check(*(config[name] for name in (*PLOT_OPTIONS, "width")))
    unused = [name for name in PLOT_OPTIONS if config[name] is not None]
    if unused and not any(path.suffix in FIGURE_SUFFIXES for path in saved):
        reason = f"draws nothing without save=<file>, which ends in one of {', '.join(FIGURE_SUFFIXES)}"
        raise OptionError(unused[0], config[unused[0]], reason)
    columns, only = read_names("columns", config.columns), read_names("only", config.only)
    if only and (config.sweep is None or config.figure is not None):
        raise OptionError("only", config.only, "chooses runs of sweep=<name or directory>, not figures")
    for name, default in OF_TABLES.items() if config.figure is not None else ():
        if config[name] != default:
            raise OptionError(name, config[name], "is an option of tables, not of figures")
    if config.width is not None and not any(path.suffix in (".tex", *FIGURE_SUFFIXES) for path in saved):
        raise OptionError("width", config.width, "needs save=<file> with a table (.tex) or a plot (.pdf, .svg, .png)")
    if config.records == "":
        raise OptionError("records", "", "must be a folder")
    if config.records is not None and config.sweep is None:
        raise OptionError("records", config.records, "needs sweep=<name or directory>, the runs to record")
    if config.figure is not None:
        run = None if config.run is None else path_of(config.run)
        if config.figure == LIST and run is not None:
            print(list_figures(run, config.trust))
            return
        for path in saved:
            if path.suffix not in FIGURE_SUFFIXES:
                raise OptionError("save", path, f"must end in one of {', '.join(FIGURE_SUFFIXES)} for a figure")
        others = [path_of(name) for name in read_directories(config.beside)]
        for path in draw_figure(str(config.figure), run, config.trust, others, saved):
            print(path)
    elif config.run is not None:
        raise OptionError("run", config.run, "needs figure=<name>, the figure to draw from the run")
    elif config.beside is not None and config.sweep is None:
        reason = "needs sweep=<name or directory>, or figure=<name> and run=<run directory>"
        raise OptionError("beside", config.beside, reason)
    elif config.sweep is None:
        allowed = ", ".join(choices("sweep"))
        raise OptionError(
            "sweep", "<nothing>", f"must be one of {allowed}, or a directory that contains runs; or give figure=<name>"
        )
    else:
        if watch:
            from gyral.reports import progress

            progress.watch(str(config.sweep), only)
        archive, beside = (None if name is None else path_of(name) for name in (config.records, config.beside))
        shown: dict[str, Any] = {"everything": everything, "only": only, "missing": missing, "beside": beside}
        sweep_report.report_sweep(str(config.sweep), saved, with_runs, options, columns, config.width, archive, **shown)


def read_directories(beside: Any) -> list[str]:
    """Return the directories in the option `beside`: one, or several as [a,b], where a name with a comma has quotes."""
    text = "" if beside is None else str(beside)
    return read_names("beside", text) if text.startswith("[") else [text] if text else []


def draw_figure(
    name: str,
    directory: Path | None,
    trust: Any = None,
    beside: Sequence[Path] = (),
    saved: Sequence[Path] = (),
) -> list[Path]:
    """Draw a figure of one run, see `gyral.figures.drawing`, and return its files.

    Args:
        name: the figure.
        directory: the run directory, None for figures without a run.
        trust: the modules that the configuration of the run may name, see `gyral.config.trust`.
        beside: the directories of further runs, which are shown beside the first.
        saved: the files, none for those in the run directory.

    Raises:
        OptionError: the figure is unknown, or the run does not have its data.
    """
    from gyral.figures import drawing

    if name in drawing.WITHOUT_RUN:
        for option, value in (("run", directory), ("beside", ", ".join(map(str, beside)) or None)):
            if value is not None:
                raise OptionError(option, value, f"figure={name} shows no run")
        return drawing.draw(name, (), {}, saved)
    if directory is None:
        if name in drawing.FIGURES:
            raise OptionError("run", "<nothing>", f"figure={name} needs a run directory")
        allowed = ", ".join((*drawing.FIGURES, *drawing.WITHOUT_RUN))
        reason = f"must be one of {allowed}, or with run=<run directory> a figure that its task offers"
        raise OptionError("figure", name, reason)
    run = load_run(directory, trust)
    others = [load_run(other, trust, "beside") for other in beside]
    return drawing.draw(name, (run, *others), figures_of(run), saved)


def figures_of(run: Run) -> dict[str, Callable[..., Any]]:
    """Return the figures that the task of a run offers."""
    from gyral import applications
    from gyral.training import build

    return applications.offers("figures", build.task_class(run))


def list_figures(directory: Path, trust: Any) -> str:
    """Return the names of all figures of a run, one a line."""
    from gyral.figures import drawing

    return "\n".join((*drawing.FIGURES, *figures_of(load_run(directory, trust))))


def main() -> None:
    """Run `gyral report` on the command line's arguments."""
    literal = ("sweep", "columns", "only", "beside", "records")
    cli.main(report, "_report/report", literal, runs_jobs=False, explains=True)


if __name__ == "__main__":
    main()
