"""Download published corpora into the data folder.

python -m src.fetch ptb text8 enwik8 babi
"""

import argparse
import os
import sys
from pathlib import Path

from gyral.config.command_line import INTERRUPTED, describe
from gyral.core.errors import OptionError
from gyral.data.download import SOURCES, fetch


def main() -> None:
    """Fetch the corpora that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m src.fetch", description="Fetch corpora into the data folder.")
    parser.add_argument("corpora", nargs="+", choices=SOURCES, help=", ".join(SOURCES), metavar="corpus")
    parser.add_argument("--data-dir", type=Path, default=Path(os.environ.get("DATA_DIR", "data")), metavar="FOLDER")
    arguments = parser.parse_args()
    failed = False
    for name in arguments.corpora:
        try:
            fetch(name, arguments.data_dir)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except (OptionError, OSError) as error:  # the others may be there
            print(f"error: {describe(error)}", file=sys.stderr)
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
