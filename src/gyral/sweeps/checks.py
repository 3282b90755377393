"""Values of a sweep that a job would refuse, found before the first job starts. Imports no torch."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from gyral.config.errors import describe
from gyral.config.groups import choices
from gyral.config.instantiation import check_values
from gyral.config.overrides import parse
from gyral.config.roles import PROCESS, key_of, role_of
from gyral.core.errors import UserError

GLOBAL = ("experiment", "column", "debug")  # groups whose choices set options of several sections


def is_group(override: str) -> bool:
    """Return whether an override chooses a file of a group, of Gyral's or of Hydra's own."""
    name = key_of(override).partition("@")[0]
    return "/" in name or _has_choices(name)


@cache  # it lists folders, and a sweep asks for each word of each job
def _has_choices(name: str) -> bool:
    return "." not in name and bool(choices(name))


def wrong_values(
    jobs: Sequence[Sequence[str]],
    composed: Mapping[tuple[str, ...], DictConfig],
    compose: Callable[[Sequence[str]], DictConfig],
    check: Callable[[DictConfig, str], None],
) -> Iterator[UserError]:
    """Yield an error for each value of an option that a job would refuse, as far as checks without data find it.

    The options that a job sets in a section are checked once for each combination of their values and of the choices
    that the section depends on. Composing takes long: a configuration is composed only if none is known with these
    choices, and else a known one is changed.

    Args:
        jobs: the overrides of each job.
        composed: configurations of some of the jobs, by their overrides.
        compose: returns the configuration of a job.
        check: checks the options of a section of a configuration, see `gyral.training.build.check_options`.
    """
    known: dict[tuple[str, ...], tuple[Sequence[str], DictConfig]] = {}
    for own, config in composed.items():
        for section in _options(own):
            known.setdefault((section, *_choices_of(own, section)), (own, config))
    seen = set()
    distinct: list[tuple[str, Sequence[str], DictConfig, Sequence[str]]] = []
    for job in jobs:
        for section, words in _options(job).items():
            chosen = (section, *_choices_of(job, section))
            if (chosen, words) in seen:
                continue
            seen.add((chosen, words))
            if chosen not in known:
                known[chosen] = job, compose(job)
            other, config = known[chosen]
            distinct.append((section, words, config, [word for word in words if word not in other]))

    def errors(refuse: Callable[[DictConfig, str, Sequence[str]], None]) -> Iterator[UserError]:
        for section, words, config, others in distinct:
            try:
                refuse(_changed(config, others), section, words)
            except UserError as error:
                yield error
            except OmegaConfBaseException:  # an interpolation that has no value is left to the job
                continue

    found = [*errors(lambda config, _, words: check_values(config, words))]
    yield from found or errors(lambda config, section, _: check(config, section))  # which imports PyTorch


def refuse_values(errors: Iterator[UserError]) -> None:
    """Raise the last of the errors, after printing a line for each of the others; without errors, do nothing."""
    found: dict[str, UserError] = {}
    for error in errors:
        found.setdefault(str(error).partition(": ")[0], error)  # of several reasons for one value, the first
    distinct = [*found.values()]
    for error in distinct[:-1]:
        print(f"error: {describe(error)}", file=sys.stderr)
    if distinct:
        raise distinct[-1]


def _options(job: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the options that a job sets, by section; an option without a section is its own."""
    found: dict[str, tuple[str, ...]] = {}
    for word in job:
        if not is_group(word) and not word.startswith("~") and role_of(word) != PROCESS:
            section = key_of(word).partition(".")[0]
            found[section] = (*found.get(section, ()), word)
    return found


def _choices_of(job: Sequence[str], section: str) -> tuple[str, ...]:
    """Return the choices of groups that a section depends on, such as model=gru and cell@model.cell=rum of model."""
    of = {section, *GLOBAL}
    return tuple(word for word in job if is_group(word) and not of.isdisjoint(re.split(r"[./@]", key_of(word))))


def _changed(config: DictConfig, words: Sequence[str]) -> DictConfig:
    """Return a configuration with other values of options."""
    overrides = [found for found in map(parse, words) if found is not None]
    if overrides:
        config = config.copy()
        with open_dict(config):
            for override in overrides:
                OmegaConf.update(config, override.key_or_group, override.value(), force_add=True)
    return config
