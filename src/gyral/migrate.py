"""Rewrite runs, sweeps, records and studies of an earlier version to today's names.

gyral migrate outputs
"""

import argparse
import sys
from pathlib import Path

from gyral.config.errors import describe
from gyral.core.errors import UserError
from gyral.runs.migration import migrate


def main() -> None:
    """Migrate the directory that the command line names."""
    parser = argparse.ArgumentParser(
        prog="gyral migrate",
        description="Rewrite the run directories, sweeps, records and Optuna databases below a directory that an"
        " earlier version wrote. Nothing in them is executed; a second migration changes nothing.",
    )
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    count = 0
    try:
        if not directory.is_dir():
            raise UserError(f"{directory}: no such directory")
        for path in migrate(directory):
            print(path)
            count += 1
    except (UserError, OSError, ValueError) as error:
        print(f"error: {describe(error)}", file=sys.stderr)
        sys.exit(1)
    print(f"{count} file{'' if count == 1 else 's'} migrated" if count else f"{directory}: nothing to migrate")


if __name__ == "__main__":
    main()
