"""Text that trained models generate: one module per kind of text."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Any

from gyral.applications.babi.generation import answer_story
from gyral.applications.logic.generation import relate_formulas
from gyral.applications.reading.generation import answer_questions
from gyral.applications.scenes.generation import answer_scene
from gyral.applications.summarization.generation import summarize
from gyral.core.errors import OptionError, UserError
from gyral.generation.sequences import answer_sequence
from gyral.generation.surprisal import show_surprisal
from gyral.generation.text import continue_text
from gyral.tasks.base import Task

Generator = Callable[..., Iterator[str]]

# The type hint of the first parameter is the type of task that a function is for. The other parameters are options of
# conf/generate.yaml, where null stands for the default value.
GENERATORS: tuple[Generator, ...] = (
    continue_text,
    show_surprisal,
    answer_story,
    answer_questions,
    answer_sequence,
    relate_formulas,
    answer_scene,
    summarize,
)


def generators_of(task: Task) -> list[Generator]:
    """Return the functions that generate text with a task; their parameters are options."""
    own = []
    for generator in GENERATORS:
        first, *_ = signature(generator).parameters.values()
        if isinstance(task, first.annotation):
            own.append(partial(generator, task))
    return own + task.generators()


def needs_no_options(task: Task) -> bool:
    """Return whether one of the functions of a task has no required option."""
    defaults = [[option.default for option in signature(one).parameters.values()] for one in generators_of(task)]
    return any(Parameter.empty not in of_one for of_one in defaults)


def choose(generators: list[Generator], given: Mapping[str, Any], task: str) -> Generator:
    """Return the first function that accepts all given options and whose required options are all given.

    Args:
        generators: functions whose parameters are options.
        given: options that the user set, with their values.
        task: description of the task, for errors.

    Raises:
        UserError: there is none.
    """
    if not generators:
        raise UserError(f"{task} generates nothing")
    options = [signature(generator).parameters for generator in generators]
    for generator, accepted in zip(generators, options, strict=True):
        required = {name for name, option in accepted.items() if option.default is Parameter.empty}
        if required <= set(given) <= set(accepted):
            return generator
    allowed = ", or else ".join(", ".join(accepted) for accepted in options)
    unknown = [name for name in given if not any(name in accepted for accepted in options)]
    if unknown:
        raise OptionError(unknown[0], given[unknown[0]], f"{task} takes {allowed}")
    raise UserError(f"{', '.join(given)}: {task} takes {allowed}")
