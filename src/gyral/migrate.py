"""Rewrite runs, sweeps, records and studies of an earlier version to today's names.

gyral migrate outputs
"""

import argparse
import sys

from gyral.config.command_line import fail, one_line_errors, parse_words
from gyral.config.errors import describe
from gyral.core.errors import UserError
from gyral.core.inputs import path_of
from gyral.runs.migration import folders_below, migrate_folder


def main() -> None:
    """Migrate the directory that the command line names."""
    with one_line_errors():
        parser = argparse.ArgumentParser(
            prog="gyral migrate",
            description="Rewrite the run directories, sweeps, records and Optuna databases below a directory that an"
            " earlier version wrote. Nothing in them is executed; a second migration changes nothing.",
        )
        parser.add_argument("directory", type=path_of)
        directory = parse_words(parser).directory
        if not directory.is_dir():
            fail(f"{directory}: no such directory")
        count, failed = 0, False
        for folder, files in folders_below(directory):
            try:
                for path in migrate_folder(folder, files):
                    print(path)
                    count += 1
            except BrokenPipeError:
                raise
            except (UserError, OSError) as error:  # continue with the other folders
                print(f"error: {describe(error)}", file=sys.stderr)
                failed = True
        if count:
            print("1 file migrated" if count == 1 else f"{count} files migrated")
        elif not failed:
            print(f"{directory}: nothing to migrate")
        sys.exit(failed)


if __name__ == "__main__":
    main()
