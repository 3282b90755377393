"""Records of the runs of a project in Weights & Biases. Imports wandb, no torch."""

import math
from typing import Any

from gyral.core.errors import OptionError, UserError
from gyral.runs.records import CURVES, POINTS, RESULTS, Curve, Provenance, RunRecord, by_key, thin
from gyral.runs.wandb_key import has_wandb_key

STEP = "trainer/global_step"  # the metric that Lightning's WandbLogger logs as the x axis
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
    import wandb

    if not has_wandb_key(wandb.setup().settings.base_url):
        raise OptionError(option, value, "needs a key of Weights & Biases: set WANDB_API_KEY, or run `wandb login`")


def _read_record(run: Any) -> RunRecord:
    """Return the record of a run, with curves of the points that Weights & Biases samples."""
    config = {str(name): value for name, value in run.config.items()}
    origin = config.get("run")
    if not isinstance(origin, dict) or "overrides" not in origin or config.get("seed") is None:
        raise UserError("it was not logged by this framework, or by an older version of it")
    summary = {str(name): number for name, value in dict(run.summary).items() if (number := _number(value)) is not None}
    is_done = all(name in summary for name in RESULTS)  # they are logged at the end of a run
    has_failed = not is_done and run.state in FAILED
    return RunRecord(
        place=run.url,
        config=config,
        overrides=by_key(origin["overrides"]),
        results=summary if is_done else None,
        reason=f"{run.state}; see {origin.get('directory')} for the reason" if has_failed else None,
        running=run.state in RUNNING,
        steps=int(summary["steps"] if is_done else summary.get(STEP, -1) + 1),
        curves=_read_curves(run, [name for name in CURVES if name in summary]),
        baseline=summary.get("train/baseline"),
        provenance=Provenance.of({**origin, "id": run.id}, bool(origin.get("changed"))),
    )


def _read_curves(run: Any, names: list[str]) -> dict[str, Curve]:
    curves = {}
    for name in names:
        rows = run.history(samples=POINTS, keys=[name, STEP], pandas=False)
        points = [(int(row[STEP]) + 1, number) for row in rows if (number := _number(row[name])) is not None]
        if points:
            curves[name] = thin([step for step, _ in points], [value for _, value in points])
    return curves


def _number(value: Any) -> float | None:
    """Return a number of Weights & Biases, which encodes values that are not finite as strings, None if it is none."""
    if value in ("NaN", "Infinity", "-Infinity"):
        return math.nan if value == "NaN" else math.copysign(math.inf, -1 if value[0] == "-" else 1)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
