"""Generate text with the model of a run: continuations, surprisal, answers, summaries, as its task offers.

    gyral generate run=outputs/text_file/rum/<time> prompt="the " length=500

See `gyral generate --help`; with run=…, it shows the options that the task of the run offers.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig

from gyral.config import offers
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.runs.directory import CHECKPOINTS, load_run, places_of_data, with_data_at

log = logging.getLogger(__name__)
OWN = ("run", "checkpoint", "trust")  # the other options are those that the task of the run offers


def generate(config: DictConfig, given: Mapping[str, str] | None) -> None:
    """Write the text that the given options select to standard output, piece by piece.

    Args:
        config: the options of the command.
        given: the options of a generator that the task of the run offers, by name. None: print what it offers.
    """
    if config.run is None:
        raise OptionError("run", "<nothing>", "must be a run directory")
    moved = places_of_data(given or {})
    given = given and {key: value for key, value in given.items() if key not in moved}
    run = with_data_at(load_run(Path(config.run), config.trust), moved)
    if given is not None:
        check_choice("checkpoint", config.checkpoint, CHECKPOINTS)  # before PyTorch is imported

    from gyral import applications
    from gyral.generation.output import write
    from gyral.training import build

    offered = applications.offers("generators", build.task_class(run))
    its_task = f"run={config.run}: its task, {run.config.task._target_},"
    if given is None:
        print(offers.describe(offered, its_task))
        return
    generator, options = offers.choose(list(offered.values()), given, its_task, OWN)
    task, step = build.load_trained(run, config.checkpoint)
    log.info("%s, %s checkpoint (step %d)", config.run, config.checkpoint, step)
    write(generator(task, **options))


def main() -> None:
    """Run `gyral generate` with the arguments of the command line."""
    offers.main(generate, "generate", OWN)


if __name__ == "__main__":
    main()
