"""Tests and speed of all cells on a CUDA GPU. Needs torch, triton and pytest alone; gyral need not be installed.

Usage: PYTHONPATH=src python -m benchmarks.gpu [key=value …], or make gpu

  json=gpu.json                  file of the results, written after each row; default: benchmarks/records/gpu.json
  budget=500                     seconds for everything; rows that would begin later are skipped, and named in the file
  tests=240                      seconds of these for the tests; 0 skips the tests
  model=RUM,GRU                  cells; default: all
  backend=reference,fused,graph  backends, where a cell has them; also: compile (half a minute for each row)
  precision=float32,bfloat16     float32 without TF32; bfloat16 and float16 are autocast
  size=128x53x50,…               batch x time steps x hidden size
  input=36                       size of the inputs
  repeat=20                      rounds; a time is the median over the rounds. Slow rows run fewer rounds, at least 3
  device=cuda                    cpu tries everything but the GPU itself, with Triton's interpreter

Every row is first compared with the float64 reference of its cell, then measured beside cuDNN's GRU and LSTM (torch.nn)
in the same rounds. A row that fails is recorded in one line, and the others follow. Exit status: 0 success, 1 a test or
a row failed, 2 a key or value is not allowed, or there is no GPU.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks import gpu_rows, gpu_tests
from benchmarks.gpu_rows import Case
from benchmarks.provenance import ROOT, provenance
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError, UserError
from gyral.nn.recurrent import BACKENDS

ROW_SECONDS = 80.0  # a row that takes longer is stopped


class Settings(NamedTuple):
    """The options of the command line."""

    json: str = str(ROOT / "benchmarks" / "records" / "gpu.json")
    budget: int = 500
    tests: int = 240
    model: tuple[str, ...] = ()
    backend: tuple[str, ...] = ("reference", "fused", "graph")
    precision: tuple[str, ...] = ("float32", "bfloat16")
    size: tuple[str, ...] = ("128x53x50", "128x150x250")
    input: int = 36
    repeat: int = 20
    device: str = "cuda"


def parse(arguments: Sequence[str]) -> Settings:
    """Parse key=value arguments.

    Raises:
        UserError: A key or value is not allowed, or there is no GPU.
    """
    given: dict[str, Any] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if key not in Settings._fields or not equals:
            raise UserError(f"{argument}: must be <key>=<value>, where <key> is one of {', '.join(Settings._fields)}")
        default = Settings._field_defaults[key]
        if isinstance(default, int):
            given[key] = check_integer(key, int(value) if value.isdecimal() else value, minimum=int(key != "tests"))
        else:
            given[key] = tuple(value.split(",")) if isinstance(default, tuple) else value
    settings = Settings(**given)
    allowed = {"model": tuple(gpu_rows.models()), "backend": BACKENDS[1:], "precision": tuple(gpu_rows.PRECISIONS)}
    for key, choices in allowed.items():
        for value in getattr(settings, key):
            check_choice(key, value, choices)
    for value in settings.size:
        sizes = value.split("x")
        if len(sizes) != 3 or not all(number.isdecimal() and int(number) > 0 for number in sizes):
            raise OptionError("size", value, "must be <batch>x<steps>x<hidden>, such as 128x53x50")
    check_choice("device", settings.device, ("cuda", "cpu"))
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise OptionError("device", "cuda", "torch finds no CUDA GPU here")
    if not Path(settings.json).absolute().parent.is_dir():
        raise OptionError("json", settings.json, "must be the path of a file in an existing folder")
    return settings


def cases(settings: Settings) -> Iterator[Case]:
    """Yield all cases, torch's layers first in each size and precision, and the fastest backends of a cell first."""
    for size in settings.size:
        batch, steps, hidden = map(int, size.split("x"))
        for precision in settings.precision:
            arguments = precision, batch, steps, settings.input, hidden
            yield from (Case(layer, "torch", *arguments) for layer in gpu_rows.LAYERS)
            for model in settings.model or gpu_rows.models():
                order = sorted(settings.backend, key=("fused", "graph", "reference", "compile").index)
                yield from (Case(model, backend, *arguments) for backend in order)


class Worker:
    """A process that computes rows. A GPU is unusable to a process after some errors, so that each failure ends it."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def row(self, seconds: float, *arguments: Any) -> dict[str, Any]:
        """Return the value of `gpu_rows.row`.

        Raises:
            RuntimeError: It failed, or took longer than `seconds`; the message is one line.
        """
        try:
            self.connection.send(arguments)
            if not self.connection.poll(seconds):
                raise RuntimeError(f"it took longer than {seconds:.0f} s")
            found: dict[str, Any] | str = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            raise RuntimeError(f"its process ended with exit code {self.process.exitcode}") from None
        if isinstance(found, str):
            raise RuntimeError(found)
        return found

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()


def serve(connection: Connection) -> None:
    """Answer every request with a row, or with the error in one line."""
    while True:
        try:
            arguments = connection.recv()
        except EOFError:
            return
        try:
            connection.send(gpu_rows.row(*arguments))
        except Exception as error:  # of torch, Triton and the driver
            lines = str(error).strip().splitlines() or ["no message"]
            connection.send(f"{type(error).__name__}: {lines[0]}")


def measure_rows(settings: Settings, results: dict[str, Any], deadline: float) -> None:
    """Fill in the rows of the results, and write them after each."""
    worker = None
    for case in cases(settings):
        if time.monotonic() > deadline:
            results["skipped"].append(" ".join(map(str, case)))
            continue
        worker = worker or Worker()
        try:
            row = worker.row(ROW_SECONDS, case, settings.device, settings.repeat)
        except RuntimeError as error:
            row = {**case._asdict(), "failure": str(error)}
            worker.stop()
            worker = None
        results["unsupported" if "unsupported" in row else "rows"].append(row)
        write(results, settings.json)
        print(line(row), flush=True)
    if worker is not None:
        worker.stop()


def line(row: dict[str, Any]) -> str:
    """Return a row as a line of the terminal."""
    name = "{model:<34} {backend:<9} {precision:<8} {batch}x{steps}x{hidden}".format(**row)
    if "train_ms" not in row:
        return f"{name:<66} {'not supported: ' + row['unsupported'] if 'unsupported' in row else row['failure']}"
    figures = "{forward_ms:8.2f} ms forward, {train_ms:8.2f} ms with backward, ".format(**row)
    return f"{name:<66} {figures}{row['train_to_gru']:6.2f} × GRU, {row['train_to_lstm']:6.2f} × LSTM"


def write(results: dict[str, Any], path: str) -> None:
    """Write the results to a file, at once or not at all."""
    new = Path(f"{path}.new")
    new.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def conditions(settings: Settings, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the command, the GPU and the versions."""
    found = {"command": " ".join(("python -m benchmarks.gpu", *arguments)), **settings._asdict(), **provenance()}
    found |= {"python": platform.python_version(), "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    try:
        import triton

        found["triton"] = triton.__version__
    except ImportError:
        found["triton"] = None
    if settings.device == "cuda":
        found["device_name"] = torch.cuda.get_device_name()
        found["compute_capability"] = ".".join(map(str, torch.cuda.get_device_capability()))
    return found


def main(arguments: Sequence[str]) -> int:
    """Test, measure and report; return the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    start = time.monotonic()
    try:
        settings = parse(arguments)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    os.environ["TRITON_INTERPRET"] = str(int(settings.device == "cpu"))  # of all processes that this one starts
    results: dict[str, Any] = {"about": conditions(settings, arguments), "tests": None}
    results |= {"rows": [], "unsupported": [], "skipped": []}
    if settings.tests > 0:
        results["tests"] = gpu_tests.run(settings.device, settings.tests)
        print(gpu_tests.summary(results["tests"]), flush=True)
    write(results, settings.json)
    measure_rows(settings, results, start + settings.budget)
    results["about"]["seconds"] = round(time.monotonic() - start, 1)
    write(results, settings.json)
    failed = [row for row in results["rows"] if "failure" in row]
    print(f"{len(results['rows'])} rows, {len(failed)} failed, {len(results['skipped'])} skipped: {settings.json}")
    return int(bool(failed) or not gpu_tests.has_passed(results["tests"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
