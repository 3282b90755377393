"""Functions that a task offers, and their options: the keyword arguments of generators and evaluations.

Imports no torch, but the functions may.

An option whose annotation is `str` is literal text: `prompt="the "` keeps its space. Other options are parsed as YAML:
`length=500` is a number.
"""

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import Parameter, getdoc, signature
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig

from gyral.config import command_line
from gyral.config.overrides import as_word
from gyral.config.trust import find_object
from gyral.core.errors import OptionError, UserError, suggest_name
from gyral.core.inputs import as_utf8

Function = Callable[..., Any]
TEXT = (str, str | None, "str", "str | None")  # annotations of options that are not parsed


def main(
    function: Callable[[DictConfig, dict[str, str] | None], Any],
    config_name: str,
    own: Sequence[str],
    literal: tuple[str, ...] = (),
) -> None:
    """Call a command that has its own options and the options that the task of its run offers.

    Args:
        function: the command. Its arguments are the configuration of its own options, and the other options by name;
            None instead of these asks for the help about what the task offers.
        config_name: name of the primary file in conf/.
        own: names of the command's own options.
        literal: own options whose values are literal text, see `command_line.main`.
    """
    is_alone = not sys.argv[1:]
    completes = {"--shell-completion", "-sc"} & set(sys.argv)
    words, given = (sys.argv[1:], {}) if completes else split_words(sys.argv[1:], own)
    asks = any(word.startswith("run=") for word in words) and bool({"--help", "-h"} & set(words))
    sys.argv[1:] = [word for word in words if not asks or word not in ("--help", "-h")]
    command_line.main(lambda config: function(config, None if asks else given), config_name, literal, explains=is_alone)


def split_words(words: Iterable[str], own: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Split the words of a command line into those for Hydra and the task's options by name.

    Args:
        words: the words, without the name of the program.
        own: names of the options that the command itself has.
    """
    for_hydra, given = [], {}
    for word in words:
        name, equals, value = word.partition("=")
        first = name.partition(".")[0]
        if equals and first.isidentifier() and first not in (*own, "hydra"):
            value = as_utf8(value)
            given[name] = value[1:-1] if re.fullmatch(r"'.*'|\".*\"", value, re.DOTALL) else value
        else:
            for_hydra.append(word)
    return for_hydra, given


def find_functions(names: Mapping[str, str]) -> dict[str, Function]:
    """Return the functions that a task offers by dotted names, such as `Task.generators`, by their names.

    Raises:
        UserError: a function cannot be imported.
    """
    found = {}
    for name, dotted in names.items():
        try:
            found[name] = find_object(dotted)
        except (ImportError, ValueError) as error:
            reason = " ".join(str(error.__cause__ or error).split())
            raise UserError(f"the task offers {name}, but {dotted} cannot be imported: {reason}") from error
    return found


def options_of(function: Function) -> dict[str, Parameter]:
    """Return the options of a function: its keyword-only arguments."""
    parameters = signature(function).parameters
    return {name: one for name, one in parameters.items() if one.kind is Parameter.KEYWORD_ONLY}


def choose(
    functions: Sequence[Function], given: Mapping[str, str], task: str, own: Sequence[str] = ()
) -> tuple[Function, dict[str, Any]]:
    """Return the first generator whose options match the given ones, with their values.

    Args:
        functions: the generators that a task offers.
        given: options that the user set, as text.
        task: description of the task, for errors.
        own: names of the command's own options, for errors.

    Raises:
        UserError: no function takes the options, or a value is not YAML.
    """
    if not functions:
        raise UserError(f"{task} has no generator")
    for function in functions:
        if required(function) <= set(given) <= set(options_of(function)):
            return function, values(function, given)
    allowed = ", or else ".join(", ".join(options_of(function)) for function in functions)
    known = [option for function in functions for option in options_of(function)]
    _check_known(given, known, f"{task} takes {allowed}", own)
    names = ", ".join(given)
    raise UserError(f"{names}: {task} takes {allowed}" if given else f"{task} needs one of these options: {allowed}")


def choose_evaluation(
    functions: Mapping[str, Function], given: Mapping[str, str], task: str, own: Sequence[str] = ()
) -> tuple[Function, dict[str, Any]]:
    """Return the evaluation that options select, with the values of its options.

    Args:
        functions: the evaluations that a task offers, by name. An option of one is `name.option`, or `name` for the
            option that has the name of the evaluation.
        given, task, own: see `choose`.

    Raises:
        OptionError: an option that the task does not offer, or one that is missing.
        UserError: options of several evaluations.
    """
    keys = {key: (name, option) for name in functions for key, option in _keys(name, functions[name]).items()}
    allowed = f"takes {', '.join(keys)}" if keys else "has no evaluation besides its metrics"
    _check_known(given, keys, f"{task} {allowed}", own)
    if len(chosen := {keys[key][0] for key in given}) > 1:
        raise UserError(f"{', '.join(given)}: belong to several evaluations; evaluate them one after the other")
    [name] = chosen
    options = {keys[key][1]: value for key, value in given.items()}
    if missing := required(functions[name]) - set(options):
        raise UserError(f"{', '.join(given)}: needs {', '.join(f'{name}.{key}' for key in sorted(missing))}")
    return functions[name], values(functions[name], options, f"{name}.")


def located(error: OptionError, given: Mapping[str, str]) -> OptionError:
    """Return an error about an option of an evaluation with the name that the option has on the command line."""
    names = (name for name in given if name.partition(".")[2] == error.option)
    return OptionError(next(names, error.option), error.value, error.reason)


def _check_known(given: Mapping[str, str], known: Collection[str], allowed: str, own: Sequence[str]) -> None:
    """Raise `OptionError` for an option that no function takes."""
    for name, value in given.items():
        if name not in known:
            hint = suggest_name(name, (*known, *own)).rstrip()
            raise OptionError(name, value, f"{allowed}; {hint}" if hint else allowed)


def _keys(name: str, function: Function) -> dict[str, str]:
    """Return the options of an evaluation by their names on the command line."""
    return {name if option == name else f"{name}.{option}": option for option in options_of(function)}


def required(function: Function) -> set[str]:
    """Return the names of the options of a function that have no default."""
    return {name for name, option in options_of(function).items() if option.default is Parameter.empty}


def values(function: Function, given: Mapping[str, str], prefix: str = "") -> dict[str, Any]:
    """Return the values of options of a function that are given as text.

    Args:
        function: the function; each name in `given` is one of its options.
        given: the options.
        prefix: what precedes a name on the command line, for errors.

    Raises:
        OptionError: a value is not YAML.
    """
    options, found = options_of(function), {}
    for name, text in given.items():
        try:
            value = text if options[name].annotation in TEXT else yaml.safe_load(text)
        except yaml.YAMLError:
            raise OptionError(prefix + name, text, "must be a number, true, false or null") from None
        if value is not None:  # null selects the default
            found[name] = value
    return found


def describe(functions: Mapping[str, Function], task: str, evaluations: bool = False) -> str:
    """Return the help for functions that a task offers: the first line of their docstrings, and their options.

    Args:
        functions: the functions, by name.
        task: description of the task.
        evaluations: whether the functions are evaluations, whose options have the name of the evaluation in their keys.
    """
    if not functions:
        return f"{task} offers nothing here"
    lines = [f"{task} offers:"]
    for name, function in functions.items():
        document = (getdoc(function) or "").split("\n")
        lines += ["", document[0]]
        keys = _keys(name, function) if evaluations else {option: option for option in options_of(function)}
        for key, option in keys.items():
            default = options_of(function)[option].default
            shown = "…" if default is Parameter.empty else as_word(default) or '""'
            lines += [f"  {key}={shown}", *(f"      {line}" for line in _argument(document, option))]
    return "\n".join(lines)


def _argument(document: list[str], name: str) -> list[str]:
    """Return the description of an argument in the section Args of a docstring."""
    found: list[str] = []
    for line in document:
        head, colon, text = line.partition(":")
        if colon and name in head.strip().split(", ") and line.startswith("    ") and not line.startswith("        "):
            found = [text.strip()]
        elif found and line.startswith("        "):
            found.append(line.strip())
        elif found:
            break
    return found
