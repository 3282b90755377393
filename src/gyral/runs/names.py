"""Readable names of models and of the rows of a comparison. Imports no torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from gyral.config.plain import flatten
from gyral.config.roles import IN_FOLDERS, settings_of
from gyral.config.signatures import constructor_defaults
from gyral.runs.run_record import cell_of, select

SYMBOLS = {"lambd": "λ", "eta": "η"}  # options that are Greek letters in papers
WORDS = {"lr": "learning rate"}


def model_name(config: Mapping[str, Any]) -> str:
    """Return the name of a run's model: its cell, and the options of the cell that have no default value.

    The name is "RUM λ = 1" for a RUM with `lambd=1`, and "GRU" for a GRU with the default options.

    Args:
        config: the configuration of the run as plain containers.
    """
    return _name(config, _changed_options(config))


def row_names(rows: Sequence[tuple[Mapping[str, Any], Mapping[str, str]]]) -> list[str]:
    """Return the names of rows that are shown together.

    A name has the row's model as `model_name` gives it, or the name of the row in a paper. Rows with the same cell also
    show the options of the model in which they differ, and all rows show the other overrides in which they differ.

    Args:
        rows: for each row the configuration of one of its runs, and its overrides by key.
    """
    by_cell: dict[str, list[dict[str, Any]]] = {}
    settings = [_options(config) for config, _ in rows]
    cells = [cell_of(dict(config)) for config, _ in rows]
    for cell, own in zip(cells, settings, strict=True):
        by_cell.setdefault(cell, []).append(own)
    differing = {cell: _differing(same) for cell, same in by_cell.items()}
    varied = _differing([overrides for _, overrides in rows])
    names = []
    for (config, overrides), own, cell in zip(rows, settings, cells, strict=True):
        shown = differing[cell].union(_changed_options(config))
        options = [key for key in _ordered(own) if key in shown]
        # the name of the model shows its options
        given = [key for key in settings_of(overrides) if key not in IN_FOLDERS and not key.startswith("model.")]
        given = [key for key in given if key in varied]
        parts = [describe_option(key, overrides[key].partition("=")[2]) for key in sorted(given)]
        names.append(", ".join((_name(config, options), *parts)))
    return names


def _differing(options: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the keys that have several values, or that some lack."""
    first = dict(options[0]) if options else {}
    found = set()
    for own in options[1:]:
        if own != first:
            found |= first.keys() ^ own.keys()
            found |= {key for key in first.keys() & own.keys() if first[key] != own[key]}
    return found


def describe_option(key: str, value: Any) -> str:
    """Return an option and its value as text: "λ = 1", "layer norm", "no update gate", "learning rate = 0.01"."""
    option = key.rpartition(".")[2]
    name = SYMBOLS.get(option) or WORDS.get(option) or option.replace("_", " ")
    if value is None or value is False or value in ("null", "false"):
        return f"no {name}"
    if value is True or value == "true":
        return name
    return f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"


def _name(config: Mapping[str, Any], options: Sequence[str]) -> str:
    """Return the name of a model with the values of some of its options."""
    published = select(config, "paper.row")
    if published:
        return str(published)
    values = _options(config)
    return " ".join(filter(None, (cell_of(dict(config)), ", ".join(describe_option(o, values[o]) for o in options))))


def _options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the model by key, such as cell.lambd."""
    values = flatten(config.get("model") or {})
    return {key: value for key, value in values if not key.rpartition(".")[2].startswith("_") and key != "cell.cell"}


def _ordered(options: Mapping[str, Any]) -> list[str]:
    """Return the keys of options, Greek letters first, then options of the cell."""
    cell = [key for key in options if key.startswith("cell.")]
    greek = [key for key in cell if key.rpartition(".")[2] in SYMBOLS]
    return [*greek, *(key for key in cell if key not in greek), *(key for key in options if key not in cell)]


def _changed_options(config: Mapping[str, Any]) -> list[str]:
    """Return the keys of the options of the cell that differ from the defaults of its constructor."""
    cell = select(config, "model.cell") or {}
    defaults = constructor_defaults(str(cell.get("_target_")))
    changed = (key for key, value in defaults.items() if key in cell and cell[key] != value)
    # a cell of a cell is in the name
    return [f"cell.{key}" for key in changed if not isinstance(cell[key], Mapping) and key != "cell"]
