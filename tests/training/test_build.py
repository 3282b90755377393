"""Every choice of every group composes and builds; values that are not allowed are refused by their whole key."""

import copy
import functools
import itertools
import math
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict
from pytorch_lightning import Trainer
from pytorch_lightning.profilers import SimpleProfiler
from torch import nn

from gyral.config.groups import load_choice
from gyral.core.errors import UserError
from gyral.runs import records
from gyral.tasks.base import SequenceTask
from gyral.training import build, compat
from tests.helpers.found import at_least
from tests.helpers.running import (
    SMALL_COPY,
    SMALL_RECALL,
    SMALL_TEXT,
    build_or_skip,
    build_task,
    choices,
    classes_of,
    compose_choices,
    compose_config,
    invoke,
    keep_small,
    model_for,
    shorten,
    task_class,
)
from tests.helpers.slices import listed, offered, small_options

TINY = {"batch_size": 4, "train_size": 12, "val_size": 4, "test_size": 4}


def parameters(task: nn.Module) -> int:
    return sum(parameter.numel() for parameter in task.parameters())


CLASSES = {task: task_class(task) for task in choices("task")}
# One task of each class, the last one in the alphabet, whose corpus is not published; the others differ in their corpus
# alone, which the contract of tasks reads.
TASKS = sorted({CLASSES[task]: task for task in sorted(CLASSES)}.values())
OF_EVERY_CELL = ("copy", "recall", "text_file", "adding", *listed("OF_EVERY_CELL"))  # of the other tasks, GRU is enough


@pytest.mark.parametrize(
    ("cell", "task"),
    [
        # the contract of tasks builds all of them and takes a step
        *(pytest.param("gru", task, marks=pytest.mark.one_of(6)) for task in at_least(32, TASKS)),
        *(
            pytest.param(
                cell,
                task,
                marks=pytest.mark.named(
                    "dag_rnn-babi",
                    "fast_weights-copy",
                    "fs_eurnn-text_file",
                    "urnn-adding",
                ),
            )
            for cell, task in itertools.product(at_least(45, choices("cell")), OF_EVERY_CELL)
            if cell != "gru"
        ),
    ],
)
def test_every_cell_learns_every_task(cell: str, task: str) -> None:
    config = compose_config(f"task={task}", *model_for(task, cell, 12), "seed=3")
    keep_small(config, **small_options(OmegaConf.to_container(config.task), task))
    shorten(config, train=100, val=20, test=20)
    built = build_or_skip(config)
    check_built(built, config)
    batch = next(iter(built.data.loader("train")))
    optimizer = torch.optim.Adam(built.parameters())
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = built.loss(built(batch), batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(map(math.isfinite, losses))
    assert min(losses[1:]) < losses[0]  # modReLU jumps: not every step need be one down


def check_built(built: Any, config: DictConfig) -> None:
    """Check that a task is what its configuration says."""
    assert type(built).__name__ == config.task._target_.rpartition(".")[2]
    assert (built.monitor, built.mode) == (config.task.monitor, config.task.mode)
    assert built.baseline > 0
    if "mse" not in built.metrics.names and isinstance(built, SequenceTask):
        # frequencies of training, where all are alike, may be worse on test than none
        assert built.baseline < 1.01 * math.log(classes_of(built))


@pytest.mark.one_of(16)
@pytest.mark.parametrize("task", at_least(36, choices("task")))
def test_every_task_builds_as_its_file_says(task: str) -> None:
    config = compose_config(f"task={task}", *model_for(task, "rnn", 2))
    try:
        built = build.build_task(config)
    except UserError:  # it has no data
        keep_small(config, **small_options(OmegaConf.to_container(config.task), task))
        built = build_or_skip(config)
    check_built(built, config)


@pytest.mark.parametrize("shift", [0, *(pytest.param(shift, marks=pytest.mark.slow) for shift in range(1, 5))])
def test_every_optimizer_takes_every_schedule(shift: int) -> None:
    optimizers, schedulers = compose_choices("optimizer"), compose_choices("scheduler")
    base = compose_config("model=rnn", "model.cell.hidden_size=3")
    names = at_least(5, optimizers)
    for index, scheduler in enumerate(at_least(7, schedulers)):
        optimizer = names[(index + shift) % len(names)]
        config = copy.deepcopy(base)
        with open_dict(config):
            config.optimizer, config.scheduler = optimizers[optimizer], schedulers[scheduler] or None
        OmegaConf.resolve(config)
        check_optimizer(config, optimizer, is_each_step=scheduler not in ("none", "plateau", "recent_best"))


def check_optimizer(config: DictConfig, name: str, is_each_step: bool) -> None:
    """Check the optimizer that a task has by its configuration, and whether a schedule sets its rate at each step."""
    built = build.build_task(config)
    made = built.configure_optimizers()
    optimizer = made["optimizer"] if isinstance(made, dict) else made
    assert type(optimizer).__name__.lower() == name
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(built.parameters()))
    for option, value in config.optimizer.items():
        if not option.startswith("_") and option not in ("decay", "dynamics_lr"):
            wanted = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
            actual = optimizer.defaults[option]
            assert list(actual) == wanted if isinstance(wanted, list) else actual == wanted
    assert isinstance(made, dict) == is_each_step


@pytest.mark.parametrize(("mode", "better", "worse"), [("min", 0.4, 0.6), ("max", 0.6, 0.4)])
def test_a_plateau_is_judged_by_the_tasks_metric_and_mode(mode: str, better: float, worse: float) -> None:
    config = compose_config(
        "model=rnn", "model.cell.hidden_size=3", "scheduler=plateau", "task=recall", "optimizer=sgd"
    )
    config.scheduler.patience = 0
    config.scheduler.mode = mode
    config.task.update(mode=mode, monitor="val/accuracy", **TINY)
    built = build.build_task(config)
    optimizer = built.configure_optimizers()
    built.log = lambda *_, **__: None
    rates = []
    for value in (0.5, better, better, worse):
        built.metrics.compute = lambda value=value: {"accuracy": torch.tensor(value)}
        built.on_validation_epoch_end()
        rates.append(optimizer.param_groups[0]["lr"])
    # halved where the metric got no better, and only there
    assert rates == pytest.approx([0.1, 0.1, 0.05, 0.025])


@pytest.mark.named(
    "concept_learner/question_only",
    "lantm_paper/programs/ntm",
    "rum_paper/table3/rum_1000_tanh",
)
@pytest.mark.parametrize("experiment", at_least(520, choices("experiment")))
def test_every_experiment_builds(experiment: str) -> None:
    config = compose_config(f"experiment={experiment}")
    # its own settings arrive
    wanted = load_choice("experiment", experiment)
    wanted.pop("defaults")
    merged = OmegaConf.merge(config, wanted)
    for key, _ in flat(OmegaConf.to_container(wanted)):
        assert OmegaConf.select(config, key) == OmegaConf.select(merged, key), key
    keep_small(config, **offered("QUICK_TO_BUILD"))
    built = build_or_skip(config)
    assert parameters(built) > 0


def flat(node: object, prefix: str = "") -> list[tuple[str, object]]:
    """Return a nested dictionary as dotted keys and values."""
    if not isinstance(node, dict):
        return [(prefix, node)]
    return [pair for key, value in node.items() for pair in flat(value, f"{prefix}.{key}".lstrip("."))]


def test_every_other_choice_composes_and_builds_a_trainer(tmp_path: Path) -> None:
    """The choices of several groups are composed side by side, and those of a shorter group repeat."""
    counts = {"logger": 5, "trainer": 4, "launcher": 4, "debug": 1}
    names = {group: at_least(count, choices(group)) for group, count in counts.items()}
    for index in range(max(map(len, names.values()))):
        row = {group: each[index % len(each)] for group, each in names.items()}
        config = compose_config(*(f"{group}={name}" for group, name in row.items()), hydra_too=True)
        assert OmegaConf.select(config, "hydra.runtime.choices").items() >= row.items()
        config = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
        OmegaConf.resolve(config)
        if row["trainer"] != "gpu":
            check_trainer(config, tmp_path)


def test_every_choice_of_callbacks_builds_a_trainer(tmp_path: Path) -> None:
    for callbacks in at_least(9, compose_choices("callbacks").values()):
        config = compose_config()
        with open_dict(config):
            config.callbacks = callbacks
        OmegaConf.resolve(config)
        check_trainer(config, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("callbacks", choices("callbacks"))
@pytest.mark.parametrize("trainer", [name for name in choices("trainer") if name != "gpu"])
def test_every_trainer_builds_with_all_callbacks(trainer: str, callbacks: str, tmp_path: Path) -> None:
    check_trainer(compose_config(f"trainer={trainer}", f"callbacks={callbacks}"), tmp_path)


def check_trainer(config: DictConfig, directory: Path) -> None:
    """Check that the trainer of a configuration, on the CPU, has its callbacks and limits."""
    config.trainer.accelerator = "cpu"
    built = build.build_trainer(config, directory)
    assert built.max_steps == config.trainer.max_steps
    kinds = {type(callback).__name__ for callback in built.callbacks}
    assert kinds >= {str(node._target_).rpartition(".")[2] for node in (config.callbacks or {}).values()}
    assert built.gradient_clip_val == 1.0
    assert built.default_root_dir == str(directory)


@pytest.mark.filterwarnings("error")
def test_a_trainer_does_not_warn_where_slurm_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "bin" / "srun"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    for name in ("SLURM_NTASKS", "SLURM_JOB_NAME"):  # not under srun, wherever the tests run
        monkeypatch.delenv(name, raising=False)
    with pytest.warns(UserWarning, match="`srun` command is available"):
        Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    config = compose_config("trainer=cpu")
    assert build.build_trainer(config, tmp_path).num_devices == 1


@pytest.mark.parametrize("debug", choices("debug"))
def test_every_debug_choice_trains(debug: str, tmp_path: Path) -> None:
    outcome = invoke(
        f"debug={debug}", "model=rnn", "threads=1", "trainer.accelerator=cpu", "task.delay=1", "task.recalled=2",
        "trainer.max_steps=4", "trainer.val_check_interval=2", "trainer.log_every_n_steps=2", "logger=none",
        f"hydra.run.dir={tmp_path}",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    assert (tmp_path / "DONE").exists()


def gates(model: str) -> tuple[int, int]:
    """Return how many blocks of N rows a cell has for its inputs and its hidden vector."""
    return {"rnn": (1, 1), "gru": (3, 3), "lstm": (4, 4), "rum": (3, 2)}[model]


@pytest.mark.parametrize(
    ("model", "task", "vocabulary", "classes"),
    [("gru", "copy", 10, 9), *((model, "recall", 36, 10) for model in ("rnn", "gru", "lstm", "rum"))],
)
def test_parameter_counts_are_the_formulas(model: str, task: str, vocabulary: int, classes: int) -> None:
    size = 50
    options = {"length": 50} if task == "recall" else {"delay": 3, "train_size": 64}
    built = build_task(f"model={model}", f"task={task}", f"model.cell.hidden_size={size}", **options)
    inputs, recurrent = gates(model)
    # torch's layers have two biases, RUM one
    biases = inputs * size if model == "rum" else 2 * inputs * size
    head = size * classes + classes
    assert parameters(built) == inputs * size * vocabulary + recurrent * size * size + biases + head


def test_parameter_counts_of_the_papers_table() -> None:
    counts = {
        model: parameters(build_task(f"model={model}", "task=recall", "model.cell.hidden_size=50", length=50))
        for model in ("gru", "lstm", "rum")
    }
    assert counts["gru"] == 13_710
    # Table 1 says 14k, 17k, 13k; torch's second biases and the one-hot size of T = 50 make the difference
    assert [round(counts[name], -3) for name in ("gru", "lstm")] == [14_000, 18_000]
    assert counts["rum"] == 3 * 50 * 36 + 2 * 50 * 50 + 150 + 510


def test_embedding_layers_and_directions_reach_the_network() -> None:
    built = build_task(
        "model=gru", "task=copy", "model.cell.hidden_size=4", "model.embedding_size=5", "model.num_layers=2",
        "model.bidirectional=true",
    )  # fmt: skip
    assert built.model.embedding.weight.shape == (10, 5)
    assert built.model.head.weight.shape == (9, 8)
    assert [cell.input_size for cell in built.model.recurrent.cells] == [5, 5, 8, 8]


# overrides → the key, the value as the message shows it, and what the message must say is allowed
REFUSED = [
    (["model=gru", "model.cell.hidden_size=-3"], "model.cell.hidden_size=-3", "≥ 1"),
    (["model=gru", "model.cell.hidden_size=0"], "model.cell.hidden_size=0", "≥ 1"),
    (["model=lstm", "model.cell.hidden_size=1.5"], "model.cell.hidden_size=1.5", "integer"),
    (["model=rnn", "model.cell.hidden_size=abc"], "model.cell.hidden_size=abc", "integer"),
    (["model=rum", "model.cell.hidden_size=1"], "model.cell.hidden_size=1", "≥ 2"),
    (["model=rum", "model.cell.lambd=nan"], "model.cell.lambd=nan", "finite number"),
    (["model=rum", "model.cell.lambd=inf"], "model.cell.lambd=inf", "finite number"),
    (["model=rum", "model.cell.eta=0"], "model.cell.eta=0", "> 0"),
    (["model=rum", "model.cell.zoneout=1"], "model.cell.zoneout=1", "< 1"),
    (["model=rum", "model.cell.activation=gelu"], "model.cell.activation=gelu", "relu, tanh"),
    (["model=rum", "model.cell.update_gate=3"], "model.cell.update_gate=3", "bool"),
    (
        ["model=rum", "model.cell.recurrent_dropout=0.5", "model.backend=fused"],
        "model.backend=fused",
        "auto, reference, compile",
    ),
    (["model=gru", "model.backend=foo"], "model.backend=foo", "auto, reference, fused, compile"),
    (["model=gru", "model.num_layers=0"], "model.num_layers=0", "from 1 to"),
    (["model=gru", "model.dropout=1.0"], "model.dropout=1.0", "< 1"),
    (["model=gru", "model.embedding_size=0"], "model.embedding_size=0", "≥ 1"),
    (["task.delay=0"], "task.delay=0", "≥ 1"),
    (["task=recall", "task.length=7"], "task.length=7", "even"),
    (["task.batch_size=0"], "task.batch_size=0", "≥ 1"),
    (["task.batch_size=100000000"], "task.batch_size=100000000", "at most"),
    (["task=text_file", "task.batch_size=100000000"], "task.batch_size=100000000", "at most"),
    (["task=text_file", "task.window=0"], "task.window=0", "≥ 1"),
    (["task=text_file", "task.window=100000000"], "task.window=100000000", "at most"),
    (["task=text_file", "task.eval_batch_size=0"], "task.eval_batch_size=0", "≥ 1"),
    (["task=text_file", "task.warm_up=-1"], "task.warm_up=-1", "≥ 0"),
    (["task=text_file", "task.monitor=val/sequence_accuracy"], "task.monitor=val/sequence_accuracy", "val/bits"),
    (["task=text_file", "task.corpus.level=letter"], "task.corpus.level=letter", "char, word, byte"),
    (["task=text_file", "task.corpus.minimum_count=0"], "task.corpus.minimum_count=0", "≥ 1"),
    (["task=text_file", "task.corpus.val_fraction=0"], "task.corpus.val_fraction=0", "> 0"),
    (["task=text_file", "task.corpus.test_fraction=0.96"], "task.corpus.test_fraction=0.96", "less than 1"),
    (["task=text_file", "task.corpus.path=no/such.txt"], "task.corpus.path=no/such.txt", "No such file"),
    (["task=text_file", "model.bidirectional=true"], "model.bidirectional=true", "false"),
    (["task.monitor=loss"], "task.monitor=loss", "val/loss"),
    (["task.mode=least"], "task.mode=least", "min, max"),
    (["+trainer.limit_test_batches=0"], "trainer.limit_test_batches=0", "> 0"),
    (["optimizer.lr=abc"], "optimizer.lr=abc", "number"),
    (["optimizer.lr=-1"], "optimizer.lr=-1", "≥ 0"),
    (["optimizer.lr=nan"], "optimizer.lr=nan", "finite"),
    (["trainer.max_steps=0"], "trainer.max_steps=0", "from 1 to"),
    (["trainer.max_steps=abc"], "trainer.max_steps=abc", "integer"),
    (["trainer.max_steps=-5"], "trainer.max_steps=-5", "from 1 to"),
    (["trainer.val_check_interval=null"], "trainer.val_check_interval=null", "from 1 to"),
    (["trainer.val_check_interval=0"], "trainer.val_check_interval=0", "from 1 to"),
    (["trainer.accelerator=abacus"], "trainer.accelerator=abacus", "must be one of auto, gpu, c"),
    (["trainer.precision=5"], "trainer.precision=5", ""),
    (["trainer.gradient_clip_val=-1"], "trainer.gradient_clip_val=-1", ""),
    (["trainer.devices=0"], "trainer", "`Trainer(devices=0)` value is not a valid input"),
    (["seed=-1"], "seed=-1", "≥ 0|from 0"),
    (["seed=abc"], "seed=abc", "integer"),
    (["threads=0"], "threads=0", "from 1 to"),
    (["deterministic=2"], "deterministic=2", "true or false"),
    (["callbacks.checkpoints.every=0"], "callbacks.checkpoints.every=0", "≥ 1"),
    (["callbacks.guard.every=x"], "callbacks.guard.every=x", "integer"),
    (["scheduler=plateau", "scheduler.factor=2"], "scheduler", "Factor should be < 1.0"),
    (["model=lantm", "model.cell.capacity=2"], "model.cell.capacity=2", "the vectors that the task writes"),
    (["scheduler=recent_best", "scheduler.window=0"], "scheduler.window=0", "≥ 1"),
]


# those that are tried on the command line, too
SAMPLED = ("model.cell.lambd=nan", "optimizer.lr=abc", "seed=-1")


def small(overrides: list[str]) -> tuple[str, ...]:
    """Return what makes a run of the task small that the overrides name."""
    tasks = {"task=recall": SMALL_RECALL, "task=text_file": SMALL_TEXT}
    return next((tasks[override] for override in overrides if override in tasks), SMALL_COPY)


def build_all(config: DictConfig, directory: Path) -> None:
    """Build everything that a run is made of, up to its first batch."""
    build.configure_process(config)
    task = build.build_task(config)
    task.configure_optimizers()
    trainer = build.build_trainer(config, directory)
    task.data.trainer = trainer
    next(iter(task.data.train_dataloader()))


@functools.cache
def _built_config(groups: tuple[str, ...]) -> DictConfig:
    config = compose_config(*small([*groups]), *groups)
    with tempfile.TemporaryDirectory() as directory:
        build_all(config, Path(directory))
    return config


def built_config(*groups: str) -> DictConfig:
    """Return a small configuration, of which everything has been built."""
    return copy.deepcopy(_built_config(groups))


@pytest.mark.named(
    "model.cell.lambd=nan",
    "model.cell.lambd=inf",
    "model.cell.eta=0",
    "model.cell.activation=gelu",
    "model.backend=fused",
    "task.batch_size=100000000_1",
    "task.window=0",
    "task.window=100000000",
    "task.monitor=val/sequence_accuracy",
    "task.corpus.minimum_count=0",
    "task.corpus.test_fraction=0.96",
    "task.corpus.path=no/such.txt",
    "model.bidirectional=true",
    "task.mode=least",
    "optimizer.lr=nan",
    "trainer.max_steps=-5",
    "trainer.val_check_interval=null",
    "trainer.accelerator=abacus",
    "trainer.precision=5",
    "seed=-1",
    "seed=abc",
    "threads=0",
    "deterministic=2",
    "callbacks.guard.every=x",
    "model.cell.capacity=2",
)
@pytest.mark.parametrize(("overrides", "said", "allowed"), REFUSED, ids=[case[1] for case in REFUSED])
def test_values_that_are_not_allowed_are_refused(overrides: list[str], said: str, allowed: str, tmp_path: Path) -> None:
    *groups, override = overrides
    config = built_config(*groups)
    parsed = OverridesParser.create().parse_override(override)
    with open_dict(config):
        OmegaConf.update(config, parsed.key_or_group, parsed.value())
    with pytest.raises(UserError) as raised:
        build_all(config, tmp_path)
    error = str(raised.value)
    assert error.startswith(f"{said}: "), error
    assert "\n" not in error
    assert any(part in error for part in allowed.split("|")), error


@pytest.mark.parametrize(
    "case", [case for case in REFUSED if case[1] in SAMPLED], ids=[case[1] for case in REFUSED if case[1] in SAMPLED]
)
def test_refusals_are_one_line_on_the_command_line_and_leave_nothing(
    case: tuple[list[str], str, str], tmp_path: Path
) -> None:
    overrides, said, _ = case
    key = said.partition("=")[0]
    base = [override for override in small(overrides) if not override.startswith(f"{key}=")]
    error = invoke(*base, *overrides, f"hydra.run.dir={tmp_path}/run").error
    assert error.startswith(f"{said}:"), error
    assert not list(tmp_path.iterdir())


def test_a_model_that_does_not_fit_the_task_is_named_as_it_was_chosen(tmp_path: Path) -> None:
    error = invoke("model=box", "task=copy", f"hydra.run.dir={tmp_path / 'run'}").error
    assert re.match(r"model=box: task=copy needs a SequenceModel, one of .*, gru, .*, lstm, .*, rum, ", error)
    error = invoke("model=rum", "task=hypernyms", f"hydra.run.dir={tmp_path / 'run'}").error
    assert re.match(r"model=rum: task=hypernyms needs a ConceptModel, one of box, complex_bilinear, ", error)
    assert not [*tmp_path.iterdir()]


def test_options_that_only_loggers_or_callbacks_read_are_validated_first(tmp_path: Path) -> None:
    wandb = ("logger=wandb", "logger.wandb.project=[1]")
    for overrides, said in ((["callbacks=cosines"], "callbacks.cosines: GRUCell"), (wandb, "logger.wandb.project=[1]")):
        error = invoke(*SMALL_COPY, "model=gru", *overrides, f"hydra.run.dir={tmp_path}/run").error
        assert error.startswith(f"{said}"), error
        assert not list(tmp_path.iterdir())


def test_a_refused_job_of_a_sweep_leaves_its_record_and_is_listed(tmp_path: Path) -> None:
    options = ("model=gru", "task.monitor=val/nothing,val/loss", "trainer.max_steps=2")
    outcome = invoke("-m", *SMALL_COPY, *options, f"hydra.sweep.dir={tmp_path}/sweep")
    assert outcome.status == 1
    failed = outcome.err.partition("Failed:")[2].splitlines()
    assert "task.monitor=val/nothing: must be one of val/loss, " in failed[1]
    states = {run.options["task.monitor"]: run.state for run in records.read(tmp_path / "sweep")[0]}
    assert states == {"val/nothing": "FAILED", "val/loss": "DONE"}


def test_a_value_is_refused_where_another_cell_would_take_it() -> None:
    built = build_task(*SMALL_COPY, "model=gru", "model.cell.hidden_size=1")
    assert built.model.head.in_features == 1
    assert torch.isfinite(built(next(iter(built.data.loader("val"))))).all()


def test_a_step_enters_no_profiler_and_calls_no_empty_hook_of_a_callback_or_task() -> None:
    trainer = build.build_trainer(compose_config("trainer.accelerator=cpu"), Path("unused"))
    assert trainer.profiler.profile("one") is trainer.profiler.profile("another")
    for owner in (*trainer.callbacks, build_task(*SMALL_COPY)):
        for hook in compat.STEP_HOOKS:
            assert callable(getattr(owner, hook)) == (hook in vars(type(owner))), (owner, hook)


def test_the_report_of_a_profiler_is_printed(tmp_path: Path) -> None:
    short = ("trainer.max_steps=2", "trainer.val_check_interval=2")
    outcome = invoke(*SMALL_COPY, "model=gru", *short, "+trainer.profiler=simple", f"hydra.run.dir={tmp_path}/run")
    assert outcome.status == 0
    assert "run_training_batch" in outcome.err
    assert "run_training_batch" in (tmp_path / "run" / "train.log").read_text()


def test_a_profiler_of_the_configuration_is_used() -> None:
    trainer = build.build_trainer(compose_config("trainer.accelerator=cpu", "+trainer.profiler=simple"), Path("unused"))
    assert isinstance(trainer.profiler, SimpleProfiler)


def test_the_check_before_a_sweep_refuses_no_default() -> None:
    for choices_of_groups in (("model=ntm", "task=recall", "scheduler=cosine"), ("model=eurnn", "task=group")):
        config = compose_config(*choices_of_groups)
        for choice in (*choices_of_groups, "callbacks=default"):
            build.check_options(config, choice.partition("=")[0])


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param(f"{group}={name}", marks=() if name == "gpu" else pytest.mark.slow)
        for group in ("model", "task", "optimizer", "scheduler", "trainer", "callbacks")
        for name in choices(group)
    ],
)
def test_the_check_before_a_sweep_refuses_no_choice(choice: str) -> None:
    build.check_options(compose_config(choice), choice.partition("=")[0])
