"""Report runs next to the published values, or draw a figure of one run. Imports no torch.

    python -m src.report sweep=rum_paper_table1

See `python -m src.report --help`.
"""

from pathlib import Path

from omegaconf import DictConfig, ListConfig

from gyral.config import command_line as cli
from gyral.config.groups import choices
from gyral.core.checks import check_boolean
from gyral.core.errors import OptionError
from gyral.reports import progress, sweep_report
from gyral.reports.render.files import SUFFIXES


def report(config: DictConfig) -> None:
    """Print the report of a sweep and write it to files, or draw a figure."""
    watch, with_runs = check_boolean("watch", config.watch), check_boolean("runs", config.runs)
    names = config.save if isinstance(config.save, ListConfig) else [config.save]
    saved = [Path(str(name)) for name in names if name]
    for path in saved:
        if path.suffix not in SUFFIXES:
            raise OptionError("save", path, f"must end in one of {', '.join(SUFFIXES)}")
    if config.figure is not None:
        from gyral.reports.figures.drawing import draw

        print(draw(str(config.figure), None if config.run is None else Path(str(config.run))))
    elif config.run is not None:
        raise OptionError("run", config.run, "needs figure=<name>, the figure to draw from the run")
    elif config.sweep is None:
        allowed = ", ".join(choices("sweep"))
        raise OptionError(
            "sweep", "<nothing>", f"must be one of {allowed}, or a directory that contains runs; or give figure=<name>"
        )
    else:
        if watch:
            progress.watch(str(config.sweep))
        sweep_report.report_sweep(str(config.sweep), saved, with_runs)


def main() -> None:
    """Run `gyral report` on the command line's arguments."""
    cli.main(report, "_report/report")


if __name__ == "__main__":
    main()
