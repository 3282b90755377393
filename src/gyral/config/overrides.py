"""Overrides as text in Hydra's grammar."""

import re

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException


def quote(override: str) -> str:
    """Return an override key=value whose value Hydra reads as this exact text; a value in quotes stays as it is.

    Hydra parses unquoted text: it strips spaces, sweeps over commas and rejects apostrophes.
    """
    key, equals, value = override.partition("=")
    if not equals or re.fullmatch(r"'.*'|\".*\"", value, re.DOTALL):
        return override
    escaped = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)  # no interpolation
    return f"{key}={QuotedString(escaped, Quote.single).with_quotes()}"


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
        if "." in key and is_sweep(argument) is False
    }
    return [deferred.get(argument, argument) for argument in arguments]


def undefer_option(argument: str) -> str:
    """Return the option key=value of an axis key=choice(value) of one value; return any other argument as it is."""
    match = re.fullmatch(r"([\w.]+)=choice\((.+)\)", argument, re.DOTALL)
    option = match and f"{match[1]}={match[2]}"
    return option if option is not None and is_sweep(option) is False else argument


def is_sweep(override: str) -> bool | None:
    """Return whether an override has several values, or None if it cannot be parsed, which Hydra reports."""
    try:
        return OverridesParser.create().parse_override(override).is_sweep_override()
    except HydraException:
        return None


def plain(override: str) -> str:
    """Return an override key=value as a user types it: with quotes only if Hydra would parse its value."""
    return override if re.fullmatch(r"[\w./+@:-]*", override.partition("=")[2]) else quote(override)
