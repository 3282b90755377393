"""The contract of `src.tasks.base`, for every task that has a YAML in conf/task: a new file there is tested at once.

A new task needs no edit here unless it has an option whose other values cannot be guessed from its type; the failure
then says what to add.
"""

import functools
import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from src.callbacks import Checkpoints
from src.data.batching import IGNORED, Batch
from src.tasks.base import SPLITS, Metrics, SequenceTask
from tests.running import build_task, choices, compose_config

TASKS = choices("task")
SIZES = {"batch_size": 7, "train_size": 64, "val_size": 23, "test_size": 17}

# Values that keep a task's sequences short, where it has these options.
SHORT = {"delay": 4, "recalled": 3, "length": 6}

# Other values of an option, by its name. Needed for strings and null, and where the next number is not allowed; other
# numbers are raised and flags flipped without an entry.
ALTERNATIVES: dict[str, list[Any]] = {
    "length": [8],
    "mode": ["min", "max"],
    "monitor": ["val/loss", "val/accuracy", "val/sequence_accuracy"],
}


def small(task: str, **options: Any) -> SequenceTask:
    """Build a task as its YAML says, with small sizes and the given options, on a tiny network."""
    known = compose_config(f"task={task}").task
    options = {**SIZES, **{name: value for name, value in SHORT.items() if name in known}, **options}
    return build_task(f"task={task}", "model=gru", "model.cell.hidden_size=4", **options)


def stream(task: SequenceTask, steps: int = 9) -> Any:
    """Return the training stream of a run with so many steps."""
    task.data.trainer = SimpleNamespace(max_steps=steps, accumulate_grad_batches=1)
    return task.data.train_dataloader()


def joined(batches: Any) -> Batch:
    """Return all sequences of a loader as one batch."""
    return Batch(*map(torch.cat, zip(*batches, strict=True)))


def assert_equal_batches(first: Any, second: Any) -> None:
    first, second = list(first), list(second)
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert all(map(torch.equal, one, other))


def classes(task: SequenceTask) -> int:
    return task.model.head.out_features


def oracle(task: SequenceTask, batch: Batch) -> Tensor:
    """Return the logits of one who knows the targets."""
    return 50.0 * F.one_hot(batch.targets.clamp(min=0), classes(task)).float()


def score(task: SequenceTask, batch: Batch, logits: Tensor) -> dict[str, float]:
    metrics = Metrics(classes(task))
    metrics.update(logits, batch, task.loss(logits, batch))
    return {name: value.item() for name, value in metrics.compute().items()}


@pytest.mark.parametrize("task", TASKS)
def test_oracle_is_right_everywhere(task: str) -> None:
    built = small(task)
    for split in SPLITS:
        batch = joined(built.data.loader(split))
        scores = score(built, batch, oracle(built, batch))
        assert scores["loss"] == pytest.approx(0, abs=1e-6)
        assert scores["accuracy"] == scores["sequence_accuracy"] == 1


@pytest.mark.parametrize("task", TASKS)
def test_uniform_guess_scores_its_closed_form(task: str) -> None:
    built = small(task)
    batch = joined(built.data.loader("test"))
    scores = score(built, batch, torch.zeros(*batch.inputs.shape, classes(built)))
    assert scores["loss"] == pytest.approx(math.log(classes(built)), rel=1e-6)
    # all classes are equally likely and the first of them is taken
    assert scores["accuracy"] == pytest.approx((batch.targets[batch.answers] == 0).double().mean().item(), rel=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_one_wrong_answer_makes_its_sequence_wrong(task: str) -> None:
    built = small(task)
    batch = joined(built.data.loader("val"))
    logits = oracle(built, batch)
    time = batch.answers[5].nonzero()[-1].item()
    logits[5, time] = logits[5, time].roll(1)
    scores = score(built, batch, logits)
    assert scores["accuracy"] == pytest.approx(1 - 1 / batch.answers.sum().item(), rel=1e-6)
    assert scores["sequence_accuracy"] == pytest.approx(1 - 1 / len(batch.inputs), rel=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_what_is_no_answer_does_not_count_for_the_accuracies(task: str) -> None:
    built = small(task)
    batch = joined(built.data.loader("val"))
    logits = torch.where(batch.answers.unsqueeze(-1), oracle(built, batch), torch.randn(*batch.inputs.shape, 1))
    logits[~batch.answers] = torch.randn_like(logits[~batch.answers])
    scores = score(built, batch, logits)
    assert scores["accuracy"] == scores["sequence_accuracy"] == 1


@pytest.mark.parametrize("task", TASKS)
def test_batches_have_the_shapes_types_and_ranges_they_promise(task: str) -> None:
    built = small(task)
    loaders = {split: built.data.loader(split) for split in SPLITS}
    for loader, size in ((loaders["val"], 23), (loaders["test"], 17), (loaders["train"], 64), (stream(built), 9 * 7)):
        batches = list(loader)
        assert len(batches) == len(loader)
        assert sum(len(batch.inputs) for batch in batches) == size
        for batch in batches:
            assert isinstance(batch, Batch)
            assert batch.inputs.shape == batch.targets.shape == batch.answers.shape
            assert len(batch.inputs) <= 7
            assert (batch.inputs.dtype, batch.targets.dtype, batch.answers.dtype) == (
                torch.long,
                torch.long,
                torch.bool,
            )
            assert batch.inputs.min() >= 0
            assert batch.inputs.max() < built.model.vocabulary_size
            counted = batch.targets[batch.targets != IGNORED]
            assert counted.min() >= 0
            assert counted.max() < classes(built)
            assert batch.answers.any(dim=1).all(), "a sequence without an answer"
            assert (batch.targets[batch.answers] != IGNORED).all(), "an answer without a target"


@pytest.mark.parametrize("task", TASKS)
def test_every_token_and_class_occurs(task: str) -> None:
    built = small(task, train_size=2000)
    batch = joined(built.data.loader("train"))
    assert batch.inputs.unique().tolist() == list(range(built.model.vocabulary_size))
    assert batch.targets[batch.targets != IGNORED].unique().tolist() == list(range(classes(built)))


@pytest.mark.parametrize("task", TASKS)
def test_splits_depend_on_seed_and_name_alone(task: str) -> None:
    first, second, other = small(task), small(task, train_size=65, batch_size=5), small(task, data_seed=7)
    second.data.rows("test")  # drawn in another order: each split has a random stream of its own
    torch.manual_seed(99)
    for split in ("val", "test"):
        assert torch.equal(first.data.rows(split), second.data.rows(split))
    drawn = [built.data.rows(split)[:17] for built in (first, other) for split in SPLITS]
    for one, another in itertools.combinations(drawn, 2):
        assert not torch.equal(one, another)


@pytest.mark.parametrize("task", TASKS)
def test_no_sequence_is_in_two_splits(task: str) -> None:
    built = build_task(f"task={task}", "model=gru", train_size=300, val_size=200, test_size=200)
    rows = [tuple(row) for split in SPLITS for row in built.data.rows(split).tolist()]
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("task", TASKS)
def test_the_seed_of_the_run_is_the_seed_of_the_data(task: str) -> None:
    one, same, other = (build_task(f"task={task}", "model=gru", "task.val_size=9", f"seed={s}") for s in (4, 4, 5))
    assert torch.equal(one.data.rows("val"), same.data.rows("val"))
    assert not torch.equal(one.data.rows("val"), other.data.rows("val"))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("stopped_after", [1, 8, 9, 13])
def test_training_stream_resumes_at_the_next_batch(task: str, stopped_after: int) -> None:
    whole = list(stream(small(task), 20))
    stopped = stream(small(task), 20)
    assert_equal_batches(itertools.islice(stopped, stopped_after), whole[:stopped_after])
    resumed = stream(small(task), 20)
    resumed.load_state_dict(stopped.state_dict())
    assert_equal_batches(resumed, whole[stopped_after:])


@pytest.mark.parametrize("task", TASKS)
def test_no_loss_where_there_is_no_target(task: str) -> None:
    built = small(task)
    batch = next(iter(built.data.loader("train")))
    some = torch.rand(batch.targets.shape) < 0.4
    some[:, -1] = False
    batch = batch._replace(targets=batch.targets.masked_fill(some, IGNORED))
    logits = torch.randn(*batch.inputs.shape, classes(built), requires_grad=True)
    loss = built.loss(logits, batch)
    loss.backward()
    reached = logits.grad.abs().sum(dim=-1) > 0
    assert torch.equal(reached, batch.targets != IGNORED)

    counted = batch.targets != IGNORED
    expected = -logits.log_softmax(-1)[counted].gather(1, batch.targets[counted].unsqueeze(1)).mean()
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("task", TASKS)
def test_metrics_over_unequal_batches_are_those_of_one_batch(task: str) -> None:
    built = small(task)
    whole = joined(built.data.loader("val"))
    # rows with different numbers of targets: the mean of the batches' means is then not the mean
    counts = torch.arange(len(whole.inputs)).unsqueeze(1) % whole.inputs.shape[1]
    ignored = torch.arange(whole.inputs.shape[1]) < counts
    whole = whole._replace(targets=whole.targets.masked_fill(ignored & ~whole.answers, IGNORED))
    logits = torch.randn(*whole.inputs.shape, classes(built)) + 0.05 * oracle(built, whole)
    expected = score(built, whole, logits)

    metrics = Metrics(classes(built))
    for rows in torch.arange(len(whole.inputs)).split(7):
        batch = Batch(*(part[rows] for part in whole))
        metrics.update(logits[rows], batch, built.loss(logits[rows], batch))
    assert {name: value.item() for name, value in metrics.compute().items()} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_metrics_start_again_when_they_were_read(task: str) -> None:
    built = small(task)
    batch = joined(built.data.loader("val"))
    logits = torch.zeros(*batch.inputs.shape, classes(built))
    metrics = Metrics(classes(built))
    metrics.update(logits, batch, built.loss(logits, batch))
    metrics.compute()
    metrics.update(oracle(built, batch), batch, built.loss(oracle(built, batch), batch))
    assert metrics.compute()["accuracy"] == 1


@pytest.mark.parametrize("task", TASKS)
def test_render_draws_input_target_and_prediction_below_each_other(task: str) -> None:
    built = small(task)
    batch = joined(built.data.loader("val"))
    right = batch.targets.clamp(min=0)
    for row in (0, 3):
        lines = built.render(batch, right, row).splitlines()
        assert [line.split()[0] for line in lines] == ["input", "target", "prediction"]
        source, target, prediction = (line[12:] for line in lines)
        assert all(line[:12].strip() == line.split()[0] for line in lines)
        assert prediction == target
        assert len(target) <= len(source)
        starts = columns(source)
        assert set(columns(target)) <= set(starts)
        assert len(starts) == batch.inputs.shape[1]

        time = batch.answers[row].nonzero()[-1].item()
        wrong = right.clone()
        wrong[row, time] = (right[row, time] + 1) % classes(built)
        changed = built.render(batch, wrong, row).splitlines()
        assert changed[:2] == lines[:2]
        assert changed[2] != lines[2]
    assert built.render(batch, right, 0) != built.render(batch, right, 3)


def columns(line: str) -> list[int]:
    """Return where the words of a line begin."""
    return [i for i, letter in enumerate(line) if letter != " " and (i == 0 or line[i - 1] == " ")]


@pytest.mark.parametrize("task", TASKS)
def test_a_network_trained_on_the_task_gets_gradients_everywhere(task: str) -> None:
    built = small(task)
    batch = next(iter(stream(built)))
    loss = built.loss(built(batch), batch)
    assert loss.isfinite()
    loss.backward()
    for name, parameter in built.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


def options(task: str) -> list[tuple[str, Any]]:
    """Return a task's options with other values than those `small` builds with."""
    found = []
    for name, value in compose_config(f"task={task}").task.items():
        if name.startswith("_"):
            continue
        value = {**SIZES, **SHORT}.get(name, value)
        others = [other for other in ALTERNATIVES.get(name, []) if other != value]
        if name not in ALTERNATIVES and isinstance(value, bool):
            others = [not value]
        elif name not in ALTERNATIVES and isinstance(value, int | float):
            others = [value + 1]
        assert others, f"{name} of {task}: add another value to ALTERNATIVES"
        found += [(name, other) for other in others]
    return found


def effects(task: SequenceTask) -> list[Any]:
    """Return what an option may change: data, baseline, and which of several validations counts as the best."""
    loaders = [stream(task), *(task.data.loader(split) for split in SPLITS)]
    return [*(list(map(plain, loader)) for loader in loaders), task.baseline, best_steps(task)]


def plain(batch: Batch) -> list[Any]:
    return [part.tolist() for part in batch]


def best_steps(task: SequenceTask) -> list[int]:
    """Return the steps kept as best where each metric has its highest and its lowest value at a step of its own."""
    names = [f"val/{name}" for name, _ in task.metrics.named_children()]
    kept = []
    checkpoints = Checkpoints(every=1000)
    for step in range(2 * len(names) + 1):
        values = {name: torch.tensor(0.5) for name in names}
        if step:
            values[names[(step - 1) // 2]] += 0.1 if step % 2 else -0.1
        trainer = SimpleNamespace(
            state=SimpleNamespace(fn="fit"),
            sanity_checking=False,
            callback_metrics=values,
            global_step=step,
            max_steps=1000,
            lightning_module=task,
            default_root_dir="",
            save_checkpoint=lambda path, step=step: kept.append((Path(path).name, step)),
        )
        checkpoints.on_validation_end(trainer, task)
    return [step for name, step in kept if name == "best.ckpt"]


@pytest.mark.parametrize(("task", "name", "other"), [(task, *option) for task in TASKS for option in options(task)])
def test_every_option_has_an_effect(task: str, name: str, other: Any) -> None:
    assert effects(small(task, **{name: other})) != effects_of_defaults(task)


@functools.cache
def effects_of_defaults(task: str) -> list[Any]:
    found = effects(small(task))
    assert effects(small(task)) == found, "not even the same options have the same effects"
    return found


def memoryless(built: SequenceTask, batch: Batch) -> Tensor:
    """Return the logits of one who knows the time alone: how often each class is the target there."""
    counts = torch.stack([F.one_hot(column[column != IGNORED], classes(built)).sum(0) for column in batch.targets.T])
    return (counts / counts.sum(1, keepdim=True).clamp(min=1)).log().clamp(min=-50).expand(len(batch.inputs), -1, -1)


@pytest.mark.parametrize("task", TASKS)
def test_baseline_is_the_loss_of_the_best_predictor_without_memory(task: str) -> None:
    built = small(task, train_size=20_000)
    batch = joined(built.data.loader("train"))
    assert score(built, batch, memoryless(built, batch))["loss"] == pytest.approx(built.baseline, rel=5e-3)


def test_baselines_at_the_papers_sizes() -> None:
    copy = build_task("task=copy", "model=gru", delay=500, train_size=128, test_size=3)
    assert copy.baseline == pytest.approx(10 * math.log(8) / 520)
    assert round(copy.baseline, 4) == 0.0400
    assert build_task("task=recall", "model=gru").baseline == pytest.approx(math.log(10))

    # sure of the blanks, undecided between the data symbols
    batch = next(iter(copy.data.loader("test")))
    logits = torch.full((*batch.inputs.shape, 9), -1e4)
    logits[:, :-10, 0] = 0
    logits[:, -10:, 1:] = 0
    assert score(copy, batch, logits)["loss"] == pytest.approx(copy.baseline, rel=1e-5)
