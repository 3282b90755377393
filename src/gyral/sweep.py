"""Print the definition of a sweep for agents of Weights & Biases. Imports no torch.

gyral sweep rum_paper_table1 > sweep.yaml
wandb sweep sweep.yaml
"""

import argparse

from gyral.config.command_line import one_line_errors, parse_words
from gyral.config.groups import choices
from gyral.core.commands import program
from gyral.sweeps.wandb_agents import definition


def main() -> None:
    """Print the definition of the sweep that the command line names."""
    with one_line_errors():
        description = (
            "Print the definition of a sweep for agents of Weights & Biases (W&B); this command starts nothing. "
            f"To run a sweep on this machine: {' '.join(program('train'))} sweep=NAME"
        )
        parser = argparse.ArgumentParser(prog="gyral sweep", description=description)
        parser.add_argument("name", metavar="NAME", help=", ".join(choices("sweep")))
        parser.add_argument(
            "overrides",
            nargs="*",
            default=[],  # else argparse reports that it is missing
            metavar="key=value",
            help="options of all runs, such as task=recall with tune; they replace axes of the sweep",
        )
        arguments = parse_words(parser)
        print(definition(arguments.name, arguments.overrides), end="")


if __name__ == "__main__":
    main()
