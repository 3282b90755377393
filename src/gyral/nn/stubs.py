"""Stubs of the public names and of the layers, for type checkers and editors; Gyral itself does not read them.

A layer is made of its cell when it is used, and its stub of the text of its cell, without importing it. setup.py writes
the stubs when Gyral is installed from its source, and so does `python -m gyral.nn.stubs`, which `make lint` runs.
"""

import ast
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from textwrap import indent

import gyral
from gyral import cells
from gyral.cells.docstrings import complete
from gyral.core import PACKAGE

HEAD = "# Written by gyral.nn.stubs when Gyral is installed.\n"
BASES = (
    "from gyral.nn.layers.base import Layer as Layer",
    "from gyral.nn.layers.torch_weights import TorchWeights as TorchWeights",
)
BASE = PACKAGE / "nn" / "layers" / "base.py"


def main() -> None:
    """Write the stubs beside the modules."""
    for path, text in stubs().items():
        (PACKAGE / path).write_text(text, encoding="utf-8")


def stubs() -> dict[Path, str]:
    """Return the text of each stub by its path in the package."""
    names = "".join(f"from {module} import {name} as {name}\n" for name, module in sorted(gyral._modules().items()))
    public = f"{HEAD}{names}\n__version__: str\n__all__: list[str]\n\ndef _modules() -> dict[str, str]: ...\n"
    return {Path("__init__.pyi"): public, Path("nn", "layers", "__init__.pyi"): f"{HEAD}{layers()}"}


def layers() -> str:
    """Return the classes of the layers, each with a constructor that has the options of its cell."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (BASE, *sorted((PACKAGE / "cells").glob("*.py")))]
    places = {node.name: (node, tree) for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
    classes = {name: node for name, (node, _) in places.items()}
    shared = _arguments(classes["Layer"])
    assert shared is not None
    imports, texts = {*BASES, *_imports(shared, trees[0])}, []
    for name, cell in cells.layers().items():
        lineage = list(_lineage(cell, classes))
        owners, options = _options(lineage)
        imports |= {f"from {cells.modules()[cell]} import {cell}"}
        imports.update(*(_imports(options, places[owner.name][1]) for owner in owners))
        is_torch = classes["TorchLayerCell"] in lineage
        constructor = f"def __init__({ast.unparse(_with_options(shared, options, is_torch))}) -> None: ..."
        bases = "TorchWeights, Layer" if is_torch else "Layer"
        document, *further = (ast.get_docstring(each) or "" for each in lineage)
        has_state = any(isinstance(each, ast.ClassDef) and each.name == "State" for each in classes[cell].body)
        about = indent(complete(document, _names(options), further, has_state), "    ").strip()
        body = f'    r"""{about}\n    """\n\n    cell_class: type[{cell}]\n\n    {constructor}\n'
        texts.append(f"class {name}({bases}):\n{body}")
    return "\n".join([*sorted(imports), "\n__all__: list[str]\n", *texts])


def _lineage(name: str, classes: dict[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    """Yield a class, its first base class that is one of some classes, the first one of that, and so on."""
    while name in classes:
        yield classes[name]
        name = next((base for base in map(ast.unparse, classes[name].bases) if base in classes), "")


def _arguments(node: ast.ClassDef) -> ast.arguments | None:
    """Return the arguments of the constructor that a class itself has."""
    own = (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
    return next((each.args for each in own), None)


def _options(lineage: list[ast.ClassDef]) -> tuple[list[ast.ClassDef], ast.arguments]:
    """Return the arguments of the constructor of the first class of a lineage, and the classes that have them.

    They are those of the nearest constructor, or the annotated attributes of the classes up to the one that derives
    from `gyral.core.options.Options`.
    """
    owners: list[ast.ClassDef] = []
    for node in lineage:
        if own := _arguments(node):
            return [node], own
        owners.append(node)
        if "Options" in map(ast.unparse, node.bases):
            break
    declared: dict[str, tuple[ast.expr, ast.expr]] = {}  # annotation and default
    for each in reversed(owners):
        found = dict(filter(None, (_attribute(statement, declared) for statement in each.body)))
        declared = {**{name: one for name, one in found.items() if name not in declared}, **declared, **found}
    arguments = ast.parse("def __init__(self, input_size: int, hidden_size: int) -> None: ...").body[0].args  # type: ignore[attr-defined]
    arguments.kwonlyargs = [ast.arg(name, annotation) for name, (annotation, _) in declared.items()]
    arguments.kw_defaults = [default for _, default in declared.values()]
    return owners, arguments


def _attribute(
    statement: ast.stmt, declared: Mapping[str, tuple[ast.expr, ast.expr]]
) -> tuple[str, tuple[ast.expr, ast.expr]] | None:
    """Return the name, annotation and default of a keyword-only option that a statement declares, if it does."""
    match statement:
        case ast.AnnAssign(ast.Name(name), annotation, ast.Call(_, _, [ast.keyword("default", default)])):
            return name, (ast.BinOp(_Plain().visit(annotation), ast.BitOr(), ast.Constant(None)), default)
        case ast.AnnAssign(_, _, None | ast.Call()):
            return None
        case ast.AnnAssign(ast.Name(name), annotation, default) if default and "ClassVar" not in ast.unparse(
            annotation
        ):
            return name, (_Plain().visit(annotation), default)
        case ast.Assign([ast.Name(name)], default) if name in declared:
            return name, (declared[name][0], default)
    return None


class _Plain(ast.NodeTransformer):
    """Leaves out the ranges of annotations: `int` for `Annotated[int, Range(2)]` and for `PositiveInt`."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(_annotated_kinds().get(node.id, node.id))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        is_annotated = isinstance(node.value, ast.Name) and node.value.id == "Annotated"
        return node.slice.elts[0] if is_annotated and isinstance(node.slice, ast.Tuple) else node


@cache
def _annotated_kinds() -> dict[str, str]:
    """Return the plain types of the names that `gyral.core.options` has for annotations with a range."""
    found = {}
    for node in ast.parse((PACKAGE / "core" / "options.py").read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign([ast.Name(name)], ast.Subscript(ast.Name("Annotated"), ast.Tuple([ast.Name(kind), *_]))):
                found[name] = kind
    return found


def _names(arguments: ast.arguments) -> list[str]:
    return [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]


def _with_options(shared: ast.arguments, of_cell: ast.arguments, is_torch: bool) -> ast.arguments:
    """Return the arguments of `Layer` with the options of a cell, as `gyral.nn.layers.base` joins them."""
    joined = deepcopy(shared)
    common = _names(shared)
    positional: list[ast.expr | None] = [None] * (len(of_cell.args) - len(of_cell.defaults))
    defaults = [*positional, *of_cell.defaults, *of_cell.kw_defaults]
    options, values = [], []
    for argument, default in zip((*of_cell.args, *of_cell.kwonlyargs), defaults, strict=True):
        if argument.arg not in ("self", "input_size", "hidden_size", "bias"):
            name = f"cell_{argument.arg}" if argument.arg in common else argument.arg
            option = ast.arg(name, argument.annotation)
            if is_torch and name in cells.FURTHER.values():
                assert default is not None
                place = 1 + next(index for index, each in enumerate(joined.args) if cells.FURTHER.get(each.arg) == name)
                joined.defaults.insert(place - len(joined.args) + len(joined.defaults), default)
                joined.args.insert(place, option)
                continue
            options.append(option)
            values.append(default)
    joined.kwonlyargs[:0], joined.kw_defaults[:0] = options, values
    joined.kwarg = of_cell.kwarg
    return joined


def _imports(arguments: ast.arguments, tree: ast.Module) -> set[str]:
    """Return the imports of a module that the annotations of arguments need."""
    used = {node.id for node in ast.walk(arguments) if isinstance(node, ast.Name)}
    found = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return {
        ast.unparse(type(node)(**{**vars(node), "names": [alias]}))
        for node in found
        for alias in node.names
        if (alias.asname or alias.name) in used
    }


if __name__ == "__main__":
    main()
