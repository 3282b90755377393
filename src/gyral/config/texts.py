"""Values of the command line that are text although Hydra's grammar does not read them as this text. Imports no torch.

Hydra refuses accents, quotes, `=`, `~` and most brackets in a value without quotes; commas separate the values of a
sweep, and brackets enclose lists. Two rules make quotes unnecessary: what Hydra cannot read is text, because it has no
other meaning; and commas, brackets and spaces are text where the option is known to be a text or a path.
"""

import os
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf, StringNode

from gyral.config.groups import groups
from gyral.config.overrides import MULTIRUN, SWEEP, is_quoted, parse, split_values, text
from gyral.config.signatures import takes_text


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
