"""Configurations from Python, composed as on the command line. Imports no torch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import hydra
from hydra import version
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException

from gyral.config import resolvers as resolvers  # registers them
from gyral.config.errors import describe
from gyral.config.groups import CONFIG_PATH
from gyral.config.own_modules import add_user_modules
from gyral.config.words import read_words
from gyral.core.errors import UserError

_OVERRIDES = "_overrides"  # attribute of the metadata of a composed configuration that holds its overrides


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """Return the configuration that `gyral train` has with these overrides.

    Options can be changed afterwards: `config.trainer.max_steps = 100`. Options that refer to others, as
    `task.data_seed: ${seed}` does, follow such changes. As on the command line, a folder conf/ in the current directory
    adds choices to the groups, and modules in the current directory can be imported. It does not affect
    other uses of Hydra in the same process.

    Args:
        overrides: the words of the command line: `["model=rum", "task=recall", "model.cell.lambd=1"]`.

    Raises:
        UserError: an override that is not allowed; the message is the line that the command prints.
    """
    if isinstance(overrides, str) or not all(isinstance(word, str) for word in overrides):
        raise UserError(f'overrides: must be a list of texts, such as ["model=rum", "task=copy"], not {overrides!r}')
    for flag in (word for word in overrides if word.startswith("-")):
        raise UserError(f"{flag}: flags belong to the command line; gyral.compose returns one configuration")
    file = Path(CONFIG_PATH, "train")
    add_user_modules()
    with _own_hydra():
        words = read_words(overrides, file)
    config = compose_with_hydra(words)
    with open_dict(config):
        del config["hydra"]
    vars(config._metadata)[_OVERRIDES] = words  # which copies keep, also deep ones
    return config


def compose_with_hydra(words: Sequence[str]) -> DictConfig:
    """Return a configuration with Hydra's own section; the state of Hydra in this process does not change."""
    try:
        with _own_hydra(), hydra.initialize_config_dir(CONFIG_PATH, version_base="1.3"):
            return hydra.compose("train", list(words), return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(describe(error)) from None


@contextmanager
def _own_hydra() -> Iterator[None]:
    """Put a user's own Hydra aside, which refuses to be initialized twice, and restore it afterwards."""
    base, users = version.getbase(), GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        yield
    finally:
        GlobalHydra.instance().hydra = users
        version.VersionBase.instance().version_base = base


def overrides_of(config: DictConfig) -> list[str]:
    """Return the overrides of a configuration that `compose` returned, or of a copy of it; else an empty list."""
    return list(vars(config._metadata).get(_OVERRIDES, []))
