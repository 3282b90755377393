"""Cards of cells and tasks, made from their configuration, docstrings, benchmark records and results."""

import json
import re
from collections.abc import Iterator
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import Any

import measured
import speeds

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"
SIZE = 100  # input size and hidden size for which parameters are counted


def names(group: str) -> list[str]:
    """Return the choices of a configuration group."""
    from gyral.config.groups import choices

    return choices(group)


def description(group: str, name: str) -> str:
    """Return the comment at the start of a configuration file."""
    from gyral.config.groups import find_config

    lines = find_config(group, name).read_text(encoding="utf-8").splitlines()
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        comment.append(line.lstrip("# "))
    return " ".join(line for line in comment if not line.startswith("@package"))


@cache
def composed(*overrides: str, file: str | None = "train") -> Any:
    """Return the configuration that overrides of a file, or of none, stand for."""
    from hydra import compose, initialize_config_dir

    import gyral.config.command_line  # noqa: F401  registers the resolvers

    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(file, list(overrides))


def target(path: str) -> Any:
    """Return the class that a `_target_` names."""
    from hydra.utils import get_object

    return get_object(path)


def comments(*files: Path) -> dict[str, str]:
    """Return the comment behind each option of configuration files."""
    found = {}
    for file in files:
        for match in re.finditer(r"^\s*([\w.]+):[^#\n]*#\s*(.+)$", file.read_text(encoding="utf-8"), re.MULTILINE):
            found.setdefault(match[1], match[2])
    return found


def arguments(of: Any) -> dict[str, str]:
    """Return the description of each argument in a docstring."""
    found: dict[str, str] = {}
    _, _, section = (getdoc(of) or "").partition("Args:\n")
    for match in re.finditer(
        r"^ {4}([\w*]+(?:, [\w*]+)*): (.*(?:\n {8}.*)*)", section.partition("\n\n")[0], re.MULTILINE
    ):
        found |= dict.fromkeys(match[1].replace("*", "").split(", "), " ".join(match[2].split()))
    for name, text in list(found.items()):
        other = re.match(r"[Ss]ee `([\w.]+)`", text)
        if other:
            path = other[1] if other[1].startswith("gyral.") else f"{of.__module__}.{other[1]}"
            those = arguments(target(path))
            found |= {name: those.get(name, text)} if name != "options" else those | found
    return found


def options_table(options: dict[str, Any], explained: dict[str, str]) -> str:
    """Return a table of options and their defaults."""
    rows = []
    for name, value in flat(options):
        meaning = explained.get(name.rpartition(".")[2], "").replace("|", "/")
        rows.append(f"| `{name}` | `{json.dumps(value, ensure_ascii=False)}` | {meaning} |")
    return "\n".join(["| option | default | meaning |", "| --- | --- | --- |", *rows])


def flat(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield options with dotted names, without Hydra's own keys."""
    for key, value in node.items():
        if str(key).startswith("_"):
            continue
        if isinstance(value, dict) and "_target_" in value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def docstring(of: Any) -> str:
    """Return a docstring as Markdown: sections of Google's style become bold headings with lists."""
    lines: list[str] = []
    current = ""  # section
    for line in (getdoc(of) or "").splitlines():
        section = re.fullmatch(r"(Args|Attributes|Example|Raises|Returns|Shapes|State|Yields)( \(.*\))?:", line)
        if section:
            current = section[1]
            lines += [f"**{current}**{section[2] or ''}", ""]
        elif current and re.match(r" {4}\S+(, \S+)*: ", line):
            names_, _, text = line.strip().partition(": ")
            lines.append(f"* `{names_}`: {text}")
        elif line.startswith("        ") and lines and lines[-1].startswith("* "):
            lines[-1] += f" {line.strip()}"
        elif line.startswith("    ") and current not in ("", "Example"):  # a text, or a list in an entry
            lines.append(line[4:])
        else:
            lines.append(line)
    return "\n".join(lines)


def cell_page(name: str) -> str:
    """Return the card of a cell."""
    config = composed(f"model={name}")
    cell_class = target(config.model.cell._target_)
    from omegaconf import OmegaConf

    options = OmegaConf.to_container(config.model.cell, resolve=True)
    layer = layer_name(cell_class)
    parts = [
        "---\nsearch:\n  boost: 0.5\n---",  # the page of the layer comes first
        f"# {name}",
        description("cell", name),
        f"```bash\ngyral train model={name} task=copy\n```",
    ]
    if variants := variants_of(name):
        listed = "\n".join(f"* `model={variant}`: {description('model', variant)}" for variant in variants)
        parts.append(f"The same cell with other options:\n\n{listed}")
    if layer:
        parts.append(f"As a layer: [`gyral.{layer}(input_size, hidden_size, …)`](../layers/{layer}.md).")
    parts += [
        f"## {cell_class.__name__}",
        docstring(cell_class),
        "## Options",
        f"Options are `model.cell.<option>` on the command line and keyword arguments of `{cell_class.__name__}`.",
        options_table(options, arguments(cell_class)),
        "## Size and backends",
        size_and_backends(config),
        "## Speed and memory",
        speeds.of_cell(name),
        "## Results",
        results_table(name),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def variants_of(name: str) -> list[str]:
    """Return the models that are a model with other options, or a variant of it with further ones."""
    from gyral.config.groups import load_choice

    found: list[str] = []
    for model in names("model"):
        defaults = load_choice("model", model).get("defaults", [])
        if {name, *found} & {default for default in defaults if isinstance(default, str)}:
            found.append(model)
    return found


def layer_name(cell_class: type) -> str | None:
    """Return the name of the layer that is made of a cell, None if there is none."""
    import gyral

    name = cell_class.__name__.removesuffix("Cell")
    return name if name in gyral.__all__ else None


def size_and_backends(config: Any) -> str:
    """Return the number of parameters and the backends of a cell on this machine."""
    from torch import nn

    from gyral.config.instantiation import make

    cell = make(config, "model.cell")(SIZE)
    assert isinstance(cell, nn.Module)
    parameters = sum(parameter.numel() for parameter in cell.parameters() if parameter.requires_grad)
    reason = cell.fused_unsupported_reason()
    fused = "supported" if reason is None else f"not supported: {reason}"
    return "\n".join(
        [
            "| | |",
            "| --- | --- |",
            f"| parameters with input size {SIZE} and hidden size {SIZE} | {parameters:,} |",
            "| `reference` | supported on every device and in every data type |",
            f"| `fused` on a CPU, default options | {fused} |",
            "| `compile` | supported |",
            "| `graph` | supported on a GPU |",
        ]
    )


def published(paper: dict[str, Any]) -> str:
    """Return the published values of a row as text."""

    def text(value: Any) -> str:
        if isinstance(value, dict):
            return " / ".join(f"{number} at {setting}" for setting, number in value.items())
        return f"{value:,}" if isinstance(value, int) else str(value)

    return "; ".join(f"{key}: {text(value)}" for key, value in paper.items() if key != "row")


def rows_of(group: str, choice: str) -> dict[str, dict[str, Any]]:
    """Return what was published about the rows of tables that have a choice, by their names on the command line."""
    from gyral.config.groups import generated_choices
    from gyral.config.tables import load_table

    found = {}
    for experiment, file in generated_choices("experiment").items():
        table = load_table(file)
        row = experiment.removeprefix(f"{table.experiment}/")
        if not row.startswith("_") and table.options(row).get(group) == choice:
            found[experiment] = table.papers[experiment]
    return dict(sorted(found.items()))


def results_table(name: str) -> str:
    """Return the rows of tables that use a cell with the published and the measured numbers."""
    import overview

    papers = rows_of("model", name)
    rows = [
        f"| `{experiment}` | {published(papers.get(experiment, {}))} | {measured.summary(experiment) or 'not run'} |"
        f" {measured.link(experiment, 'cells')} |"
        for experiment in sorted({*papers, *overview.rows_of_cell(name)})
    ]
    if not rows:
        return "No table has a row with this cell."
    head = "| experiment | published | measured here | page |\n| --- | --- | --- | --- |"
    return (
        "Rows of tables with this cell, published and measured values: mean ± standard deviation over"
        " the seeds of this project, often at a smaller size or budget than the paper's. The pages have the"
        " protocols.\n\n"
        f"{head}\n" + "\n".join(rows)
    )


def task_page(name: str) -> str:
    """Return the card of a task."""
    from omegaconf import OmegaConf

    from gyral.config.groups import load_choice

    node = OmegaConf.to_container(composed(f"task={name}").task, resolve=True)
    task_class = target(node["_target_"])
    module = __import__(task_class.__module__, fromlist=["_"])
    drawn = getdoc(module) or ""
    data_class = getattr(task_class, "data_class", None)  # it has the options of the data
    classes = [task_class] if data_class is None else [task_class, data_class]
    bases = [base for base in load_choice("task", name).get("defaults", []) if base != "_self_"]
    meanings = comments(*(CONF / "task" / f"{file}.yaml" for file in (name, *bases)))
    for one in (task_class.__base__, *classes):
        meanings = arguments(one) | meanings
    parts = [
        f"# {name}",
        description("task", name),
        f"```bash\ngyral train model=rum task={name}\n```",
        f"```text\n{drawn}\n```",
        *(f"## {one.__name__}\n\n{docstring(one)}" for one in classes),
        "## Options",
        "Options are `task.<option>` on the command line.",
        options_table(node, meanings),
        "## Results",
        published_table(name),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def published_table(name: str) -> str:
    """Return the rows of papers on a task."""
    found = rows_of("task", name).items()
    rows = [
        f"| {paper['row']} | {published(paper)} | {measured.summary(experiment) or 'not run'} |"
        f" {measured.link(experiment, 'tasks')} | `{experiment}` |"
        for experiment, paper in found
    ]
    if not rows:
        return "No table has a row with this task."
    head = "| row | published | measured here | page | experiment |"
    return f"{head}\n| --- | --- | --- | --- | --- |\n" + "\n".join(rows)


def index_page(title: str, group: str) -> str:
    """Return the list of a group's cards."""
    rows = [f"| [`{name}`]({name}.md) | {description(group, name)} |" for name in names(group)]
    return f"# {title}\n\n| | |\n| --- | --- |\n" + "\n".join(rows) + "\n"
