"""The run of a process in Weights & Biases. It never decides over the training: see `gyral.core.side_outputs`."""

import hashlib
import html
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import wandb
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from gyral.config.plain import plain_values
from gyral.core.commands import typed
from gyral.core.errors import one_line
from gyral.core.side_outputs import SideOutput, within
from gyral.core.signals import Interrupted
from gyral.core.stand_ins import until_imported
from gyral.runs.directory import Run
from gyral.runs.measures import read_measures, to_plain
from gyral.runs.names import describe_option, model_name
from gyral.runs.provenance import origin_of
from gyral.runs.run_record import by_key, cell_of, task_of
from gyral.runs.wandb_key import KEYLESS, STEPS, has_wandb_key, own_entities, user_settings

log = logging.getLogger(__name__)

NAME = "Weights & Biases"
# older versions start a run anew in its offline log: the last start has to log everything
RESUMES_OFFLINE = tuple(map(int, wandb.__version__.split(".")[:2])) >= (0, 31)
STOPPED = 255  # the exit code by which W&B knows a run that was stopped and has not failed
ROWS = "rows"  # the hidden metric by which a resumed run knows which rows of metrics.csv the server has
# options of the command line that the name of a run shows besides options of the cell
SHOWN_OPTIONS = ("task.", "model.", "optimizer", "scheduler")
LONGEST_GROUP = 60  # characters of a group that a command names
# seconds
INIT_TIMEOUT, FINISH_TIMEOUT = 30.0, 60.0
STOP_TIMEOUT = 5.0  # of a run that was stopped: a scheduler kills it soon, and a resumed run logs what W&B lacks
GRACE = 10.0  # what wandb may take beyond its own limits


class RunLogger(WandbLogger):
    """Lightning's logger of Weights & Biases with the number of optimizer steps, `steps`, as the x axis.

    What is logged at one step is one line of the history, which is sent when the next step is logged or the step is
    validated.

    Args:
        experiment: the run, as `start` returns it.
        save_dir: the run directory.

    Attributes:
        output: the side output that its calls are.
        uploads_model: whether the best checkpoint is uploaded at the end.
        predictions: number of test examples that are logged as a table at the end, with the confusion matrix if the
            task has one.
    """

    uploads_model = False
    predictions = 0

    def __init__(self, experiment: Any, save_dir: str) -> None:
        super().__init__(experiment=experiment, save_dir=save_dir)
        missing = f"metrics.csv has all metrics; to upload what was logged: {sync_command(experiment)}"
        self.output = SideOutput(NAME, missing)
        wandb.termsetup(experiment.settings, _Terminal(self.output))
        self._logged: dict[str, int] = {}  # for each metric, the last step that W&B has from an earlier start
        self._rows: Sequence[Mapping[str, Any]] = ()
        self._line: dict[str, Any] = {}  # of the history, which has not been sent

    def describe(self, run: Run, identity: Mapping[str, Any], tags: Sequence[str]) -> None:
        """Log the origin of the run, its tags, and how W&B shows its metrics."""
        experiment, task = self.experiment, run.config.task
        experiment.config.update(identity, allow_val_change=True)
        # added, because those that are given to wandb.init replace the tags that users have added to a resumed run
        experiment.tags = tuple(dict.fromkeys(tag for tag in (*(experiment.tags or ()), *tags) if tag))
        for hidden in (STEPS, ROWS):
            experiment.define_metric(hidden, hidden=True)
        experiment.define_metric("*", step_metric=STEPS, step_sync=True)
        if task.get("monitor"):  # the summary has its best value
            experiment.define_metric(task.monitor, step_metric=STEPS, summary=task.mode)

    def follow(self, rows: Sequence[Mapping[str, Any]], earlier: Sequence[Mapping[str, Any]] = ()) -> None:
        """Log the metrics of an earlier start that W&B lacks, and then each metric that it does not have yet.

        A resumed run repeats the steps after its last checkpoint, with the same metrics. They are logged once: steps
        would decrease.

        Args:
            rows: the rows of metrics.csv, to which the run will append.
            earlier: the rows of metrics.csv when the earlier start ended, beginning with `rows`.
        """
        self._rows = rows
        received = self._received(earlier) if earlier else 0
        self._logged = {name: int(row["step"]) for row in earlier[:received] for name, value in row.items() if value}
        for number in range(received, len(rows)):
            metrics = {name: float(value) for name, value in rows[number].items() if value and name != "step"}
            self._log(metrics, int(rows[number]["step"]), number + 1)

    def _received(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Return how many rows of metrics.csv the server has; offline, where it is unknown, assume all of them."""
        if self.experiment.offline:
            return len(rows) if RESUMES_OFFLINE else 0
        # The summary may arrive before the history that it summarizes. The history has the lines of the rows, and
        # further ones if a callback of the user logs to W&B.
        names = [[name for name, value in row.items() if value and name != "step"] for row in rows]
        steps = [_steps(own, int(row["step"])) for own, row in zip(names, rows, strict=True)]
        ends = [
            number
            for number, (own, here, after) in enumerate(zip(names, steps, [*steps[1:], None], strict=True), 1)
            if _ends_line(own) or here != after
        ]
        lines = [0, *ends][: self.experiment.starting_step + 1]
        return min(int(self.experiment.summary.get(ROWS, len(rows))), lines[-1])

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        if step is None:
            self._send()
            self.experiment.log(dict(metrics))
            return
        new = {name: value for name, value in metrics.items() if name != "epoch" and step > self._logged.get(name, -1)}
        if new:
            self._log(new, step, len(self._rows))

    def _log(self, metrics: Mapping[str, Any], step: int, rows: int) -> None:
        self._begin_line(_steps(metrics, step))
        self._line |= {**metrics, ROWS: rows}
        if _ends_line(metrics):
            self._send()

    def _begin_line(self, steps: int) -> None:
        """Send the line of other steps, if there is one."""
        if self._line.get(STEPS, steps) != steps:
            self._send()
        self._line[STEPS] = steps

    def _send(self) -> None:
        line, self._line = self._line, {}
        if line:
            self.experiment.log(line)

    @rank_zero_only
    def log_html(self, key: str, text: str, step: int) -> None:
        """Log a preformatted text beside the next metrics. Unlike a table, it needs no answer of the server."""
        if step > max(self._logged.values(), default=-1):  # metrics.csv has no texts
            self._begin_line(step + 1)
            self._line[key] = wandb.Html(f"<pre>{html.escape(text)}</pre>", inject=False)

    def log_summary(self, values: Mapping[str, Any]) -> None:
        """Log final values, which are shown in the table of runs."""
        self._send()
        self.experiment.summary.update(values)

    def log_predictions(self, examples: Sequence[str]) -> None:
        """Log a table of examples as text: input, target and prediction."""
        table = wandb.Table(columns=["example", "text"], data=[[i, text] for i, text in enumerate(examples)])
        self.experiment.log({"test/predictions": table})

    def log_checkpoint(self, path: Path, results: Mapping[str, Any]) -> None:
        """Upload a checkpoint as an artifact with the final metrics."""
        artifact = wandb.Artifact(f"model-{self.experiment.id}", type="model", metadata=dict(results))
        artifact.add_file(str(path))
        self.experiment.log_artifact(artifact, aliases=["best", "latest"])

    def end_run(self, error: BaseException | None) -> None:
        """End the W&B run, so that the next job of the process gets one of its own.

        Data that cannot be uploaded in time stay on disk, and the command that uploads them is logged.

        Args:
            error: what has ended the run early, if anything.
        """
        was_stopped = isinstance(error, Interrupted) or (isinstance(error, SystemExit) and error.code)
        exit_code = STOPPED if was_stopped else int(error is not None)
        limit = getattr(self.experiment.settings, "finish_timeout", 0) or FINISH_TIMEOUT
        seconds = STOP_TIMEOUT if was_stopped else limit + GRACE
        try:
            self.output.call(self._send)
            self.output.call(self.experiment.finish, exit_code, seconds=seconds)
        except BaseException:  # Ctrl-C
            self.output.fail(InterruptedError("interrupted before everything was uploaded"))
            end_process()
            raise
        if self.output.failed:
            end_process()


def _steps(names: Iterable[str], step: int) -> int:
    """Return the number of steps at which metrics are shown.

    The step of a metric is the index of the last optimizer step; that of the final test is their number.
    """
    return step if all(name.startswith("test/") for name in names) else step + 1


def _ends_line(names: Iterable[str]) -> bool:
    """Return whether no further metrics of a step follow those with these names."""
    return any(name.startswith(("val/", "test/")) for name in names)


class _Terminal:
    """Receives the output of wandb, which reports only there that it has given up. It has the methods of a logger."""

    def __init__(self, output: SideOutput) -> None:
        self._output = output

    def warning(self, message: str) -> None:
        if "Fatal error" in message:  # the key has become invalid, or the time for the upload has passed
            self._output.fail(ConnectionError("the server does not take all data of this run"))

    info = error = warning


def start(run: Run, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> RunLogger | None:
    """Start the run in Weights & Biases: online, or offline if there is no key or the server does not answer.

    Args:
        run: the run.
        defaults: further options of `wandb.init`, unless the user's settings have them.
        given: further options of `wandb.init`, whatever the user's settings have.

    Returns:
        The logger of the run, or None if W&B cannot log even offline.
    """
    os.environ.pop("WANDB_SERVICE", None)  # the process of a program that started this one, such as an agent
    # reports of wandb's own errors to its makers, whose retries are printed without a network
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    with suppress(ImportError, AttributeError):  # older versions do not have it
        statistics: Any = import_module("wandb.analytics.opentelemetry").opentelemetry_proxy
        statistics.disable()  # those of wandb's own use delay the end of a program without a server
    with suppress(AttributeError):  # other versions may do without
        _import_less()
    reason, experiment, session, options = "", None, None, dict(given)
    try:
        session = within(INIT_TIMEOUT, user_settings)  # this starts the process wandb-core
        own = {name: {name, f"run_{name}", f"root_{name}"} & session.model_fields_set for name in defaults}
        options = {name: value for name, value in defaults.items() if not own[name]} | dict(given)
        if run.is_saved and not _may_log_to(options.get("entity"), session):
            entity = options["entity"]
            fault = f"the configuration of the run names {entity}, of which you are not a member"
            instead = f"to log there: WANDB_ENTITY={entity}"
            log.warning("%s: %s; this run is logged to metrics.csv alone; %s", NAME, fault, instead)
            return None
        experiment = _init(run, options, session)
    except Exception as error:
        reason = one_line(error)
    except BaseException:  # Ctrl-C
        end_process()
        raise
    if experiment is None and session is not None:
        end_process()  # it still holds the run that could not be started
        with suppress(Exception):
            experiment = _init(run, options, within(INIT_TIMEOUT, user_settings), "offline")
    if experiment is None:
        log.warning("%s: %s; this run is logged to metrics.csv alone", NAME, reason)
        return None
    where = f" to {options['entity']}" if run.is_saved and options.get("entity") else ""  # somebody else's, perhaps
    upload = f"{where}: {sync_command(experiment)}"
    if reason:
        log.warning("%s: %s; this run is logged offline; to upload it%s", NAME, reason, upload)
    elif experiment.offline:
        log.info("%s is offline; to upload this run%s", NAME, upload)
    elif experiment.url:
        log.info("%s: %s", NAME, experiment.url)
    return RunLogger(experiment, str(run.directory))


def _import_less() -> None:
    """Keep wandb from importing its package of remote jobs and pandas, which take a second, to see what is unused.

    Before something else imports them, no inputs of jobs have been declared, and no object is a data frame.
    """
    kind: Any = wandb.Run
    declared, is_frame = kind._detect_and_apply_job_inputs, wandb.util.is_pandas_data_frame
    if not hasattr(is_frame, "__wrapped__"):
        jobs = "wandb.sdk.launch.inputs.internal"
        kind._detect_and_apply_job_inputs = until_imported(jobs, lambda _: None, lambda: declared)
        wandb.util.is_pandas_data_frame = until_imported("pandas", lambda _: False, lambda: is_frame)


def _may_log_to(entity: str | None, session: Any) -> bool:
    """Return whether a saved configuration may name the entity to which its run is logged.

    It may if nothing is sent, if the user's settings name it, too, or if the server says that it is the user or one of
    his teams.
    """
    if entity is None or entity == session.entity or session.mode in KEYLESS or not has_wandb_key(session):
        return True
    return entity in within(INIT_TIMEOUT, own_entities)


def _init(run: Run, options: Mapping[str, Any], session: Any, mode: str | None = None) -> Any:
    """Return the run that `wandb.init` starts.

    Args:
        run: the run.
        options: further options of `wandb.init`.
        session: the user's settings.
        mode: "offline". None: the mode of the user's settings, but offline without a key.
    """
    if mode is None and session.mode not in KEYLESS and not has_wandb_key(session):
        mode = "offline"  # wandb would ask for a key
    defaults: dict[str, Any] = {
        "init_timeout": INIT_TIMEOUT,
        "finish_timeout": FINISH_TIMEOUT,
        "git_root": str(Path(__file__).parent),
        "save_code": True,  # without it, W&B does not save the difference to the commit
        "x_transaction_log_flush_interval": 1.0,  # seconds; a killed run loses the metrics of this interval
    }
    # those that the user has not set, as far as the installed version has them
    own = {name: value for name, value in defaults.items() if name not in session.model_fields_set}
    console = "off" if run.foreign_data() else "wrap"
    own |= {"silent": True, "console": console, "finish_timeout_raises": True, **({"mode": mode} if mode else {})}
    settings = wandb.Settings(**{name: own[name] for name in own if name in wandb.Settings.model_fields})
    return within(
        own.get("init_timeout", session.init_timeout) + GRACE,
        wandb.init,
        id=run.identity,
        resume="allow" if run.checkpoint else None,  # None replaces a run that was stopped before a checkpoint
        settings=settings,
        **options,
    )


def end_process() -> None:
    """End the process wandb-core without waiting for what it uploads. The next run starts another one."""
    from wandb.sdk import wandb_setup

    with suppress(Exception):
        session: Any = wandb_setup._singleton
        process = session._connection._proc._process
        process.kill()
        process.wait()
    with suppress(Exception):
        within(GRACE, wandb.teardown)


def sync_command(experiment: Any) -> str:
    """Return the command that uploads a run."""
    options = [] if experiment.offline else ["--include-online"]  # else `wandb sync` skips the run
    return typed(["wandb", "sync", *options, str(experiment.settings.sync_dir)])


def display_name(run: Run) -> str:
    """Return the name of a run in dashboards, such as "RUM λ = 1 · recall · seed 2 · length = 50"."""
    config = plain_values(run.config)
    options = [override.lstrip("+").partition("=") for override in origin_of(run.directory)["overrides"]]
    shown = [
        describe_option(key, value)
        for key, _, value in options
        if key.startswith(SHOWN_OPTIONS) and not key.startswith("model.cell.")
    ]
    parts = [model_name(config), task_of(config), f"seed {config['seed']}", *([", ".join(shown)] if shown else [])]
    return " · ".join(parts)


def group_of(sweep: str) -> str:
    """Return the name of the group of a sweep: that of its directory, or the axes of its command and a digest of it."""
    words = sweep.split(" ")
    if len(words) == 1 or len(sweep) <= LONGEST_GROUP:
        return sweep
    digest = hashlib.sha256(sweep.encode("utf-8", "surrogateescape")).hexdigest()[:6]
    return f"{' '.join(word for word in words if ',' in word)[:LONGEST_GROUP]} ~{digest}".strip()


def identity(run: Run) -> dict[str, Any]:
    """Return the origin of a run, by which its directory can be found, and the names by which dashboards group runs."""
    origin = origin_of(run.directory)
    config = plain_values(run.config)
    if os.environ.get("WANDB_SWEEP_ID"):
        origin["config"] = config  # in the configuration itself, the sweep's choices replace sections such as model
    return {
        "run": {**origin, **to_plain(*read_measures(run.directory))},
        "experiment_name": by_key(origin["overrides"]).get("experiment", "").partition("=")[2],
        "model_name": model_name(config),
        "cell_name": cell_of(config),
        "task_name": task_of(config),
    }
