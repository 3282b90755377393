"""Places of the source that can be changed, and their changes: operators, constants, comparisons, branches, results."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
}
# in C++: whole tokens with blanks around them, so that neither types nor templates are touched
TOKENS = {"+": "-", "-": "+", "*": "+", "/": "*", "<": "<=", ">": ">=", "==": "!=", "&&": "||", "+=": "-=", "-=": "+="}
CPP = re.compile(r"(?<=[\w)\]] )(\+|-|\*|/|<|>|==|&&|\+=|-=)(?= [\w(*&-])|(?<=[ (])\d+\.\d*(?=[;, )])")
NO_CODE = re.compile(r"^\s*(//|#|\*|/\*|template|using|static_assert|struct|class|enum)")


class Place(NamedTuple):
    """A place and its change; `number` tells places of a function apart that have the same text and change.

    It stays the same place when other lines of its file change.
    """

    file: str
    function: str
    text: str
    change: str
    number: int


class Found(NamedTuple):
    """Where a place is in the present source: its characters, and its first and last line."""

    start: int
    end: int
    first: int
    last: int


def find(file: Path, name: str) -> dict[Place, Found]:
    """Return all places of a file; `name` is its path in the repository."""
    source = file.read_text(encoding="utf-8")
    seen: Counter[tuple[str, ...]] = Counter()
    places = {}
    for function, text, change, found in (_in_python if file.suffix == ".py" else _in_cpp)(source):
        key = (name, function, text, change)
        places[Place(*key, seen[key])] = found
        seen[key] += 1
    return places


def _in_cpp(source: str) -> Iterator[tuple[str, str, str, Found]]:
    begin = 0
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        code = line.partition("//")[0]
        if not NO_CODE.match(line):
            for match in CPP.finditer(code):
                token = match.group()
                other = TOKENS.get(token) or f"({token} + 1)"
                where = Found(begin + match.start(), begin + match.end(), number, number)
                yield " ".join(code.split()), token, other, where
        begin += len(line)


def _in_python(source: str) -> Iterator[tuple[str, str, str, Found]]:
    starts = [0]  # of lines, in bytes: columns of the syntax tree count bytes
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    whole = source.encode()
    for function, node, change in _changes(ast.parse(source), ""):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first, last = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        start, end = len(whole[:first].decode()), len(whole[:last].decode())
        yield function, source[start:end], change, Found(start, end, node.lineno, node.end_lineno)


def _changes(node: ast.AST, function: str) -> Iterator[tuple[str, ast.expr, str]]:
    """Yield (function, expression, its replacement) of everything below a node."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
    if isinstance(node, ast.expr):
        for other in _others(node):
            yield function, node, f"({ast.unparse(other)})"
    if isinstance(node, ast.If | ast.While | ast.IfExp) and "TYPE_CHECKING" not in ast.unparse(node.test):
        yield function, node.test, f"(not ({ast.unparse(node.test)}))"
    if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield function, node.value, "None"
    for child in _children(node):
        yield from _changes(child, function)


def _others(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield ast.Compare(node.left, [COMPARED[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATED and not _is_text(node):
        yield ast.BinOp(node.left, OPERATED[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1 if isinstance(node.value, int) or node.value == 0 else node.value * 1.5)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children that are computed: no type hint, no decorator, no message of an error or a check."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if isinstance(node, ast.Raise | ast.Assert) and name in ("exc", "cause", "msg"):
            continue
        if isinstance(node, ast.JoinedStr):  # the text of a message; its positions are exact from Python 3.12 on alone
            continue
        yield from (child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node: ast.BinOp) -> bool:
    texts = [side.value for side in (node.left, node.right) if isinstance(side, ast.Constant)]
    return any(isinstance(text, str) for text in texts) or isinstance(node.left, ast.JoinedStr)
