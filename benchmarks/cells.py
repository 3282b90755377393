"""Speed and memory of every cell on each of its backends, in comparison with torch.nn.RNN, GRU and LSTM.

Usage: python -m benchmarks.cells [key=value …]

  model=rum,rum:lambd=1,lstm   cells, by their file in conf/cell, with cell options after colons; default: all
  backend=reference,fused      backends to measure if the cell has them; also: compile
  size=128x53x50,…             batch x time steps x hidden size; paper (the default): sizes of the RUM paper's tasks;
                               growth: sizes that vary one of the three at a time
  input=36                     size of the inputs
  sequences=ragged,resets,edges  measure also sequences of different lengths, T/2 in the mean; states that are reset at
                               1 % of the steps; and an edge of each type at every step; default: none of them
  repeat=7                     rounds; a time is the median over the rounds. Slow cases run fewer rounds, at least 3
  threads=N                    number of threads of torch; default: torch's choice
  json=path                    append one line of JSON per case and size to this file
  plot=path                    write a figure to this file (.png, .svg or .pdf)

Sizes of the paper (Dangovski et al., TACL 2019): associative recall with T = 50, copying with N = 100 and 250, and
character-level Penn Treebank with N = 1000. Figures are reported only if every case agrees with the float64
reference of its cell. Exit status: 0 success, 1 a case disagrees, 2 a key or value is not allowed.
"""

import json
import math
import os
import re
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich import box
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.utils._pytree import tree_leaves
from yaml import YAMLError  # type: ignore[import-untyped]

from benchmarks import measure
from benchmarks.equivalence import compare
from benchmarks.measure import BASELINE
from benchmarks.provenance import ROOT, provenance
from benchmarks.sequences import KINDS, draw, supports
from gyral.config.groups import choices
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError, UserError
from gyral.core.memory import retain_freed_memory
from gyral.nn.recurrent import BACKENDS, Recurrent

MODELS = tuple(choices("cell"))
# measured by default in addition to the options of the cell's file
VARIANTS = {
    "eurnn": ("eurnn:capacity=fft",),
    "goru": ("goru:capacity=fft",),
    "lstm": ("lstm:layer_norm=true",),
    "rum": ("rum:lambd=1",),
}
DEFAULT_MODELS = tuple(name for model in MODELS for name in (model, *VARIANTS.get(model, ())))
LAYERS = {"torch.nn.RNN": nn.RNN, "torch.nn.GRU": nn.GRU, "torch.nn.LSTM": nn.LSTM}
SIZES = {  # batch, time steps, hidden size
    "paper": ((128, 53, 50), (128, 520, 100), (128, 520, 250), (128, 150, 1000)),
    "growth": (
        *((32, steps, 100) for steps in (50, 100, 200, 400, 800)),
        *((batch, 100, 100) for batch in (8, 16, 64, 128)),
        *((32, 100, hidden) for hidden in (25, 50, 200, 400)),
    ),
}
COLUMNS = {  # titles of the table, with key of the row and format
    "forward ms": ("forward_ms", ".2f"),
    "forward + backward ms": ("train_ms", ".2f"),
    "per time step ms": ("train_ms_per_time_step", ".3f"),
    "peak memory MiB": ("peak_memory_mib", ".1f"),
    "forward ×": ("forward_ratio", ".2f"),
    "forward + backward ×": ("train_ratio", ".2f"),
    "memory ×": ("memory_ratio", ".2f"),
    "products ×": ("products_ratio", ".2f"),
    "ragged ×": ("ragged_ratio", ".2f"),
    "resets ×": ("resets_ratio", ".2f"),
    "edges ×": ("edges_ratio", ".2f"),
}
# Limits of the comparison with the reference:
CHECK_BYTES = 2e9  # memory of the reference's states
CHECK_BATCH = 16  # rows: the rows of a batch are independent, so that more rows only take time and memory


class Settings(NamedTuple):
    """The options of the command line."""

    model: tuple[str, ...] = DEFAULT_MODELS
    backend: tuple[str, ...] = ("reference", "fused")
    size: tuple[tuple[int, int, int], ...] = SIZES["paper"]
    input: int = 36
    sequences: tuple[str, ...] = ()
    repeat: int = 7
    threads: int = torch.get_num_threads()
    json: str | None = None
    plot: str | None = None


class Size(NamedTuple):
    """The sizes of one measurement."""

    batch: int
    steps: int
    input: int
    hidden: int

    @property
    def input_shape(self) -> tuple[int, int, int]:
        return self.steps, self.batch, self.input


class Case(NamedTuple):
    """One row: a model of the command line on one of its backends, or a layer of torch.nn on backend "torch"."""

    model: str
    backend: str

    @property
    def reference(self) -> "Case":
        """The case whose results this case must reproduce."""
        return Case(self.model.rsplit(".")[-1].lower() if self.backend == "torch" else self.model, "reference")


def parse(arguments: list[str]) -> Settings:
    """Parse key=value arguments.

    Raises:
        UserError: A key or value is not allowed.
    """
    try:
        given: Any = OmegaConf.to_container(OmegaConf.from_cli(arguments))
    except (OmegaConfBaseException, YAMLError) as error:
        raise UserError(f"{' '.join(arguments)}: must be key=value, see --help") from error
    for key, value in given.items():
        if key not in Settings._fields:
            raise OptionError(key, value, f"unknown key, must be one of {', '.join(Settings._fields)}")
        if key in ("json", "plot"):
            if not isinstance(value, str) or Path(value).is_dir() or not Path(value).absolute().parent.is_dir():
                raise OptionError(key, value, "must be the path of a file in an existing folder")
            if key == "plot":
                check_choice("plot", Path(value).suffix, (".png", ".svg", ".pdf"))
        elif key in ("model", "backend", "sequences"):
            given[key] = tuple(dict.fromkeys(str(value).split(",")))
        elif key == "size":
            given[key] = parse_sizes(str(value))
        else:
            check_integer(key, value)
    settings = Settings(**given)
    for backend in settings.backend:
        check_choice("backend", backend, tuple(name for name in BACKENDS if name != "auto"))
    for kind in settings.sequences:
        check_choice("sequences", kind, KINDS[1:])
    return settings


def parse_sizes(value: str) -> tuple[tuple[int, int, int], ...]:
    """Parse sizes such as 128x53x50,growth."""
    sizes: list[tuple[int, int, int]] = []
    for word in value.split(","):
        if word in SIZES:
            sizes += SIZES[word]
        elif re.fullmatch(r"[1-9]\d*x[1-9]\d*x[1-9]\d*", word):
            batch, steps, hidden = map(int, word.split("x"))
            sizes.append((batch, steps, hidden))
        else:
            raise OptionError("size", word, "must be paper, growth or <batch>x<steps>x<hidden>, such as 128x53x50")
    return tuple(dict.fromkeys(sizes))


@cache
def cell_config(model: str) -> DictConfig:
    """Return the cell section of a model file with the options after the colons, such as rum:lambd=1."""
    name, *options = model.split(":")
    check_choice("model", name, MODELS)
    with initialize_config_dir(str(ROOT / "conf"), version_base=None):
        cell = compose(overrides=[f"+model={name}"]).model.cell
    allowed = [key for key in cell if not key.startswith("_") and key != "hidden_size"]
    for option in options:
        if option.split("=")[0] not in allowed or "=" not in option:
            reason = f"{option} must be <option>=<value>, where <option> is one of {', '.join(allowed)}"
            raise OptionError("model", model, reason)
    try:
        cell.merge_with(OmegaConf.from_dotlist(options))
    except (OmegaConfBaseException, YAMLError) as error:
        raise OptionError("model", model, f"{options} must be scalars") from error
    return cell


def build_cell(case: Case, input_size: int, hidden_size: int) -> Recurrent:
    """Return the float32 module of a cell; all backends of a model get the same weights."""
    torch.manual_seed(0)
    return Recurrent(instantiate(cell_config(case.model), hidden_size=hidden_size), input_size, backend=case.backend)


def build_layer(case: Case, input_size: int, hidden_size: int) -> nn.Module:
    """Return a layer of torch.nn with the weights of the corresponding cell."""
    cell = build_cell(case.reference, input_size, hidden_size)
    layer = LAYERS[case.model](input_size, hidden_size)
    with torch.no_grad():
        for parameter, value in zip(layer.parameters(), cell.parameters(), strict=True):
            parameter.copy_(value)
    return layer


def candidates(settings: Settings, size: Size) -> dict[Case, measure.Maker]:
    """Return the cases with functions that build their modules: torch's layers, then every model on its backends."""
    widths = (size.input, size.hidden)
    makers: dict[Case, measure.Maker] = {}
    for case in (Case(layer, "torch") for layer in LAYERS):
        makers[case] = partial(build_layer, case, *widths)
    for model in settings.model:
        reason = instantiate(cell_config(model), hidden_size=size.hidden)(size.input).fused_unsupported_reason()
        cases = [Case(model, backend) for backend in settings.backend if backend != "fused" or reason is None]
        makers |= {case: partial(build_cell, case, *widths) for case in cases if fits(case, size)}
    return makers


def fits(case: Case, size: Size) -> bool:
    """Return whether the values that a case keeps for backward take less than half of the memory."""
    return kept_bytes(case, size) < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2


def kept_bytes(case: Case, size: Size) -> int:
    """Estimate the bytes that a case keeps for backward: all states twice in a loop, few on a fused path."""
    times = 0 if case.backend == "fused" else 2
    return times * 4 * size.batch * size.steps * state_elements(case.model, size)


def omitted_cases(settings: Settings, size: Size) -> Iterator[str]:
    """Yield a line for every case that does not fit into memory."""
    for case in (Case(model, backend) for model in settings.model for backend in settings.backend):
        if not fits(case, size):
            yield f"{case.model} {case.backend} is omitted: it would keep {kept_bytes(case, size) / 1e9:.0f} GB."


def state_elements(model: str, size: Size) -> int:
    """Return the number of elements in the state of one row."""
    return sum(
        leaf.numel()
        for leaf in tree_leaves(build_cell(Case(model, "reference"), size.input, size.hidden).init_state(1))
    )


def disagreeing_cases(
    makers: dict[Case, measure.Maker], size: Size, errors: dict[Case, float], kind: str = "whole"
) -> Iterator[str]:
    """Yield a line for every case that disagrees with the reference of its cell; store the largest error of each."""
    for reference in dict.fromkeys(case.reference for case in makers):
        others = {case.backend: make for case, make in makers.items() if reference == case.reference != case}
        others = {backend: make for backend, make in others.items() if supports(make(), kind)}
        make_reference = partial(build_cell, reference, size.input, size.hidden)
        # the float64 reference keeps its states about three times
        affordable = int(CHECK_BYTES / (3 * 8 * size.steps * state_elements(reference.model, size)))
        rows = max(1, min(size.batch, CHECK_BATCH, affordable))
        lines, largest = compare(make_reference, others, (size.steps, rows, size.input), kind)
        errors.update({case: largest.get(case.backend, math.nan) for case in makers if case.reference == reference})
        yield from (f"{reference.model}: {line}{'' if kind == 'whole' else f', {kind}'}" for line in lines)


def measure_cases(
    makers: dict[Case, measure.Maker], settings: Settings, size: Size, errors: dict[Case, float]
) -> list[dict[str, Any]]:
    """Measure every case; return one row each, with its ratios to the baseline and to its products, and its error."""
    shapes_of = [measure.weight_shapes(make()) for make in makers.values()]
    products = {shapes: measure.Products(size.steps, size.batch, shapes) for shapes in shapes_of if shapes is not None}
    layers = {case: measure.Layer(make, size.input_shape) for case, make in makers.items()}
    loads: dict[Any, measure.Load] = {
        (case, kind): layer.on(draw(kind, size.steps, size.batch))
        for kind in ("whole", *settings.sequences)
        for case, layer in layers.items()
        if supports(layer.module, kind)
    }
    medians, repeat = measure.times([*loads.values(), *products.values()], settings.repeat)
    times = dict(zip([*loads, *products], medians, strict=True))
    del layers, loads, products
    memory = measure.peak_memories(list(makers.values()), size.input_shape, settings.threads)
    base = Case(BASELINE, "torch")
    base_forward, base_train = times[base, "whole"]
    base_memory = memory[list(makers).index(base)]

    def row(case: Case, peak: float, shapes: Any) -> dict[str, Any]:
        forward, train = times[case, "whole"]
        found: dict[str, Any] = {
            **case._asdict(),
            **size._asdict(),
            "repeat": repeat,
            "forward_ms": forward,
            "train_ms": train,
            "train_ms_per_time_step": train / size.steps,
            "peak_memory_mib": peak,
            "forward_ratio": forward / base_forward,
            "train_ratio": train / base_train,
            "memory_ratio": peak / base_memory if base_memory else None,  # sizes too small to see
            "products_ratio": train / times[shapes][1] if shapes is not None else None,
            "error": None if math.isnan(errors.get(case, math.nan)) else errors[case],
        }
        for kind in settings.sequences:
            other = times.get((case, kind), (None, None))[1]
            found |= {f"{kind}_ms": other, f"{kind}_ratio": None if other is None else other / train}
        return found

    return [row(*given) for given in zip(makers, memory, shapes_of, strict=True)]


def report(rows: list[dict[str, Any]], about: dict[str, Any], path: str | None) -> None:
    """Print the rows as a Markdown table, and append them to the file at `path` if it is not None."""
    table = Table(box=box.MARKDOWN)
    columns = {title: column for title, column in COLUMNS.items() if column[0] in rows[0]}
    for title in ("model", "backend", *columns):
        table.add_column(title, justify="right" if title in columns else "left", no_wrap=True)
    for row in rows:
        values = ("–" if row[key] is None else format(row[key], form) for key, form in columns.values())
        table.add_row(row["model"], row["backend"], *values)
    console = Console(highlight=False)
    console.width = max(console.width, 200)  # rich assumes 80 columns for a pipe, which would truncate figures
    console.print(
        "batch {batch}, {steps} time steps, input {input}, hidden {hidden}: {repeat} rounds".format(**rows[0])
    )
    console.print(table)
    if path is not None:
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row | about) + "\n" for row in rows)


def main(arguments: list[str]) -> int:
    """Compare with the references, measure and report; return the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    try:
        settings = parse(arguments)
        sizes = [Size(batch, steps, settings.input, hidden) for batch, steps, hidden in settings.size]
        makers = {size: candidates(settings, size) for size in sizes}
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    torch.set_num_threads(settings.threads)
    retain_freed_memory()  # as in training
    about = {"threads": settings.threads, **provenance()}
    rows: list[dict[str, Any]] = []
    errors: dict[Size, dict[Case, float]] = {size: {} for size in sizes}
    for size in sizes:
        wrong = [
            line
            for kind in (*settings.sequences, "whole")  # the errors that are reported are those of the last
            for line in disagreeing_cases(makers[size], size, errors[size], kind)
        ]
        if wrong:
            print(
                "No figures: these results disagree with the float64 reference",
                *wrong,
                sep="\n",
                file=sys.stderr,
            )
            return 1
    for size in sizes:
        rows += (measured := measure_cases(makers[size], settings, size, errors[size]))
        report(measured, about, settings.json)
        print(*omitted_cases(settings, size), sep="\n", end="\n\n")
    print(f"× is the ratio to {BASELINE}, products × the ratio to the matrix products with the cell's weights.")
    if settings.sequences:
        print(
            "ragged ×, resets × and edges × are the ratios of forward + backward to the same case without any of them."
        )
    print(", ".join(f"{key}={about[key]}" for key in about))
    if settings.plot is not None:
        from benchmarks import plots  # imports matplotlib

        plots.plot(rows, settings.plot, BASELINE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
