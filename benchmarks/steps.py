"""Time of a training step of each row of a table, beside torch.nn.GRU in the same run.

Usage: python -m benchmarks.steps sweep=language_small [key=value …]

  sweep=language_small     the table, by its file in conf/table
  row=lstm,gru             rows by their names in the table; default: all
  column=parity            the column of the table, if it has columns; default: the first
  repeat=25                rounds; a time is the median over the rounds
  seconds=400              runs fewer rounds, at least 3, if all would take longer
  json=path                write one line of JSON per row to this file, which is replaced

Every other key is an option of `gyral train`: task.window=16. The pages of results show the file
benchmarks/records/<table>.jsonl: time in the records of training runs depends on what else ran on the machine.

A step is that of training on a batch of the table's task: forward, loss, backward, clipping and the optimizer, without
drawing the batch, logging and validation. Every round runs every row once, on one thread. torch.nn.GRU takes the place
of the layer of the row of GRU, with its weights. Figures are reported only if both give equal outputs.
Exit status: 0 success, 1 the outputs differ, 2 a key or value is not allowed.
"""

import json
import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.measure import BASELINE, times
from benchmarks.provenance import provenance
from benchmarks.train_loop import BareLoop
from gyral.config.composition import compose
from gyral.config.groups import generated_choices
from gyral.config.tables import COLUMN, PROTOCOL, load_table
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError, UserError
from gyral.reports.catalogue import load
from gyral.training import build

TOLERANCE = 1e-4  # between outputs in float32
WORDS = ("threads=1", "trainer.accelerator=cpu", "logger=none")
COLUMNS = {  # titles of the table, with key of the row and format
    "parameters": ("parameters", ",d"),
    "forward ms": ("forward_ms", ".2f"),
    "step ms": ("step_ms", ".2f"),
    "forward ×": ("forward_ratio", ".2f"),
    "step ×": ("step_ratio", ".2f"),
}


class Settings(NamedTuple):
    """The options of the command line; `overrides` are those of the runs' configuration."""

    sweep: str
    row: tuple[str, ...] = ()
    column: str | None = None
    repeat: int = 25
    seconds: int = 400
    json: str | None = None
    overrides: tuple[str, ...] = ()

    def config(self, row: str) -> DictConfig:
        """Return the configuration of the runs of a row."""
        prefix = load(self.sweep).protocol.removesuffix(PROTOCOL)
        column = [f"{COLUMN}={self.column}"] if self.column else []
        config = compose([f"experiment={prefix}{row}", *column, *WORDS, *self.overrides])
        OmegaConf.resolve(config)
        return config


def parse(arguments: list[str]) -> Settings:
    """Parse key=value arguments.

    Raises:
        UserError: a key or value is not allowed.
    """
    given: dict[str, Any] = {}
    overrides = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not (key and equals):
            raise UserError(f"{argument}: must be key=value, see --help")
        if key in ("repeat", "seconds"):
            given[key] = check_integer(key, int(value) if value.isdecimal() else value)
        elif key == "json":
            if not value or Path(value).is_dir() or not Path(value).absolute().parent.is_dir():
                raise OptionError(key, value, "must be the path of a file in an existing folder")
            given[key] = value
        elif key in Settings._fields:
            given[key] = value
        else:
            overrides.append(argument)
    if "sweep" not in given:
        raise UserError("sweep: must be given, such as sweep=language_small")
    table = load(given["sweep"])
    prefix = table.protocol.removesuffix(PROTOCOL)
    names = [name.removeprefix(prefix) for name in table.axes["experiment"]]
    rows = tuple(check_choice("row", row, names) for row in given.pop("row", ",".join(names)).split(","))
    columns = [name.removeprefix(prefix) for name in table.axes.get(COLUMN, [])]
    column = given.pop("column", next(iter(columns), None))
    if column is not None and not columns:
        raise OptionError("column", column, f"sweep={given['sweep']} has no columns")
    if column is not None:
        column = prefix + check_choice("column", column, columns)
    return Settings(**given, row=rows, column=column, overrides=tuple(overrides))


class TorchGRU(nn.Module):
    """torch.nn.GRU in place of the layer of a recurrent stack with one layer of GRU, with its weights."""

    def __init__(self, stack: Any) -> None:
        super().__init__()
        (cell,) = stack.cells
        self.layer, self.block = nn.GRU(cell.input_size, cell.hidden_size), stack.block
        with torch.no_grad():
            for parameter, value in zip(self.layer.parameters(), cell.parameters(), strict=True):
                parameter.copy_(value)

    def init_state(self, batch_size: int) -> Tensor:
        return torch.zeros(batch_size, self.layer.hidden_size)

    def forward(self, inputs: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        state = None if state is None else state.unsqueeze(0)
        if self.block is None:
            outputs, state = self.layer(inputs, state)
        else:
            stream = self.block.enter(inputs)
            outputs, state = self.layer(self.block.normalize(0, stream), state)
            outputs = self.block.finish(self.block.add(0, stream, outputs), lengths)
        return outputs, state.squeeze(0)


class Step(BareLoop):
    """The training step of a row on one batch, always the same.

    Args:
        config: the configuration of its runs.
        name: the name of the row.
        is_torch: whether torch.nn.GRU takes the place of the row's layer.
    """

    def __init__(self, config: DictConfig, name: str, is_torch: bool = False) -> None:
        build.configure_process(config)  # the same seed for all rows
        task: Any = build.build_task(config)
        if is_torch:
            task.model.recurrent = TorchGRU(task.model.recurrent)
        task.data.trainer = SimpleNamespace(max_steps=2, accumulate_grad_batches=1)
        self.batch = list(islice(task.data.stream(), 2))[-1]  # that of a text continues the first
        task.data = None  # a corpus takes much memory
        made = task.configure_optimizers()
        self.optimizer = made["optimizer"] if isinstance(made, dict) else made
        self.name, self.task, self.clip = name, task.train(), config.trainer.gradient_clip_val
        self.parameters = list(task.parameters())
        self.cell = BASELINE if is_torch else config.model.cell._target_.rpartition(".")[2].removesuffix("Cell")
        self.hidden = config.model.cell.hidden_size

    @torch.no_grad()
    def outputs(self) -> Any:
        """Return the outputs for the batch."""
        return self.task(self.batch)

    def forward(self) -> None:
        self.outputs()

    def train(self) -> None:  # type: ignore[override]
        super().train([self.batch])


def steps(settings: Settings) -> list[Step]:
    """Return the step of torch.nn.GRU and that of each row.

    Raises:
        UserError: an option is not allowed, or the table has no row of GRU.
        ArithmeticError: torch.nn.GRU has other outputs than the row of GRU.
    """
    table = load_table(generated_choices("sweep")[settings.sweep])
    of_gru = next((name for name in table.rows if table.options(name).get("model") == "gru"), None)
    if of_gru is None:
        raise UserError(f"sweep={settings.sweep}: has no row of GRU, beside which torch.nn.GRU could run")
    config = settings.config(of_gru)
    own, base = Step(config, of_gru), Step(config, BASELINE, is_torch=True)
    error = float((own.outputs() - base.outputs()).abs().max())
    if not error < TOLERANCE:
        raise ArithmeticError(f"{BASELINE} has other outputs than the row {of_gru}: they differ by {error:.1e}")
    return [base, *(Step(settings.config(row), row) for row in settings.row)]


def measure(settings: Settings) -> list[dict[str, Any]]:
    """Measure torch.nn.GRU and all rows in turns; return a row for each, with its ratios to torch.nn.GRU."""
    threads = torch.get_num_threads()
    try:
        loads = steps(settings)
        medians, repeat = times(loads, settings.repeat, settings.seconds)
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)
    base_forward, base_step = medians[0]
    return [
        {
            "sweep": settings.sweep,
            "column": (settings.column or "").rpartition("/")[2],
            "row": load.name,
            "cell": load.cell,
            "batch": load.batch.inputs.shape[0],
            "time_steps": load.batch.inputs.shape[1],
            "hidden": load.hidden,
            "parameters": sum(parameter.numel() for parameter in load.parameters),
            "repeat": repeat,
            "forward_ms": forward,
            "step_ms": step,
            "forward_ratio": forward / base_forward,
            "step_ratio": step / base_step,
        }
        for load, (forward, step) in zip(loads, medians, strict=True)
    ]


def report(rows: list[dict[str, Any]], about: dict[str, Any], path: str | None) -> None:
    """Print the rows as a Markdown table, and write them to the file at `path` if it is not None."""
    table = Table(box=box.MARKDOWN)
    for title in ("row", "cell", "B × T × N", *COLUMNS):
        table.add_column(title, justify="right" if title in COLUMNS else "left", no_wrap=True)
    for row in rows:
        sizes = f"{row['batch']} × {row['time_steps']} × {row['hidden']}"
        figures = (format(row[key], form) for key, form in COLUMNS.values())
        table.add_row(row["row"], row["cell"], sizes, *figures)
    console = Console(highlight=False)
    console.width = max(console.width, 160)  # rich assumes 80 columns for a pipe, which would truncate figures
    console.print(table)
    conditions = ", ".join(f"{key}={value}" for key, value in about.items() if value != "")
    console.print(f"{rows[0]['repeat']} rounds; × is the ratio to {BASELINE}.", conditions, soft_wrap=True)
    if path is not None:
        Path(path).write_text("".join(f"{json.dumps(row | about)}\n" for row in rows), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Measure and report; return the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    try:
        settings = parse(arguments)
        rows = measure(settings)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except ArithmeticError as error:
        print(f"No figures: {error}", file=sys.stderr)
        return 1
    report(rows, {"threads": 1, "overrides": " ".join(settings.overrides), **provenance()}, settings.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
