"""Sections of docstrings in Google's style, and what the docstring of a cell has from its base classes.

Without torch: `gyral.nn.stubs` completes the docstrings of cells that it does not import.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from inspect import cleandoc

SECTION = re.compile(r"^(Args|Attributes|Raises|State|Example):\n", re.MULTILINE)
ONE_LINE = re.compile(r" *>>> layer = (?P<name>\w+)\((?P<inputs>\d+), (?P<hidden>\d+).*\)\n?")


class Completed:
    """The docstring of a cell, which `complete` makes when it is read first.

    Args:
        docstring, options, has_state: see `complete`.
        bases: the base classes, the nearest first.
    """

    def __init__(self, docstring: str, options: Sequence[str], bases: Sequence[type], has_state: bool) -> None:
        self.docstring, self.options, self.bases, self.has_state = docstring, options, bases, has_state

    @cached_property
    def text(self) -> str:
        """The whole docstring."""
        bases = [each.__doc__ or "" for each in self.bases]
        return complete(self.docstring, self.options, bases, self.has_state)

    def __get__(self, instance: object, owner: type) -> str:
        return self.text


def complete(docstring: str, options: Sequence[str], bases: Sequence[str], has_state: bool) -> str:
    """Return the docstring of a cell with what it leaves to its base classes, and with the whole example.

    The nearest base class that describes an option, an error or the state does so for the cell, too. An example of one
    line, which makes the layer, is followed by a call.

    Args:
        docstring: that of the class itself.
        options: names of the arguments of the constructor.
        bases: docstrings of the base classes, the nearest first.
        has_state: whether the class itself has a class `State`, which says what the state is.
    """
    found = dict(sections(docstring))
    lineage = [found, *map(sections, bases)]
    described = _described("Args", lineage)
    named = dict.fromkeys(described[name] for name in options if name in described)
    arguments = "".join(dict.fromkeys((*named, *entries(found.get("Args", "")))))
    errors = "".join(dict.fromkeys(_described("Raises", lineage).values()))
    example = found.get("Example", "")
    if line := ONE_LINE.fullmatch(example):
        example = (
            f"    >>> import torch\n    >>> from gyral import {line['name']}\n{example}"
            f"    >>> outputs, state = layer(torch.randn(50, 8, {line['inputs']}))\n"
            f"    >>> outputs.shape\n    torch.Size([50, 8, {line['hidden']}])\n"
        )
    states = (each["State"] for each in lineage[: 1 if has_state else None] if "State" in each)
    completed = {"State": next(states, ""), "Args": arguments, "Raises": errors, "Example": example}
    order = ("State", "Args", "Attributes", "Raises", "Example")
    parts = [f"{name}:\n{text}" for name in order if (text := completed.get(name, found.get(name)))]
    return "\n\n".join(part.rstrip() for part in (found[""], *parts) if part) + "\n"


def _described(section: str, lineage: Iterable[dict[str, str]]) -> dict[str, str]:
    """Return the entry for each name in a section, of the first docstring that has one."""
    found: dict[str, str] = {}
    for docstring in lineage:
        for entry in entries(docstring.get(section, "")):
            for name in names(entry):
                found.setdefault(name, entry)
    return found


@cache
def sections(docstring: str) -> dict[str, str]:
    """Return the text of each section of a docstring; the text before the first one has the key ""."""
    head, *rest = SECTION.split(cleandoc(docstring))
    return {"": head.strip(), **{name: f"{text.rstrip()}\n" for name, text in zip(rest[::2], rest[1::2], strict=True)}}


@cache
def entries(section: str) -> list[str]:
    """Return the entries of a section of arguments, each with its further lines."""
    return re.findall(r"^ {4}\S.*\n(?:(?: {8}.*)?\n)*", section, re.MULTILINE)


@cache
def names(section: str) -> list[str]:
    """Return the names that the entries of a section are about; one entry may be about several."""
    return [name.strip(" *") for entry in entries(section) for name in entry.partition(":")[0].split(",")]


def without(section: str, left_out: set[str]) -> str:
    """Return a section of arguments without the entries about some names."""
    return "".join(entry for entry in entries(section) if not left_out & {*names(entry)})
