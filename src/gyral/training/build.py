"""Builds the objects of a run from its configuration. The only place where sizes flow from task to model."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf, open_dict
from pytorch_lightning import Callback, Trainer, seed_everything
from pytorch_lightning.accelerators import AcceleratorRegistry
from pytorch_lightning.callbacks import Checkpoint, ProgressBar
from torch.optim import Optimizer

from gyral.cells.contract import check_cell
from gyral.config.groups import choices, load_choice, target_of
from gyral.config.instantiation import (
    check_config,
    check_process,
    check_rate,
    check_section,
    check_sections,
    check_trainer,
    located,
    make,
)
from gyral.config.trust import find_object
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError, UserError
from gyral.core.memory import release_freed_memory, retain_freed_memory
from gyral.core.options import declares_options
from gyral.runs.directory import Run, choose_checkpoint, load_run, with_data_at
from gyral.tasks.base import SequenceTask, Task
from gyral.tasks.optimization import GroupedOptimizer, OptimizerFactory
from gyral.training import compat
from gyral.training.checkpoints import (
    SafeCheckpointIO,
    load_checkpoint,
    load_weights,
    read_saved_config,
    save_config,
    validate_checkpoint,
)
from gyral.training.ddp.strategy import ClusterEnvironment
from gyral.training.restoring import guard_restoring

INPUT_SIZE = 1  # of a cell whose options are checked without its inputs


def configure_process(config: DictConfig) -> None:
    """Seed the random generators, set the number of threads, flush subnormal numbers, and silence Lightning.

    Raises:
        OptionError: the seed, the number of threads or `deterministic` is not allowed.
    """
    check_process(config)
    retain_freed_memory()
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    # Gradients that vanish over time become subnormal numbers, with which arithmetic is many times slower.
    torch.set_flush_denormal(True)
    if config.deterministic or torch.are_deterministic_algorithms_enabled():  # else, it would import torch's compiler
        torch.use_deterministic_algorithms(config.deterministic)
    seed_everything(config.seed, workers=True, verbose=False)
    compat.silence_lightning()


@contextmanager
def configured_process(config: DictConfig) -> Iterator[None]:
    """Configure this process for a run, which may follow others; afterwards restore the number of threads.

    Raises:
        OptionError: see `configure_process`.
    """
    threads = torch.get_num_threads()
    release_freed_memory()
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    try:
        configure_process(config)
        yield
    finally:
        torch.set_num_threads(threads)  # the next run may leave them at PyTorch's default


def build_task(config: DictConfig, **arguments: Any) -> Task:
    """Return the task with its data, its model, and the factories of its optimizer and schedule.

    Args:
        config: the configuration.
        **arguments: further arguments of the task, in place of options.

    Raises:
        OptionError: an option that is unknown, of the wrong type or not allowed.
    """
    config = without_removed_callbacks(config)
    check_sections(config)
    optimizer, scheduler = _make_optimization(config)
    _check_model_type(config, get_object(config.model._target_))  # before there is any data
    model = partial(make, config, "model")
    task = make(config, "task", model=model, optimizer=optimizer, scheduler=scheduler, **arguments)
    _check_made(task, Task, config, "task")
    _check_model_type(config, type(task.model))
    if isinstance(task, SequenceTask) and task.causal and config.model.get("bidirectional"):
        raise OptionError(
            "model.bidirectional", "true", "must be false: this task predicts the next steps of its input"
        )
    save_config(task, config)
    compat.skip_empty_hooks(task)
    return task


def check_options(config: DictConfig, section: str) -> None:
    """Check the options of a section as far as that takes no data, no model and no time: types, and many ranges.

    These are all options of the optimizer, the schedule and the callbacks, the numbers of the trainer, and the options
    that classes of cells and of data declare.

    Args:
        config: the configuration.
        section: the name of a section, or the key of an option that is in no section.

    Raises:
        UserError: an option that is unknown, of the wrong type or not allowed.
    """
    config = without_removed_callbacks(config)
    check_sections(config)
    if section in ("optimizer", "scheduler"):
        _make_optimization(config)
    elif section == "trainer":
        check_section(config.trainer, "trainer")
        check_trainer(config)
        _check_accelerator(config, is_elsewhere=True)
    elif section == "callbacks":
        build_callbacks(config)
    elif section == "task":
        check_section(config.task, "task")
        _check_data(config)
    elif section == "model":
        check_section(config.model, "model")
        _check_cell(config)
    else:
        check_process(config)


def _check_data(config: DictConfig) -> None:
    """Raise `OptionError` if the options of a task's data do not fit together."""
    data_class: Any = getattr(get_object(config.task._target_), "data_class", None)
    if declares_options(data_class):
        given: Any = OmegaConf.to_container(config.task, resolve=True)
        with located(config, "task"):
            data_class.check_options(**{name: given[name] for name in data_class.__options__ if name in given})


def _check_cell(config: DictConfig) -> None:
    """Raise `OptionError` if the class of a model's cell declares its options and refuses a value."""
    cell = make(config, "model.cell") if "cell" in config.model else None
    with located(config, "model.cell"):
        check_cell(cell, INPUT_SIZE)


def _make_optimization(config: DictConfig) -> tuple[OptimizerFactory, Any]:
    """Return the factories of the optimizer and of the schedule, None without a schedule.

    Raises:
        OptionError: an option that is unknown, of the wrong type or not allowed.
    """
    section = config.copy()
    groups = {}
    with open_dict(section):
        for name in ("decay", "dynamics_lr"):  # options of Gyral, which the class of torch does not know
            if name in section.optimizer:
                groups[name] = section.optimizer.pop(name)
    factory = make(section, "optimizer")
    if isinstance(kind := getattr(factory, "func", None), type):
        compat.skip_compiler(kind)
    check_rate(config)
    with located(config, "optimizer"):
        trial = factory([torch.nn.Parameter(torch.zeros(1))]) if callable(factory) else factory
    _check_made(trial, Optimizer, config, "optimizer")
    scheduler = make(config, "scheduler")
    if scheduler is not None:
        with located(config, "scheduler"):
            schedule = scheduler(trial)
        _check_made(schedule, torch.optim.lr_scheduler.LRScheduler, config, "scheduler")
    return GroupedOptimizer(factory, **groups), scheduler


def task_class(run: Run) -> type[Task]:
    """Return the class of the task of a run.

    Raises:
        UserError: the configuration of the run names no task.
    """
    target = run.config.task.get("_target_")
    found = get_object(str(target))
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise UserError(f"{run.directory}: task._target_={target}: must be a subclass of {Task.__name__}")
    return found


def _check_made(made: Any, base: type, config: DictConfig, key: str) -> None:
    """Raise `OptionError` if a section makes an object of a wrong type."""
    if not isinstance(made, base):
        target = OmegaConf.select(config, f"{key}._target_")
        reason = f"must make a {base.__module__.partition('.')[0]} {base.__name__}, not a {type(made).__name__}"
        raise OptionError(f"{key}._target_", target, reason)


def _check_model_type(config: DictConfig, model: Any) -> None:
    """Raise `OptionError` if a class of models is not of the type that the task requires."""
    task = get_object(config.task._target_)
    required = getattr(task, "model_type", torch.nn.Module)
    if isinstance(model, type) and not issubclass(model, required):
        fitting = [name for name in choices("model") if _is_class(target_of("model", name), required)]
        reason = f"{'='.join(_choice(config, 'task'))} needs a {required.__name__}, one of {', '.join(fitting)}"
        raise OptionError(*_choice(config, "model"), reason)


def _choice(config: DictConfig, group: str) -> tuple[str, str]:
    """Return the key and the value by which a user has chosen a section, or its target if several choices have it."""
    target = str(config[group]._target_)
    names = [name for name in choices(group) if target_of(group, name) == target]
    if HydraConfig.initialized() and (chosen := HydraConfig.get().runtime.choices.get(group)) in names:
        names = [chosen]
    return (group, names[0]) if len(names) == 1 else (f"{group}._target_", target)


@cache  # a command may be refused for each job of a sweep
def _is_class(target: str, required: type) -> bool:
    """Return whether a name is that of a class of a type, if it can be imported at all."""
    try:
        found = find_object(target)
    except (ImportError, ValueError):  # it needs a package that is not installed
        return False
    return isinstance(found, type) and issubclass(found, required)


def without_removed_callbacks(config: DictConfig) -> DictConfig:
    """Return a configuration without the options of default callbacks that are switched off as a whole.

    `callbacks=none` removes them all, but an experiment may still set an option of one of them.
    """
    sections = config.callbacks if OmegaConf.is_dict(config.callbacks) else {}
    bare = [name for name, node in sections.items() if OmegaConf.is_dict(node) and "_target_" not in node]
    removed = [name for name in bare if name in load_choice("callbacks", "default")]
    if not removed:
        return config
    config = config.copy()
    with open_dict(config):
        for name in removed:
            del config.callbacks[name]
    return config


def build_callbacks(config: DictConfig, task: Task | None = None) -> list[Callback]:
    """Return the callbacks of a run.

    Args:
        config: the run's configuration.
        task: the task that they are for; those that need a particular one check it.

    Raises:
        UserError: an option that is unknown, of the wrong type or not allowed, or a callback for another task.
    """
    config = without_removed_callbacks(config)
    for name, node in (config.callbacks or {}).items():
        package, _, kind = str(node.get("_target_")).rpartition(".")
        if package.partition(".")[0] == "pytorch_lightning" and (reason := compat.UNSUITABLE.get(kind)):
            raise OptionError(f"callbacks.{name}._target_", node._target_, f"does not work here: {reason}")
    callbacks = [make(config, f"callbacks.{name}") for name in config.callbacks or {}]
    for name, callback in zip(config.callbacks or {}, callbacks, strict=True):
        _check_made(callback, Callback, config, f"callbacks.{name}")
        if task is not None and hasattr(callback, "check_task"):
            callback.check_task(task)
    return callbacks


def build_trainer(
    config: DictConfig,
    directory: Path,
    callbacks: list[Callback] | None = None,
    environment: ClusterEnvironment | None = None,
) -> Trainer:
    """Return the trainer of a run.

    Args:
        config: the run's configuration.
        directory: the folder to which the callbacks write.
        callbacks: its callbacks. None: those that are configured.
        environment: rank of this process. None: a process that a user started.

    Raises:
        OptionError: an option that is unknown, of the wrong type or not allowed.
    """
    compat.silence_lightning()
    nodes = check_integer("trainer.num_nodes", config.trainer.get("num_nodes", 1))
    if environment is None and nodes > 1:
        reason = "start the same command on each node, by srun or torchrun, or with the environment variables NODE_RANK"
        raise OptionError("trainer.num_nodes", nodes, f"{reason} (0, 1, …), MASTER_ADDR and MASTER_PORT (of node 0)")
    environment = environment or ClusterEnvironment()
    batches = check_trainer(config)
    _check_accelerator(config)
    if callbacks is None:
        callbacks = build_callbacks(config)
    for callback in callbacks:
        compat.skip_empty_hooks(callback)
    profiler = {} if config.trainer.get("profiler") else {"profiler": compat.NoProfiler()}
    trainer = make(
        config,
        "trainer",
        # steps are counted along one stream of batches, so that no run resumes in the middle of an epoch
        max_epochs=1,
        check_val_every_n_epoch=None,
        # Lightning counts batches, of which a step may use several
        val_check_interval=config.trainer.val_check_interval * batches,  # may be larger than the number of steps
        log_every_n_steps=min(config.trainer.log_every_n_steps, config.trainer.max_steps),
        num_sanity_val_steps=0,
        default_root_dir=str(directory),
        enable_model_summary=False,
        enable_progress_bar=any(isinstance(callback, ProgressBar) for callback in callbacks),
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
        callbacks=callbacks,
        logger=[],  # they are set when the run is recorded
        plugins=[SafeCheckpointIO(), environment],
        **profiler,
        **environment.devices(config.trainer.get("accelerator", "auto")),
    )
    compat.set_rank(trainer.global_rank)
    compat.disable_signal_handlers(trainer)
    compat.validate_at_end(trainer)
    guard_restoring(trainer)
    _check_made(trainer, Trainer, config, "trainer")
    if config.task.batch_size % trainer.world_size:
        reason = f"must be a multiple of {trainer.world_size}, the number of processes that share each batch"
        raise OptionError("task.batch_size", config.task.batch_size, reason)
    return trainer


def single_process(config: DictConfig) -> DictConfig:
    """Return the configuration with a trainer that uses one process, as evaluation does."""
    config = config.copy()
    with open_dict(config.trainer):
        config.trainer.update(devices=1, num_nodes=1, strategy="auto")
    return config


def build(config: DictConfig) -> Task:
    """Return a configuration's task with its data, its model and its optimizer, ready for a trainer of Lightning.

    `task.model` is the model and `task.data` the data module: `Trainer(max_steps=300).fit(task, task.data)` trains. The
    random generators are seeded with `config.seed`, so that the weights are those with which `gyral train` starts.

    Args:
        config: the configuration, as `gyral.compose` returns it.

    Raises:
        UserError: an option that is unknown, of the wrong type or not allowed.
    """
    check_config(config)
    configure_process(config)
    task = build_task(config)
    if config.weights is not None:
        load_weights(task, config.weights)
    return task


def load(
    directory: str | PathLike[str],
    checkpoint: str = "best",
    *,
    trust: str | Sequence[str] = (),
    data: Mapping[str, str] | None = None,
) -> Task:
    """Return the trained task of a run in eval mode, on the device that the run's trainer uses.

    `task.predict(data)` are the predictions for your own inputs, such as arrays, a data frame or the path of a file,
    and `task.predict(batch)` those for a batch of `task.data.loader("test")`, which `task.render` draws.

    A run on your own sequences is loaded without the file of its data, too; then `task.data` has no examples.

    Args:
        directory: the run directory, or the run's record from `gyral.fit`; or a checkpoint that a trainer of Lightning
            has written, which contains the configuration.
        checkpoint: "best" or "last", of a run directory.
        trust: the modules besides Gyral's own that the configuration of the run may name, if you trust the authors of
            the modules and of the run: "my_cells", or several names.
        data: new places of the data of the run, such as {"task.corpus.path": "~/text.txt"}, if they have been moved.

    Raises:
        UserError: the directory holds no run, no checkpoint, or a checkpoint of another model; the configuration of
            the run names an untrusted module; or the data are not those of the run.
    """
    path = Path(directory).expanduser()
    if path.is_file():
        run = Run(path.absolute().parent.parent, read_saved_config(path, trust), is_saved=True)
        run = with_data_at(run, data or {})
        run.check_data()
        return _load_task(run.config, path)[0]
    run = with_data_at(load_run(path, trust), data or {})
    return (load_trained if run.has_data() else load_for_inputs)(run, checkpoint)[0]


def load_trained(run: Run, checkpoint: str) -> tuple[Task, int]:
    """Return the trained task of a run, as `load` does, and the number of optimizer steps of the checkpoint."""
    run.check_data()
    return _load_task(run.config, choose_checkpoint(run.directory, checkpoint))


def load_for_inputs(run: Run, checkpoint: str) -> tuple[Task, int]:
    """Do the same as `load_trained`, but without the data of the run if its checkpoint describes the inputs.

    Such a task predicts for inputs of a user's own, but `task.data` has no examples.
    """
    path = choose_checkpoint(run.directory, checkpoint)
    described = task_class(run).described_data(load_checkpoint(path))
    return _load_task(run.config, path, **described) if described else load_trained(run, checkpoint)


def _load_task(config: DictConfig, path: Path, **arguments: Any) -> tuple[Task, int]:
    """Return the task of a configuration with the weights of a checkpoint, and its number of optimizer steps."""
    configure_process(config)
    task = build_task(config, **arguments)
    step = validate_checkpoint(task, path)
    task.load_state_dict(load_checkpoint(path)["state_dict"])
    trainer = build_trainer(single_process(config), path.parent, callbacks=[])
    return task.to(trainer.strategy.root_device).eval(), step


def _check_accelerator(config: DictConfig, is_elsewhere: bool = False) -> None:
    """Check that the accelerator is known and that this machine has one, unless the run may be on another one.

    Raises:
        OptionError: it is not.
    """
    chosen = config.trainer.get("accelerator", "auto")
    known = sorted(AcceleratorRegistry.available_accelerators())
    check_choice("trainer.accelerator", chosen, ("auto", "gpu", *known))
    names = {"auto": ("cpu",), "gpu": ("cuda", "mps")}.get(chosen, (chosen,))
    if not is_elsewhere and not any(_is_available(name) for name in names):
        available = ", ".join(name for name in known if _is_available(name))
        raise OptionError("trainer.accelerator", chosen, f"no {chosen} is visible; available: {available}")


def _is_available(accelerator: str) -> bool:
    return bool(AcceleratorRegistry[accelerator]["accelerator"].is_available())
