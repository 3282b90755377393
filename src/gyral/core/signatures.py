"""Parameters of classes and functions."""

from inspect import Parameter, isclass, signature
from operator import attrgetter
from typing import Any

from gyral.core.options import Options, declares_options


def parameters_of(function: Any) -> dict[str, Parameter] | None:
    """Return the parameters of a class or function, or None if they cannot be read.

    Hints that cannot be evaluated are text. If a constructor of Gyral passes further options to the base class, or a
    task passes them to its `data_class`, these are parameters, too.
    """
    owners = [each for each in function.__mro__[:-1] if "__init__" in vars(each)] if isclass(function) else []
    if not owners or not owners[0].__module__.startswith("gyral."):
        return _signature(function)
    data: Any = getattr(function, "data_class", None)
    parameters = dict(data.__options__) if declares_options(data) else {} if data is None else _signature(data) or {}
    for owner in owners:
        declares = owner is Options
        signature_of = {} if declares else _signature(vars(owner)["__init__"]) or {}
        own = dict(function.__options__) if declares else dict([*signature_of.items()][1:])  # without self
        parameters |= own | parameters
        if declares or not is_open(own):
            return {name: each for name, each in parameters.items() if each.kind is not Parameter.VAR_KEYWORD}
    return parameters


def is_open(parameters: dict[str, Parameter]) -> bool:
    """Return whether a function takes options of any name, as `**options` does."""
    return Parameter.VAR_KEYWORD in map(attrgetter("kind"), parameters.values())


def _signature(function: Any) -> dict[str, Parameter] | None:
    for evaluated in (True, False):
        try:
            return dict(signature(function, eval_str=evaluated).parameters)
        except (NameError, TypeError, ValueError):
            continue
    return None
