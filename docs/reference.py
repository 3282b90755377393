"""The pages of the public layers, made from what `help(gyral.<layer>)` shows, and those of internal modules."""

import inspect
import re
from pathlib import Path
from typing import Any

from cards import composed, docstring, names, target

import gyral

ROOT = Path(__file__).parents[1]
SITE = "https://example.org/gyral"  # a placeholder, as in [project.urls] of pyproject.toml


def layers() -> dict[str, Any]:
    """Return the public layers by their names."""
    from gyral.nn import layers as module

    return {name: getattr(gyral, name) for name in sorted(module.__all__, key=str.lower) if name != "Layer"}


def source_link(of: Any) -> str:
    """Return a link to the lines of a class or function in the repository."""
    path = Path(inspect.getsourcefile(of) or "").resolve().relative_to(ROOT)
    lines, first = inspect.getsourcelines(of)
    last = first + len(lines) - 1
    return f"[{path}]({SITE}/blob/main/{path}#L{first}-L{last}), lines {first} to {last}"


def version() -> str:
    """Return the version of the installed library."""
    from importlib.metadata import version as installed

    return installed("gyral")


def cells_of(layer: Any) -> list[str]:
    """Return the cells of the command line that a layer is made of."""
    own = layer.cell_class
    return [name for name in names("cell") if target(composed(f"model={name}").model.cell._target_) is own]


def example_of(layer: Any) -> str:
    """Return the code of the example in a layer's docstring."""
    found = re.findall(r"^ *>>> (.*)$", inspect.getdoc(layer) or "", re.MULTILINE)
    return "\n".join(found)


def shapes_of(layer: Any) -> str:
    """Return the shapes in the layer's example, which is run, as a table."""
    from torch import Tensor

    namespace: dict[str, Any] = {}
    exec("\n".join(line for line in example_of(layer).splitlines() if " = " in line or "import" in line), namespace)
    outputs, state = namespace["outputs"], namespace["state"]
    rows = [("outputs", outputs)]
    rows += [("state", state)] if isinstance(state, Tensor) else _leaves("state", state)
    lines = [f"| `{name}` | `{tuple(value.shape)}` |" for name, value in rows]
    return "\n".join(["| | shape in the example |", "| --- | --- |", *lines])


def _leaves(name: str, value: Any) -> list[tuple[str, Any]]:
    if hasattr(value, "_fields"):
        fields = zip(value._fields, value, strict=True)
        return [leaf for field, own in fields for leaf in _leaves(f"{name}.{field}", own)]
    if isinstance(value, tuple):
        return [leaf for place, own in enumerate(value) for leaf in _leaves(f"{name}[{place}]", own)]
    return [(name, value)]


def layer_page(name: str) -> str:
    """Return the page of a layer."""
    layer = layers()[name]
    text = inspect.getdoc(layer) or ""
    about = text.partition("\nExample:\n")[0]
    parameters = inspect.signature(layer.__init__).parameters.values()
    shown = []
    for one in parameters:
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        default = "" if one.default is one.empty else f"={one.default!r}"
        shown.append(f"{one.name}{default}")
    signature = "\n".join(f"    {one}," for one in shown)
    cards = ", ".join(f"[`{cell}`](../cells/{cell}.md)" for cell in cells_of(layer))
    return f"""---
search:
  boost: 4
---

# {name}

`gyral.{name}`: {text.partition(chr(10))[0]} `help(gyral.{name})` shows this text, too.

Version {version()}, source: {source_link(layer.cell_class)}. On the command line: {cards or "–"}.

```python
{example_of(layer)}
```

{shapes_of(layer)}

## Constructor

```text
gyral.{name}(
{signature}
)
```

## Equations, shapes and options

{docstring_of(about)}

[All layers](index.md), [what every layer can do in place of `torch.nn.GRU`](../how-to/layers.md).
"""


def docstring_of(text: str) -> str:
    """Return a docstring without its first line as Markdown."""

    class Holder:
        pass

    Holder.__doc__ = text.partition("\n")[2].strip()
    return docstring(Holder)


def layers_page() -> str:
    """Return the list of the layers."""
    rows = [
        f"| [`gyral.{name}`]({name}.md) | {(inspect.getdoc(layer) or '').partition(chr(10))[0]} |"
        for name, layer in layers().items()
    ]
    return f"""---
search:
  boost: 2
---

# Layers

Each layer is called like `torch.nn.GRU`: `outputs, state = layer(inputs, state, lengths, starts)`.

| | |
| --- | --- |
{chr(10).join(rows)}
"""


def internal_page(subpackage: str) -> str:
    """Return the reference of an internal subpackage, every module of it, which the search leaves out."""
    folder = ROOT / "src" / "gyral" / subpackage
    modules = []
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(ROOT / "src").with_suffix("").parts
        if any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        modules.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    head = f"---\nsearch:\n  exclude: true\n---\n\n# gyral.{subpackage}\n\n"
    return head + "\n\n".join(f"::: {module}" for module in modules) + "\n"
