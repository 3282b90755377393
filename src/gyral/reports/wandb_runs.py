"""The runs of a project in Weights & Biases, as those of a directory are. Imports wandb, no torch."""

import math
from typing import Any

from gyral.core.errors import OptionError
from gyral.reports import catalogue as sweeps
from gyral.reports.catalogue import CURVES, POINTS, RESULTS, Job, Provenance

STEP = "trainer/global_step"  # as Lightning's logger calls it
FAILED, RUNNING = ("failed", "crashed"), ("running", "pending")


def read(project: str) -> tuple[list[Job], list[str]]:
    """Return the runs of a project, and a line for each that is not one of ours, or lacks results.

    Args:
        project: `<entity>/<project>`.

    Raises:
        OptionError: it is written otherwise, there is no key, or the server does not know it or cannot be reached.
    """
    import wandb

    from gyral.training.loggers import has_wandb_key

    where = f"sweep=wandb:{project}"
    if project.count("/") != 1 or not all(project.split("/")):
        raise OptionError(f"{where}: must be wandb:<entity>/<project>")
    if not has_wandb_key(wandb.setup().settings.base_url):
        raise OptionError(f"{where}: needs a key of Weights & Biases: WANDB_API_KEY, or `wandb login`")
    jobs, told = [], []
    try:
        for run in wandb.Api(timeout=30).runs(project):
            try:
                jobs.append(_job(run))
            except (OptionError, LookupError, TypeError, ValueError) as error:
                told.append(f"{run.url}: cannot be read: {' '.join(str(error).split())}")
    except (wandb.errors.Error, OSError, ValueError) as error:  # wandb raises the last where there is no such project
        raise OptionError(f"{where}: cannot be read: {' '.join(str(error).split())}") from error
    return jobs, told


def _job(run: Any) -> Job:
    """Return a run of Weights & Biases, with curves of as many points as it samples."""
    config = {str(name): value for name, value in run.config.items()}
    recorded = config.get("run")
    if not isinstance(recorded, dict) or "overrides" not in recorded or config.get("seed") is None:
        raise OptionError("it was not logged by this framework, or by an older version of it")
    summary = {str(name): number for name, value in dict(run.summary).items() if (number := _number(value)) is not None}
    is_done = all(name in summary for name in RESULTS)  # the last thing that a run logs
    curves = {}
    for name in (name for name in CURVES if name in summary):
        rows = run.history(samples=POINTS, keys=[name, STEP], pandas=False)
        points = [(int(row[STEP]) + 1, _number(row[name])) for row in rows]
        steps = [step for step, value in points if value is not None]
        if steps:
            curves[name] = sweeps.thin(steps, [value for _, value in points if value is not None])
    return Job(
        place=run.url,
        config=config,
        overrides=sweeps.by_key(recorded["overrides"]),
        results=summary if is_done else None,
        reason=None
        if is_done or run.state not in FAILED
        else f"{run.state}; {recorded.get('directory')} has the reason",
        running=run.state in RUNNING,
        steps=int(summary["steps"] if is_done else summary.get(STEP, -1) + 1),
        curves=curves,
        baseline=summary.get("train/baseline"),
        provenance=Provenance.of({**recorded, "id": run.id}, bool(recorded.get("changed"))),
    )


def _number(value: Any) -> float | None:
    """Return a number as W&B gives it, which writes those that are not finite as words."""
    if value in ("NaN", "Infinity", "-Infinity"):
        return math.nan if value == "NaN" else math.copysign(math.inf, -1 if value[0] == "-" else 1)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
