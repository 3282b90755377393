"""From configuration to objects. The only place where sizes flow from task to model."""

import logging
import math
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pytorch_lightning import Callback, Trainer, seed_everything
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.profilers import PassThroughProfiler
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from gyral import runs
from gyral.core import memory as heap
from gyral.core.checks import check_boolean, check_choice, check_integer, check_real
from gyral.core.errors import OptionError
from gyral.tasks.base import SequenceTask
from gyral.training.callbacks import Checkpoints, ProgressBar
from gyral.training.ddp import Place, own_place
from gyral.training.loggers import MetricsFile, close_wandb

log = logging.getLogger(__name__)


def prepare(config: DictConfig) -> None:
    """Seed the generators, set the number of threads, and keep Lightning's notes and tips out of the terminal.

    Raises:
        OptionError: a seed or thread count that is not allowed.
    """
    check_integer("seed", config.seed, minimum=0, maximum=2**32 - 1)
    heap.keep()
    if config.threads is not None:
        torch.set_num_threads(check_integer("threads", config.threads))
    torch.use_deterministic_algorithms(check_boolean("deterministic", config.deterministic))
    seed_everything(config.seed, workers=True, verbose=False)
    for name in ("pytorch_lightning", "lightning_fabric", "matplotlib"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # notes on Lightning's own code
    warnings.filterwarnings("ignore", message=".*treespec, LeafSpec.*")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*callbacks used to create the checkpoint.*")
    warnings.filterwarnings("ignore", message=".*You have overridden `on_before_batch_transfer`.*")
    # torchmetrics has done so
    warnings.filterwarnings("ignore", message=".*It is recommended to use `self.log.*sync_dist.*")


def build_task(config: DictConfig) -> SequenceTask:
    """Return the task with its data, the model in it, and what makes its optimizer and schedule.

    Raises:
        OptionError: an option that is unknown, of the wrong type or not allowed.
    """
    optimizer = make(config, "optimizer")
    scheduler = make(config, "scheduler")
    trial = _located(config.optimizer, "optimizer", optimizer, [torch.nn.Parameter(torch.zeros(1))])
    if scheduler is not None:
        _located(config.scheduler, "scheduler", scheduler, trial)

    def build_model(**given: Any) -> Any:
        return make(config, "model", **given)

    task = make(config, "task", model=build_model, optimizer=optimizer, scheduler=scheduler)
    if not isinstance(task.model, task.model_type):
        raise LocatedError(
            f"model._target_={config.model._target_}: must be a {task.model_type.__name__} for {type(task).__name__}"
        )
    if task.causal and config.model.get("bidirectional"):
        raise LocatedError("model.bidirectional=true: reads what is to be predicted; must be false for this task")
    return task


def build_trained(run: runs.Run, checkpoint: str) -> tuple[SequenceTask, int]:
    """Return a run's task with the weights of a checkpoint, for evaluation, and the steps taken by then.

    It lies where the run's trainer puts it.

    Args:
        run: finished or stopped.
        checkpoint: "best" or "last".

    Raises:
        OptionError: the run has no checkpoint, or one of another model.
    """
    prepare(run.config)
    task = build_task(run.config)
    path = choose_checkpoint(run.directory, checkpoint)
    step = check_fits(task, path)
    task.load_state_dict(load_checkpoint(path)["state_dict"])
    trainer = build_trainer(alone(run.config), run.directory, loggers=[], callbacks=[])
    return task.to(trainer.strategy.root_device).eval(), step


def build_trainer(
    config: DictConfig,
    directory: Path,
    loggers: list[Any],
    callbacks: list[Callback] | None = None,
    place: Place | None = None,
) -> Trainer:
    """Return the trainer of a run.

    Args:
        config: the run's configuration.
        directory: where its callbacks write.
        loggers: what it logs to.
        callbacks: instead of those configured.
        place: of this process among several; that of one which a user started if None.

    Raises:
        OptionError: an option that is unknown, of the wrong type or not allowed.
    """
    for key in ("max_steps", "val_check_interval", "log_every_n_steps"):
        check_integer(f"trainer.{key}", config.trainer[key])
    if config.trainer.gradient_clip_val is not None:
        check_real("trainer.gradient_clip_val", config.trainer.gradient_clip_val, minimum=0)
    if callbacks is None:
        callbacks = [make(config, f"callbacks.{name}") for name in config.callbacks or {}]
    check_choice("trainer.strategy", config.trainer.get("strategy", "auto"), ("auto", "ddp"))
    has_bar = any(isinstance(callback, ProgressBar) for callback in callbacks)
    trainer = make(
        config,
        "trainer",
        # steps are counted along one stream of batches, so that there are no epochs to resume in the middle of
        max_epochs=1,
        check_val_every_n_epoch=None,
        val_check_interval=min(config.trainer.val_check_interval, config.trainer.max_steps),
        log_every_n_steps=min(config.trainer.log_every_n_steps, config.trainer.max_steps),
        num_sanity_val_steps=0,
        default_root_dir=str(directory),
        enable_model_summary=False,
        enable_progress_bar=has_bar,
        enable_checkpointing=any(isinstance(callback, Checkpoints) for callback in callbacks),
        callbacks=callbacks,
        logger=loggers,
        plugins=[SafeCheckpointIO(), place or own_place(config)],
        profiler=config.trainer.get("profiler") or NoProfiler(),
    )
    if config.task.batch_size % trainer.world_size:
        raise OptionError(
            f"task.batch_size={config.task.batch_size}: must be a multiple of {trainer.world_size}, the number of"
            " processes that share each batch"
        )
    return trainer


def alone(config: DictConfig) -> DictConfig:
    """Return the configuration with a trainer that takes one process, as evaluation does."""
    config = config.copy()
    with open_dict(config.trainer):
        config.trainer.update(devices=1, num_nodes=1, strategy="auto")
    return config


@contextmanager
def build_loggers(config: DictConfig, run: runs.Run, resumed_at: int) -> Iterator[list[Any]]:
    """Provide the loggers of a run, metrics.csv and the configured ones, and close them.

    Args:
        config: the run's configuration.
        run: where it is logged.
        resumed_at: number of optimizer steps taken when its checkpoint was written.
    """
    try:
        configured = [make(config, f"logger.{name}", run=run) for name in config.logger or {}]
        for logger in configured:
            logger.log_hyperparams(OmegaConf.to_container(config))
        yield [MetricsFile(run.directory / runs.METRICS, resumed_at), *configured]
    finally:
        close_wandb()


def make(config: DictConfig, key: str, **arguments: Any) -> Any:
    """Instantiate the node at `key`, or return None where it is empty.

    Values are checked against the type hints of what the node names, and every failure names the whole key.

    Raises:
        OptionError: a value of the wrong type, or one that the constructor refuses.
    """
    node = OmegaConf.select(config, key)
    if not node:
        return None
    _check_types(node, key)
    try:
        # arguments go past Hydra, which would take apart some of them
        made = _located(node, key, instantiate, node, _partial_=True, _convert_="all")
        return made if node.get("_partial_") else _located(node, key, made, **arguments)
    except LocatedError:
        raise
    except OptionError as error:
        raise LocatedError(_locate(node, key, str(error))) from error


class LocatedError(OptionError):
    """An option error whose message begins with the whole key."""


def _located(node: DictConfig, key: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call what a node stands for; what others than our own checks refuse is told in one line.

    The line begins with the option whose name or value their message has, with the node's key where there is none.
    """
    try:
        return function(*arguments, **named)
    except OptionError:
        raise
    except (ValueError, TypeError, MisconfigurationException, InstantiationException) as error:
        if isinstance(error.__cause__, OptionError):  # of a node in this one, which Hydra wraps
            raise error.__cause__ from error
        message = " ".join(str(error).split())
        words = {word.rstrip(".").lower() for word in re.findall(r"[\w.+-]+", message)}
        options = [(o, o.split(".")[-1], v) for o, v in runs.flatten(OmegaConf.to_container(node), key)]
        told = [(o, v) for o, name, v in options if f"{name}={v}" in message]
        told += [(o, v) for o, name, v in options if name.lower() in words or str(v) in words]
        where = f"{told[0][0]}={told[0][1]}" if told else key
        raise LocatedError(f"{where}: {message}") from error


def _locate(node: DictConfig, key: str, message: str) -> str:
    """Put before a message the key of the section, `key` or one below it, whose option the message is about."""
    option, _, rest = message.partition("=")
    if not re.fullmatch(r"[\w.]+", option):
        return f"{key}: {message}"
    sections, owners = [(node, key)], {}
    for section, where in sections:
        value = OmegaConf.select(section, option, default=section)
        if not _is_section(value):  # a section is no option: `cell` is one of model, and may be an option in it
            owners[where] = rest.startswith(f"{value}:")
        sections += [(section[name], f"{where}.{name}") for name in map(str, section) if _is_section(section[name])]
    # where several have an option of that name, the first that has the value told
    return f"{max(owners, key=owners.__getitem__, default=key)}.{message}"


def _is_section(value: Any) -> bool:
    return isinstance(value, DictConfig) and "_target_" in value


def _check_types(node: DictConfig, key: str) -> None:
    """Check the plain values of a node and of the nodes in it against the type hints of their targets."""
    for name in map(str, node):
        if isinstance(node[name], DictConfig):
            _check_types(node[name], f"{key}.{name}")
    if "_target_" not in node:
        return
    hints = _type_hints(node["_target_"])
    values = OmegaConf.to_container(node, resolve=True)
    assert isinstance(values, dict)
    for name, value in ((str(name), value) for name, value in values.items()):
        if isinstance(value, float) and not math.isfinite(value):
            raise LocatedError(f"{key}.{name}={value}: must be a finite number")
        if name not in hints or isinstance(value, dict):
            continue
        try:
            adapter = TypeAdapter(hints[name], config=ConfigDict(arbitrary_types_allowed=True))
        except PydanticUserError:
            continue  # a hint that is no type of plain values
        try:
            adapter.validate_python(value, strict=isinstance(value, bool | str))
        except ValidationError as error:
            reason = error.errors()[0]["msg"].replace("Input should be", "must be")
            raise LocatedError(f"{key}.{name}={value}: {reason}") from None


def _type_hints(target: str) -> dict[str, Any]:
    """Return the type hints of a target's arguments, none where they cannot be read."""
    try:
        parameters = signature(get_object(target), eval_str=True).parameters
    except (NameError, TypeError, ValueError):
        return {}
    return {name: given.annotation for name, given in parameters.items() if given.annotation is not given.empty}


class NoProfiler(PassThroughProfiler):
    """Measures nothing, as Lightning's default does, without making a context for each of 50 hooks a step."""

    _context = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[None]:
        return self._context


class SafeCheckpointIO(TorchCheckpointIO):
    """Checkpoints that are there whole or not at all, and that cannot run code when loaded."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        runs.replace_when_written(Path(path), partial(torch.save, checkpoint))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        return load_checkpoint(Path(path))


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint, plain containers and tensors only.

    Raises:
        OptionError: the file is missing, cut off, not a checkpoint, or holds objects that would run code.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # torch's advice to load the file unsafely
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise OptionError(f"checkpoint={path}: there is no such file") from None
    except pickle.UnpicklingError:
        raise OptionError(f"checkpoint={path}: refused, is cut off or no checkpoint, or would run code") from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError):
        raise OptionError(f"checkpoint={path}: is cut off or no checkpoint") from None
    if not isinstance(checkpoint, dict) or not {"state_dict", "global_step", "loops"} <= set(checkpoint):
        raise OptionError(f"checkpoint={path}: was not written by a training run")
    return checkpoint


def check_fits(task: SequenceTask, path: Path) -> int:
    """Check that a checkpoint's weights belong to this task and model; return the steps it was trained for.

    Raises:
        OptionError: the file is no usable checkpoint, or names or shapes of weights differ.
    """
    checkpoint = load_checkpoint(path)
    saved = {name: tuple(value.shape) for name, value in checkpoint["state_dict"].items()}
    wanted = {name: tuple(value.shape) for name, value in task.state_dict().items()}
    for name in sorted({*saved, *wanted}):
        if saved.get(name) != wanted.get(name):
            raise OptionError(
                f"checkpoint={path}: is of another model; {name} is {saved.get(name, 'absent')} there,"
                f" {wanted.get(name, 'absent')} here"
            )
    task.check_checkpoint(checkpoint)
    return int(checkpoint["global_step"])


def load_weights(task: SequenceTask, run_directory: Path) -> None:
    """Have training start from the weights of a run's best checkpoint; weights that it need not have stay as they are.

    Raises:
        OptionError: it has no checkpoint, or one of another model.
    """
    path = choose_checkpoint(run_directory, "best")
    checkpoint = load_checkpoint(path)
    task.check_checkpoint(checkpoint)
    try:
        task.load_state_dict(checkpoint["state_dict"])
    except RuntimeError:
        check_fits(task, path)  # tells what does not
        raise
    log.info("Training starts from the weights of %s (step %d)", path, checkpoint["global_step"])


def log_results(loggers: list[Any], results: dict[str, Any]) -> None:
    """Put what a run measured where a logger keeps such numbers: in the summary of Weights & Biases."""
    for logger in loggers:
        summary = getattr(logger.experiment, "summary", None)
        if summary is not None:
            summary.update({name: value for name, value in results.items() if value is not None})


def log_picture(loggers: list[Any], path: Path) -> None:
    """Show a picture in the dashboards that take pictures."""
    for logger in loggers:
        if hasattr(logger, "log_image"):
            logger.log_image(path.stem, [str(path)])


def choose_checkpoint(run_directory: Path, name: str) -> Path:
    """Return the path of a run's "best" or "last" checkpoint; the last one where no best was kept.

    Raises:
        OptionError: another name, or no checkpoint in the run directory.
    """
    check_choice("checkpoint", name, ("best", "last"))
    candidates = [runs.LAST_CHECKPOINT] if name == "last" else [runs.BEST_CHECKPOINT, runs.LAST_CHECKPOINT]
    for candidate in candidates:
        if (run_directory / candidate).is_file():
            return run_directory / candidate
    raise OptionError(f"run={run_directory}: has no checkpoint; it was stopped before its first one")
