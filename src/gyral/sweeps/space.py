"""The space of a search: Optuna's distributions of the axes, in Hydra's grammar. Imports no torch."""

from typing import Any

from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep

from gyral.core.errors import OptionError
from gyral.sweeps.grid import values_of


def distribution_of(override: Override) -> Any:
    """Return Optuna's distribution of an axis.

    Raises:
        OptionError: Optuna has no such distribution.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    axis = override.value()
    listed = [] if isinstance(axis, IntervalSweep) else values_of(override)
    try:
        if isinstance(axis, IntervalSweep):
            whole = isinstance(axis.start, int) and isinstance(axis.end, int)
            number: Any = IntDistribution if whole else FloatDistribution
            return number(axis.start, axis.end, log="log" in axis.tags)
        if isinstance(axis, RangeSweep) and all(isinstance(end, int) for end in (axis.start, axis.stop, axis.step)):
            values = range(int(axis.start or 0), int(axis.stop or 0), int(axis.step))
            return IntDistribution(values[0], values[-1], step=values.step)
        return CategoricalDistribution(listed)
    except ValueError as error:
        key, _, value = str(override.input_line).partition("=")
        raise OptionError(key, value, f"cannot be searched: {error}") from None


def belongs_to(trial: Any, distributions: dict[str, Any]) -> bool:
    """Return whether a trial of a storage has only options of this search, with values that it may draw.

    The options of a trial become overrides of a command. A storage may come from somebody else.
    """
    known = isinstance(trial.number, int) and trial.number >= 0 and trial.params.keys() <= distributions.keys()
    return known and all(contains(distributions[key], value) for key, value in trial.params.items())


def contains(distribution: Any, value: Any) -> bool:
    """Return whether a distribution of Optuna may draw a value."""
    choices = getattr(distribution, "choices", None)
    if choices is not None:
        return any(type(value) is type(choice) and value == choice for choice in choices)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and distribution.low <= value <= distribution.high


def text_of(distribution: Any) -> str:
    """Return a distribution in the grammar of `distribution_of`."""
    choices = getattr(distribution, "choices", None)
    if choices is not None:
        return ",".join(map(as_text, choices))
    low, high, step = (as_text(each) for each in (distribution.low, distribution.high, distribution.step or 1))
    if step != "1":
        return f"range({low},{as_text(distribution.high + distribution.step)},{step})"
    return f"tag(log,interval({low},{high}))" if distribution.log else f"interval({low},{high})"


def as_text(value: Any) -> str:
    """Return a value as it is written on the command line."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def first_value(distribution: Any) -> Any:
    """Return the first value of a distribution."""
    choices = getattr(distribution, "choices", None)
    return choices[0] if choices else distribution.low
