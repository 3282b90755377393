"""The contract of `gyral.tasks.base`, for every task that has a YAML in conf/task: a new file there is tested at once.

Some checks only concern tasks on sequences: checks of steps, tokens, or targets that may be absent. All other checks
also concern tasks without sequences, which have separate checks for their batches and renderings.

A new task needs no edit here. The tests build the tiny example that the class of its data names as `small`. What else
they have to know is in the test module of the task, tests/tasks/test_<module>.py or
tests/applications/<application>/small.py: `OPTIONS` of the tests' own, such as files; `ALTERNATIVES`, other values of
options where none can be derived; options without which another one is refused or has no effect, `NEEDED`; options
without an effect, `NO_EFFECT`; and the function `effects`, which returns what options change beside data and model. A
failure says what to add. Checks of generated data run for tasks with a `train_size`. The tests read the beginnings of
the splits of a corpus, and skip a task whose corpus is absent.

Most of the time goes into building tasks. Tests that leave a task as it is share the one that `shared` returns, and the
batches of `read`.
"""

import contextlib
import functools
import itertools
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import isfunction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from gyral import applications
from gyral.config import signatures
from gyral.config.plain import flatten
from gyral.core.collectives import local_rows
from gyral.core.errors import ChoiceError, OptionError
from gyral.core.forms import FormError
from gyral.core.measures import SPLITS
from gyral.core.options import OneOf, kinds_of
from gyral.core.signatures import parameters_of
from gyral.data.babi import release
from gyral.data.batching import IGNORED, Batch
from gyral.models.sequence import SequenceModel
from gyral.tasks.base import SequenceTask, Task
from gyral.tasks.data_module import GeneratedData
from gyral.tasks.objective import Bits, Regression
from gyral.tasks.text import TextTask
from gyral.training import build
from gyral.training.callbacks.checkpoints import Checkpoints
from tests.helpers import slices
from tests.helpers.composing import copy_by_pickle
from tests.helpers.found import at_least
from tests.helpers.running import (
    CONF,
    build_or_skip,
    build_task,
    choices,
    classes_of,
    compose_choices,
    compose_config,
    model_for,
    read_choice,
    shorten,
    task_class,
)
from tests.helpers.slices import first, listed, module_of, offered_to

TASKS = at_least(36, choices("task"))
CLASSES = {task: task_class(task) for task in TASKS}
SEQUENCES = [task for task in TASKS if issubclass(CLASSES[task], SequenceTask)]
WITHOUT_SEQUENCES = at_least(6, (task for task in TASKS if task not in SEQUENCES))
GENERATED = at_least(4, (task for task in TASKS if "train_size" in read_choice("task", task)))
TEXTS = at_least(5, (task for task in TASKS if issubclass(CLASSES[task], TextTask)))
REAL = (Regression, Bits)  # objectives whose targets are real
# tasks whose batches are `Batch`es for a model of sequences
PLAIN = at_least(
    23,
    (
        task
        for task in SEQUENCES
        if CLASSES[task].model_type is SequenceModel and CLASSES[task].targets is SequenceTask.targets
    ),
)

# The last task of each class, whose corpus is not published; the others of the class differ in their corpus alone.
LAST = {CLASSES[task]: task for task in sorted(TASKS)}.values()
every_class = pytest.mark.parametrize(
    "task", [pytest.param(task, marks=() if task in LAST else pytest.mark.slow) for task in TASKS]
)

EXCERPT = {"train": 200, "val": 60, "test": 50}

# Metrics that do not depend on predictions; the values of metrics when n classes are equally likely.
GIVEN = set(listed("WITHOUT_PREDICTION"))
UNIFORM: dict[str, Callable[[int], float]] = {"loss": math.log, "bits": math.log2, "perplexity": float}


@pytest.fixture(scope="module", autouse=True)
def few_stories() -> Iterator[None]:
    """Have generated stories of bAbI be few, and build no optimizer and no checkpoint's configuration: 500 builds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_make_optimization", lambda _: (None, None))
        patch.setattr(build, "save_config", lambda *_: None)
        patch.setattr(DictConfig, "__deepcopy__", copy_by_pickle)
        patch.setattr(release, "SIZES", {"1k": 100, "10k": 150})
        patch.setattr(release, "TEST_SIZE", 30)
        yield


def small_config(task: str) -> DictConfig:
    """Return the configuration of a task with a tiny network, as Hydra composes it."""
    config: DictConfig = pickle.loads(_small_config(task))
    return config


@functools.cache
def _small_config(task: str) -> bytes:
    config = compose_config(*model_for(task, "gru", 4))
    config.task = compose_choices("task")[task]  # composing 40 times takes 10 seconds
    OmegaConf.resolve(config)
    return pickle.dumps(config)


def test_a_small_configuration_is_the_one_that_hydra_composes() -> None:
    for task in ("babi_mix", "cnn_dailymail", "copy"):
        assert small_config(task) == compose_config(f"task={task}", *model_for(task, "gru", 4))


def own(task: str, name: str) -> dict[str, Any]:
    """Return the entries of a dictionary of the test module of a task; see the top of this file."""
    return offered_to(read_choice("task", task)["_target_"], name, task)


@functools.cache
def small_options(task: str) -> dict[str, Any]:
    """Return the options of the tiny example of a task by their dotted names; see the top of this file."""
    options = slices.small_options(read_choice("task", task), task)
    return {"eval_batch_size": 8, **options} if "eval_batch_size" in option_names(task) else options


def small(task: str, short: bool = True, **options: Any) -> Any:
    """Build the tiny example of a task with the given options, on a tiny network."""
    config = small_config(task)
    for name, value in (small_options(task) | options).items():
        OmegaConf.update(config.task, name, value, force_add=True)  # overfit is in no YAML
    if short:
        shorten(config, **EXCERPT)
    return build_or_skip(config)


@functools.cache
def shared(task: str) -> Any:
    """Return the task that `small` builds, the same at each call."""
    return small(task)


@functools.cache
def read(task: str, split: str) -> list[Any]:
    """Return all batches of a split of `shared(task)`."""
    return list(shared(task).data.loader(split))


def options_of(task: str) -> list[tuple[str, Any]]:
    """Return a task's options by their dotted names, with the values that its YAML has."""
    container = OmegaConf.to_container(small_config(task).task)
    found = [(name, value) for name, value in flatten(container) if not name.split(".")[-1].startswith("_")]
    assert found
    return found


def with_classes(task: str) -> Any:
    """Return `shared(task)`; skip the test if its targets are real."""
    built = shared(task)
    if isinstance(built.objective, REAL):
        pytest.skip("the targets are real")
    return built


def option_names(task: str) -> list[str]:
    """Return the dotted names of a task's options, without composing."""
    return [name for name, _ in flatten(read_choice("task", task)) if not name.split(".")[-1].startswith("_")]


def is_without_effect(task: str, name: str) -> bool:
    """Return whether an option has no effect here: locations of files, or of a corpus if the data is generated."""
    module = module_of(read_choice("task", task)["_target_"])
    return name.endswith("data_dir") or name in getattr(module, "NO_EFFECT", ())


def stream(task: Task, steps: int = 9) -> Any:
    """Return the training stream of a run with `steps` steps."""
    task.data.trainer = SimpleNamespace(max_steps=steps, accumulate_grad_batches=1)
    return task.data.train_dataloader()


def own_category(batches: Iterable[Any]) -> list[Any]:
    """Return the batches that count in the metrics of a split, without the batches of further tests."""
    return [batch for batch in batches if getattr(batch, "categories", None) is None or batch.categories[:, 0].all()]


def joined(batches: Any) -> Batch:
    """Return all sequences of a loader, of equal lengths, as one batch."""
    fields = zip(*batches, strict=True)
    return Batch(*(None if parts[0] is None else torch.cat(parts) for parts in fields))


def there(task: SequenceTask, batch: Batch) -> Tensor:
    """Return where a batch has targets."""
    return task.objective.has_target(batch.targets)


def counted(task: SequenceTask, batch: Batch) -> Tensor:
    """Return which targets count for the accuracies, or for all metrics of real values."""
    return there(task, batch) if batch.answers is None else batch.answers


def without(batch: Batch, left_out: Tensor) -> Batch:
    """Return a batch in which some targets are left out."""
    if batch.targets.is_floating_point():
        targets = batch.targets.masked_fill(left_out.unsqueeze(-1), math.nan)
    else:
        targets = batch.targets.masked_fill(left_out, IGNORED)
    return batch._replace(targets=targets, answers=None if batch.answers is None else batch.answers & ~left_out)


def right(task: SequenceTask, batch: Batch) -> Tensor:
    """Return the correct predictions, and zero without a target."""
    return batch.targets.where(_widened(there(task, batch), batch.targets), 0)


def _widened(mask: Tensor, like: Tensor) -> Tensor:
    return mask.unsqueeze(-1) if like.dim() > mask.dim() else mask


def assert_equal_batches(first: Any, second: Any) -> None:
    first, second = list(first), list(second)
    assert len(first) == len(second)
    assert all(map(same, first, second))


def same(one: Any, other: Any) -> bool:
    """Return whether two batches are equal, including values that are not tensors."""
    return plain(one) == plain(other)


def oracle(task: Task, batch: Any) -> Any:
    """Return outputs that predict every target correctly."""
    outputs = first("oracle", task, batch)
    if outputs is not None:
        return outputs
    if isinstance(task.objective, Regression):
        return right(task, batch)
    if isinstance(task.objective, Bits):
        return 100 * right(task, batch) - 50
    return 50.0 * F.one_hot(task.targets(batch).clamp(min=0), classes_of(task)).float()


def uniform(task: Task, batch: Any) -> Any:
    """Return outputs that are the same for all inputs: equal logits, or zeros."""
    outputs = first("uniform", task, batch)
    if outputs is not None:
        return outputs
    if isinstance(task.objective, REAL):
        return torch.zeros(batch.targets.shape)
    return torch.zeros(*task.targets(batch).shape, classes_of(task))


def score(task: Task, batches: Iterable[Any], predict: Callable[[Any, Any], Tensor]) -> dict[str, float]:
    """Return the task's metrics of a predictor."""
    for batch in batches:
        logits = predict(task, batch)
        task.metrics.update(logits, batch, task.loss(logits, batch))
    values = {name: value.item() for name, value in task.metrics.compute().items()}
    assert tuple(values) == task.metrics.names
    return {name: value for name, value in values.items() if name not in GIVEN}


def right_value(task: Task, name: str) -> float:
    """Return the value of a metric when every prediction is correct."""
    higher = any(measure.higher_is_better for measure in task.measures if measure.name == name)
    return float(higher or "accuracy" in name or name == "perplexity")


def of_an_oracle(task: Task, batches: list[Any]) -> dict[str, float]:
    """Return the values of the metrics when every prediction is correct."""
    wanted = {name: right_value(task, name) for name in task.metrics.names if name not in GIVEN}
    own = first("right_scores", task, batches) or {}
    return wanted | {name: value for name, value in own.items() if name in wanted}


@pytest.mark.parametrize("task", TASKS)
def test_the_tiny_example_has_options_of_the_task(task: str) -> None:
    named = signatures.small_options(read_choice("task", task)["_target_"])
    assert named, "the class of the data names no options as `small`"
    assert dict(flatten(named)).keys() <= set(option_names(task))


@pytest.mark.parametrize("task", TASKS)
def test_oracle_is_right_everywhere_and_reading_the_metrics_resets_them(task: str) -> None:
    built = shared(task)
    assert isinstance(built.data, GeneratedData) == (task in GENERATED)
    config = small_config(task).task
    assert (type(built), built.monitor, built.mode) == (CLASSES[task], config.monitor, config.mode)
    assert built.baseline > 0
    if "mse" not in built.metrics.names and task in SEQUENCES:
        assert built.baseline < 1.05 * math.log(classes_of(built)), "with few stories, more than the best one's"
    guessed = score(built, read(task, "val"), uniform)
    for split in reversed(SPLITS):
        batches = read(task, split)
        assert score(built, batches, oracle) == pytest.approx(of_an_oracle(built, batches), abs=1e-6)
    # a constant has no correlation
    assert score(built, read(task, "val"), uniform) == pytest.approx(guessed, rel=0, abs=0, nan_ok=True)


def expected(task: SequenceTask, batches: list[Batch], outputs: list[Tensor]) -> dict[str, float]:
    """Return the loss and other metrics from all outputs at once, independent of batches."""
    targets = torch.cat([batch.targets[there(task, batch)] for batch in batches])
    given = torch.cat([output[there(task, batch)] for output, batch in zip(outputs, batches, strict=True)])
    if isinstance(task.objective, Regression):
        squares, deviations = (given - targets).square(), (targets - targets.mean(dim=0)).square()
        mse, r2 = squares.mean().item(), (1 - squares.sum(dim=0) / deviations.sum(dim=0)).mean().item()
        return {"loss": mse, "mse": mse, "mae": (given - targets).abs().mean().item(), "r2": r2}
    if isinstance(task.objective, Bits):
        wrong = ((given > 0) != (targets > 0)).double().mean().item()
        return {"loss": F.binary_cross_entropy_with_logits(given, targets).item(), "wrong_bits": wrong}
    answers = torch.cat([counted(task, batch)[there(task, batch)] for batch in batches])
    accuracy = (given.argmax(dim=-1) == targets)[answers].double().mean().item()
    name = "fine" if "fine" in task.metrics.names else "accuracy"
    return {"loss": F.cross_entropy(given, targets).item(), name: accuracy}


@pytest.mark.parametrize("task", PLAIN)
def test_uniform_guess_scores_its_closed_form(task: str) -> None:
    built = shared(task)
    batches = read(task, "test")
    scores = score(built, batches, uniform)
    own = own_category(batches)
    wanted = expected(built, own, [uniform(built, batch) for batch in own])
    if not isinstance(built.objective, Regression):
        classes = 2 if isinstance(built.objective, Bits) else classes_of(built)
        wanted |= {name: form(classes) for name, form in UNIFORM.items() if name in scores}
    # single precision: in the perplexity, an exponential, the loss's relative error counts ln n times
    precision = 1e-6 * math.log(max(classes_of(built), 10))
    assert {name: scores[name] for name in wanted} == pytest.approx(wanted, rel=precision, abs=1e-6)


@pytest.mark.parametrize("task", PLAIN)
def test_targets_that_are_not_answers_do_not_count_in_the_accuracies(task: str) -> None:
    built = shared(task)

    def right_where_asked(_: SequenceTask, batch: Batch) -> Tensor:
        outputs = oracle(built, batch)
        unasked = ~counted(built, batch)
        outputs[unasked] = torch.randn_like(outputs[unasked])
        return outputs

    scores = score(built, read(task, "val"), right_where_asked)
    for name in set(scores) & {"accuracy", "sequence_accuracy", "fine", "coarse", "wrong_bits", "r2"}:
        assert scores[name] == right_value(built, name)


@pytest.mark.parametrize("task", PLAIN)
def test_batches_have_the_shapes_types_and_ranges_they_promise(task: str) -> None:
    built = shared(task)
    training = stream(built)
    largest = max(value for name, value in small_options(task).items() if name.endswith("batch_size"))
    for loader in (*map(built.data.loader, SPLITS), training):
        batches = list(loader)
        assert len(batches) == len(loader) > 0
        for batch in batches:
            rows, steps = batch.inputs.shape[:2]
            assert 1 <= rows <= largest
            if built.model.input_size is None:
                assert batch.inputs.dtype == torch.long
                assert batch.inputs.min() >= 0
                assert batch.inputs.max() < built.model.vocabulary_size
            else:
                assert batch.inputs.dtype == torch.float32
                assert batch.inputs.shape == (rows, steps, built.model.input_size)
                assert batch.inputs.isfinite().all()
            has_target = there(built, batch)
            if getattr(batch, "steps", None) is not None:
                assert has_target.shape == batch.steps.shape
                assert 0 <= batch.steps.min() <= batch.steps.max() < steps
            else:
                assert has_target.shape == ((rows, steps) if built.model.readout is None else (rows,))
            assert has_target.any(), "a batch without a target has no loss"
            assert counted(built, batch).any() or loader is training, "a batch without an answer"
            found = batch.targets[has_target]
            if isinstance(built.objective, REAL):
                assert batch.targets.dtype == torch.float32
                assert batch.targets.shape == (*has_target.shape, classes_of(built))
                assert found.isfinite().all()
            else:
                assert batch.targets.dtype == torch.long
                assert found.min() >= 0
                assert found.max() < classes_of(built)
            if batch.answers is not None:
                assert (batch.answers.dtype, batch.answers.shape) == (torch.bool, has_target.shape)
                assert not (batch.answers & ~has_target).any(), "an answer without a target"
            write, categories = getattr(batch, "write", None), getattr(batch, "categories", None)
            assert write is None or (write.dtype, write.shape) == (torch.bool, (rows, steps))
            assert categories is None or (categories.dtype, len(categories)) == (torch.bool, rows)
            lengths = getattr(batch, "lengths", None)  # windows of a text have none
            if lengths is not None:
                assert lengths.shape == (rows,)
                assert 1 <= lengths.min() <= lengths.max() == steps
    assert len(list(stream(built))) == 9


@pytest.mark.parametrize("task", TASKS)
def test_the_same_options_have_the_same_effects_and_training_resumes_and_overfits(task: str) -> None:
    again = small(task, overfit=OmegaConf.load(CONF / "debug" / "overfit.yaml").task.overfit)
    whole = list(stream(shared(task), 20))
    assert_equal_batches(stream(again), [whole[0]] * 9)
    again.data.overfit = False
    assert effects(again) == effects_of_defaults(task), "the same options have different effects"
    assert not all(same(whole[0], batch) for batch in whole)
    for stopped_after in (1, 8, 9, 13):  # in a pass, before its last batch, at its end, in the second pass
        stopped = stream(shared(task), 20)
        assert_equal_batches(itertools.islice(stopped, stopped_after), whole[:stopped_after])
        resumed = stream(again, 20)
        resumed.load_state_dict(stopped.state_dict())
        assert_equal_batches(resumed, whole[stopped_after:])


@pytest.mark.parametrize("task", PLAIN)
def test_no_loss_where_there_is_no_target(task: str) -> None:
    built = shared(task)
    batch = read(task, "train")[0]
    some = torch.rand(there(built, batch).shape) < 0.4
    some[..., -1] = False
    batch = without(batch, some)
    outputs = torch.randn(*some.shape, classes_of(built), requires_grad=True)
    loss = built.loss(outputs, batch)
    loss.backward()
    reached = outputs.grad.abs().sum(dim=-1) > 0
    assert torch.equal(reached, there(built, batch))
    assert loss.item() == pytest.approx(expected(built, [batch], [outputs])["loss"], rel=1e-5)


@pytest.mark.parametrize("task", PLAIN)
def test_metrics_of_unequal_batches_equal_the_metrics_of_all_targets(task: str) -> None:
    built = shared(task)
    batches, outputs = [], []
    for index, batch in enumerate(read(task, "val")):
        # less and less targets a batch: the mean of the batches' means is then not the mean
        left_out = torch.rand(there(built, batch).shape) < index / (index + 1)
        left_out[0] = False
        batches.append(without(batch, left_out))
        outputs.append(torch.randn(*left_out.shape, classes_of(built)) + 0.05 * oracle(built, batch))
    counts = {int(there(built, batch).sum()) for batch in batches}
    assert len(counts) > 1, "all batches have as many targets"

    given = iter(outputs)
    scores = score(built, batches, lambda *_: next(given))
    wanted = expected(built, batches, outputs)
    assert {name: scores[name] for name in wanted} == pytest.approx(wanted, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("task", PLAIN)
def test_render_draws_input_target_and_prediction_below_each_other(task: str) -> None:
    built = shared(task)
    batch = read(task, "val")[0]
    predicted = right(built, batch)
    for row in (0, 3):
        lines = built.render(batch, predicted, row).splitlines()
        assert [line.split()[0] for line in lines] == ["input", "target", "prediction"]
        assert all(line[:12].strip() == line.split()[0] for line in lines)
        if row == 0:  # in others targets may be left out that a prediction is shown beside
            assert lines[1][12:] == lines[2][12:]

        place = (row, *counted(built, batch)[row].nonzero()[0].tolist())
        wrong = predicted.clone()
        if isinstance(built.objective, Bits):
            wrong[place] = 1 - wrong[place]
        else:
            wrong[place] += 1
        if not isinstance(built.objective, REAL):
            wrong[place] %= classes_of(built)
        changed = built.render(batch, wrong, row).splitlines()
        assert changed[:2] == lines[:2]
        assert changed[2] != lines[2]
    assert built.render(batch, predicted, 0) != built.render(batch, predicted, 3)


@pytest.mark.parametrize("task", WITHOUT_SEQUENCES)
def test_batches_without_sequences_are_split_by_rows(task: str) -> None:
    built = shared(task)
    for loader in (*map(built.data.loader, SPLITS), stream(built)):
        batches = list(loader)
        assert len(batches) == len(loader) > 0
        for batch in batches:
            rows = len(built.targets(batch))
            assert built.batch_size_in_units(batch) == rows > 0
            assert built.objective.has_target(built.targets(batch)).any(), "a batch without a target has no loss"
            if batch is not batches[0] and batch is not batches[-1]:
                continue
            assert torch.is_tensor(built.loss(built(batch), batch))
            # distributed training gives each process some of the rows of every tensor
            parts = [tree_leaves(local_rows(batch, rank, 2)) for rank in range(2)]
            assert all(len(leaf) == rows for leaf in tree_leaves(batch) if isinstance(leaf, Tensor))
            together = [torch.cat(pair) for pair in zip(*parts, strict=True) if isinstance(pair[0], Tensor)]
            assert same(together, [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)])
    assert len(list(stream(built))) == 9
    assert built.state_size() == 0
    assert built.unit == "examples"


@pytest.mark.parametrize("task", WITHOUT_SEQUENCES)
def test_render_without_sequences_draws_input_target_and_prediction(task: str) -> None:
    built = shared(task)
    batch = read(task, "val")[0]
    targets = built.targets(batch)
    assert built.predict(batch).shape == targets.shape
    wrong = 1 - targets if targets.is_floating_point() else (targets + 1) % classes_of(built)
    for row in (0, 3):
        lines = built.render(batch, targets, row).splitlines()
        assert [line.split()[0] for line in lines[-2:]] == ["target", "prediction"]
        assert lines[0].split()[0] == "input"
        assert lines[-2][12:] == lines[-1][12:]
        changed = built.render(batch, wrong, row).splitlines()
        assert changed[:-1] == lines[:-1]
        assert changed[-1] != lines[-1]
    assert built.render(batch, targets, 0) != built.render(batch, targets, 3)


@every_class
def test_a_network_trained_on_the_task_gets_gradients_everywhere(task: str) -> None:
    built = shared(task)
    built.zero_grad()
    batch = next(iter(stream(built)))
    loss = built.loss(built(batch), batch)
    assert loss.isfinite()
    loss.backward()
    for name, parameter in built.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


def changed(task: str, name: str, **needed: Any) -> Iterator[tuple[Any, Any]]:
    """Yield other values of an option than `small` builds with, and the tasks that they build."""
    value = {**dict(options_of(task)), **small_options(task)}[name]
    given = own(task, "ALTERNATIVES").get(name, choices_of(task, name))
    for other in (other for other in given if other != value):
        yield other, small(task, **needed, **{name: other})
    for other in derived(value, hint_of(task, name)) if not given else ():
        with contextlib.suppress(OptionError):
            yield other, small(task, **needed, **{name: other})
            return


def derived(value: Any, hint: Any) -> list[Any]:
    """Return values of the type of another value of an option, or of its type hint, of which one may be allowed."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value + 2]
        case float():
            return [value - 0.25 if value >= 0.5 else value + 0.25]  # fractions stay below 1
        case [*first, int(last)]:
            return [[*first, last + 1]]
        case []:
            return [[2], [4], [10]]
    kinds = {int: [3, 2, 64], float: [0.5], Sequence[int]: [[3, 9]]}
    return [other for kind in kinds_of(hint) for other in kinds.get(kind, [])]


def hint_of(task: str, name: str) -> Any:
    """Return the type hint of an option of a task, None for an option of a section in it."""
    parameters = parameters_of(CLASSES[task]) or {}
    return parameters[name].annotation if name in parameters else None


def choices_of(task: str, name: str) -> list[str]:
    """Return the texts that an option may be, which its hint or the error of a wrong one has; [] if it may be any."""
    value = {**dict(options_of(task)), **small_options(task)}[name]
    kinds = kinds_of(hint_of(task, name))
    if declared := [each for ranges in kinds.values() for each in ranges if isinstance(each, OneOf)]:
        return [*declared[0].choices]
    if not isinstance(value, str | None) or {int, float} & {*kinds}:
        return []
    try:
        small(task, **{name: "no such choice"})
    except OptionError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ChoiceError):
            cause = cause.__cause__
        return list(cause.choices) if cause else []
    return []


def effects(task: Any) -> list[Any]:
    """Return what an option may change: data, sizes, baseline, and the best of several validations."""
    loaders = [stream(task), *(task.data.loader(split) for split in SPLITS)]
    read = [[len(loader), *map(plain, itertools.islice(loader, 12))] for loader in loaders]
    shapes = [(name, value.shape) for name, value in task.model.state_dict().items()]
    found = [*read, vars(task.model).get("vocabulary_size"), shapes, task.baseline, best_steps(task)]
    of_module = getattr(module_of(f"{type(task).__module__}.{type(task).__name__}"), "effects", None)
    found += of_module(task) or [] if of_module else []
    return found


def plain(batch: Any) -> list[Any]:
    # bytes, because NaN, which marks an absent real target, does not equal itself, and lists of pixels take seconds
    return [
        (part.dtype, part.shape, part.numpy().tobytes()) if isinstance(part, Tensor) else part
        for part in tree_leaves(batch)
    ]


def best_steps(task: Task) -> list[int]:
    """Return the steps of best checkpoints when each metric has its highest and lowest values at separate steps."""
    names = [f"val/{name}" for name in task.metrics.names]
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
            should_stop=False,
            lightning_module=task,
            default_root_dir="",
            save_checkpoint=lambda path, step=step: kept.append((Path(path).name, step)),
        )
        checkpoints.on_validation_end(trainer, task)
    return [step for name, step in kept if name == "best.ckpt"]


@pytest.mark.one_of(20)
@pytest.mark.parametrize(
    ("task", "name"),
    [(task, name) for task in TASKS for name in option_names(task) if not is_without_effect(task, name)],
)
def test_every_option_has_an_effect(task: str, name: str) -> None:
    needed = own(task, "NEEDED").get(name, {})
    before = effects(small(task, **needed)) if needed else effects_of_defaults(task)
    tried = []
    for other, built in changed(task, name, **needed):
        assert effects(built) != before, other
        tried.append(other)
    assert tried, (
        f"conf/task/{task}.yaml: no other value of {name} is known. Check texts with check_choice of "
        f"gyral.core.checks, or add other values to ALTERNATIVES of the test module of {CLASSES[task].__name__}."
    )


@functools.cache
def effects_of_defaults(task: str) -> list[Any]:
    return effects(shared(task))


@pytest.mark.parametrize("task", TASKS)
def test_a_task_with_a_vocabulary_has_symbols_and_refuses_checkpoints_of_others(task: str) -> None:
    own = shared(task)
    places = [own.data, *vars(own.data).values()]
    kinds = [type(value).__name__ for place in places for value in getattr(place, "__dict__", {}).values()]
    assert own.symbols() or not any(kind.endswith("Vocabulary") for kind in kinds)
    if own.symbols():
        with pytest.raises(FormError, match=rf"other symbols than the {len(own.symbols()):,} of the data here"):
            own.check_checkpoint({"symbols": "of others"})


@pytest.mark.parametrize("task", TASKS)
def test_every_offer_names_a_function_with_a_docstring(task: str) -> None:
    for kind in ("generators", "figures", "evaluations"):
        for name, function in applications.offers(kind, CLASSES[task]).items():
            assert isfunction(function), name
            assert function.__doc__, name


@pytest.mark.one_of(8)
@every_class
def test_invalid_values_are_refused_with_their_full_key(task: str) -> None:
    shared(task)  # skips without the corpus
    for name, value in options_of(task):
        if is_without_effect(task, name):
            continue
        if isinstance(value, int):
            refused: list[Any] = ["abc", -1, 2.5]
        else:
            refused = ["abc", -0.5, math.nan] if isinstance(value, float) else ["no/such thing"]
        if name == "corpus.minimum_count":
            refused = ["abc", 0]
        for wrong in refused:
            with pytest.raises(OptionError) as raised:
                small(task, short=not name.startswith("corpus."), **{name: wrong})
            assert str(raised.value).startswith(f"task.{name}={wrong}: "), raised.value
            assert "\n" not in str(raised.value)


@pytest.mark.parametrize("task", GENERATED)
def test_one_wrong_answer_makes_its_sequence_wrong(task: str) -> None:
    built = with_classes(task)
    batch = joined(read(task, "val"))
    logits = oracle(built, batch)
    time = batch.answers[5].nonzero()[-1].item()
    logits[5, time] = logits[5, time].roll(1)
    scores = score(built, [batch], lambda *_: logits)
    assert scores["accuracy"] == pytest.approx(1 - 1 / batch.answers.sum().item(), rel=1e-6)
    assert scores["sequence_accuracy"] == pytest.approx(1 - 1 / len(batch.inputs), rel=1e-6)


@pytest.mark.parametrize("task", GENERATED)
def test_metrics_do_not_depend_on_the_batch_size(task: str) -> None:
    built = with_classes(task)
    whole = joined(read(task, "val"))
    logits = oracle(built, whole)
    wrong = torch.rand(whole.answers.shape) < 0.2
    wrong[0] = False
    logits = torch.where((wrong & whole.answers).unsqueeze(-1), logits.roll(1, -1), logits)
    expected = score(built, [whole], lambda *_: logits)
    assert 0 < expected["sequence_accuracy"] < 1
    parts = torch.arange(len(whole.inputs)).split(7)
    batches = [Batch(*(part[rows] for part in whole[:3])) for rows in parts]
    pieces = iter(logits[rows] for rows in parts)
    assert score(built, batches, lambda *_: next(pieces)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("task", GENERATED)
def test_loaders_contain_every_row_once_and_the_stream_full_batches(task: str) -> None:
    built = shared(task)
    for loader, size in (
        *((built.data.loader(split), built.data.sizes[split]) for split in SPLITS),
        (stream(built), 9 * built.data.batch_size),
    ):
        batches = list(loader)
        assert sum(len(batch.inputs) for batch in batches) == size
        for batch in batches:
            assert isinstance(batch, Batch)
            assert counted(built, batch).view(len(batch.inputs), -1).any(dim=1).all(), "a sequence without an answer"


@pytest.mark.parametrize("task", GENERATED)
def test_renderings_of_generated_data_have_a_column_for_each_step(task: str) -> None:
    built = with_classes(task)
    batch = joined(read(task, "val"))
    right = batch.targets.clamp(min=0)
    for row in (0, 3):
        source, target, prediction = (line[12:] for line in built.render(batch, right, row).splitlines())
        assert prediction == target
        assert len(target) <= len(source)
        starts = columns(source)
        assert set(columns(target)) <= set(starts)
        assert len(starts) == batch.inputs.shape[1]


def columns(line: str) -> list[int]:
    """Return where the words of a line begin."""
    return [i for i, letter in enumerate(line) if letter != " " and (i == 0 or line[i - 1] == " ")]


@pytest.mark.parametrize("task", GENERATED)
def test_every_token_and_class_occurs(task: str) -> None:
    with_classes(task)
    built = small(task, train_size=2000)
    batch = joined(built.data.loader("train"))
    assert batch.inputs.unique().tolist() == list(range(built.model.vocabulary_size))
    assert batch.targets[batch.targets != IGNORED].unique().tolist() == list(range(classes_of(built)))


@pytest.mark.parametrize("task", GENERATED)
def test_splits_depend_only_on_seed_and_name(task: str) -> None:
    first, second, other = small(task), small(task, train_size=77, batch_size=5), small(task, data_seed=7)
    second.data.rows("test")  # drawn in another order: each split has a separate random stream
    torch.manual_seed(99)
    for split in ("val", "test"):
        assert torch.equal(first.data.rows(split), second.data.rows(split))
    drawn = [built.data.rows(split)[:12] for built in (first, other) for split in SPLITS]
    for one, another in itertools.combinations(drawn, 2):
        assert not torch.equal(one, another)


@pytest.mark.parametrize("task", GENERATED)
def test_no_sequence_is_in_two_splits(task: str) -> None:
    config = small_config(task)
    config.task.update(train_size=300, val_size=200, test_size=200)
    data = build_or_skip(config).data
    rows = [tuple(row) for split in SPLITS for row in data.rows(split).tolist()]
    assert len(set(rows)) == len(rows)


def test_the_seed_of_the_run_is_the_seed_of_the_data() -> None:
    seeds = {task: read_choice("task", task).get("data_seed", "${seed}") for task in TASKS}
    assert {task: seed for task, seed in seeds.items() if seed != "${seed}"} == {}
    at_least(25, [task for task in TASKS if "data_seed" in read_choice("task", task)])
    one, same, other = (build_task("task=copy", "model=gru", "task.val_size=9", f"seed={s}") for s in (4, 4, 5))
    assert torch.equal(one.data.rows("val"), same.data.rows("val"))
    assert not torch.equal(one.data.rows("val"), other.data.rows("val"))


def memoryless(built: SequenceTask, batch: Batch) -> Tensor:
    """Return outputs that depend on the step alone: the frequencies of the classes at each step, or the mean."""
    if isinstance(built.objective, Regression):
        return batch.targets.nanmean(dim=0).expand_as(batch.targets)
    counts = torch.stack([F.one_hot(column[column != IGNORED], classes_of(built)).sum(0) for column in batch.targets.T])
    return (counts / counts.sum(1, keepdim=True).clamp(min=1)).log().clamp(min=-50).expand(len(batch.inputs), -1, -1)


@pytest.mark.parametrize("task", GENERATED)
def test_baseline_is_the_loss_of_the_best_predictor_without_memory(task: str) -> None:
    built = small(task, train_size=20_000)
    batch = joined(built.data.loader("train"))
    assert score(built, [batch], memoryless)["loss"] == pytest.approx(built.baseline, rel=1e-2)


@pytest.mark.parametrize("task", TEXTS)
def test_baseline_of_a_text_is_the_loss_of_the_training_frequencies(task: str) -> None:
    built = shared(task)
    counts = torch.bincount(
        torch.from_numpy(built.data.corpus.splits["train"].astype(int)), minlength=classes_of(built)
    )
    logits = ((counts + 1) / (counts + 1).sum()).log()
    scores = score(built, read(task, "test"), lambda _, batch: logits.expand(*batch.inputs.shape, -1))
    assert scores["loss"] == pytest.approx(built.baseline, rel=1e-5)


def test_baselines_at_the_sizes_of_the_papers() -> None:
    copy = build_task("task=copy", "model=gru", delay=500, recalled=10, train_size=128, test_size=3)
    assert copy.baseline == pytest.approx(10 * math.log(8) / 520)
    assert round(copy.baseline, 4) == 0.0400
    assert build_task("task=recall", "model=gru").baseline == pytest.approx(math.log(10))

    # sure of the blanks, undecided between the data symbols
    batch = next(iter(copy.data.loader("test")))
    logits = torch.full((*batch.inputs.shape, 9), -1e4)
    logits[:, :-10, 0] = 0
    logits[:, -10:, 1:] = 0
    assert score(copy, [batch], lambda *_: logits)["loss"] == pytest.approx(copy.baseline, rel=1e-5)
