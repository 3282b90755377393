"""Installed packages, what they need, and folders with some of them alone."""

import importlib.metadata
import re
from pathlib import Path


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def with_needs(name: str) -> set[str]:
    """Return a package and the packages that it needs."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        name = canonical(waiting.pop())
        if name not in found:
            found.add(name)
            needs = importlib.metadata.requires(name) or ()
            waiting += [re.split(r"[^\w.-]", need)[0] for need in needs if ";" not in need]
    return found


def link(name: str, site: Path) -> None:
    """Link the modules of an installed package, and what is known of it, into a folder."""
    package = importlib.metadata.distribution(name)
    for part in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
        if not (site / part).exists():
            (site / part).symlink_to(str(package.locate_file(part)))
