"""Speed and memory of every cell on each of its backends, side by side with torch.nn.RNN, GRU and LSTM.

Usage: python -m benchmarks.cells [key=value …]

  model=rum,rum:lambd=1,lstm   cells by their file in conf/model, cell options after colons; default: all
  backend=reference,fused      backends to measure where the cell has them; also: compile
  size=128x53x50,…             batch x time steps x hidden size; paper, the default: sizes of the RUM paper's tasks;
                               growth: one of the three varied at a time
  input=36                     width of the inputs
  repeat=7                     rounds; a time is the median over them. Fewer, at least 3, where they take long
  threads=N                    torch's threads; default: torch's own choice
  json=path                    append one line of JSON a case and size to this file
  plot=path                    draw the figures to this file (.png, .svg or .pdf)

Sizes of the paper (Dangovski et al., TACL 2019): associative recall with T = 50, copying with N = 100 and 250, and
character-level Penn Treebank with N = 1000. Nothing is reported unless every case agrees with its cell's float64
reference. Exit status: 0 reported, 1 refused, 2 a key or value not allowed.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich import box
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.utils._pytree import tree_leaves
from yaml import YAMLError  # type: ignore[import-untyped]

from benchmarks import measure
from benchmarks.equivalence import UNUSABLE, disagreements
from gyral.config.command_line import choices
from gyral.core import memory as heap
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError
from gyral.nn.recurrent import BACKENDS, Recurrent

ROOT = Path(__file__).resolve().parents[1]
MODELS = tuple(choices("cell"))
# measured by default next to the cell as its file has it
VARIANTS = {
    "eurnn": ("eurnn:capacity=fft",),
    "goru": ("goru:capacity=fft",),
    "lstm": ("lstm:layer_norm=true",),
    "rum": ("rum:lambd=1",),
}
DEFAULT_MODELS = tuple(name for model in MODELS for name in (model, *VARIANTS.get(model, ())))
LAYERS = {"torch.nn.RNN": nn.RNN, "torch.nn.GRU": nn.GRU, "torch.nn.LSTM": nn.LSTM}
BASELINE = "torch.nn.GRU"
SIZES = {  # batch, time steps, hidden size
    "paper": ((128, 53, 50), (128, 520, 100), (128, 520, 250), (128, 150, 1000)),
    "growth": (
        *((32, steps, 100) for steps in (50, 100, 200, 400, 800)),
        *((batch, 100, 100) for batch in (8, 16, 64, 128)),
        *((32, 100, hidden) for hidden in (25, 50, 200, 400)),
    ),
}
COLUMNS = {  # of the table: key of the row and format
    "forward ms": ("forward_ms", ".2f"),
    "forward + backward ms": ("train_ms", ".2f"),
    "per time step ms": ("train_ms_per_time_step", ".3f"),
    "peak memory MiB": ("peak_memory_mib", ".1f"),
    "forward ×": ("forward_ratio", ".2f"),
    "forward + backward ×": ("train_ratio", ".2f"),
    "memory ×": ("memory_ratio", ".2f"),
    "products ×": ("products_ratio", ".2f"),
}
GATE_BYTES = 2e9  # of states kept by a reference that is compared with
DRAWS = 3  # of inputs with which a case may try to agree
GATE_STEPS = 20  # at least, of those compared where a sequence's rounding errors grow too large
GATE_BATCH = 16  # rows compared with the reference: rows do not meet, and more only take time and memory


class Settings(NamedTuple):
    """The command line."""

    model: tuple[str, ...] = DEFAULT_MODELS
    backend: tuple[str, ...] = ("reference", "fused")
    size: tuple[tuple[int, int, int], ...] = SIZES["paper"]
    input: int = 36
    repeat: int = 7
    threads: int = torch.get_num_threads()
    json: str | None = None
    plot: str | None = None


class Size(NamedTuple):
    """Of one measurement."""

    batch: int
    steps: int
    input: int
    hidden: int

    @property
    def input_shape(self) -> tuple[int, int, int]:
        return self.steps, self.batch, self.input


class Case(NamedTuple):
    """What a row measures: a model of the command line on a backend of ours, or a layer of torch.nn on "torch"."""

    model: str
    backend: str

    @property
    def reference(self) -> "Case":
        """The loop that tells whether this case is right."""
        return Case(self.model.rsplit(".")[-1].lower() if self.backend == "torch" else self.model, "reference")


def parse(arguments: list[str]) -> Settings:
    """Read key=value arguments; `OptionError` at the first that is not allowed."""
    try:
        given: Any = OmegaConf.to_container(OmegaConf.from_cli(arguments))
    except (OmegaConfBaseException, YAMLError) as error:
        raise OptionError(f"{' '.join(arguments)}: must be key=value, see --help") from error
    for key, value in given.items():
        if key not in Settings._fields:
            raise OptionError(f"{key}={value}: unknown key, must be one of {', '.join(Settings._fields)}")
        if key in ("json", "plot"):
            if not isinstance(value, str) or Path(value).is_dir() or not Path(value).absolute().parent.is_dir():
                raise OptionError(f"{key}={value}: must be the path of a file, in a folder that exists")
            if key == "plot":
                check_choice("plot", Path(value).suffix, (".png", ".svg", ".pdf"))
        elif key in ("model", "backend"):
            given[key] = tuple(dict.fromkeys(str(value).split(",")))
        elif key == "size":
            given[key] = parse_sizes(str(value))
        else:
            check_integer(key, value)
    settings = Settings(**given)
    for backend in settings.backend:
        check_choice("backend", backend, tuple(name for name in BACKENDS if name != "auto"))
    return settings


def parse_sizes(value: str) -> tuple[tuple[int, int, int], ...]:
    """Read sizes such as 128x53x50,growth."""
    sizes: list[tuple[int, int, int]] = []
    for word in value.split(","):
        if word in SIZES:
            sizes += SIZES[word]
        elif re.fullmatch(r"[1-9]\d*x[1-9]\d*x[1-9]\d*", word):
            batch, steps, hidden = map(int, word.split("x"))
            sizes.append((batch, steps, hidden))
        else:
            raise OptionError(f"size={word}: must be paper, growth or <batch>x<steps>x<hidden>, such as 128x53x50")
    return tuple(dict.fromkeys(sizes))


@cache
def cell_config(model: str) -> DictConfig:
    """Return the cell of a model file with the options after its name's colons, e.g. rum:lambd=1."""
    name, *options = model.split(":")
    check_choice("model", name, MODELS)
    with initialize_config_dir(str(ROOT / "conf"), version_base=None):
        cell = compose(overrides=[f"+model={name}"]).model.cell
    allowed = [key for key in cell if not key.startswith("_") and key != "hidden_size"]
    for option in options:
        if option.split("=")[0] not in allowed or "=" not in option:
            raise OptionError(f"model={model}: {option} must be <option>=<value>, option one of {', '.join(allowed)}")
    try:
        cell.merge_with(OmegaConf.from_dotlist(options))
    except (OmegaConfBaseException, YAMLError) as error:
        raise OptionError(f"model={model}: {options} must be scalars") from error
    return cell


def build_cell(case: Case, input_size: int, hidden_size: int) -> Recurrent:
    """Return the float32 module of a case of ours; all backends of a model get the same weights."""
    torch.manual_seed(0)
    return Recurrent(instantiate(cell_config(case.model), hidden_size=hidden_size), input_size, backend=case.backend)


def build_layer(case: Case, input_size: int, hidden_size: int) -> nn.Module:
    """Return a layer of torch.nn with the weights that the cell of ours gets."""
    own = build_cell(case.reference, input_size, hidden_size)
    layer = LAYERS[case.model](input_size, hidden_size)
    with torch.no_grad():
        for parameter, value in zip(layer.parameters(), own.parameters(), strict=True):
            parameter.copy_(value)
    return layer


def candidates(settings: Settings, size: Size) -> dict[Case, measure.Maker]:
    """Return the cases and what makes their modules: torch's layers, then every model on the backends it has."""
    widths = (size.input, size.hidden)
    makers: dict[Case, measure.Maker] = {}
    for case in (Case(layer, "torch") for layer in LAYERS):
        makers[case] = partial(build_layer, case, *widths)
    for model in settings.model:
        obstacle = instantiate(cell_config(model), hidden_size=size.hidden)(size.input).fused_unsupported_reason()
        cases = [Case(model, backend) for backend in settings.backend if backend != "fused" or obstacle is None]
        makers |= {case: partial(build_cell, case, *widths) for case in cases if fits(case, size)}
    return makers


def fits(case: Case, size: Size) -> bool:
    """Whether what a case keeps for backward takes less than half of the memory."""
    return kept_bytes(case, size) < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2


def kept_bytes(case: Case, size: Size) -> int:
    """Return about how much a case keeps for backward: all states twice in a loop, once or none on a fused path."""
    cell: Any = get_class(cell_config(case.model)["_target_"])
    times = cell.fused_keeps_states if case.backend == "fused" else 2
    return times * 4 * size.batch * size.steps * state_elements(case.model, size)


def left_out(settings: Settings, size: Size) -> Iterator[str]:
    """Yield a line for every case that would not fit."""
    for case in (Case(model, backend) for model in settings.model for backend in settings.backend):
        if not fits(case, size):
            yield f"{case.model} {case.backend} is left out: it would keep {kept_bytes(case, size) / 1e9:.0f} GB."


def state_elements(model: str, size: Size) -> int:
    """Return how many numbers the state of one row has."""
    return sum(
        leaf.numel()
        for leaf in tree_leaves(build_cell(Case(model, "reference"), size.input, size.hidden).init_state(1))
    )


def refusals(makers: dict[Case, measure.Maker], size: Size) -> Iterator[str]:
    """Yield a line for every case that differs from its cell's reference."""
    for reference in dict.fromkeys(case.reference for case in makers):
        others = {case.backend: make for case, make in makers.items() if reference == case.reference != case}
        make_reference = partial(build_cell, reference, size.input, size.hidden)
        # the float64 reference keeps its states about three times
        affordable = int(GATE_BYTES / (3 * 8 * size.steps * state_elements(reference.model, size)))
        rows = max(1, min(size.batch, GATE_BATCH, affordable))
        steps = size.steps
        while True:
            lines: list[str] = []
            # a ReLU that rounding turns on or off makes one draw's error large on any path; a wrong path's always is
            for seed in range(1, DRAWS + 1):
                lines = list(disagreements(make_reference, others, (steps, rows, size.input), seed))
                if not lines:
                    break
            # a cell may be chaotic at its initial weights: rounding grows with every step, so that fewer must do
            if steps // 2 < GATE_STEPS or not any(UNUSABLE in line for line in lines):
                break
            steps //= 2
        yield from (f"{reference.model}: {line}" for line in lines)


def figures(makers: dict[Case, measure.Maker], settings: Settings, size: Size) -> list[dict[str, Any]]:
    """Measure every case: one row each, with its ratios to the baseline and to its products."""
    shapes_of = [weight_shapes(make()) for make in makers.values()]
    products = {shapes: measure.Products(size.steps, size.batch, shapes) for shapes in shapes_of if shapes is not None}
    layers = [measure.Layer(make, size.input_shape) for make in makers.values()]
    times, repeat = measure.times([*layers, *products.values()], settings.repeat)
    floors = dict(zip(products, times[len(layers) :], strict=True))
    del layers, products
    memory = measure.peak_memories(list(makers.values()), size.input_shape, settings.threads)
    base = list(makers).index(Case(BASELINE, "torch"))
    return [
        {
            **case._asdict(),
            **size._asdict(),
            "repeat": repeat,
            "forward_ms": forward,
            "train_ms": train,
            "train_ms_per_time_step": train / size.steps,
            "peak_memory_mib": peak,
            "forward_ratio": forward / times[base][0],
            "train_ratio": train / times[base][1],
            "memory_ratio": peak / memory[base] if memory[base] else None,  # sizes too small to see
            "products_ratio": train / floors[shapes][1] if shapes is not None else None,
        }
        for case, (forward, train), peak, shapes in zip(makers, times, memory, shapes_of, strict=False)
    ]


def weight_shapes(module: nn.Module) -> tuple[tuple[Any, Any], ...] | None:
    """Return the shapes of the input and of the recurrent weights of each cell; None where one has not one of each."""
    inputs, recurrent = (
        [tuple(p.shape) for name, p in module.named_parameters() if part in name and p.dim() == 2]
        for part in ("weight_ih", "weight_hh")
    )
    return tuple(zip(inputs, recurrent, strict=True)) if len(inputs) == len(recurrent) > 0 else None


def provenance(settings: Settings) -> dict[str, Any]:
    """Return what the figures depend on besides the case: sizes, machine, versions, commit, date."""
    cpu_information = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", cpu_information.read_text()) if cpu_information.exists() else []
    commit = ""
    if shutil.which("git"):
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "threads": settings.threads,
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "commit": commit or "unknown",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def report(rows: list[dict[str, Any]], about: dict[str, Any], path: str | None) -> None:
    """Print the table, which is Markdown, and append the rows to the file at `path` if there is one."""
    table = Table(box=box.MARKDOWN)
    for title in ("model", "backend", *COLUMNS):
        table.add_column(title, justify="right" if title in COLUMNS else "left", no_wrap=True)
    for row in rows:
        values = ("–" if row[key] is None else format(row[key], form) for key, form in COLUMNS.values())
        table.add_row(row["model"], row["backend"], *values)
    console = Console(highlight=False)
    console.width = max(console.width, 170)  # a pipe counts as 80 columns wide, which would cut figures off
    console.print(
        "batch {batch}, {steps} time steps, input {input}, hidden {hidden}: {repeat} rounds".format(**rows[0])
    )
    console.print(table)
    if path is not None:
        with Path(path).open("a") as file:
            file.writelines(json.dumps(row | about) + "\n" for row in rows)


def plot(rows: list[dict[str, Any]], path: str) -> None:
    """Draw the times relative to the baseline's by size or, where dimensions vary, their growth with each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    frame = ("batch", "steps", "hidden")
    sizes = list(dict.fromkeys(tuple(row[key] for key in frame) for row in rows))
    grown = {
        key: max(
            ([size for size in sizes if others(size, key) == rest] for rest in {others(size, key) for size in sizes}),
            key=len,
        )
        for key in frame
    }
    panels = [key for key in ("steps", "hidden", "batch") if len(grown[key]) > 2]
    cases = list(dict.fromkeys((row["model"], row["backend"]) for row in rows))
    colors = dict(zip(cases, map(pyplot.get_cmap("tab20"), range(len(cases))), strict=False))
    found = {(row["model"], row["backend"], *(row[key] for key in frame)): row for row in rows}
    figure, axes = pyplot.subplots(1, max(1, len(panels)), figsize=(6.5 * max(1, len(panels)), 5.5), squeeze=False)
    for axis, key in zip(axes[0], panels, strict=False):
        for case in cases:
            points = sorted((size[frame.index(key)], size) for size in grown[key] if (*case, *size) in found)
            axis.plot(
                [value for value, _ in points],
                [found[*case, *size]["train_ms"] for _, size in points],
                "--" if case[1] in ("torch", "reference") else "-",
                color=colors[case],
                marker="o",
                label=" ".join(case),
            )
        rest = ", ".join(f"{name} {grown[key][0][frame.index(name)]}" for name in frame if name != key)
        axis.set(
            xscale="log", yscale="log", xlabel=key, ylabel="forward + backward, ms", title=f"growth with {key} ({rest})"
        )
        values = sorted(size[frame.index(key)] for size in grown[key])
        axis.set_xticks(values, [str(value) for value in values])
        axis.yaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    if panels:
        axes[0][0].legend(fontsize=8)
    else:
        places = {case: place for place, case in enumerate(reversed(cases))}
        for size, marker in zip(sizes, "osD^v<>Pp*", strict=False):
            drawn = [case for case in cases if (*case, *size) in found]
            axes[0][0].plot(
                [found[*case, *size]["train_ratio"] for case in drawn],
                [places[case] for case in drawn],
                marker,
                label="×".join(map(str, size)),
            )
        axes[0][0].axvline(1, color="gray", linewidth=1)
        axes[0][0].set_yticks(list(places.values()), [" ".join(case) for case in places])
        axes[0][0].set(
            xscale="log", xlabel=f"time of forward + backward / {BASELINE}'s", title="batch × steps × hidden"
        )
        axes[0][0].grid(alpha=0.3)
        axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def others(size: tuple[int, ...], key: str) -> tuple[int, ...]:
    """Return the size (batch, steps, hidden) without the dimension named."""
    return tuple(value for name, value in zip(("batch", "steps", "hidden"), size, strict=True) if name != key)


def main(arguments: list[str]) -> int:
    """Check, measure, report; return the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    try:
        settings = parse(arguments)
        sizes = [Size(batch, steps, settings.input, hidden) for batch, steps, hidden in settings.size]
        makers = {size: candidates(settings, size) for size in sizes}
    except OptionError as error:
        print(error, file=sys.stderr)
        return 2
    torch.set_num_threads(settings.threads)
    heap.keep()  # as in training
    about = provenance(settings)
    rows: list[dict[str, Any]] = []
    for size in sizes:
        wrong = list(refusals(makers[size], size))
        if wrong:
            print(
                "refused: no figures, since results differ from the float64 reference",
                *wrong,
                sep="\n",
                file=sys.stderr,
            )
            return 1
    for size in sizes:
        rows += (measured := figures(makers[size], settings, size))
        report(measured, about, settings.json)
        print(*left_out(settings, size), sep="\n", end="\n\n")
    print(f"× is the ratio to {BASELINE}; products ×: to the products with the cell's weights, alone.")
    print(", ".join(f"{key}={about[key]}" for key in about))
    if settings.plot is not None:
        plot(rows, settings.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
