"""Runs that are started from Python: the state of Hydra and the log of a job of the command line. Imports no torch."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, read_write
from omegaconf.errors import OmegaConfBaseException

from gyral.config.composition import compose_with_hydra, overrides_of
from gyral.config.errors import describe
from gyral.config.overrides import plain, written
from gyral.config.plain import flatten
from gyral.config.resolvers import run_directory
from gyral.core.errors import UserError


@contextmanager
def job_from_python(config: DictConfig, directory: str | Path | None) -> Iterator[Path]:
    """Within this context, Hydra's state is that of a job of `gyral train` with a configuration.

    The command line is one that repeats the run. Log records go to the run's train.log and are not printed.

    Args:
        config: the configuration, as `gyral.compose` returns it.
        directory: the run directory. None: the one that the command would choose.

    Yields:
        the run directory, which exists.
    """
    known = overrides_of(config)
    composed = compose_with_hydra(known)
    previous, arguments = HydraConfig.instance().cfg, sys.argv
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        HydraConfig.instance().set_config(composed)  # the default run directory refers to it
        if directory is None:
            directory = run_directory(config.resume, composed.hydra.run.dir)
        path = Path(directory).expanduser().absolute()
        with read_write(composed.hydra):
            composed.hydra.runtime.output_dir = str(path)
            composed.hydra.overrides.task = overrides = [*known, *changes(composed, config)]
        HydraConfig.instance().set_config(composed)
        sys.argv = ["gyral/train.py", *overrides, plain(f"hydra.run.dir={path}")]
        path.mkdir(parents=True, exist_ok=True)
        _add_buffer(composed.hydra.job_logging)
        yield path
    except OmegaConfBaseException as error:
        raise UserError(describe(error)) from None
    finally:
        HydraConfig.instance().cfg, sys.argv = previous, arguments
        for handler in set(root.handlers) - set(handlers):
            handler.close()
            root.removeHandler(handler)
        root.setLevel(level)


def changes(composed: DictConfig, config: DictConfig) -> list[str]:
    """Return as overrides what a user has changed in a composed configuration."""
    before, after = (dict(flatten(OmegaConf.to_container(node))) for node in (composed, config))
    given = [
        f"{'' if key in before else '+'}{key}={written(value)}"
        for key, value in after.items()
        if key not in before or before[key] != value
    ]
    removed = [f"~{key}" for key in before if key not in after and key.partition(".")[0] != "hydra"]
    return [*given, *removed]


def _add_buffer(settings: DictConfig) -> None:
    """Keep log records until the run opens train.log, as conf/train.yaml does for the command."""
    own = settings.handlers.buffer
    buffer = MemoryHandler(own.capacity, flushLevel=own.flushLevel)
    buffer.setFormatter(logging.Formatter(settings.formatters.timed.format))
    logging.getLogger().addHandler(buffer)
    logging.getLogger().setLevel(settings.root.level)
