"""Where an error was raised in code that is neither Gyral's nor an installed package's."""

import os
import sysconfig
from pathlib import Path
from traceback import walk_tb

import gyral

# folders of Python, of installed packages, and of Gyral with the scripts beside it
KNOWN = tuple(
    os.path.realpath(folder) + os.sep
    for folder in (*sysconfig.get_paths().values(), *map(str, Path(gyral.__file__).parents[:2]))
)


def place_in_own_code(error: BaseException) -> str:
    """Return the last line of the user's own code that led to an error, as "mgu.py:24", or "" if there is none."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:  # the first cause is the deepest in the code
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    for each in reversed(seen):
        for frame, line in reversed(list(walk_tb(each.__traceback__))):
            file = frame.f_code.co_filename
            is_file = os.path.isfile(file) and frame.f_globals.get("__name__") != "__main__"
            if is_file and not os.path.realpath(file).startswith(KNOWN):
                return f"{os.path.relpath(file)}:{line}"
    return ""
