"""Tables of the measurements in benchmarks/records."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import recall

RECORDS = Path(__file__).parents[1] / "benchmarks" / "records"
MAIN = "128x53x50"  # the size at which one number stands for a cell
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


def times(size: str) -> str:
    """Return a size such as 128x53x50 as text."""
    return size.replace("x", " × ")


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


def overview(name: str = "cells", size: str = MAIN) -> str:
    """Return the time ratios of the fused paths of all cells in a file at one size, two cells a line."""
    found = {f"`{row['model']}`": row["train_ratio"] for row in measurements(name) if is_default(row, size)}
    cells = [[name, number(ratio, ".2f")] for name, ratio in sorted(found.items(), key=lambda item: item[1])]
    half = (len(cells) + 1) // 2
    lines = [[*left, *right] for left, right in zip_longest(cells[:half], cells[half:], fillvalue=["", ""])]
    return (
        "Time of the forward and backward pass, divided by that of `torch.nn.GRU` in the same run, at batch × time ×"
        f" hidden size {times(size)}: less is faster. {conditions(name)}.\n\n"
        "| cell | time | cell | time |\n| --- | ---: | --- | ---: |\n"
    ) + "\n".join(f"| {' | '.join(line)} |" for line in lines)


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


def is_default(row: Row, size: str = MAIN) -> bool:
    """Return whether a row has the path that runs by default, at a size."""
    return row["backend"] in ("fused", "torch") and size_of(row).replace(" × ", "x") == size


def relative_time(model: str, name: str = "cells", size: str = MAIN) -> str:
    """Return the time of the fused path of a model relative to that of torch.nn.GRU, at one size of a file."""
    (ratio,) = [row["train_ratio"] for row in measurements(name) if row["model"] == model and is_default(row, size)]
    return f"{ratio:.2f}"


def seconds(model: str, name: str) -> str:
    """Return the seconds of the forward and backward pass of a model in a file with one size."""
    (found,) = [row["train_ms"] for row in measurements(name) if row["model"] == model]
    return f"{found / 1000:.2f} s"


CUDNN = ("torch.nn.", "GRU", "LSTM", "RNN")  # how the names of rows begin that run cuDNN's layers, without options
GPU_COLUMNS = {  # titles of the table, with key of the row and format
    "launches": ("launches", "d"),
    "wall ms": ("train_ms", ".2f"),
    "device ms": ("device_ms", ".2f"),
    "of the bound": ("of_bound", ".1%"),
    "× GRU": ("train_to_gru", ".2f"),
    "peak memory MiB": ("peak_memory_mib", ".0f"),
    "error": ("error", ".1e"),
}


GPU_RECORDS = "gpu.json", "gpu_before.json"  # a later record replaces the rows of its models in earlier ones


@cache
def on_gpu() -> list[dict[str, Any]]:
    """Return the records of `make gpu`, each without the models of those before it."""
    found: list[dict[str, Any]] = []
    models: set[str] = set()
    for name in GPU_RECORDS:
        record = json.loads((RECORDS / name).read_text(encoding="utf-8"))
        record["rows"] = [row for row in record["rows"] if row["model"] not in models]
        models |= {row["model"] for row in record["rows"]}
        found.append(record)
    return found


def gpu() -> str:
    """Return the times on a GPU relative to cuDNN's GRU by size, and all measurements of each record behind them."""
    found = {size_of(row) for record in on_gpu() for row in record["rows"]}
    sizes = sorted(found, key=lambda size: [*map(int, reversed(size.split(" × ")))])
    times = {size: times_on_gpu(size.replace(" × ", "x")) for size in sizes}
    models = sorted({model for own in times.values() for model in own}, key=str.lower)
    lines = [[f"`{model}`", *(number(times[size].get(model), ".2f") for size in sizes)] for model in models]
    cards = "; rows of earlier records: ".join(dict.fromkeys(record["about"]["device_name"] for record in on_gpu()))
    return (
        "Time of the forward and backward pass in float32, divided by that of cuDNN's GRU in the same rounds, at batch"
        f" × time × hidden size: less is faster. A dash means that it was not measured. {cards}.\n\n"
        f"{table(['layer', *sizes], lines)}\n\n"
        '<details markdown="1"><summary>All measurements, with precision, memory and errors</summary>\n\n'
        + "\n\n".join(map(gpu_table, on_gpu()))
        + "\n\n</details>"
    )


def gpu_table(found: dict[str, Any]) -> str:
    """Return the measurements of a record, after its conditions and what failed."""
    about = found["about"]

    def figure(row: dict[str, Any], key: str, form: str) -> str:
        return "–" if row.get(key) is None else format(row[key], form)

    lines = []
    for row in found["rows"]:
        if "train_ms" in row:
            texts = [f"`{row['model']}`", row.get("path", row.get("backend")), row["precision"], size_of(row)]
            lines.append([*texts, *(figure(row, *column) for column in GPU_COLUMNS.values())])
    versions = f"PyTorch {about['torch']}, Triton {about['triton']}, cuDNN {about['cudnn']}"
    failed = "".join(
        f" `{row['model']}` at {size_of(row)} was not measured: {row['failure']}."
        for row in found["rows"]
        if "failure" in row
    )
    return (
        f"{about['device_name']}, {versions}, commit {about['commit'][:10]}, input size {about['input']}."
        f" Times are of forward + backward; × GRU is relative to cuDNN's in the same rounds.{failed}\n\n"
        + table(["layer or cell", "path", "precision", "size", *GPU_COLUMNS], lines, 4)
    )


def card() -> str:
    """Return the name of the GPU of the latest record."""
    return str(on_gpu()[0]["about"]["device_name"])


def times_on_gpu(size: str) -> dict[str, float]:
    """Return the times of all models in float32, relative to cuDNN's GRU, at a size: those of the fastest paths."""
    return fastest_at(size, [row for record in on_gpu() for row in record["rows"]])


def fastest_at(size: str, rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the shortest time of each model in float32, relative to cuDNN's GRU, at a size."""
    found: dict[str, float] = {}
    for row in rows:
        if row["precision"] == "float32" and size_of(row).replace(" × ", "x") == size and "train_to_gru" in row:
            found[row["model"]] = min(row["train_to_gru"], found.get(row["model"], row["train_to_gru"]))
    return found


def time_on_gpu(model: str, size: str) -> str:
    """Return the time of a model relative to cuDNN's GRU on a GPU."""
    return f"{times_on_gpu(size)[model]:.2f}"


def faster_on_gpu(size: str) -> str:
    """Return how many of the cells whose own kernels ran, those of the latest record, are faster than cuDNN's GRU."""
    times = fastest_at(size, on_gpu()[0]["rows"])
    own = [time for model, time in times.items() if model not in CUDNN and not model.startswith(CUDNN[0])]
    count = sum(time < 1 for time in own)
    return f"{count or 'none'} of {len(own)}"


def streaming() -> str:
    """Return the time of a step of a stream in both runtimes, at each size that was measured."""
    rows = measurements("streaming")
    sizes = list(dict.fromkeys((row["inputs"], row["hidden"]) for row in rows))
    kinds = {"python": "Python", "onnxruntime": "onnxruntime"}
    lines: dict[str, list[str]] = {}
    for row in rows:
        line = lines.setdefault(row["layer"], [f"`{row['layer']}`", str(row["nodes"])])
        line += [f"{row[f'{kind}_us']:.0f} µs, {row[f'{kind}_ratio']:.2f} ×" for kind in kinds]
    titles = [f"{inputs} → {hidden}, {name}" for inputs, hidden in sizes for name in kinds.values()]
    return (
        f"{conditions('streaming')}, onnxruntime {rows[0]['onnxruntime']}; × is relative to `torch.nn.GRU`.\n\n"
        + table(["layer", "nodes in ONNX", *titles], list(lines.values()))
    )


@cache
def step_ratios(table: str) -> dict[str, float]:
    """Return the time of a training step of each row of a table, relative to torch.nn.GRU; empty if unmeasured."""
    is_measured = (RECORDS / f"{table}.jsonl").is_file()
    return {row["row"]: row["step_ratio"] for row in measurements(table)} if is_measured else {}


def steps(table: str) -> str:
    """Return a sentence about how the time of a training step of the rows of a table was measured."""
    command = f"python -m benchmarks.steps sweep={table} json=benchmarks/records/{table}.jsonl"
    if not step_ratios(table):
        return f"The time of a training step has not been measured yet; `{command}` does so."
    size = " × ".join(str(measurements(table)[0][key]) for key in ("batch", "time_steps"))
    return (
        "*Step ×* is the time of a training step divided by that with `torch.nn.GRU` in the same run, medians at batch"
        f" × time steps {size}: `benchmarks/records/{table}.jsonl`, {conditions(table)}. It was measured apart from"
        f" training (`{command}`), because the time of a training run depends on what else runs on the machine."
    )


FIGURES: dict[str, Callable[..., str]] = {
    "measured": figures,
    "conditions": conditions,
    "time": relative_time,
    "seconds": seconds,
    "speeds": overview,
    "streaming": streaming,
    "steps": steps,
    "gpu": gpu,
    "card": card,
    "gpu_time": time_on_gpu,
    "gpu_faster": faster_on_gpu,
    "recall": recall.accuracy,
}


def filled(text: str, makers: Mapping[str, Callable[..., str]] = FIGURES) -> str:
    """Return a page with the figures that its comments `<!-- measured cells 128x53x50 -->` and the like ask for.

    They stand between the comment and `<!-- end -->`, a table in separate lines.

    Args:
        text: the page.
        makers: what makes the figures of the other words of a comment, by its first word.
    """

    def fill(match: re.Match[str]) -> str:
        found = makers[match[2]](*(match[3] or "").split())
        return f"{match[1]}\n{found}\n\n{match[5]}" if match[4] else f"{match[1]}{found}{match[5]}"

    names = "|".join(makers)
    return re.sub(rf"(<!-- ({names})(?: ([^>]+?))? -->)(\n?).*?(<!-- end -->)", fill, text, flags=re.DOTALL)
