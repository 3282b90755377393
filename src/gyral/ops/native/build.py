"""Compiles all kernels for the processors that a wheel serves: `python -m gyral.ops.native.build`, and a directory.

An installation without a C++ compiler then has the kernels of its wheel; with one, it compiles those of its processor.
"""

import sys
from pathlib import Path

from gyral.ops.native import library


def sources() -> list[Path]:
    """Return the C++ sources of all families."""
    return sorted(library.SOURCES.glob("*/*.cpp"))


def build(directory: Path = library.PREBUILT) -> list[Path]:
    """Compile each source for each level of x86-64; return the libraries.

    Raises:
        KernelUnavailableError: There is no compiler, or the compilation failed; the message is the reason.
    """
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for old in directory.glob("*.so"):
        old.unlink()
    for source in sources():
        for level in library.LEVELS:
            made.append(library.prebuilt_path(source, level, directory))
            library.compile_portable(source, level, made[-1])
    return made


if __name__ == "__main__":
    for path in build(*map(Path, sys.argv[1:2])):
        print(path)
