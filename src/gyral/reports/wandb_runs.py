"""Records of the runs of a project in Weights & Biases. Imports wandb, no torch."""

import math
from collections.abc import Sequence
from typing import Any

from gyral.core.errors import OptionError, UserError
from gyral.core.measures import Measure
from gyral.runs.directory import RESULTS
from gyral.runs.measures import from_plain
from gyral.runs.run_record import POINTS, Log, Provenance, RunRecord, by_key, check_shape, curve_names, thin
from gyral.runs.wandb_key import STEPS, has_wandb_key, user_settings

INDEX = "trainer/global_step"  # the x axis of earlier versions: index of the last optimizer step
FAILED, RUNNING = ("failed", "crashed"), ("running", "pending")


def read(project: str) -> tuple[list[RunRecord], list[str]]:
    """Return the runs of a project, and a line for each run that cannot be read.

    Args:
        project: `<entity>/<project>`.

    Raises:
        OptionError: The project has another form or does not exist, there is no key, or the server cannot be reached.
    """
    import wandb

    option, value = "sweep", f"wandb:{project}"
    if project.count("/") != 1 or not all(project.split("/")):
        raise OptionError(option, value, "must be wandb:<entity>/<project>")
    require_key(option, value)
    records, notes = [], []
    try:
        for run in wandb.Api(timeout=30).runs(project):
            try:
                records.append(_read_record(run))
            except (UserError, LookupError, TypeError, ValueError) as error:
                notes.append(f"{run.url}: cannot be read: {' '.join(str(error).split())}")
    except (wandb.errors.Error, OSError, ValueError) as error:  # wandb raises ValueError for an unknown project
        raise OptionError(option, value, f"cannot be read: {' '.join(str(error).split())}") from error
    return records, notes


def require_key(option: str, value: str) -> None:
    """Raise an error about an option if there is no key of Weights & Biases."""
    if not has_wandb_key(user_settings()):
        raise OptionError(option, value, "needs a key of Weights & Biases: set WANDB_API_KEY, or run `wandb login`")


def _read_record(run: Any) -> RunRecord:
    """Return the record of a run, with curves of the points that Weights & Biases samples."""
    config = {str(name): value for name, value in run.config.items()}
    origin = config.get("run")
    if not isinstance(origin, dict) or not {"overrides", "measures"} <= {*origin} or config.get("seed") is None:
        raise UserError("it was not logged by this framework, or by an older version of it")
    config |= origin.get("config") or {}  # of a run that an agent has started, see gyral.training.wandb_run
    check_shape(config, "its configuration")
    summary = {str(name): number for name, value in dict(run.summary).items() if (number := _number(value)) is not None}
    measures, remarks = from_plain("measures of the run", origin)
    log = _read_log(run, measures)
    if STEPS not in summary:
        summary[STEPS] = summary.get(INDEX, -1) + 1
    is_done = all(name in summary for name in RESULTS)  # they are logged at the end of a run
    has_failed = not is_done and run.state in FAILED
    return RunRecord(
        place=run.url,
        config=config,
        overrides=by_key(origin["overrides"]),
        results=summary if is_done else None,
        reason=f"{run.state}; see {origin.get('directory')} for the reason" if has_failed else None,
        running=run.state in RUNNING,
        steps=int(summary[STEPS]),
        read_log=lambda: log,
        provenance=Provenance.of({**origin, "id": run.id}, bool(origin.get("changed"))),
        measures=measures,
        remarks=remarks,
    )


def _read_log(run: Any, measures: Sequence[Measure]) -> Log:
    summary = dict(run.summary)
    axes = [(axis, before) for axis, before in ((INDEX, 1), (STEPS, 0)) if axis in summary]
    curves = {}
    for name in [name for name in curve_names(measures) if name in summary]:
        points: dict[int, float] = {}
        for axis, before in axes:  # both, if a run was resumed with a newer version
            for row in run.history(samples=POINTS, keys=[name, axis], pandas=False):
                if (number := _number(row[name])) is not None:
                    points[int(row[axis]) + before] = number
        if points:
            curves[name] = thin(list(points), list(points.values()))
    return Log(curves, _number(summary.get("train/baseline")))


def _number(value: Any) -> float | None:
    """Return a number of Weights & Biases, which encodes values that are not finite as strings, None if it is none."""
    if value in ("NaN", "Infinity", "-Infinity"):
        return math.nan if value == "NaN" else math.copysign(math.inf, -1 if value[0] == "-" else 1)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
