"""The summary at the end of a run in the terminal: final metrics, and commands that come next. Imports no torch."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.table import Table

from gyral.config.plain import plain_values
from gyral.config.trust import trust_words
from gyral.core.commands import program, typed
from gyral.core.console import Console
from gyral.core.errors import UserError
from gyral.core.inputs import suffix_of
from gyral.core.measures import Measure, loss_unit, measure_of, printed
from gyral.runs.directory import BUDGET, Run
from gyral.runs.measures import read_measures
from gyral.runs.opening import check_longer

COMPARED = ("lstm", "gru")  # a run is compared with the first of these models that differs from its own
SEEDS = "seed=1,2,3"


def print_results(directory: Path, results: dict[str, float], published: Mapping[str, str] | None = None) -> None:
    """Print the table at the end of a run, and the run directory on a separate line.

    Args:
        directory: the run directory.
        results: the final metrics, as in DONE.
        published: what was published for the row of a table, see `gyral.reports.published`; a column has it.

    Raises:
        UserError: an earlier version wrote the run.
    """
    measures, remarks = read_measures(directory)
    described = [remark.data for remark in remarks if remark.data and results.get(f"test/{remark.name}")]
    named = {f"test/{name}" for name in ("loss", "baseline", *(measure.name for measure in measures))}
    rows = {
        **_metric_rows({name: value for name, value in results.items() if name in named}, measures),
        **({"data": "; ".join(described)} if described else {}),
        "parameters": f"{results['parameters']:,.0f}",
        "seconds per step": f"{seconds:.3g}" if (seconds := results.get("seconds_a_step") or 0) > 0 else "not measured",
    }
    beside = (
        {}
        if not published
        else {
            **{f"test {measure.label}": published.get(f"test/{measure.name}", "") for measure in measures},
            "parameters": published.get("parameters", ""),
        }
    )
    if published and "finding" in published:
        rows["finding of the paper"], beside["finding of the paper"] = "", published["finding"]
    _print_table(rows, beside)
    print(f"run directory: {relative_path(directory)}")


def print_next_commands(
    run: Run, overrides: Sequence[str] | None, model: str, generates: bool, predicts: bool = False
) -> None:
    """Print the commands with which a user may continue after a run.

    Args:
        run: the run, with its results and its last checkpoint.
        overrides: the overrides of the command that started it. None for a run that was resumed.
        model: the choice of the group `model`.
        generates: whether `gyral generate` needs nothing but the run.
        predicts: whether `gyral predict` reads inputs of a user's own.
    """
    words = [f"run={relative_path(run.directory)}", *needed_trust(run.config)]
    commands = {"evaluate it on the validation split": [*program("evaluate"), *words, "split=val"]}
    if generates:
        commands["generate from it"] = [*program("generate"), *words]
    if predicts:
        commands["predict for your own inputs"] = [*program("predict"), *words, f"data=new{_suffix(run)}"]
    if overrides is not None:
        given = [override for override in overrides if not override.startswith("seed=")]
        fits_this_model = any(
            word.lstrip("+~").startswith(("model.", "cell@", "experiment=", "weights=")) for word in given
        )
        if "cell" in run.config.model and not fits_this_model:
            other = next(name for name in COMPARED if name != model)
            given = [f"model={model},{other}", *(word for word in given if not word.startswith("model="))]
        commands["compare over three seeds"] = [*program("train"), "-m", *given, SEEDS]
    if (steps := _doubled_steps(run)) is not None:
        longer = [f"resume={relative_path(run.directory)}", f"{BUDGET}={steps}"]
        commands["make it longer"] = [*program("train"), *longer, *needed_trust(run.config)]
    print("\nNext:")
    for purpose, words in commands.items():
        print(f"  {purpose}:\n    {typed(words)}")


def _suffix(run: Run) -> str:
    """Return the suffix of an example of a file with new inputs: that of the run's own sequences, or of a text."""
    data = run.config.task.get("data")
    return ".txt" if data is None else suffix_of(Path(str(data))) or ".parquet"


def _doubled_steps(run: Run) -> int | None:
    """Return twice the steps of a finished run, None if it cannot be continued."""
    steps: int = 2 * run.config.trainer.max_steps
    if not run.sweep:
        with suppress(UserError):
            check_longer(run, steps)
            return steps
    return None


def needed_trust(config: Mapping[str, Any]) -> list[str]:
    """Return the options that a command needs besides the run directory: the word trust=<modules>, or nothing.

    Args:
        config: the configuration of the run.
    """
    plain: Any = plain_values(config) if isinstance(config, DictConfig) else config
    return trust_words(plain)


def relative_path(directory: Path) -> Path:
    """Return a path relative to the working directory if it is inside."""
    here = Path.cwd()
    return directory.relative_to(here) if directory.is_relative_to(here) else directory


def print_metrics(title: str, metrics: dict[str, float], measures: Iterable[Measure], to_error: bool = False) -> None:
    """Print the metrics of an evaluation as reports do; gyral evaluate save=….json writes all digits.

    Args:
        title: the line above the table.
        metrics: the metrics by name.
        measures: the measures of the task.
        to_error: whether they are printed on standard error, because standard output has something else.
    """
    with redirect_stdout(sys.stderr) if to_error else nullcontext():
        print(title)
        _print_table(_metric_rows(metrics, [*measures]))


def _metric_rows(metrics: Mapping[str, float], measures: Sequence[Measure]) -> dict[str, str]:
    """Return the metrics of a split as rows of a table: loss, measures, baseline, and those without a measure."""
    split, unit = next(iter(metrics)).partition("/")[0], loss_unit(metrics)
    named = {name.partition("/")[2]: value for name, value in metrics.items()}
    loss, baseline = named.pop("loss", None), named.pop("baseline", None)
    rows = {} if loss is None else {f"{split} loss ({unit})": _printed("loss", loss, [])}
    for measure in measures:
        value = named.pop(measure.name, None)
        if value is not None and measure.label != unit:  # the loss of regression is its mean squared error
            rows[f"{split} {measure.label}"] = _printed(measure.name, value, [measure])
    if baseline is not None:
        rows[f"memoryless baseline ({unit})"] = _printed("baseline", baseline, [])
    if loss is not None and baseline is not None:
        if math.isnan(loss) or math.isnan(baseline):
            beaten = "no value"
        elif loss >= baseline:
            beaten = "no"
        else:
            beaten = "yes" if loss == 0 else f"yes, by a factor of {baseline / loss:.4g}"
        rows["baseline beaten"] = beaten
    for name, value in named.items():  # of a category of examples, such as accuracy_7_operators
        own = measure_of(name, measures)
        label = name if own is None else own.label + name.removeprefix(own.name)
        rows[f"{split} {label.replace('_', ' ')}"] = _printed(name, value, measures)
    return rows


def _printed(name: str, value: float, measures: Iterable[Measure]) -> str:
    """Return a metric as it is printed; NaN is a mean over nothing, such as the accuracy without an answer."""
    return "no value" if math.isnan(value) else printed(name, value, measures)


def _print_table(rows: dict[str, str], published: Mapping[str, str] | None = None) -> None:
    """Print names and values, and beside them the published values, if there are any."""
    table = Table(show_header=bool(published))
    table.add_column(no_wrap=True)
    table.add_column("this run", overflow="fold")
    if published:
        table.add_column("published", overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value, *([published.get(name, "")] if published else []))
    Console().print(table)
