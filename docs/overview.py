"""The overview of all cells: the size of its state, what it costs, where it won here, and when to use it."""

import math
import re
from functools import cache
from typing import Any, NamedTuple

import measured
import recall
import speeds
from cards import composed, description, names, target

SIZES = 64, 128  # two hidden sizes that show how a state grows
GROUPS = "atlas_small"
EXPONENTS = {0: "", 1: "N", 2: "N²", 3: "N³"}


class Family(NamedTuple):
    """Cells that keep and compute similar things.

    Attributes:
        title: the name of the family.
        over_time: how it is computed over a sequence.
        use: when to use it.
        classes: the names of its cells' classes, or of their base classes.
    """

    title: str
    over_time: str
    use: str
    classes: tuple[str, ...]


FAMILIES = (
    Family(
        "Gated networks",
        "step by step",
        "most problems; GRU and LSTM track states",
        ("TorchLayerCell", "ONLSTMCell"),
    ),
    Family(
        "Rotations",
        "step by step",
        "copying with one vector; RUM with λ = 1 recalls pairs",
        ("RUMCell", "GORUCell"),
    ),
    Family("Unitary networks", "step by step", "copying over hundreds of steps", ("UnitaryCell",)),
    Family(
        "Nonlinear recurrences",
        "step by step",
        "state tracking together with recall of pairs",
        ("SLSTMCell", "M2RNNCell", "ExpRNNCell"),
    ),
    Family("Fast weights", "step by step", "recall of pairs in short sequences", ("FastWeightsCell", "WeiNetCell")),
    Family("Fast-slow networks", "step by step", "language models of characters on little data", ("FSRNNCell",)),
    Family("Delta rule", "chunks", "recall of pairs; parity with negative eigenvalues", ("DeltaRuleCell",)),
    Family(
        "Matrix memories",
        "chunks",
        "recall of pairs; published for language models",
        ("MatrixMemoryCell", "Mamba3Cell"),
    ),
    Family(
        "Diagonal recurrences",
        "parallel",
        "long signals and streams, in parallel over time",
        ("DiagonalCell", "MambaCell"),
    ),
    Family(
        "Parallel state tracking",
        "parallel",
        "state tracking that must train in parallel",
        ("RotationScanCell", "PDSSMCell", "SLiCECell"),
    ),
    Family("External memories", "step by step", "algorithms that read and write a tape", ("MemoryCell",)),
    Family("Edges between steps", "step by step", "texts with links between mentions", ("GraphCell",)),
    Family("Convolutions", "parallel", "local patterns; a finite window", ("ConvolutionCell",)),
    Family("Other cells", "step by step", "", ("RecurrentCell",)),
)


def family_of(cell: type) -> Family:
    """Return the family of a cell: of the first of its classes that a family names."""
    of_class = {name: family for family in FAMILIES for name in family.classes}
    return next(of_class[each.__name__] for each in cell.__mro__ if each.__name__ in of_class)


@cache
def families() -> dict[Family, list[str]]:
    """Return the names of the cells of each family, in the order of `FAMILIES`."""
    found: dict[Family, list[str]] = {family: [] for family in FAMILIES}
    for name in names("cell"):
        found[family_of(target(composed(f"model={name}").model.cell._target_))].append(name)
    return {family: own for family, own in found.items() if own}


def state_leaves(name: str, size: int) -> dict[str, int]:
    """Return how many numbers each field of a cell's state has with a hidden size."""
    from torch import Tensor
    from torch.utils._pytree import tree_leaves

    from gyral.config.instantiation import make

    cell: Any = make(composed(f"model={name}"), "model.cell")(size, hidden_size=size)
    state = cell.init_state(1)
    found: dict[str, int] = {}
    for field, value in state._asdict().items():
        leaves = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
        found[field] = sum(leaf.numel() for leaf in leaves)
    return found


def state_formula(name: str) -> str:
    """Return the fields of a cell's state with their sizes, such as "hidden N, memory N²/4", by its default options."""
    small, large = (state_leaves(name, size) for size in SIZES)
    terms = []
    for field, count in small.items():
        if not count:
            continue
        power = round(math.log2(large[field] / count))
        factor = count / SIZES[0] ** power
        if power not in EXPONENTS or not math.isclose(factor * SIZES[1] ** power, large[field]):
            terms.append(f"{field} {large[field]:,} at N = {SIZES[1]}")
            continue
        unit = EXPONENTS[power]
        if factor >= 1:
            shown = f"{factor:,.6g} {unit}".strip() if factor != 1 or not unit else unit
        else:
            shown = f"{unit}/{1 / factor:.4g}"
        terms.append(f"{field} {shown}")
    return ", ".join(terms)


def rows_of_cell(name: str) -> list[str]:
    """Return the experiments that have trained a cell."""
    own = composed(f"model={name}").model.cell._target_
    return [experiment for experiment, cell in measured.cells().items() if cell == own]


def won(name: str) -> str:
    """Return links to the pages of the results in which no other row is better than one of a cell."""
    best = {one.experiment for one in measured.all_measured() if one.is_best} & {*rows_of_cell(name)}
    links = dict.fromkeys(filter(None, (measured.link(experiment, "cells") for experiment in sorted(best))))
    return ", ".join(links) or "–"


def solved_groups(name: str) -> str:
    """Return how many of the five groups the best row of a cell solves with all seeds, a dash if none was run."""
    counts: dict[str, int] = {}
    for one in measured.all_measured():
        if one.experiment.startswith(f"{GROUPS}/") and one.experiment in rows_of_cell(name):
            solved = re.fullmatch(r"(\d+) of \1 seeds", one.text) is not None
            counts[one.experiment] = counts.get(one.experiment, 0) + solved
    return f"{max(counts.values())}" if counts else "–"


HEAD = ["cell", "idea", "state size", "among the best on", "time", "recall, %", "groups"]


def table(own: list[str]) -> str:
    """Return the overview of the cells of a family as a table in Markdown."""
    speed = {row["model"]: row["train_ratio"] for row in speeds.measurements() if speeds.is_default(row)}
    lines = []
    for name in own:
        recalled = recall.accuracy(name)
        if recall.accuracy(f"{name}:lambd=1") != "–":
            recalled += f"; λ = 1: {recall.accuracy(f'{name}:lambd=1')}"
        lines.append(
            [
                f"[`{name}`]({name}.md)",
                description("cell", name),
                state_formula(name),
                won(name),
                speeds.number(speed.get(name), ".2f"),
                recalled,
                solved_groups(name),
            ]
        )
    return speeds.table(HEAD, lines, 4)


def page() -> str:
    """Return the page of all cells."""
    sections = "\n\n".join(
        f"## {family.title}\n\nOver time: {family.over_time}."
        f"{f' Use for {family.use}.' if family.use else ''}\n\n{table(own)}"
        for family, own in families().items()
    )
    return f"""---
search:
  boost: 2
---

# All cells

[Which cell should I use?](../which-cell.md) starts from a problem. Here are all cells by family, with what was
measured; a dash means that it was not.

* **over time**: whether steps wait for each other in training. Families with *chunks* or *parallel* have a form that
  does not.
* **state size**: the fields of the state of one row, with hidden size N and default options: everything that the cell
  keeps of the past.
* **among the best on**: the pages of the [results](../results/index.md) on which no other row has a better mean in a
  table or column. Ties count.
* **time**: of the forward and backward pass on a CPU, divided by that of `torch.nn.GRU` in the same run: less is
  faster. {speeds.conditions()}, batch × time × hidden size {speeds.times(speeds.MAIN)}. [Backends and
  speed](../speed.md) has other sizes, and GPUs.
* **recall, %**: [associative recall](../results/recall.md#all-cells) with five pairs after 600 steps. A model that
  knows which digits occur, but not where, has 35.8 %.
* **groups**: how many of the five groups of the [atlas of state tracking](../results/atlas.md) the better variant of
  the cell solves with every seed.

{sections}
"""
