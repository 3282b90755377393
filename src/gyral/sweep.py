"""Print the definition of a sweep for agents of Weights & Biases. Imports no torch.

gyral sweep rum_paper_table1 > sweep.yaml
wandb sweep sweep.yaml
"""

import argparse

from gyral.config.command_line import one_line_errors, parse_words
from gyral.config.groups import choices
from gyral.sweeps.wandb_agents import definition


def main() -> None:
    """Print the definition of the sweep that the command line names."""
    with one_line_errors():
        parser = argparse.ArgumentParser(prog="gyral sweep", description="Print a sweep's definition for W&B agents.")
        parser.add_argument("name", metavar="NAME", help=", ".join(choices("sweep")))
        parser.add_argument(
            "overrides",
            nargs="*",
            metavar="key=value",
            help="options of all runs, such as task=recall with tune; they replace axes of the sweep",
        )
        arguments = parse_words(parser)
        print(definition(arguments.name, arguments.overrides), end="")


if __name__ == "__main__":
    main()
