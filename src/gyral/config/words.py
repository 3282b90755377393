"""The words of a command line: texts without quotes, common mistakes, and the nearest names. Imports no torch.

Hydra refuses accents, quotes, `=`, `~` and most brackets in a value without quotes; commas separate the values of a
sweep, and brackets enclose lists. Two rules make quotes unnecessary: what Hydra cannot read is text, because it has no
other meaning; and commas, brackets and spaces are text where the option is known to be a text or a path.
"""

import os
import re
from argparse import ArgumentError
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser  # private: no public function checks flags without ending the process
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from omegaconf import DictConfig, OmegaConf, StringNode

from gyral.config.groups import CHOSEN, choices, find_config, groups
from gyral.config.overrides import MULTIRUN, SWEEP, is_quoted, is_sweep, parse, quote, split_values, text
from gyral.config.roles import SECTIONS
from gyral.config.signatures import takes_text
from gyral.config.tables import GENERATED
from gyral.core.commands import typed
from gyral.core.errors import OptionError, UserError, similar_keys, suggest_name

GLOBAL = "# @package _global_"  # the first line of the files of such a group
PATHS = ("run", "resume", "weights")  # options of all commands whose values may contain any sign
FOLDERS = ("hydra.run.dir", "hydra.sweep.dir", "paths.data_dir")  # further options in which ~ is the home directory
STEPS = ("epochs", "max_epochs", "trainer.max_epochs", "trainer.min_epochs")
# What to write instead of keys of Lightning, Hydra and common templates, if no name here is similar.
TRAIN = {
    **dict.fromkeys(("data", "datamodule", "dataset"), "a task makes its own data; write task=<name>"),
    **dict.fromkeys(STEPS, "training is counted in steps; write trainer.max_steps=<number>"),
    **dict.fromkeys(("gpus", "trainer.gpus"), "write trainer=gpu, and trainer.devices=<number> for several"),
    **dict.fromkeys(
        ("train", "test"), "every run trains and then tests; gyral evaluate run=<run directory> tests it again"
    ),
    "ckpt_path": "write resume=<run directory> to resume a run, weights=<run directory> to start from its weights",
    "trainer.check_val_every_n_epoch": "validations are counted in steps; write trainer.val_check_interval=<number>",
    "trainer.callbacks": "write callbacks=<name>",
    "trainer.logger": "write logger=<name>",
    "trainer.default_root_dir": "write hydra.run.dir=<directory>",
    "trainer.enable_progress_bar": "write ~callbacks.progress_bar",
    "trainer.enable_checkpointing": "write ~callbacks.checkpoints",
    "tags": "write logger.wandb.tags=[<tag>,…]",
    "hydra/launcher": "write launcher=<name>: local, joblib, slurm, ray",
    "hydra/sweeper": "write -m for all combinations of values, sweep=tune for a search by Optuna",
    "hparams_search": "write sweep=tune for a search by Optuna",
}
# Names of options here, by the names that they have in other frameworks and in reports.
OTHER_NAMES = {
    **dict.fromkeys(("learning_rate", "learningrate"), "lr"),
    **dict.fromkeys(("hidden_dim", "hidden_units", "units", "d_model", "num_units"), "hidden_size"),
    **dict.fromkeys(("layers", "n_layers", "n_layer"), "num_layers"),
    **dict.fromkeys(("steps", "num_steps", "n_steps"), "max_steps"),
    **dict.fromkeys(("random_seed", "manual_seed"), "seed"),
    "lambda": "lambd",
}
OTHERS = {
    "ckpt_path": "write run=<run directory>, and checkpoint=best or checkpoint=last",
    "resume": "write run=<run directory>",
}


def arrange_words(words: list[str], file: Path, literal: tuple[str, ...] = ()) -> list[str]:
    """Return the words of a command line in the form that Hydra accepts.

    The flag -m is first, choices of groups are without +, and values that are text are quoted. At the start of a path,
    ~ is the home directory.

    Args:
        words: the words, without the name of the program.
        file: the primary configuration file, without its suffix.
        literal: options besides `PATHS` whose values are literal text, unless they are null.
    """
    flags = [word for word in words if word in MULTIRUN][:1]
    arranged = []
    for word in (word for word in words if word not in MULTIRUN):
        name, _, value = word.partition("=")
        key = name.lstrip("+")
        if key in (*literal, *PATHS, *FOLDERS) and value.startswith("~"):
            value = os.path.expanduser(value)
            word = f"{name}={value}"
        # in a sweep, the value of a path may also be several
        is_text = key in literal or (key in PATHS and (not flags or os.path.exists(value)))
        chooses = word.startswith("+") and _key(word) in CHOSEN
        arranged.append(quote(word) if is_text and value != "null" else word[1:] if chooses else word)
    return quote_texts(flags + arranged, file)


def check_words(words: list[str], file: Path) -> None:
    """Check the words of a command line for common mistakes.

    Args:
        words: the words, as `arrange_words` returns them.
        file: the primary configuration file, without its suffix.

    Raises:
        OptionError: a key of another framework, several values without -m, or a section that nothing would read.
        UserError: a flag that does not exist or lacks its value, a word without a key, or, in a command other than
            `gyral train`, -m or an option of Hydra.
    """
    parser = get_args_parser()
    parser.exit_on_error = False
    try:
        flags, unknown = parser.parse_known_args(words)
    except ArgumentError as error:
        raise UserError(f"{error.argument_name}: {error.message}") from None
    for word in words:
        if not _key(word):
            raise UserError(f"{word or 'an empty word'}: has no key; write key=value")
    for flag in (word for word in unknown if word.startswith("-")):
        raise UserError(f"{flag}: no such flag; options have no dashes: {flag.lstrip('-').partition('=')[0]}=<value>")
    is_multirun = bool(MULTIRUN & set(words))
    if flags.resolve and flags.cfg is None:
        raise UserError("--resolve: needs --cfg job")
    if flags.experimental_rerun:
        raise UserError("--experimental-rerun: write resume=<run directory>")
    if is_multirun and file.name != "train":
        raise UserError("-m is only available for gyral train")
    own_groups, hints = (groups(), TRAIN) if file.name == "train" else ([], OTHERS)
    for word in words:
        key, value = _key(word), word.partition("=")[2]
        if is_of_hydra(word):
            _check_hydra(word, file)
        if key == "resume" and value != "null" and is_multirun:
            raise OptionError(key, value.strip("'"), "resumes one run; leave it out, and the sweep itself resumes")
        if key in hints and key not in groups():
            raise OptionError(key, value, hints[key])
        if key.partition("@")[0] in own_groups and not word.startswith("~"):
            if key not in CHOSEN and "@" not in key:
                raise OptionError(key, value, _advice(key, value))
            _check_choice(key, word)
        if not is_multirun and re.search(r"[,(]", value) and is_sweep(word):
            reason = "several values need -m, as in: gyral train -m model=rum,lstm"
            as_text = "" if key in own_groups else f"; as one text, it is {typed([f'{key}={text(value)}'])}"
            raise OptionError(key, value, reason + as_text)
        if word.startswith("+") and "@" not in word:
            _check_addition(word, file)
    if file.name == "train":
        _check_unread(words, is_multirun)


def is_of_hydra(word: str) -> bool:
    """Return whether a word of the command line is of Hydra's own section or groups."""
    return re.split(r"[./@]", _key(word))[0] == "hydra"


def _check_hydra(word: str, file: Path) -> None:
    """Raise `UserError` for a word that changes Hydra's own section where it cannot be changed."""
    if file.name != "train":
        raise UserError(f"{word}: only gyral train has options of Hydra")
    if _key(word) == "hydra":
        raise UserError(f"{word}: is a section; set its options, such as hydra.run.dir=<directory>")


def _check_unread(words: list[str], is_multirun: bool) -> None:
    """Raise `OptionError` for an option that nothing reads in a command like this one."""
    given = {_key(word): word.partition("=")[2] for word in words if "=" in word}
    may_be_sweep = is_multirun or not {"experiment", "sweep", "hydra.mode"}.isdisjoint(given)  # whose files may set it
    for key, value in given.items():
        if key == "hydra.run.dir" and is_multirun:
            raise OptionError(key, value, "is the directory of a single run; a sweep has hydra.sweep.dir=<directory>")
        if key.startswith(("hydra.sweep.", "hydra.sweeper.")) and not may_be_sweep:
            raise OptionError(key, value, "is an option of sweeps: add -m; a single run has hydra.run.dir=<directory>")
        if key == "trust" and value != "null" and given.get("resume", "null") == "null":
            raise OptionError(key, value, "needs resume=<run directory>, whose configuration may name these modules")


def _check_choice(key: str, word: str) -> None:
    """Raise `OptionError` for a choice that is a number, null or a reference, or for a group that has no package."""
    group, at, _ = key.partition("@")
    if at and (
        group in GENERATED or find_config(group, choices(group)[0]).read_text(encoding="utf-8").startswith(GLOBAL)
    ):
        raise OptionError(key, word.partition("=")[2], f"sets options of several sections; write {group}=<name>")
    if is_sweep(word) is not False:  # several values, or one that cannot be parsed, which Hydra reports
        return
    value = OverridesParser.create().parse_override(word).value()
    for name in value or [None] if isinstance(value, list) else [value]:
        if not (isinstance(name, str | QuotedString) and set(str(name)).isdisjoint("$?{")):
            raise OptionError(key, word.partition("=")[2], f"must be one of {', '.join(choices(group))}")


def _check_addition(word: str, file: Path) -> None:
    """Raise `OptionError` for a word that adds an option that nothing reads, such as +lr=0.1."""
    key, primary = _key(word), OmegaConf.load(file.with_suffix(".yaml"))
    read = {*SECTIONS, "hydra", "report", "paper"}  # sections that may have keys that the file does not list
    if key.partition(".")[0] not in read and OmegaConf.select(primary, key, default=word) is word:
        with hydra.initialize_config_dir(str(file.parent), version_base="1.3"):
            hint = suggest(key, hydra.compose(file.name))
        raise OptionError(key, word.partition("=")[2], f"no such option{hint}")


def _advice(group: str, name: str) -> str:
    """Return what to write instead of a choice of a group that is not a section and sets no options of several."""
    if group == "cell":
        return f"is a section of a model; write model={name}, or cell@model.cell={name}"
    hint = suggest_name(group, CHOSEN)
    return f"conf/{group} is none of the folders that Gyral reads; {hint}must be one of {', '.join(CHOSEN)}"


def suggest(key: str, config: DictConfig) -> str:
    """Return "; did you mean …?" with the options of a configuration that resemble a key, or an empty text."""
    of_hydra = key.startswith("hydra.")
    known = [each for each in _keys(config) if each.startswith("hydra.") == of_hydra]
    section, dot, name = key.rpartition(".")
    found = similar_keys(key, known)
    if not found and name.lower() in OTHER_NAMES:
        found = similar_keys(f"{section}{dot}{OTHER_NAMES[name.lower()]}", known)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _key(word: str) -> str:
    return word.lstrip("+~").partition("=")[0]


def _keys(section: DictConfig, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of all sections and options that have public names."""
    for name in (str(name) for name in section if not str(name).startswith("_")):
        yield f"{prefix}{name}"
        if not OmegaConf.is_interpolation(section, name) and isinstance(section.get(name), DictConfig):
            yield from _keys(section[name], f"{prefix}{name}.")


def quote_texts(words: list[str], file: Path) -> list[str]:
    """Return the words of a command line with quotes around the values that are text.

    In a sweep, this is done for each value between commas. A value that names an existing file or folder is one value.

    Args:
        words: the words, without the name of the program.
        file: the primary configuration file, without its suffix.
    """
    options = Options(words, file)
    is_sweep = file.name == "train" and any(word in MULTIRUN or word.startswith("sweep=") for word in words)
    return [_quote_text(word, options, is_sweep) for word in words]


class Options:
    """The options of a command: which of them are texts.

    Args:
        words, file: see `quote_texts`.
    """

    def __init__(self, words: list[str], file: Path) -> None:
        self.words, self.file = words, file

    def is_text(self, key: str) -> bool:
        """Return whether an option is known to be a text or a path.

        What decides is the annotation of the argument that it sets, else its type in Hydra's own section, else whether
        its default is text.
        """
        section, _, name = key.rpartition(".")
        node = self._select(section) if section else self._config
        if not isinstance(node, DictConfig):
            return False
        if isinstance(target := node.get("_target_"), str) and (known := takes_text(target, name)) is not None:
            return known
        return isinstance(node._get_node(name, validate_access=False), StringNode) or isinstance(self._select(key), str)

    @cached_property
    def _config(self) -> DictConfig | None:
        """The configuration of the choices among the words, of the first ones in a sweep; None if there is none."""
        known = groups()
        chosen = []
        for word in self.words:
            group, equals, value = word.lstrip("+").partition("=")
            if equals and group.partition("@")[0] in known:
                chosen.append(f"{group}={split_values(value)[0]}")
        try:
            with hydra.initialize_config_dir(str(self.file.parent), version_base="1.3"):
                return hydra.compose(self.file.name, chosen, return_hydra_config=True)
        except Exception:  # which the command itself reports
            return None

    def _select(self, key: str) -> Any:
        try:
            return OmegaConf.select(self._config, key) if self._config is not None else None
        except Exception:  # an interpolation that only the command can resolve
            return None


def _quote_text(word: str, options: Options, is_sweep: bool) -> str:
    key, equals, value = word.partition("=")
    if not equals or word.startswith(("-", "~")) or re.fullmatch(r"[\w./+@:-]*", value, re.ASCII):
        return word
    if not is_sweep or os.path.exists(value):
        changed = _as_text(key, value, options)
    else:
        function = SWEEP.match(value)
        if function and not (function[1] == "choice" and value.endswith(")")):
            return word
        start, end = (function[0], ")") if function else ("", "")
        parts = split_values(value[len(start) : len(value) - len(end)])
        texts = [_as_text(key, part, options) for part in parts]
        if "" in parts or texts == parts:  # Hydra refuses an empty item
            return word
        changed = ",".join(texts)  # without choice(), which removes the quotes from the overrides of jobs
    return f"{key}={changed}" if parse(f"{key}={changed}") else word


def _as_text(key: str, value: str, options: Options) -> str:
    """Return one value with quotes if it is text that Hydra reads otherwise."""
    found = parse(f"{key}={value}")
    if found is None and value.startswith("[") and value.endswith("]"):
        items = f"[{','.join(_as_text(key, item, options) for item in split_values(value[1:-1]))}]"
        found, value_as_list = parse(f"{key}={items}"), items
    else:
        value_as_list = value
    if found is None:
        return text(value)
    is_one = not found.is_sweep_override()
    read = found.value() if is_one else None
    if is_one and (is_quoted(found) or read is None or isinstance(read, int | float) or read == value):
        return value
    if isinstance(read, str) and "\\" in value and not os.path.exists(value):  # escapes in Hydra's grammar
        return value
    is_other = options.file.name != "train" and not is_one  # -m is only available for gyral train
    return text(value) if is_other or options.is_text(key) else value_as_list
