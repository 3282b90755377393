"""Dashboards in Weights & Biases: a workspace of a project, and a report per sweep."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gyral.core.errors import OptionError
from gyral.core.extras import import_extra
from gyral.reports import catalogue
from gyral.reports.catalogue import DIRECTORY, Sweep
from gyral.reports.measures import measures_of_all_tasks
from gyral.reports.render import markdown
from gyral.reports.tables.sections import make_sections
from gyral.reports.wandb_runs import require_key
from gyral.runs import records
from gyral.runs.wandb_key import STEPS

if TYPE_CHECKING:
    from wandb_workspaces.reports.v2 import Report
    from wandb_workspaces.workspaces import Workspace

SYSTEM = (  # metrics of the machine and of the speed of training
    *("system/cpu", "system/memory_percent", "system/proc.memory.rssMB"),
    *("system/gpu.0.gpu", "system/gpu.0.memoryAllocated", "system/gpu.0.powerWatts"),
    *("train/seconds_a_step", "train/tokens_a_second", "train/peak_memory_mb"),
)
OPTIMIZATION = ("train/gradient_norm", "train/learning_rate")
GRID_WIDTH, PANEL_HEIGHT, PANELS_PER_ROW = 24, 8, 3


def save(entity: str | None, project: str, sweeps: Sequence[str]) -> None:
    """Save the workspace of a project and a report per sweep, and print their addresses.

    Args:
        entity: a user or team of Weights & Biases, None for the owner of the key.
        project: the project.
        sweeps: names of tables.

    Raises:
        UserError: The package wandb-workspaces is not installed.
        OptionError: There is no key, or the server does not accept the dashboards.
    """
    import_extra("wandb_workspaces", "gyral dashboard", "dashboard")
    import wandb

    require_key("project", project)
    try:
        entity = str(entity or wandb.Api().default_entity)
        dashboards: list[Any] = [make_workspace(entity, project)]
        dashboards += [make_report(entity, project, catalogue.load(name)) for name in sweeps]
        for dashboard in dashboards:
            dashboard.save()
            print(dashboard.url)
    except (wandb.errors.Error, OSError, ValueError) as error:
        raise OptionError("project", project, f"cannot be saved: {' '.join(str(error).split())}") from error


def make_workspace(entity: str, project: str) -> "Workspace":
    """Return the workspace of a project, which shows all of its runs."""
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    def section(name: str, panels: list[Any], is_open: bool = True) -> Any:
        return ws.Section(name=name, panels=panels, is_open=is_open)

    measures = ("loss", *measures_of_all_tasks())
    metrics = ("train/loss", *(f"val/{name}" for name in measures))
    return ws.Workspace(
        entity=entity,
        project=project,
        name="Recurrent memory",
        sections=[
            section("Learning curves by sweep, task and model", [_curves(name) for name in (*metrics, *OPTIMIZATION)]),
            section("Learning curves by cell", [_curves(name, "cell_name") for name in metrics]),
            section("Learning curves by task", [_curves(name, "task_name") for name in metrics]),
            section("Parameters against score", [_score_by_parameters(name) for name in measures]),
            section("System", [wr.LinePlot(title=name, y=[name]) for name in SYSTEM], is_open=False),
        ],
        settings=ws.WorkspaceSettings(x_axis=STEPS, max_runs=100),
        runset_settings=ws.RunsetSettings(
            groupby=[ws.Metric("Group"), ws.Config("task_name"), ws.Config("model_name")]
        ),
    )


def make_report(entity: str, project: str, sweep: Sweep) -> "Report":
    """Return the report of a sweep: its rows next to the published values, and the metrics of their runs.

    The table is about the runs in the sweep's directory on this machine; the panels show the runs of the project.
    """
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    runs = wr.Runset(
        entity=entity,
        project=project,
        name=sweep.title,
        filters=ws.And(ws.Config("experiment_name").isin(list(sweep.papers))),
        groupby=["config.experiment_name"],
    )
    measure = f"test/{sweep.measure}"
    bars = wr.BarPlot(title=measure, metrics=[measure], groupby=wr.Config("experiment_name"), max_bars_to_show=100)
    scores = [bars, _score_by_parameters(sweep.measure), wr.RunComparer(diff_only="split")]
    names = dict.fromkeys(("train/loss", "val/loss", f"val/{sweep.measure}"))
    curves = [_curves(name, group) for name in names for group in ("experiment_name", "cell_name", "task_name")]
    curves += [_curves(name, "experiment_name") for name in OPTIMIZATION]
    system = [wr.LinePlot(title=name, y=[name]) for name in SYSTEM]
    return wr.Report(
        entity=entity,
        project=project,
        title=sweep.title,
        description=f"Runs of sweep={sweep.name}",
        width="fluid",
        blocks=[
            wr.MarkdownBlock(text=_markdown_table(sweep)),
            wr.H2(text="Scores"),
            wr.PanelGrid(runsets=[runs], panels=_arrange(scores)),
            wr.H2(text="Learning curves, by row, by cell and by task"),
            wr.PanelGrid(runsets=[runs], panels=_arrange(curves)),
            wr.H2(text="System"),
            wr.PanelGrid(runsets=[runs], panels=_arrange(system)),
        ],
    )


def _markdown_table(sweep: Sweep) -> str:
    directory = DIRECTORY / sweep.name
    found = records.read(directory)[0] if directory.is_dir() else []
    return markdown.render(make_sections(found, directory, sweep.name), (), with_runs=bool(found))


def _curves(metric: str, group: str | None = None) -> Any:
    """Return a panel of a metric during training, with the mean and the range of the runs in each group.

    Args:
        metric: the metric.
        group: key of W&B's configuration by which runs are grouped. None: as in the list of runs.
    """
    import wandb_workspaces.reports.v2 as wr

    return wr.LinePlot(
        title=metric,
        x=STEPS,
        y=[metric],
        log_y=metric.endswith(("loss", "norm")),
        groupby=wr.Config(group) if group else None,
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
        max_runs_to_show=100,
    )


def _score_by_parameters(measure: str) -> Any:
    import wandb_workspaces.reports.v2 as wr

    x, y = wr.Config("parameters"), wr.SummaryMetric(f"test/{measure}")
    return wr.ScatterPlot(title=f"test/{measure} by parameters", x=x, y=y, log_x=True)


def _arrange(panels: list[Any]) -> list[Any]:
    """Arrange panels in rows; without a layout, they would overlap."""
    import wandb_workspaces.reports.v2 as wr

    width = GRID_WIDTH // PANELS_PER_ROW
    for index, panel in enumerate(panels):
        row, column = divmod(index, PANELS_PER_ROW)
        panel.layout = wr.Layout(x=column * width, y=row * PANEL_HEIGHT, w=width, h=PANEL_HEIGHT)
    return panels
