"""Dashboards in Weights & Biases: a workspace of a project, and a report of each table of a paper. Imports no torch.

    python -m src.dashboard project=gyral

See `python -m src.dashboard --help`.
"""

from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from gyral.config import command_line as cli
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.reports import catalogue as sweeps
from gyral.reports import tables
from gyral.reports.catalogue import Sweep
from gyral.reports.render import formats

if TYPE_CHECKING:
    from wandb_workspaces.reports.v2 import Report
    from wandb_workspaces.workspaces import Workspace

STEP = "trainer/global_step"  # as Lightning's logger calls it
SYSTEM = (  # what is measured of the machine and of the training's speed
    *("system/cpu", "system/memory_percent", "system/proc.memory.rssMB"),
    *("system/gpu.0.gpu", "system/gpu.0.memoryAllocated", "system/gpu.0.powerWatts"),
    *("train/seconds_a_step", "train/tokens_a_second", "train/peak_memory_mb"),
)


def dashboard(config: DictConfig) -> None:
    """Save the workspace of a project and the reports of its sweeps, and print where they are.

    Raises:
        OptionError: no such sweep, no package wandb-workspaces, no key, or a server that does not take them.
    """
    names = [sweep.name for sweep in sweeps.named()]
    shown = [check_choice("sweep", config.sweep, names)] if config.sweep is not None else names
    project = str(config.project)
    try:
        import wandb_workspaces  # noqa: F401
    except ImportError:
        raise OptionError("wandb-workspaces is not installed: pip install 'gyral[dashboard]'") from None
    import wandb

    from gyral.training.loggers import has_wandb_key

    if not has_wandb_key(wandb.setup().settings.base_url):
        raise OptionError(f"project={project}: needs a key of Weights & Biases: WANDB_API_KEY, or `wandb login`")
    try:
        entity = str(config.entity or wandb.Api().default_entity)
        made: list[Any] = [workspace(entity, project), *(report(entity, project, sweeps.load(name)) for name in shown)]
        for one in made:
            one.save()
            print(one.url)
    except (wandb.errors.Error, OSError, ValueError) as error:
        raise OptionError(f"project={project}: cannot be saved: {' '.join(str(error).split())}") from error


def workspace(entity: str, project: str) -> "Workspace":
    """Return the workspace of a project, which shows all of its runs."""
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    def section(name: str, panels: list[Any], is_open: bool = True) -> Any:
        return ws.Section(name=name, panels=panels, is_open=is_open)

    metrics = ("train/loss", *(f"val/{name}" for name in ("loss", *sweeps.MEASURES)))
    return ws.Workspace(
        entity=entity,
        project=project,
        name="Recurrent memory",
        sections=[
            section("Learning curves by cell", [_curves(name, "cell_name") for name in metrics]),
            section("Learning curves by task", [_curves(name, "task_name") for name in metrics]),
            section("Parameters against score", [_against_parameters(name) for name in ("loss", *sweeps.MEASURES)]),
            section("System", [wr.LinePlot(title=name, y=[name]) for name in SYSTEM], is_open=False),
        ],
        settings=ws.WorkspaceSettings(x_axis=STEP, max_runs=100),
    )


def _curves(metric: str, group: str) -> Any:
    """Return a panel of a metric along training: for each of a group the mean and the range of its runs."""
    import wandb_workspaces.reports.v2 as wr

    return wr.LinePlot(
        title=metric,
        x=STEP,
        y=[metric],
        log_y=metric.endswith("loss"),
        groupby=wr.Config(group),
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
        max_runs_to_show=100,
    )


def _against_parameters(measure: str) -> Any:
    import wandb_workspaces.reports.v2 as wr

    x, y = wr.Config("parameters"), wr.SummaryMetric(f"test/{measure}")
    return wr.ScatterPlot(title=f"test/{measure} by parameters", x=x, y=y, log_x=True)


def report(entity: str, project: str, sweep: Sweep) -> "Report":
    """Return the report of a sweep: its rows beside the paper's numbers, and what their runs logged.

    The numbers are those of the runs that lie where the sweep puts them on this machine; the panels show the project's.
    """
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    directory = sweeps.DIRECTORY / sweep.name
    jobs = sweeps.read(directory)[0] if directory.is_dir() else []
    table = formats.markdown(tables.sections(jobs, directory, sweep.name), (), with_runs=bool(jobs))
    runs = wr.Runset(
        entity=entity,
        project=project,
        name=sweep.title,
        filters=ws.And(ws.Config("experiment_name").isin(list(sweep.papers))),
        groupby=["config.experiment_name"],
    )
    measure = f"test/{sweep.measure}"
    bars = wr.BarPlot(title=measure, metrics=[measure], groupby=wr.Config("experiment_name"), max_bars_to_show=100)
    names = dict.fromkeys(("train/loss", "val/loss", f"val/{sweep.measure}"))
    curves = [_curves(name, group) for name in names for group in ("experiment_name", "cell_name", "task_name")]
    measured = [bars, _against_parameters(sweep.measure), wr.RunComparer(diff_only="split")]
    return wr.Report(
        entity=entity,
        project=project,
        title=sweep.title,
        description=f"Runs of sweep={sweep.name}",
        width="fluid",
        blocks=[
            wr.MarkdownBlock(text=table),
            wr.H2(text="Scores"),
            wr.PanelGrid(runsets=[runs], panels=_laid_out(measured)),
            wr.H2(text="Learning curves, by row, by cell and by task"),
            wr.PanelGrid(runsets=[runs], panels=_laid_out(curves)),
            wr.H2(text="System"),
            wr.PanelGrid(runsets=[runs], panels=_laid_out([wr.LinePlot(title=name, y=[name]) for name in SYSTEM])),
        ],
    )


def _laid_out(panels: list[Any], columns: int = 3) -> list[Any]:
    """Put panels side by side in rows, of a grid that is 24 wide: left alone they lie on one another."""
    import wandb_workspaces.reports.v2 as wr

    width, height = 24 // columns, 8
    for index, panel in enumerate(panels):
        panel.layout = wr.Layout(x=index % columns * width, y=index // columns * height, w=width, h=height)
    return panels


def main() -> None:
    """Run `gyral dashboard` on the command line's arguments."""
    cli.main(dashboard, "_report/dashboard")


if __name__ == "__main__":
    main()
