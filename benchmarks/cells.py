"""Speed and memory of every cell on each of its backends, side by side with torch.nn.RNN, GRU and LSTM.

Usage: python -m benchmarks.cells [key=value …]

  model=rum,rum:lambd=1,lstm   cells by their file in conf/model, cell options after colons; default: all
  backend=reference,fused      backends to measure where the cell has them; also: compile
  batch=128 steps=53           sequences at once, time steps
  input=36 hidden=50           width of the inputs and of the hidden state
  repeat=7                     rounds; a time is the median over them
  threads=N                    torch's threads; default: torch's own choice
  json=path                    append one line of JSON a case to this file

The default sizes are those of associative recall with T = 50 (Dangovski et al., TACL 2019). Nothing is reported unless
every case agrees with its cell's float64 reference. Exit status: 0 reported, 1 refused, 2 a key or value not allowed.
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
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich import box
from rich.console import Console
from rich.table import Table
from torch import nn
from yaml import YAMLError  # type: ignore[import-untyped]

from benchmarks import measure
from benchmarks.equivalence import disagreements
from src.checks import OptionError, check_choice, check_integer
from src.models.recurrent import BACKENDS, Recurrent

ROOT = Path(__file__).resolve().parents[1]
MODELS = tuple(sorted(path.stem for path in (ROOT / "conf/model").glob("[!_]*.yaml")))
VARIANTS = {"rum": ("rum:lambd=1",)}  # measured by default next to the cell as its file has it
DEFAULT_MODELS = tuple(name for model in MODELS for name in (model, *VARIANTS.get(model, ())))
LAYERS = {"torch.nn.RNN": nn.RNN, "torch.nn.GRU": nn.GRU, "torch.nn.LSTM": nn.LSTM}
BASELINE = "torch.nn.GRU"
COLUMNS = {  # of the table: key of the row and format
    "forward ms": ("forward_ms", ".2f"),
    "forward + backward ms": ("train_ms", ".2f"),
    "per time step ms": ("train_ms_per_time_step", ".3f"),
    "peak memory MiB": ("peak_memory_mib", ".1f"),
    "forward ×": ("forward_ratio", ".2f"),
    "forward + backward ×": ("train_ratio", ".2f"),
    "memory ×": ("memory_ratio", ".2f"),
}


class Settings(NamedTuple):
    """The command line."""

    model: tuple[str, ...] = DEFAULT_MODELS
    backend: tuple[str, ...] = ("reference", "fused")
    batch: int = 128
    steps: int = 53
    input: int = 36
    hidden: int = 50
    repeat: int = 7
    threads: int = torch.get_num_threads()
    json: str | None = None


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
        if key == "json":
            if not isinstance(value, str) or Path(value).is_dir() or not Path(value).absolute().parent.is_dir():
                raise OptionError(f"json={value}: must be the path of a file, in a folder that exists")
        elif key in ("model", "backend"):
            given[key] = tuple(dict.fromkeys(str(value).split(",")))
        else:
            check_integer(key, value)
    settings = Settings(**given)
    for backend in settings.backend:
        check_choice("backend", backend, tuple(name for name in BACKENDS if name != "auto"))
    return settings


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


def candidates(settings: Settings) -> dict[Case, measure.Maker]:
    """Return the cases and what makes their modules: torch's layers, then every model on the backends it has."""
    sizes = (settings.input, settings.hidden)
    makers: dict[Case, measure.Maker] = {}
    for case in (Case(layer, "torch") for layer in LAYERS):
        makers[case] = partial(build_layer, case, *sizes)
    for model in settings.model:
        has_fused = build_cell(Case(model, "reference"), *sizes).cells[0].has_fused
        cases = [Case(model, backend) for backend in settings.backend if backend != "fused" or has_fused]
        makers |= {case: partial(build_cell, case, *sizes) for case in cases}
    return makers


def refusals(makers: dict[Case, measure.Maker], settings: Settings) -> Iterator[str]:
    """Yield a line for every case that differs from its cell's reference."""
    shape = (settings.steps, settings.batch, settings.input)
    for reference in dict.fromkeys(case.reference for case in makers):
        others = {case.backend: make for case, make in makers.items() if reference == case.reference != case}
        make_reference = partial(build_cell, reference, settings.input, settings.hidden)
        yield from (f"{reference.model}: {line}" for line in disagreements(make_reference, others, shape))


def figures(makers: dict[Case, measure.Maker], settings: Settings) -> list[dict[str, Any]]:
    """Measure every case: one row each, with its ratios to the baseline."""
    shape = (settings.steps, settings.batch, settings.input)
    times = measure.times(list(makers.values()), shape, settings.repeat)
    memory = measure.peak_memories(list(makers.values()), shape, settings.threads)
    base = list(makers).index(Case(BASELINE, "torch"))
    return [
        {
            **case._asdict(),
            "forward_ms": forward,
            "train_ms": train,
            "train_ms_per_time_step": train / settings.steps,
            "peak_memory_mib": peak,
            "forward_ratio": forward / times[base][0],
            "train_ratio": train / times[base][1],
            "memory_ratio": peak / memory[base] if memory[base] else None,  # sizes too small to see
        }
        for case, (forward, train), peak in zip(makers, times, memory, strict=True)
    ]


def provenance(settings: Settings) -> dict[str, Any]:
    """Return what the figures depend on besides the case: sizes, machine, versions, commit, date."""
    cpu_information = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", cpu_information.read_text()) if cpu_information.exists() else []
    commit = ""
    if shutil.which("git"):
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return {
        **{key: getattr(settings, key) for key in ("batch", "steps", "input", "hidden", "repeat", "threads")},
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
    console.width = max(console.width, 160)  # a pipe counts as 80 columns wide, which would cut figures off
    console.print(table)
    console.print(f"× is the ratio to {BASELINE}.", ", ".join(f"{key}={about[key]}" for key in about), soft_wrap=True)
    if path is not None:
        with Path(path).open("a") as file:
            file.writelines(json.dumps(row | about) + "\n" for row in rows)


def main(arguments: list[str]) -> int:
    """Check, measure, report; return the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    try:
        settings = parse(arguments)
        makers = candidates(settings)
    except OptionError as error:
        print(error, file=sys.stderr)
        return 2
    torch.set_num_threads(settings.threads)
    wrong = list(refusals(makers, settings))
    if wrong:
        print("refused: no figures, since results differ from the float64 reference", *wrong, sep="\n", file=sys.stderr)
        return 1
    report(figures(makers, settings), provenance(settings), settings.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
