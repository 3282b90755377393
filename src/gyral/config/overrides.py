"""Overrides as text in Hydra's grammar."""

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from gyral.core.errors import OptionError

MULTIRUN = {"-m", "--multirun"}
SWEEP = re.compile(r"\s*(choice|range|interval|glob|sort|shuffle|tag)\(")  # functions of several values
MOST_VALUES = 10_000


def parse(override: str) -> Override | None:
    """Return an override as Hydra reads it, or None if it cannot be parsed."""
    try:
        return OverridesParser.create().parse_override(override)
    except HydraException:
        return None


def text(value: str, interpolates: bool = True) -> str:
    """Return a value in quotes, which Hydra reads as this exact text.

    Args:
        value: the value.
        interpolates: whether `${…}` in it stays a reference to another option.
    """
    if not (interpolates and re.search(r"\$\{.*\}", value, re.DOTALL)):
        value = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    return str(QuotedString(value, Quote.single).with_quotes())


def as_word(value: Any) -> str:
    """Return a plain value as on the command line, without quotes: null, true, 0.1."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def written(value: Any) -> str:
    """Return a plain value as on the command line, where Hydra reads the same value of the same type."""
    if isinstance(value, str):
        found = parse(f"key={value}") if re.fullmatch(r"[\w./+@:-]+", value, re.ASCII) else None
        return text(value) if found is None or found.value() != value else value
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{written(inner)}' for key, inner in value.items())}}}"
    return f"[{','.join(map(written, value))}]" if isinstance(value, list | tuple) else as_word(value)


def quote(override: str) -> str:
    """Return an override key=value whose value Hydra reads as this exact text; a value in quotes stays as it is.

    Hydra parses unquoted text: it strips spaces, sweeps over commas and rejects apostrophes.
    """
    key, equals, value = override.partition("=")
    if not equals or (value[:1] in ("'", '"') and (found := parse(override)) and is_quoted(found)):
        return override
    return f"{key}={text(value, interpolates=False)}"


def is_quoted(override: Override) -> bool:
    """Return whether the value of an override is one text in quotes."""
    return not override.is_sweep_override() and override.get_value_element_as_str().startswith(("'", '"'))


def defer_options(arguments: list[str]) -> list[str]:
    """Return the arguments of a sweep with each option of a varied group written as an axis of one value.

    Hydra composes the configuration of a sweep without its axes, so with the default of each group that is varied, and
    refuses `-m model=gru,lstm model.cell.bias=false` because the default model has no such option. Axes are checked
    with each job.
    """
    pattern = re.compile(r"(?![+~-])([\w.]+)=(?!choice\()(.+)", re.DOTALL)
    words = {argument: match.groups() for argument in arguments if (match := pattern.fullmatch(argument))}
    varied = {key for key, value in words.values() if "," in value and "." not in key}
    deferred = {
        argument: f"{key}=choice({value})"
        for argument, (key, value) in words.items()
        if key.partition(".")[0] in varied or ("experiment" in varied and not key.startswith("hydra."))
        if "." in key and (found := parse(argument)) is not None and not found.is_sweep_override()
    }
    return [deferred.get(argument, argument) for argument in arguments]


def undefer_option(argument: str) -> str:
    """Return the option key=value of an axis key=choice(value) of one value; return any other argument as it is."""
    match = re.fullmatch(r"([\w.]+)=choice\((.+)\)", argument, re.DOTALL)
    is_single = match and len(split_values(match[2])) == 1 and not SWEEP.match(match[2])
    return f"{match[1]}={match[2]}" if match and is_single else argument


def values_of_text(text: str) -> list[str] | None:
    """Return the values of an axis as Hydra passes them to jobs; None for functions except `choice` and `range`.

    The text may be somebody else's. Hydra's parser does not read it, because nested brackets can take it hours.
    """
    function = SWEEP.match(text)
    if function is None:
        return [_as_hydra_writes(value) for value in split_values(text)]
    name, arguments = function[1], split_values(text.strip()[len(function[0]) : -1])
    if not text.rstrip().endswith(")") or name not in ("choice", "range"):
        return None
    if name == "choice":
        return [_as_hydra_writes(value) for value in arguments]
    if not all(re.fullmatch(r"-?\d{1,9}", value) for value in arguments) or len(arguments) > 3 or "0" in arguments[2:]:
        return None
    numbers = range(*map(int, arguments))
    return [*map(str, numbers)] if len(numbers) <= MOST_VALUES else None


def split_values(text: str) -> list[str]:
    """Return the parts of a text between its commas that are neither escaped, nor in brackets, nor in quotes."""
    parts, start, depth, quoted, escaped = [], 0, 0, "", False
    for place, sign in enumerate(text):
        if escaped or sign == "\\":
            escaped = not escaped
        elif quoted or sign in "'\"":
            quoted = "" if sign == quoted else quoted or sign
        elif sign == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
        else:
            depth += (sign in "([{") - (sign in ")]}")
    return [*parts, text[start:].strip()]


def _as_hydra_writes(value: str) -> str:
    """Return a value as Hydra passes it to a job: 1e-3 is 0.001, [1, 2] is [1,2], and true is True."""
    if value.lower() in ("true", "false", "null"):
        return "null" if value.lower() == "null" else value.title()
    if re.fullmatch(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?", value):
        return str(float(value))
    if value.startswith(("[", "{")) and not re.search(r"['\"\\]", value):
        return re.sub(r"\s*([,:])\s*", r"\1", value)
    return value


def combine(axes: Mapping[str, Sequence[str]], together: Any = ()) -> list[tuple[str, ...]]:
    """Return every combination of the overrides of axes once, in the order of the axes.

    Args:
        axes: the overrides of each axis by its key.
        together: keys whose axes vary together: the first override of one with the first of the others, and so on. Or a
            list of such lists of keys.

    Raises:
        OptionError: a key is not an axis or is given twice, or the axes of a list have different lengths.
    """
    groups = [list(together)] if together and all(isinstance(key, str) for key in together) else list(together)
    keys = [key for group in groups for key in group]
    for group in groups:
        for key in group:
            if not axes.get(key) or keys.count(key) > 1:
                reason = "occurs twice; axes are" if axes.get(key) else "is not an axis of the sweep; it has"
                raise OptionError("hydra.sweeper.together", together, f"{key} {reason} {', '.join(axes)}")
        if len({len(axes[key]) for key in group}) > 1:
            counted = ", ".join(f"{key} has {len(axes[key])}" for key in group)
            reason = f"must have as many values of each key; {counted}"
            raise OptionError("hydra.sweeper.together", together, reason)
    units = [group for group in groups if group] + [[key] for key in axes if key not in keys]
    units.sort(key=lambda unit: min(map([*axes].index, unit)))
    found = product(*(zip(*(axes[key] for key in unit), strict=True) for unit in units))
    order = [key for unit in units for key in unit]
    places = [order.index(key) for key in axes]
    words = (sum(parts, ()) for parts in found)
    return [*dict.fromkeys(tuple(each[place] for place in places) for each in words)]  # no job twice


def plain(override: str) -> str:
    """Return an override key=value as a user types it: with quotes only if Hydra would parse its value."""
    return override if re.fullmatch(r"[\w./+@:-]*", override.partition("=")[2], re.ASCII) else quote(override)
