"""Loggers: metrics.csv in the run directory always, Weights & Biases by default."""

import html
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

from omegaconf import DictConfig
from pydantic import AfterValidator, Field, StringConstraints
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.loggers.logger import Logger, rank_zero_experiment
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from gyral.config.instantiation import check_section, make
from gyral.config.plain import plain_values
from gyral.config.trust import find_object
from gyral.core.errors import OptionError, UserError, one_line, printable
from gyral.core.files import csv_line, named_in_errors, replace_when_written
from gyral.core.side_outputs import SideOutput, within
from gyral.core.signatures import parameters_of
from gyral.runs.directory import METRICS, Run, choose_checkpoint
from gyral.runs.metrics_file import read_rows
from gyral.tasks.base import Task


def _check_project(name: str) -> str:
    if set(name) & set("/\\#?%:"):
        raise ValueError("must not contain / \\ # ? % :")
    return name


LINE_END = "\r\n"  # of metrics.csv, as since its first version
OPENING = 150.0  # seconds for opening a logger; Weights & Biases has its own limits, which are shorter

# of Weights & Biases
LONGEST_NAME, LONGEST_TAG = 128, 64
Text = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
Project = Annotated[Text, AfterValidator(_check_project)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_TAG)]


class MetricsFile(Logger):
    """metrics.csv: a row per logged step and a column per metric, empty if the metric was not logged at the step.

    `step` is the index of the last optimizer step, from 0. Each row is written to disk as soon as it is logged. A
    resumed run appends to the file; rows from after its checkpoint are dropped first, because they are logged again.

    Args:
        path: path of the file.
        resumed_at: number of optimizer steps of the checkpoint from which the run resumes; 0 starts a new file.

    Attributes:
        rows: the rows of the file.
        earlier: the rows that an earlier start of a resumed run has left, including those that are dropped.
    """

    def __init__(self, path: Path, resumed_at: int = 0) -> None:
        super().__init__()
        self.path = path
        self.columns = ["step"]
        self.earlier: list[dict[str, str]] = []
        if resumed_at > 0 and path.is_file():
            self.columns, self.earlier = read_rows(path)
        self.rows: list[dict[str, Any]] = [row for row in self.earlier if int(row["step"]) < resumed_at]
        self._rewrite()

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @property
    @rank_zero_experiment
    def experiment(self) -> "MetricsFile":
        return self

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: config.yaml in the same folder has the hyperparameters."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        row = {"step": step, **{key: value for key, value in metrics.items() if key != "epoch"}}
        self.rows.append(row)
        if set(row) <= set(self.columns):
            with named_in_errors(self.path), self.path.open("a", newline="", encoding="utf-8") as file:
                file.write(self._line(row))
        else:
            self._rewrite()

    def _rewrite(self) -> None:
        for row in self.rows:
            self.columns += [column for column in row if column not in self.columns]
        replace_when_written(self.path, self._write)

    def _write(self, path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            file.write(csv_line(self.columns, LINE_END))
            file.writelines(map(self._line, self.rows))

    def _line(self, row: dict[str, Any]) -> str:
        return csv_line((row.get(column, "") for column in self.columns), LINE_END)


class TensorBoard(TensorBoardLogger):
    """TensorBoard in the folder tensorboard/ of a run directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(str(directory), name="tensorboard", version="")

    @rank_zero_only
    def log_html(self, key: str, text: str, step: int) -> None:
        """Log a preformatted text."""
        self.experiment.add_text(key, f"<pre>{html.escape(text)}</pre>", step + 1)


def tensorboard_logger(run: Run) -> Logger:
    """Return a TensorBoard logger that writes to the folder tensorboard/ of the run directory."""
    from gyral.core.extras import import_extra  # now: most runs have no such logger

    import_extra("tensorboard", "logger=tensorboard", "tensorboard")
    return TensorBoard(run.directory)


def wandb_logger(
    run: Run,
    project: Project | None = None,
    entity: Text | None = None,
    group: Text | None = None,
    tags: list[Tag] | Tag | None = None,
    notes: str | None = None,
    log_model: bool = False,
    predictions: Annotated[int, Field(ge=0)] = 0,
) -> Logger | None:
    """Return the Weights & Biases logger of a run: online with a key, offline without one. It never asks for a key.

    Options that are not given come from the user's W&B settings, such as WANDB_PROJECT or `wandb offline`, and then the
    default of Gyral. If the server does not answer within 30 seconds, the run is logged offline. None: W&B does not
    work at all.

    Args:
        run: the run. W&B writes to the folder wandb/ of its directory, unless WANDB_DIR is set. Its identity is the id
            in W&B.
        project: the W&B project. None: "gyral".
        entity: the user or team that the project belongs to. None: the default of the key.
        group: the W&B group. None: the run's sweep.
        tags: tags besides the names of the cell, the task and the experiment.
        notes: a description of the run.
        log_model: whether to upload the best checkpoint at the end, as an artifact.
        predictions: number of test examples to log as a table at the end, together with the confusion matrix of a task
            that has one.
    """
    from gyral.training import wandb_run  # now: importing wandb takes half a second

    identity = wandb_run.identity(run)
    defaults = {
        "name": wandb_run.display_name(run)[:LONGEST_NAME],
        "project": "gyral",
        "group": wandb_run.group_of(run.sweep)[:LONGEST_NAME] if run.sweep else None,
        "job_type": identity["task_name"],
        "dir": str(run.directory),
    }
    given = {"project": project, "entity": entity, "group": group, "notes": notes}
    own = [identity[f"{name}_name"][:LONGEST_TAG] for name in ("cell", "task", "experiment")]
    logger = wandb_run.start(run, defaults, {name: value for name, value in given.items() if value is not None})
    if logger is not None:
        logger.uploads_model, logger.predictions = log_model, predictions
        all_tags = [*own, *([tags] if isinstance(tags, str) else tags or ())]
        logger.output.call(logger.describe, run, identity, all_tags)
    return logger


def check_loggers(config: DictConfig) -> None:
    """Check the configured loggers, which write when they are built, see `open_loggers`.

    Raises:
        OptionError: an option that is unknown, missing, of the wrong type or not allowed.
    """
    for name, node in (config.logger or {}).items():
        key = f"logger.{name}"
        check_section(node, key)
        parameters = _parameters(node)
        given = {*node, *_arguments(parameters, node, None)}
        for option, parameter in parameters.items():
            is_named = parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
            if is_named and parameter.default is Parameter.empty and option not in given and "_args_" not in node:
                raise OptionError(f"{key}.{option}", "null", f"must be given: {node._target_} needs it")


def _parameters(node: Any) -> Mapping[str, Parameter]:
    return parameters_of(find_object(node._target_)) or {}


def _arguments(parameters: Mapping[str, Parameter], node: Any, run: Run | None) -> dict[str, Any]:
    """Return the arguments of a logger besides its options: the run, or, for a logger of Lightning, its directory.

    Args:
        parameters: the parameters of its class or function.
        node: its section.
        run: the run.
    """
    arguments: dict[str, Any] = {}
    if "run" in parameters:
        arguments["run"] = run
    if "save_dir" in parameters and node.get("save_dir") is None:
        arguments["save_dir"] = None if run is None else str(run.directory)
    return arguments


@contextmanager
def open_loggers(run: Run, resumed_at: int) -> Iterator[list[Any]]:
    """Open the loggers of a run, metrics.csv and the configured ones, and close them when the context exits.

    Args:
        run: the run that is logged.
        resumed_at: number of optimizer steps of the checkpoint from which the run resumes, 0 for a new run.
    """
    with ExitStack() as stack:
        file = MetricsFile(run.directory / METRICS, resumed_at)
        loggers: list[Any] = [file]
        for name in run.config.logger or {}:
            output = SideOutput(f"logger.{name}", f"{METRICS} has all metrics")
            logger = open_logger(run, name, output)
            if logger is None:  # it cannot log, and has said so
                continue
            loggers.append(logger)
            if hasattr(logger, "end_run"):
                stack.push(lambda kind, error, trace, end=logger.end_run: end(error))
            set_beside(logger, vars(logger).get("output", output))
            if hasattr(logger, "log_html") and run.foreign_data():  # the text of a file that somebody else has named
                logger.log_html = lambda *_, **__: None
            if hasattr(logger, "follow"):
                logger.follow(file.rows, file.earlier)
            logger.log_hyperparams(plain_values(run.config))
        yield loggers


def open_logger(run: Run, name: str, output: SideOutput) -> Any:
    """Return a configured logger of a run, or None if it cannot log.

    Args:
        run: the run.
        name: name of its section.
        output: reports a failure.

    Raises:
        UserError: the logger needs a package that is not installed.
    """
    try:
        node = run.config.logger[name]
        arguments = _arguments(_parameters(node), node, run)
        logger = within(OPENING, partial(make, run.config, f"logger.{name}", **arguments))
        # here, where it may fail: many loggers open their files or connections at the first access
        within(OPENING, getattr, logger, "experiment", None)
        return logger
    except Exception as error:
        if isinstance(error, UserError) and error.__cause__ is None:
            raise
        if isinstance(error.__cause__ or error, ModuleNotFoundError):  # a package of the logger
            raise UserError(one_line(error.__cause__ or error)) from None
        output.fail(error.__cause__ or error)
        return None


def set_beside(logger: Logger, output: SideOutput) -> None:
    """Turn the methods of a logger into calls of a side output, whose failure does not end a training."""
    for name in dir(type(logger)):
        if name.startswith("log_") or name in ("follow", "save", "finalize", "after_save_checkpoint"):
            method = getattr(type(logger), name)
            if callable(method):  # not a property
                setattr(logger, name, partial(output.call, getattr(logger, name)))


def log_results(loggers: list[Any], results: dict[str, Any], picture: Path | None, task: Task, run: Run) -> None:
    """Log the results of a run: a picture, if any, to loggers of images, and the metrics to Weights & Biases.

    It also gets predictions and the checkpoint, if its options ask for them.
    """
    for logger in loggers:
        if hasattr(logger, "log_summary"):
            final = {name: value for name, value in results.items() if value is not None}
            logger.log_summary(final)
            if count := vars(logger).get("predictions"):
                logger.log_predictions(render_examples(task, count))
                if "confusion" in task.figures:
                    logger.log_image("test/confusion", [find_object(task.figures["confusion"])(run)])
            if vars(logger).get("uploads_model") and (run.directory / "checkpoints").is_dir():
                logger.log_checkpoint(choose_checkpoint(run.directory, "best"), final)
        if picture is not None and hasattr(logger, "log_image"):
            logger.log_image(picture.stem, [str(picture)])


def render_examples(task: Task, count: int) -> list[str]:
    """Return the first examples of the test split as text, with their predictions."""
    texts: list[str] = []
    with task.evaluating():
        for batch in task.data.loader("test"):
            own = task.transfer_batch_to_device(batch, task.device, 0)
            predicted = task.predict(own)
            rows = min(count - len(texts), len(task.targets(own)))
            texts += [printable(task.render(own, predicted, row)) for row in range(rows)]
            if len(texts) == count:
                break
    return texts
