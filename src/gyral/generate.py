"""Generate text with the model of a run: continuations, surprisal, answers, summaries.

    gyral generate run=outputs/text_file/rum/<time> prompt="the " length=500

See `gyral generate --help`.
"""

import logging
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from gyral.config import command_line as cli
from gyral.core.errors import OptionError
from gyral.runs.directory import load_run

log = logging.getLogger(__name__)

# Options whose values are not parsed: a prompt may end with a space and contain any sign, a sequence may be a number or
# a program, a path may contain commas.
LITERAL = ("run", "prompt", "surprisal", "html", "story", "sequence", "formulas", "input", "out")


def generate(config: DictConfig) -> None:
    """Write the text that the given options select to standard output, piece by piece."""
    values = OmegaConf.to_container(config, resolve=True)
    assert isinstance(values, dict)
    given = {str(name): value for name, value in values.items() if value is not None}
    directory, checkpoint, trust = given.pop("run", None), given.pop("checkpoint", "best"), given.pop("trust", None)
    if directory is None:
        raise OptionError("run", "<nothing>", "must be a run directory")
    run = load_run(Path(directory), trust)

    from gyral import generation
    from gyral.generation.output import write
    from gyral.training import build

    task, step = build.load_trained(run, checkpoint)
    name = f"run={directory}: its task, {run.config.task._target_},"
    generator = generation.choose(generation.generators_of(task), given, name)
    log.info("%s, %s checkpoint (step %d)", directory, checkpoint, step)
    write(generator(**given))


def main() -> None:
    """Run `gyral generate` with the arguments of the command line."""
    cli.main(generate, "generate", LITERAL)


if __name__ == "__main__":
    main()
