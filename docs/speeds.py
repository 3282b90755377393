"""Tables of the measurements in benchmarks/records."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import recall

RECORDS = Path(__file__).parents[1] / "benchmarks" / "records"
MAIN = "128 × 53 × 50"  # the size at which one number stands for a cell
COLUMNS = {  # keys of a row, with the title of the column and the format
    "forward_ms": ("forward ms", ".2f"),
    "train_ms": ("forward + backward ms", ".2f"),
    "peak_memory_mib": ("peak memory MiB", ".1f"),
    "train_ratio": ("time ×", ".2f"),
    "memory_ratio": ("memory ×", ".2f"),
    "products_ratio": ("products ×", ".2f"),
    "ragged_ratio": ("ragged ×", ".2f"),
    "resets_ratio": ("resets ×", ".2f"),
    "edges_ratio": ("edges ×", ".2f"),
    "bare_ms": ("bare ms", ".2f"),
    "training_ms": ("training ms", ".2f"),
    "ratio": ("training ×", ".3f"),
    "added_ms": ("added ms", ".2f"),
    "data_ms": ("data ms", ".2f"),
    "callbacks_ms": ("callbacks ms", ".2f"),
    "logging_ms": ("logging ms", ".2f"),
    "lightning_ms": ("Lightning ms", ".2f"),
    "error": ("error", ".1e"),
}
OF_CELL = ("train_ms", "train_ratio", "memory_ratio", "error")

Row = dict[str, Any]


@cache
def measurements(name: str = "cells") -> list[Row]:
    """Return the rows of benchmarks/records/<name>.jsonl."""
    return [json.loads(line) for line in (RECORDS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def size_of(row: Row) -> str:
    """Return batch size × time steps × hidden units."""
    return " × ".join(str(row[key]) for key in ("batch", "time_steps" if "time_steps" in row else "steps", "hidden"))


def conditions(name: str = "cells") -> str:
    """Return the machine, the version and the commit of the measurements in a file."""
    first = measurements(name)[0]
    threads = "one thread" if first["threads"] == 1 else f"{first['threads']} threads"
    return f"{first['cpu']}, {threads}, PyTorch {first['torch']}, commit {first['commit'][:10]}"


def table(head: list[str], rows: list[list[str]], texts: int = 1) -> str:
    """Return a table in Markdown whose first columns are texts and whose others are numbers."""
    rule = ["---"] * texts + ["---:"] * (len(head) - texts)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))


def figures(name: str, size: str = "") -> str:
    """Return all figures of the measurements in a file, of one size if `size` is not empty."""
    rows = [row for row in measurements(name) if size in ("", size_of(row).replace(" × ", "x"))]
    about = [key for key in ("case", "model", "backend") if key in rows[0]]
    columns = [key for key in COLUMNS if any(row.get(key) is not None for row in rows)]
    lines = [
        [*(row[key] for key in about), size_of(row), *(number(row.get(key), COLUMNS[key][1]) for key in columns)]
        for row in rows
    ]
    return table([*about, "size", *(COLUMNS[key][0] for key in columns)], lines, len(about) + 1)


def number(value: float | None, form: str) -> str:
    """Return a number as text."""
    return "–" if value is None else format(value, form)


def by_size(name: str, key: str) -> str:
    """Return one figure of the fused paths in a file, with a column for each size."""
    found: dict[str, dict[str, float]] = {}
    for row in measurements(name):
        if row["backend"] in ("fused", "torch"):
            found.setdefault(row["model"], {})[size_of(row)] = row[key]
    sizes = sorted({size for row in found.values() for size in row}, key=lambda size: list(map(int, size.split(" × "))))
    lines = [
        [f"`{model}`", *(number(row.get(size), ".2f") for size in sizes)]
        for model, row in sorted(found.items(), key=lambda item: min(item[1].values()))
    ]
    return table(["cell", *sizes], lines)


def overview() -> str:
    """Return the time ratios of the fused paths of all cells."""
    return (
        "Time of the forward and backward pass, divided by that of `torch.nn.GRU` of the same size in the same run, at"
        f" batch × time × hidden size: less is faster. {conditions()}.\n\n{by_size('cells', 'train_ratio')}"
    )


def of_cell(name: str) -> str:
    """Return the measurements of a cell next to torch.nn.GRU."""
    rows = [row for row in measurements() if row["model"].partition(":")[0] == name]
    if not rows:
        return "Not measured yet."
    lines = [
        [f"`{row['model']}`", row["backend"], size_of(row), *(number(row[key], COLUMNS[key][1]) for key in OF_CELL)]
        for row in rows
    ]
    return (
        f"Forward and backward pass at batch × time × hidden size, float32, {conditions()}. Ratios are relative to"
        " `torch.nn.GRU` in the same run; below 1 is faster, or smaller. The error is the largest relative error of"
        " outputs and gradients against float64.\n\n"
        + table(["options", "backend", "size", *(COLUMNS[key][0] for key in OF_CELL)], lines, 3)
    )


def is_main(row: Row) -> bool:
    """Return whether a row has the path that runs by default, at the size of MAIN."""
    return row["backend"] in ("fused", "torch") and size_of(row) == MAIN


def relative_time(model: str, name: str = "cells", size: str = MAIN.replace(" × ", "x")) -> str:
    """Return the time of the fused path of a model relative to that of torch.nn.GRU, at one size of a file."""
    (ratio,) = [
        row["train_ratio"]
        for row in measurements(name)
        if row["model"] == model and row["backend"] in ("fused", "torch") and size_of(row).replace(" × ", "x") == size
    ]
    return f"{ratio:.2f}"


def seconds(model: str, name: str) -> str:
    """Return the seconds of the forward and backward pass of a model in a file with one size."""
    (found,) = [row["train_ms"] for row in measurements(name) if row["model"] == model]
    return f"{found / 1000:.2f} s"


def gpu() -> str:
    """Return the measurements on a GPU."""
    found = json.loads((RECORDS / "gpu.json").read_text(encoding="utf-8"))
    about, ratios = found["about"], ("train_to_gru", "train_to_lstm")
    lines = []
    for row in found["rows"]:
        texts = [f"`{row['model']}`", row["backend"], row["precision"], size_of(row)]
        figures = [format(row[key], ".2f") for key in ("forward_ms", "train_ms", *ratios)]
        lines.append([*texts, *figures, f"{row['peak_memory_mib']:.0f}", f"{row['error']:.1e}"])
    head = [
        "layer or cell",
        "backend",
        "precision",
        "size",
        "forward ms",
        "forward + backward ms",
        "time ÷ GRU",
        "time ÷ LSTM",
    ]
    versions = f"PyTorch {about['torch']}, Triton {about['triton']}, cuDNN {about['cudnn']}"
    return (
        f"{about['device_name']}, {versions}, commit {about['commit'][:10]} ({about['earlier']}),"
        f" input size {about['input']}. Ratios are of forward + backward, to cuDNN's layers in the same rounds.\n\n"
        + table([*head, "peak memory MiB", "error"], lines, 4)
    )


FIGURES: dict[str, Callable[..., str]] = {
    "measured": figures,
    "conditions": conditions,
    "time": relative_time,
    "seconds": seconds,
    "speeds": overview,
    "gpu": gpu,
    "recall": recall.accuracy,
}


def filled(text: str, makers: Mapping[str, Callable[..., str]] = FIGURES) -> str:
    """Return a page with the figures that its comments `<!-- measured cells 128x53x50 -->` and the like ask for.

    They stand between the comment and `<!-- end -->`, a table in lines of its own.

    Args:
        text: the page.
        makers: what makes the figures of the other words of a comment, by its first word.
    """

    def fill(match: re.Match[str]) -> str:
        found = makers[match[2]](*(match[3] or "").split())
        return f"{match[1]}\n{found}\n\n{match[5]}" if match[4] else f"{match[1]}{found}{match[5]}"

    names = "|".join(makers)
    return re.sub(rf"(<!-- ({names})(?: ([^>]+?))? -->)(\n?).*?(<!-- end -->)", fill, text, flags=re.DOTALL)
