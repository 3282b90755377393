"""Texts and paths on the command line need no quotes for Hydra."""

import functools
import itertools
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gyral.config import tables
from gyral.config.composition import compose, compose_with_hydra
from gyral.config.groups import CONFIG_PATH, groups
from gyral.config.overrides import parse, quote, split_values, text
from gyral.config.plain import walk
from gyral.config.words import FOLDERS, Options, split_word
from tests.helpers.running import compose_choices, invoke

TRAIN = Path(CONFIG_PATH, "train")
VALUES = (
    *("~/a.txt", "données.txt", "中文.txt", "it's", 'a "b"', "a=b", "a,b", "f.jsonl[:900]", "[a]", "[a,b].txt"),
    *("{a}", "a b", " a ", "a(1).txt", "a#b&c;d", "range(3)", "choice(a,b)", "a: b", "^a!", "`a`", "<a>", "a\\", "’"),
)


COMPOSED = functools.cache(lambda: compose_with_hydra(["task=text_file"]))


def arrange_words(*words: str) -> list[str]:
    """Return words in the form that Hydra accepts."""
    flags, others = [word for word in words if word == "-m"], [word for word in words if word != "-m"]
    split = [split_word(word, groups()) for word in others]
    options = Options(split, TRAIN, bool(flags))
    return flags + ["".join(options.arranged(word)[:4]) for word in split]


def read(word: str) -> Any:
    """Return the single value that Hydra reads."""
    override = parse(word)
    assert override is not None, word
    assert not override.is_sweep_override(), word
    return override.value()


def texts_in(config: Any) -> Iterator[str]:
    """Yield the keys of the options of a configuration that are known to be texts or paths."""
    options = Options([], TRAIN)
    vars(options)["_config"] = OmegaConf.create(config)
    others = (bool, int, float, dict)  # what no text or path has as its default
    yield from (
        key
        for key, value in walk(config)
        if not isinstance(value, others) and not key.endswith("_") and options.is_text(key)
    )


def all_texts() -> dict[str, Any]:
    """Return configurations that have every option of all groups that is known to be a text or a path, by its key."""
    found = {}
    for group in groups():
        if group not in ("experiment", "column", "sweep", "debug", "launcher"):  # which choose from the others
            for name, section in compose_choices(group).items():
                config = {group: section}
                found |= {f"{name}: {key}": (key, config) for key in texts_in(config)}
    return found


def test_every_value_of_an_option_that_is_a_text_or_a_path_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found = all_texts()
    known = {key for key, _ in found.values()}
    assert {"task.corpus.path", "task.corpus.train", "task.data", "logger.wandb.notes", "task.monitor"} <= known
    assert len(known) > 90
    values = itertools.cycle(("é=a.txt[:900]", "a,b", "[a]", " a "))
    for (key, config), value in zip(dict(found.values()).items(), values, strict=False):
        monkeypatch.setattr(Options, "_config", OmegaConf.create(config))
        word = Options([], TRAIN).arranged(split_word(f"{key}={value}"))
        assert read("".join(word[:4])) == value, key


@pytest.mark.parametrize("key", ["task.corpus.path", "hydra.run.dir", "hydra.job.name", "paths.data_dir"])
def test_any_text_needs_no_quotes(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Options, "_config", COMPOSED())
    for value in VALUES:
        [word] = arrange_words(f"{key}={value}")
        assert read(word) == (os.path.expanduser(value) if key in FOLDERS else value)


def test_a_configuration_has_the_texts_of_its_words() -> None:
    notes = "é, it's = [1]"
    words = [
        "logger=wandb",
        "task=summarization_jsonl",
        "task.corpus.train=a[1]/é.jsonl[:900]",
        f"logger.wandb.notes={notes}",
    ]
    config = compose([*words, "logger.wandb.tags=[café,b]", "task.corpus.val=${task.corpus.train}é"])
    assert config.logger.wandb.notes == notes
    assert config.logger.wandb.tags == ["café", "b"]
    assert config.task.corpus.train == "a[1]/é.jsonl[:900]"
    assert config.task.corpus.val == "a[1]/é.jsonl[:900]é"


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ("task.corpus.path=é.txt,a=b.txt", ["'é.txt'", "'a=b.txt'"]),
        ("task.corpus.path=a.txt[:1],b.txt[1:]", ["'a.txt[:1]'", "'b.txt[1:]'"]),
        ("task.corpus.path=choice(é.txt,b.txt)", ["'é.txt'", "b.txt"]),
        ("task.corpus.path=[a],b", ["'[a]'", "b"]),
        ("seed=range(1,3)", ["1", "2"]),
        ("task.window=20,30", ["20", "30"]),
    ],
)
def test_each_value_of_a_sweep_may_be_a_text(word: str, read: list[str]) -> None:
    override = parse(arrange_words("-m", "task=text_file", word)[-1])
    assert override is not None
    assert list(override.sweep_string_iterator()) == read


def test_a_path_that_exists_is_one_value_of_a_sweep(tmp_path: Path) -> None:
    path = tmp_path / "a,b.txt"
    path.touch()
    override = parse(arrange_words("-m", "task=text_file", f"task.corpus.path={path}")[-1])
    assert override is not None
    assert override.value() == str(path)


@pytest.mark.parametrize(
    ("words", "quoted"),
    [
        (("model.cell.hidden_size=3,4",), "model.cell.hidden_size='3,4'"),
        (("-m", "task.corpus.path=é,,b"), "task.corpus.path='é,,b'"),
    ],
)
def test_an_error_shows_the_quoted_form(words: tuple[str, ...], quoted: str) -> None:
    error = invoke(*words, "model=rnn", "task=text_file").error
    assert shlex.split(error.partition("; as one text, it is ")[2]) == [quoted]
    assert parse(quoted) is not None


def test_what_cannot_be_parsed_is_refused_as_a_text() -> None:
    assert invoke("model.cell.hidden_size=12[").error == "model.cell.hidden_size=12[: must be a valid integer"


@pytest.mark.parametrize("entry", ["evaluate", "report"])
def test_other_commands_have_no_sweeps(entry: str, tmp_path: Path) -> None:
    word = "split=é,1" if entry == "evaluate" else "save=é,1.txt"
    error = invoke(word, f"run={tmp_path}", entry=entry).error
    assert error.startswith(f"{word}: must ")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("run=~/a,b", "run='{}/a,b'"),
        ("resume=~/a", "resume='{}/a'"),
        ("hydra.run.dir=~/a b", "hydra.run.dir={}/a b"),
        ("hydra.sweep.dir=~", "hydra.sweep.dir={}"),
        ("paths.data_dir=~/é", "paths.data_dir='{}/é'"),
    ],
)
def test_paths_of_commands_begin_at_the_home_directory(
    word: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert arrange_words(word) == [expected.format(tmp_path)]


def test_values_of_tables_are_read_as_they_are() -> None:
    for value in VALUES:
        assert read(f"key={tables._as_word(value)}") == value


@settings(deadline=None, max_examples=10)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_any_text_in_quotes_is_read_as_it_is(value: str) -> None:
    for word in (f"key={text(value)}", quote(f"key={value}")):
        override = parse(word)
        assert override is not None
        if not (parse(f"key={value}") and value[0] in "'\""):
            read = str(override.value())
            assert read == value or "${" in value
            assert split_values(text(value)) == [text(value).strip()]
