"""Reader of trees in the brackets of the Penn Treebank: `( (S (NP (DT the) (NN cat)) (VP (VBZ sits))) )`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Union

from gyral.core.errors import UserError
from gyral.core.inputs import excerpt

TOKEN = re.compile(r"[()]|[^\s()]+")


class Node(NamedTuple):
    """A node of a tree.

    Attributes:
        label: the label, such as NP-SBJ; empty for the outermost brackets of the Treebank's files.
        children: nodes, or the single word of a node whose label is a part of speech.
    """

    label: str
    children: tuple[Union["Node", str], ...]

    def leaves(self) -> Iterator[tuple[str, str]]:
        """Yield the part of speech and the word of each leaf, including traces and punctuation marks."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            for child in node.children:
                if isinstance(child, str):
                    yield node.label, child
            stack.extend(child for child in reversed(node.children) if isinstance(child, Node))


@dataclass
class _Open:
    """A node with an open bracket, and the line of this bracket; the label is None until it is read."""

    line: int
    label: str | None = None
    children: list[Node | str] = field(default_factory=list)


def read_trees(text: str, place: str) -> Iterator[Node]:
    """Yield the trees of a text.

    Args:
        text: the content of a file.
        place: name of the file, for errors.

    Raises:
        UserError: brackets do not match, there is text outside of brackets, or a node is empty. The message has the
            line.
    """
    stack: list[_Open] = []
    for number, line in enumerate(text.splitlines(), start=1):
        for token in TOKEN.findall(line):
            top = stack[-1] if stack else None
            if token == "(":
                if top is not None and top.label is None:
                    top.label = ""
                stack.append(_Open(number))
            elif top is None:
                outside = f"{excerpt([repr(token)])} outside of brackets"
                what = "a closing bracket without an opening one" if token == ")" else outside
                raise UserError(f"{place}, line {number}: {what}; must be trees such as (S (NP (NN trees)) …)")
            elif token != ")":
                if top.label is None:
                    top.label = token
                else:
                    top.children.append(token)
            elif not top.children:
                raise UserError(f"{place}, line {number}: the node ({excerpt([top.label or ''])}) has no words")
            else:
                stack.pop()
                node = Node(top.label or "", tuple(top.children))
                if not stack:
                    yield node
                else:
                    stack[-1].children.append(node)
    if stack:
        raise UserError(f"{place}, line {stack[0].line}: the bracket of this tree is never closed")
