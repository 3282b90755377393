"""Download published corpora into the data folder.

gyral fetch ptb text8 enwik8 babi
"""

import argparse
import os
import sys

from gyral.config.command_line import one_line_errors, parse_words
from gyral.config.errors import describe
from gyral.core.errors import UserError
from gyral.core.inputs import path_of
from gyral.data.catalogue import CATALOGUE
from gyral.data.download import fetch


def main() -> None:
    """Download the corpora that the command line names."""
    with one_line_errors():
        parser = argparse.ArgumentParser(prog="gyral fetch", description="Download corpora into the data folder.")
        parser.add_argument("corpora", nargs="+", choices=CATALOGUE, help=", ".join(CATALOGUE), metavar="corpus")
        parser.add_argument(
            "--data-dir",
            type=path_of,
            default=os.environ.get("DATA_DIR", "data"),
            metavar="FOLDER",
            help="the data folder; by default the environment variable DATA_DIR, or else data (here: %(default)s)",
        )
        arguments = parse_words(parser)
        failed = False
        for name in arguments.corpora:
            try:
                fetch(name, arguments.data_dir)
            except BrokenPipeError:
                raise
            except (UserError, OSError) as error:  # continue with the other corpora
                print(f"error: {describe(error)}", file=sys.stderr)
                failed = True
        sys.exit(failed)


if __name__ == "__main__":
    main()
