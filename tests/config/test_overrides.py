"""Overrides and commands are printed as a user types them."""

import shlex
import sys
from typing import Any

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from gyral.config.overrides import defer_options, plain, undefer_option, written
from gyral.core.commands import program, typed


@pytest.mark.parametrize(
    ("override", "shown"),
    [
        ("resume=outputs/copy/rum/2026-01-01_10-00-00-123456", "resume=outputs/copy/rum/2026-01-01_10-00-00-123456"),
        ("resume=outputs/sweep/seed=1,lr=2", "\"resume='outputs/sweep/seed=1,lr=2'\""),
        ("resume=my runs/it's", "\"resume='my runs/it\\'s'\""),
    ],
)
def test_shown_commands_can_be_typed(override: str, shown: str) -> None:
    if "\\" not in shown:
        assert typed([plain(override)]) == shown
    [word] = shlex.split(typed([plain(override)]))
    parsed = OverridesParser.create().parse_override(word)
    assert str(parsed.value()) == override.partition("=")[2]


@pytest.mark.parametrize(
    ("started", "printed"),
    [
        ("/checkout/src/train.py", "python -m src.report"),
        ("/environment/lib/gyral/train.py", "gyral report"),
        ("/environment/bin/gyral", "gyral report"),
    ],
)
def test_commands_are_printed_as_the_user_started_gyral(
    started: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [started, "model=rum"])
    assert typed(program("report")) == printed


TEXTS = [
    "null",
    "true",
    "1e3",
    "a b",
    "",
    "${x}",
    "it's",
    "a,b",
    " a ",
    "x=y",
    "ümlaut",
    "a/b:c@d",
    "1",
    "[1]",
    "{a: 1}",
]
PLAIN = [None, True, -3, 1e-5, float("inf"), [], {}, [0.8, 0.95], ["1", 1, None, "null", "a:b", ""]]
NESTED = {"a": 1, "b": [True, "true"], "c": {"d": "e:f"}}


@pytest.mark.parametrize("value", [*TEXTS, *PLAIN, NESTED])
def test_values_are_written_as_hydra_reads_them_in_type_and_value(value: Any) -> None:
    composed = OmegaConf.create({"key": None})
    ConfigLoaderImpl._apply_overrides_to_config(
        [OverridesParser.create().parse_override(f"key={written(value)}")], composed
    )
    found = OmegaConf.to_container(composed)["key"]
    assert (repr(found), type(found)) == (repr(value), type(value))


@pytest.mark.parametrize(
    ("arguments", "deferred"),
    [
        (["-m", "model=gru,lstm", "model.cell.bias=false", "seed=1"], ["model.cell.bias"]),
        (["-m", "task=copy", "model=gru,lstm", "task.delay=3", "model.cell.hidden_size=4,8"], []),
        (["-m", "experiment=a,b", "task.length=30", "trainer.max_steps=2"], ["task.length", "trainer.max_steps"]),
        (
            ["-m", "model=gru,lstm", "model.cell.options={a: 1, b: [2, 3]}", "model.x='a,b'"],
            ["model.cell.options", "model.x"],
        ),
        (["-m", "model=gru,lstm", "+model.y=1", "~model.z", "model.cell.hidden_size=range(1,3)"], []),
    ],
)
def test_options_of_what_a_sweep_varies_are_left_to_its_jobs(arguments: list[str], deferred: list[str]) -> None:
    words = defer_options(arguments)
    assert [word.partition("=")[0] for word in words if "=choice(" in word] == deferred
    assert [undefer_option(word) for word in words] == arguments
    for word in words:
        if word != "-m":
            OverridesParser.create().parse_override(word)
