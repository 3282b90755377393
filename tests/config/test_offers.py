"""What a task offers to the commands: the choice by the given options, their values, and the help."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from gyral.applications import offers as offered
from gyral.config import offers
from gyral.core.errors import OptionError, UserError
from gyral.tasks.base import Task
from gyral.tasks.copy import CopyTask
from gyral.tasks.text import TextTask


def tell(task: Any, *, story: str) -> Iterator[str]:
    """Tell a story."""
    yield story


def summarize(task: Any, *, input: str, out: str = "", words: int = 5, share: float | None = None) -> Iterator[str]:
    """Summarize a text.

    Args:
        task: not used.
        input: the text,
            of any length.
        words: number of words.
    """
    yield input


def test_the_first_generator_that_takes_the_given_options_is_chosen() -> None:
    assert offers.choose([tell, summarize], {"input": "a", "words": "3"}, "task") == (
        summarize,
        {"input": "a", "words": 3},
    )
    for given in ({"out": "a"}, {"story": "a", "input": "b"}, {}):
        with pytest.raises(UserError, match=r"task (takes|needs .*:) story, or else input, out, words, share$"):
            offers.choose([tell, summarize], given, "task")
    with pytest.raises(OptionError, match=r"^stroy=a: task takes .*; did you mean story\?$"):
        offers.choose([tell, summarize], {"stroy": "a"}, "task")
    with pytest.raises(UserError, match=r"^task has no generator$"):
        offers.choose([], {}, "task")


def test_text_is_literal_and_other_values_are_yaml() -> None:
    values = offers.values(summarize, {"input": "3", "words": "null", "share": "0.5", "out": "null"})
    assert values == {"input": "3", "share": 0.5, "out": "null"}
    with pytest.raises(OptionError, match=r"^words=\[: must be a number, true, false or null$"):
        offers.values(summarize, {"words": "["})


def test_words_of_a_task_keep_their_spaces_and_lose_their_quotes() -> None:
    words = ["run=a", "prompt=the ", "story='a, b'", "dynamic.rule=sgd", "--help", "hydra.run.dir=x"]
    for_hydra, given = offers.split_words(words, ("run",))
    assert for_hydra == ["run=a", "--help", "hydra.run.dir=x"]
    assert given == {"prompt": "the ", "story": "a, b", "dynamic.rule": "sgd"}


def adapt(task: Any, request: Any, *, rule: str, lr: float = 0.1) -> None:
    """Adapt to the text."""


def parse(task: Any, request: Any, *, parse: str) -> None:
    """Parse sentences."""


def test_evaluations_are_chosen_by_their_names() -> None:
    functions = {"adapt": adapt, "parse": parse}
    assert offers.choose_evaluation(functions, {"adapt.rule": "sgd", "adapt.lr": "1"}, "task") == (
        adapt,
        {"rule": "sgd", "lr": 1},
    )
    assert offers.choose_evaluation(functions, {"parse": "trees"}, "task") == (parse, {"parse": "trees"})
    for given, expected in (
        ({"adapt.lr": "1"}, "adapt.lr: needs adapt.rule"),
        ({"adapt": "sgd"}, "adapt=sgd: task takes adapt.rule, adapt.lr, parse"),
        ({"parse": "a", "adapt.rule": "b"}, "parse, adapt.rule: belong to several evaluations; *"),
        ({"pars": "a"}, "pars=a: task takes adapt.rule, adapt.lr, parse; did you mean parse?"),
        ({"spilt": "val"}, "spilt=val: task takes adapt.rule, adapt.lr, parse; did you mean split?"),
    ):
        with pytest.raises(UserError) as caught:
            offers.choose_evaluation(functions, given, "task", ("run", "split"))
        assert str(caught.value).startswith(expected.rstrip("*"))


def test_the_help_has_options_with_defaults_and_descriptions() -> None:
    text = offers.describe({"summarize": summarize}, "the task")
    assert text.splitlines() == [
        "the task offers:",
        "",
        "Summarize a text.",
        "  input=…",
        "      the text,",
        "      of any length.",
        '  out=""',
        "  words=5",
        "      number of words.",
        "  share=null",
    ]
    assert "  adapt.rule=…" in offers.describe({"adapt": adapt}, "the task", evaluations=True)


def test_a_task_offers_its_own_functions() -> None:
    class Own(CopyTask):
        generators: ClassVar = {"tell": f"{__name__}.tell"}

    assert offered("generators", CopyTask) == {}
    assert offered("generators", Own) == {"tell": tell}
    assert [*offered("generators", TextTask)] == ["continue_text", "show_surprisal"]
    assert "dynamic" in offered("evaluations", TextTask)
    assert not issubclass(Task, TextTask)


def test_wrong_offers_are_one_line() -> None:
    with pytest.raises(UserError, match=r"^the task offers tell, but gyral\.tale\.tell cannot be imported: "):
        offers.find_functions({"tell": "gyral.tale.tell"})
    with pytest.raises(TypeError, match=r'^Own\.generators: must be a dictionary, \{"name": "module\.function"\}$'):

        class Own(CopyTask):
            @classmethod
            def generators(cls) -> dict[str, Any]:
                return {"tell": tell}
