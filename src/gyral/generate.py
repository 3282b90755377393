"""Have a run's model write: text that goes on from a prompt, the surprisal of a text, answers, summaries.

    python -m src.generate run=outputs/text_file/rum/<time> prompt="the " length=500

See `python -m src.generate --help`.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from gyral import runs
from gyral.config import command_line as cli
from gyral.core.errors import OptionError

log = logging.getLogger(__name__)

# What is taken as it stands: a prompt may end in a space and have any sign in it, a path commas and equals signs.
LITERAL = ("run", "prompt", "surprisal", "html", "story", "input", "out")


def generate(config: DictConfig) -> None:
    """Write what a run's task generates with the given options to standard output, piece by piece."""
    values = OmegaConf.to_container(config, resolve=True)
    assert isinstance(values, dict)
    given = {str(name): value for name, value in values.items() if value is not None}
    directory, chosen = given.pop("run", None), given.pop("checkpoint", "best")
    if directory is None:
        raise OptionError("run=<nothing>: must be a run directory")
    run = runs.load(Path(directory))

    from gyral.training import build

    task, step = build.build_trained(run, chosen)
    generator = choose(task.generators(), given, f"run={directory}: its task, {run.config.task._target_},")
    log.info("%s, %s checkpoint (step %d)", directory, chosen, step)
    write(generator(**given))


def choose(
    generators: list[Callable[..., Iterator[str]]], given: dict[str, Any], task: str
) -> Callable[..., Iterator[str]]:
    """Return the first of a task's generators that takes the given options and lacks none.

    Args:
        generators: each with its options as keyword arguments.
        given: options and their values.
        task: how the task is called where this fails.

    Raises:
        OptionError: there is none.
    """
    if not generators:
        raise OptionError(f"{task} generates nothing")
    options = [signature(generator).parameters for generator in generators]
    for generator, taken in zip(generators, options, strict=True):
        needed = {name for name, option in taken.items() if option.default is Parameter.empty}
        if needed <= set(given) <= set(taken):
            return generator
    allowed = ", or else ".join(", ".join(taken) for taken in options)
    strange = [name for name in given if not any(name in taken for taken in options)]
    if strange:
        raise OptionError(f"{strange[0]}={given[strange[0]]}: {task} takes {allowed}")
    raise OptionError(f"{', '.join(given)}: {task} takes {allowed}")


def write(pieces: Iterable[str]) -> None:
    """Write text to standard output as it comes, and end its last line, also where Ctrl-C ends it early."""
    last = "\n"
    try:
        try:
            for piece in pieces:
                sys.stdout.write(piece)
                sys.stdout.flush()
                last = piece or last
        finally:
            if not last.endswith("\n"):
                sys.stdout.write("\n")
                sys.stdout.flush()
    except BrokenPipeError:
        # who reads has seen enough, as `head` has; Python would complain once more when it closes standard output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run `gyral generate` on the command line's arguments."""
    cli.main(generate, "generate", LITERAL)


if __name__ == "__main__":
    main()
