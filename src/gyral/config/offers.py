"""Functions that a task offers, and their options: the keyword arguments of generators and evaluations.

Imports no torch, but the functions may.

An option whose annotation is `str` is literal text: `prompt="the "` keeps its space. Other options are parsed as YAML:
`length=500` is a number.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, getdoc, signature
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig

from gyral.config import command_line
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
    """Return the first function whose options match the given ones, with their values.

    Args:
        functions: the functions that a task offers.
        given: options that the user set, as text.
        task: description of the task, for errors.
        own: names of the command's own options, for errors.

    Raises:
        UserError: no function takes the options, or a value is not YAML.
    """
    if not functions:
        raise UserError(f"{task} has no generator")
    for function in functions:
        options = options_of(function)
        if required(function) <= set(given) <= set(options):
            return function, values(function, given)
    allowed = ", or else ".join(", ".join(options_of(function)) for function in functions)
    known = {name for function in functions for name in options_of(function)}
    for name, value in given.items():
        if name not in known:
            raise OptionError(name, value, f"{task} takes {allowed}{_suggestion(name, (*known, *own))}")
    if not given:
        raise UserError(f"{task} needs one of these options: {allowed}")
    raise UserError(f"{', '.join(given)}: {task} takes {allowed}")


def choose_evaluation(
    functions: Mapping[str, Function], given: Mapping[str, str], task: str, own: Sequence[str] = ()
) -> tuple[Function, dict[str, Any]]:
    """Return the evaluation that options select, with the values of its options.

    Args:
        functions: the evaluations that a task offers, by name. An option of one is `name.option`, or `name` for the
            option that has the name of the evaluation.
        given: options that the user set, as text.
        task: description of the task, for errors.
        own: names of the command's own options, for errors.

    Raises:
        OptionError: an option that the task does not offer, or one that is missing.
        UserError: options of several evaluations.
    """
    for name, value in given.items():
        evaluation, _, option = name.partition(".")
        if evaluation not in functions or (option or evaluation) not in options_of(functions[evaluation]):
            keys = [key for name, function in functions.items() for key in _keys(name, function)]
            allowed = f"takes {', '.join(keys)}" if keys else "has no evaluation besides its metrics"
            raise OptionError(name, value, f"{task} {allowed}{_suggestion(name, (*keys, *own))}")
    chosen = {name.partition(".")[0] for name in given}
    if len(chosen) > 1:
        raise UserError(f"{', '.join(given)}: belong to several evaluations; evaluate them one after the other")
    [name] = chosen
    function = functions[name]
    options = {key.partition(".")[2] or name: value for key, value in given.items()}
    if missing := required(function) - set(options):
        raise UserError(f"{', '.join(given)}: needs {', '.join(f'{name}.{key}' for key in sorted(missing))}")
    return function, values(function, options, f"{name}.")


def located(error: OptionError, given: Mapping[str, str]) -> OptionError:
    """Return an error about an option of an evaluation with the name that the option has on the command line."""
    names = (name for name in given if name.partition(".")[2] == error.option)
    return OptionError(next(names, error.option), error.value, error.reason)


def _suggestion(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" with the option that resembles a name, or an empty text."""
    hint = suggest_name(name, tuple(known)).strip("; ")
    return f"; {hint}" if hint else ""


def _keys(name: str, function: Function) -> list[str]:
    """Return the options of an evaluation as they are on the command line."""
    return [name if option == name else f"{name}.{option}" for option in options_of(function)]


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
        if options[name].annotation in TEXT:
            found[name] = text
            continue
        try:
            value = yaml.safe_load(text)
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
        keys = _keys(name, function) if evaluations else options_of(function)
        for key, (option, parameter) in zip(keys, options_of(function).items(), strict=True):
            default = "…" if parameter.default is Parameter.empty else _shown(parameter.default)
            lines += [f"  {key}={default}", *(f"      {line}" for line in _argument(document, option))]
    return "\n".join(lines)


def _shown(default: Any) -> str:
    return {None: "null", True: "true", False: "false"}.get(default, str(default)) if default != "" else '""'


def _argument(document: list[str], name: str) -> list[str]:
    """Return what the section Args of a docstring says about an argument."""
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
