"""The words of a command line: texts without quotes, common mistakes, and the nearest names. Imports no torch.

Hydra refuses accents, quotes, `=`, `~` and most brackets in a value without quotes; commas separate the values of a
sweep, and brackets enclose lists. Two rules make quotes unnecessary: what Hydra cannot read is text, because it has no
other meaning; and commas, brackets and spaces are text where the option is known to be a text or a path.
"""

import csv
import os
import re
from argparse import ArgumentError
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from hydra._internal.utils import get_args_parser  # private: no public function checks flags without ending the process
from hydra.core.override_parser.types import QuotedString
from omegaconf import DictConfig, OmegaConf, StringNode

from gyral.config.groups import allowed_choices, groups
from gyral.config.overrides import MULTIRUN, SWEEP, is_quoted, parse, quote, split_values, text
from gyral.config.plain import walk
from gyral.config.roles import CHOSEN, SECTIONS
from gyral.config.signatures import takes_text
from gyral.core.commands import typed
from gyral.core.errors import OptionError, UserError, similar_keys, suggest_name

PATHS = ("run", "resume", "weights")  # options of all commands whose values may contain any sign
FOLDERS = ("hydra.run.dir", "hydra.sweep.dir", "paths.data_dir")  # further options in which ~ is the home directory


class Word(NamedTuple):
    """A word of a command line: `+task.delay=3` has the sign +, the key task.delay and the value 3.

    Attributes:
        sign, key, equals, value: the parts of the word; all but the key may be empty.
        kind: "flag"; "hydra", of Hydra's own section or groups; "choice" of a group; "option" of anything else.
    """

    sign: str
    key: str
    equals: str
    value: str
    kind: str


def split_word(word: str, own_groups: Sequence[str] = ()) -> Word:
    """Return a word as its parts; `own_groups` are those of the command."""
    if word.startswith("-"):
        return Word("", word, "", "", "flag")
    sign, key, equals, value = re.match(r"([+~]*)([^=]*)(=?)(.*)", word, re.DOTALL).groups()  # type: ignore[union-attr]
    kind = "choice" if key.partition("@")[0] in own_groups else "option"
    return Word(sign, key, equals, value, "hydra" if re.split(r"[./@]", key)[0] == "hydra" else kind)


def read_words(words: Sequence[str], file: Path, literal: tuple[str, ...] = ()) -> list[str]:
    """Return the words of a command line in the form that Hydra accepts, and check them for common mistakes.

    The flag -m is first, choices of groups are without +, and values that are text are quoted: in a sweep each value
    between commas, unless all of it names an existing file or folder. At the start of a path, ~ is the home directory.

    Args:
        words: the words, without the name of the program.
        file: the primary configuration file, without its suffix.
        literal: options besides `PATHS` whose values are literal text, unless they are null.

    Raises:
        OptionError: a key of another framework, several values without -m, or a section that nothing would read.
        UserError: a flag that does not exist or lacks its value, a word without a key, or, in a command other than
            `gyral train`, -m or an option of Hydra.
    """
    own_groups = groups() if file.name == "train" else []
    split = [split_word(word, own_groups) for word in words if word not in MULTIRUN]
    is_multirun = len(split) < len(words)
    options = Options(split, file, is_multirun)
    found = [options.arranged(word, literal) for word in split]
    read = [word for word in words if word in MULTIRUN][:1] + ["".join(word[:4]) for word in found]
    _check_flags(read, file)
    _check_words(found, file, is_multirun)
    if file.name == "train":
        _check_unread({word.key: word.value for word in found if word.equals}, is_multirun)
    return read


class Options:
    """The options of a command: which of them are texts.

    Args:
        words: the words of the command.
        file: see `read_words`.
        is_multirun: whether the flag -m is given.
    """

    def __init__(self, words: Sequence[Word], file: Path, is_multirun: bool = False) -> None:
        self.words, self.file, self.is_multirun = words, file, is_multirun
        self.is_sweep = file.name == "train" and (is_multirun or "sweep" in [word.key for word in words if word.equals])

    def arranged(self, word: Word, literal: tuple[str, ...] = ()) -> Word:
        """Return a word in the form that Hydra accepts, see `read_words`."""
        key, value = word.key, word.value
        if key in (*literal, *PATHS, *FOLDERS) and value.startswith("~"):
            value = os.path.expanduser(value)
        # in a sweep, the value of a path may also be several
        is_literal = key in literal or (key in PATHS and (not self.is_multirun or os.path.exists(value)))
        if is_literal and value != "null":
            return word._replace(value=quote(f"{key}{word.equals}{value}").partition("=")[2])
        sign = word.sign[1:] if word.sign[:1] == "+" and key in CHOSEN else word.sign
        if sign[:1] != "~" and not re.fullmatch(r"[\w./+@:-]*", value, re.ASCII):
            value = self._in_quotes(f"{sign}{key}", value)
        return word._replace(sign=sign, value=value)

    def is_text(self, key: str) -> bool:
        """Return whether an option is known to be a text or a path.

        What decides is the annotation of the argument that it sets, else its type in Hydra's own section, else whether
        its default is text.
        """
        section, _, name = key.rpartition(".")
        node = self._select(section) if section else self._config
        if not isinstance(node, DictConfig):
            return False
        known = takes_text(target, name) if isinstance(target := node.get("_target_"), str) else None
        is_text = isinstance(node._get_node(name, validate_access=False), StringNode)
        return is_text or isinstance(self._select(key), str) if known is None else known

    @cached_property
    def _config(self) -> DictConfig | None:
        """The configuration of the choices among the words, of the first ones in a sweep; None if there is none."""
        chosen = [word for word in self.words if word.kind == "choice" and word.equals and word.sign[:1] != "~"]
        choices = [f"{word.key}={split_values(word.value)[0]}" for word in chosen]
        try:
            with hydra.initialize_config_dir(str(self.file.parent), version_base="1.3"):
                return hydra.compose(self.file.name, choices, return_hydra_config=True)
        except Exception:  # which the command itself reports
            return None

    def _select(self, key: str) -> Any:
        try:
            return OmegaConf.select(self._config, key) if self._config is not None else None
        except Exception:  # an interpolation that only the command can resolve
            return None

    def _in_quotes(self, key: str, value: str) -> str:
        """Return the value of an option with quotes around what is text."""
        if not self.is_sweep or os.path.exists(value):
            changed = self._as_text(key, value)
        else:
            function = SWEEP.match(value)
            if function and not (function[1] == "choice" and value.endswith(")")):
                return value
            parts = split_values(value[len(function[0]) : -1] if function else value)
            texts = [self._as_text(key, part) for part in parts]
            if "" in parts or texts == parts:  # Hydra refuses an empty item
                return value
            changed = ",".join(texts)  # without choice(), which removes the quotes from the overrides of jobs
        return changed if parse(f"{key}={changed}") else value

    def _as_text(self, key: str, value: str) -> str:
        """Return one value with quotes if it is text that Hydra reads otherwise."""
        found, value_as_list = parse(f"{key}={value}"), value
        if found is None and value.startswith("[") and value.endswith("]"):
            value_as_list = f"[{','.join(self._as_text(key, item) for item in split_values(value[1:-1]))}]"
            found = parse(f"{key}={value_as_list}")
        if found is None:
            return text(value)
        if found.is_sweep_override():
            is_text = self.file.name != "train"  # -m is only available for gyral train
        else:
            read = found.value()
            if is_quoted(found) or read is None or isinstance(read, int | float) or read == value:
                return value
            if isinstance(read, str) and "\\" in value and not os.path.exists(value):  # escapes in Hydra's grammar
                return value
            is_text = False
        return text(value) if is_text or self.is_text(key) else value_as_list


def _check_flags(words: list[str], file: Path) -> None:
    """Raise `UserError` for a flag that cannot be used, or a word without a key."""
    parser = get_args_parser()
    parser.exit_on_error = False
    try:
        flags, unknown = parser.parse_known_args(words)
    except ArgumentError as error:
        raise UserError(f"{error.argument_name}: {error.message}") from None
    for word in words:
        if word.lstrip("+~")[:1] in ("", "="):
            raise UserError(f"{word or 'an empty word'}: has no key; write key=value")
    for flag in (word for word in unknown if word.startswith("-")):
        raise UserError(f"{flag}: no such flag; options have no dashes: {flag.lstrip('-').partition('=')[0]}=<value>")
    if flags.resolve and flags.cfg is None:
        raise UserError("--resolve: needs --cfg job")
    if flags.experimental_rerun:
        raise UserError("--experimental-rerun: write resume=<run directory>")
    if file.name != "train" and not MULTIRUN.isdisjoint(words):
        raise UserError("-m is only available for gyral train")


def _check_words(words: Sequence[Word], file: Path, is_multirun: bool) -> None:
    """Raise `OptionError` or `UserError` for a word that nothing reads, or that is read otherwise than it looks."""
    known_hints = hints("train" if file.name == "train" else "other command")
    for sign, key, equals, value, kind in words:
        word = f"{sign}{key}{equals}{value}"
        if kind == "hydra" and file.name != "train":
            raise UserError(f"{word}: only gyral train has options of Hydra")
        if key == "hydra" and equals:
            raise UserError(f"{word}: is a section; set its options, such as hydra.run.dir=<directory>")
        if key == "resume" and value != "null" and is_multirun:
            raise OptionError(key, value.strip("'"), "resumes one run; leave it out, and the sweep itself resumes")
        if key in known_hints and kind != "choice":
            raise OptionError(key, value, known_hints[key])
        if kind == "choice" and sign[:1] != "~":
            _check_choice(key, value)
        if not is_multirun and re.search(r"[,(]", value) and (found := parse(word)) and found.is_sweep_override():
            reason = "several values need -m, as in: gyral train -m model=rum,lstm"
            if kind != "choice" or "@" in key:
                reason += f"; as one text, it is {typed([f'{key}={text(value)}'])}"
            raise OptionError(key, value, reason)
        if sign[:1] == "+" and "@" not in word:
            _check_addition(key, value, file)


def _check_choice(key: str, value: str) -> None:
    """Raise `OptionError` for a choice of a group that has none, or that is a number, null or a reference."""
    group, at, _ = key.partition("@")
    if group == "cell" and not at:
        raise OptionError(key, value, f"is a section of a model; write model={value}, or cell@model.cell={value}")
    if group not in CHOSEN and not at:
        allowed = f"{suggest_name(group, CHOSEN)}must be one of {', '.join(CHOSEN)}"
        raise OptionError(key, value, f"conf/{group} is none of the folders that Gyral reads; {allowed}")
    if at and group in CHOSEN and group not in SECTIONS:
        raise OptionError(key, value, f"sets options of several sections; write {group}=<name>")
    found = parse(f"{key}={value}")
    if found is None or found.is_sweep_override():  # Hydra reports what cannot be parsed
        return
    names = found.value()
    for name in names if isinstance(names, list) and names else [names]:
        if not (isinstance(name, str | QuotedString) and set(str(name)).isdisjoint("$?{")):
            raise OptionError(key, value, allowed_choices(group))


def _check_addition(key: str, value: str, file: Path) -> None:
    """Raise `OptionError` for a word that adds an option that nothing reads, such as +lr=0.1."""
    primary = OmegaConf.load(file.with_suffix(".yaml"))
    read = {*SECTIONS, "hydra", "report", "paper"}  # sections that may have keys that the file does not list
    if key.partition(".")[0] not in read and OmegaConf.select(primary, key, default=read) is read:
        with hydra.initialize_config_dir(str(file.parent), version_base="1.3"):
            hint = suggest(key, hydra.compose(file.name))
        raise OptionError(key, value, f"no such option{hint}")


def _check_unread(given: dict[str, str], is_multirun: bool) -> None:
    """Raise `OptionError` for an option that nothing reads in a command like this one."""
    may_be_sweep = is_multirun or not {"experiment", "sweep", "hydra.mode"}.isdisjoint(given)  # whose files may set it
    for key, value in given.items():
        if key == "hydra.run.dir" and is_multirun:
            raise OptionError(key, value, "is the directory of a single run; a sweep has hydra.sweep.dir=<directory>")
        if key.startswith(("hydra.sweep.", "hydra.sweeper.")) and not may_be_sweep:
            raise OptionError(key, value, "is an option of sweeps: add -m; a single run has hydra.run.dir=<directory>")
        if key == "trust" and value != "null" and given.get("resume", "null") == "null":
            raise OptionError(key, value, "needs resume=<run directory>, whose configuration may name these modules")


@cache
def hints(kind: str) -> dict[str, str]:
    """Return by name what to write instead of names of Lightning, Hydra, common templates and reports.

    Args:
        kind: "train" or "other command" for keys on the command line, "option" for names of options.
    """
    with Path(__file__).with_name("hints.tsv").open(encoding="utf-8", newline="") as file:
        return {row["name"]: row["hint"] for row in csv.DictReader(file, delimiter="\t") if row["kind"] == kind}


def suggest(key: str, config: DictConfig) -> str:
    """Return "; did you mean …?" with the options of a configuration that resemble a key, or an empty text."""
    options = OmegaConf.to_container(config)
    public = [each for each, _ in walk(options) if each and not re.search(r"\[|(^|\.)_", each)]
    known = [each for each in public if each.startswith("hydra.") == key.startswith("hydra.")]
    section, dot, name = key.rpartition(".")
    other = hints("option").get(name.lower())
    found = similar_keys(key, known) or (similar_keys(f"{section}{dot}{other}", known) if other else [])
    return f"; did you mean {' or '.join(found)}?" if found else ""
