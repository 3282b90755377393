"""Tests and speed of all cells on a CUDA GPU. Needs torch, triton and pytest alone; gyral need not be installed.

Usage: PYTHONPATH=src python -m benchmarks.gpu [key=value …], or make gpu

  json=gpu.json       file of the results, written after each of them; default: benchmarks/records/gpu.json
  seconds=380         for everything; rows that would begin later are cut
  tests=190           of these for the tests and comparisons; 0 skips the tests
  check=60            for a comparison, which compiles kernels; one that takes longer is stopped and named
  model=RUM,GRU       cells; default: all, and the layers of torch
  precision=float32   float32 without TF32; also: bfloat16 and float16, with autocast
  size=128x53x50,…    batch x time steps x hidden size; default: also 8x1024x128 and 128x150x250
  input=36            size of the inputs
  repeat=20           rounds; a time is the median over the rounds. Slow rows run fewer rounds, at least 3
  device=cuda         cpu tries everything but the GPU itself, with Triton's interpreter
  commit=…            the commit of this tree, where git does not know it, as in a copy

First, in parallel: the tests, and for each row a comparison with the float64 reference of its cell and a count of its
launches; this compiles all kernels. Then, one after another: the ceilings of the card, and for each row the times on
the backend that `auto` chooses, beside cuDNN's GRU and LSTM (torch.nn) in the same rounds. The rows with the longest
CUDA graphs, which take long to record, are left out, as many as it takes for the others to fit into the time; they are
named. A row that fails is recorded, and the others follow. Exit status: 0 success, 1 a test or a row failed, or the
time ended before it, 2 a key or value is not allowed, or there is no GPU.
"""

import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks import gpu_rows, gpu_tests, launches
from benchmarks.gpu_rows import Case
from benchmarks.gpu_workers import GRACE, Request, answers
from benchmarks.provenance import ROOT, provenance
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError, UserError
from gyral.core.measures import percent

MEASURE = 30.0  # seconds of a row: one that takes longer is stopped
ALONE = 30.0  # seconds of the tests of times
SHORT_STEP = 10_000  # kernels of a training step that also runs at its full size in the comparison, to be counted
SLOW = 0.4  # seconds of a training step that is measured in a single round
LONGEST = 100_000  # kernels of a graph: longer ones may take more memory than there is
NODE = 4e-6  # seconds of a kernel in a graph
CAPTURE = 100e-6  # seconds to record one, for the graphs of forward and of the training step with their warm-ups
ROW = 0.9  # seconds of a row beside its own steps, to build it and for the rounds
SHARE = 0.85  # of the time that is planned


class Settings(NamedTuple):
    """The options of the command line."""

    json: str = str(ROOT / "benchmarks" / "records" / "gpu.json")
    seconds: int = 380
    tests: int = 190
    check: int = 60
    model: tuple[str, ...] = ()
    precision: tuple[str, ...] = ("float32",)
    size: tuple[str, ...] = tuple(map(launches.name_of, gpu_rows.SIZES))
    input: int = gpu_rows.INPUT
    repeat: int = 20
    device: str = "cuda"
    commit: str = ""


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
    allowed = {"model": names(), "precision": tuple(gpu_rows.PRECISIONS)}
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


def names() -> tuple[str, ...]:
    """Return the names of all models: the layers of torch, then the cells."""
    return *gpu_rows.LAYERS, *gpu_rows.models()


class Plan(NamedTuple):
    """What is measured.

    Attributes:
        cases: In their order.
        cut: Cases that are left out, with the reason.
        seconds: The expected time of the rows.
    """

    cases: list[Case]
    cut: list[str]
    seconds: float


def cases(settings: Settings) -> list[Case]:
    """Return all cases by model, so that every size has rows if the time ends."""
    found = []
    for model in settings.model or names():
        for size in settings.size:
            batch, steps, hidden = map(int, size.split("x"))
            found += [Case(model, each, batch, steps, settings.input, hidden) for each in settings.precision]
    return found


def plan(given: Sequence[Case], seconds: float) -> Plan:
    """Leave out the cases with the longest graphs, as many as it takes for the others to fit into the time."""
    expected = {case: row_seconds(case) for case in given}
    cut = []
    for case in sorted(given, key=launches_of, reverse=True):
        if launches_of(case) <= LONGEST and sum(expected.values()) <= SHARE * seconds:
            break
        cut.append(f"{describe(case)}: its graph has {launches_of(case)} kernels")
        del expected[case]
    return Plan(list(expected), cut, sum(expected.values()))


def launches_of(case: Case) -> int:
    """Return the expected launches of a training step, or kernels of its graph."""
    return launches.expected(case).launches


def row_seconds(case: Case) -> float:
    """Return the expected time of a row."""
    step = step_seconds(case)
    return ROW + CAPTURE * launches_of(case) + (10 + (1 if step > SLOW else 3)) * step


def step_seconds(case: Case) -> float:
    """Return the expected time of a training step."""
    return NODE * launches_of(case)


def describe(case: Case) -> str:
    """Return a case in a few words."""
    return f"{case.model} {case.precision} {case.batch}x{case.steps}x{case.hidden}"


class Run:
    """A run with its results."""

    def __init__(self, settings: Settings, arguments: Sequence[str]) -> None:
        self.start = time.monotonic()
        self.settings, self.cases = settings, cases(settings)
        self.results: dict[str, Any] = {"about": conditions(settings, arguments), "ceilings": None, "tests": None}
        self.results |= {"rows": [], "cut": [], "late": []}
        self.write()

    def write(self) -> None:
        """Write the results to the file, at once or not at all."""
        self.results["about"]["seconds"] = round(time.monotonic() - self.start, 1)
        new = Path(f"{self.settings.json}.new")
        new.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")
        new.replace(self.settings.json)

    def everything(self) -> int:
        """Test, compare and measure; return the exit status."""
        settings, results = self.settings, self.results
        deadline = self.start + (settings.tests or max(settings.check, settings.seconds // 2))
        processes = max(1, (os.cpu_count() or 1) // (2 if settings.tests else 1))
        with ThreadPoolExecutor(1) as pool:
            tests = None
            if settings.tests > 0:
                models = [model for model in settings.model if model not in gpu_rows.LAYERS]
                paths = gpu_tests.PATHS[settings.device == "cpu" :]  # `make test` interprets the kernels there
                tests = pool.submit(gpu_tests.run, settings.device, deadline, processes, models, paths)
            checked = self.check(max(1, processes - 1), deadline)
            self.report("checks")
            if tests is not None:
                results["tests"] = tests.result()
                if settings.device == "cuda":
                    late = time.monotonic() + ALONE
                    alone = gpu_tests.run(settings.device, late, 1, (), (gpu_tests.ALONE,))
                    results["tests"] = gpu_tests.joined(results["tests"], alone)
                print(gpu_tests.summary(results["tests"]), flush=True)
        self.report("tests")
        self.measure(checked)
        self.report("rows")
        return self.finish()

    def check(self, processes: int, deadline: float) -> dict[Case, dict[str, Any]]:
        """Compare all cases with their references; return the answers."""
        requests = []
        for case in self.cases:
            arguments = case, self.settings.device, launches_of(case) <= SHORT_STEP
            requests.append(Request("benchmarks.gpu_rows.check", arguments, self.settings.check))
        found = dict(answers(requests, processes, deadline))
        # several processes share the memory of the GPU
        again = [index for index, each in found.items() if each and "OutOfMemory" in each.get("failure", "")]
        for place, answer in answers([requests[index] for index in again], 1, deadline):
            found[again[place]] = answer
        return {self.cases[index]: answer for index, answer in found.items() if answer is not None}

    def measure(self, checked: dict[Case, dict[str, Any]]) -> None:
        """Measure the cases that agree with their references, one after another."""
        settings = self.settings
        deadline = self.start + settings.seconds - GRACE
        for case, found in checked.items():
            if "failure" in found:
                self.add(case, found)
        good = [case for case in self.cases if case in checked and "failure" not in checked[case]]
        planned = plan(good, deadline - time.monotonic())
        self.results["cut"] = planned.cut
        self.results["late"] = [describe(case) for case in self.cases if case not in checked]
        print(f"planned: {len(planned.cases)} rows in {planned.seconds:.0f} s, {len(planned.cut)} cut")
        print(f"{'':<44} path        launches  wall ms device ms of bound  × GRU", flush=True)
        requests = [Request("benchmarks.gpu_timing.ceilings", (settings.device,), MEASURE)]
        for case in planned.cases:
            arguments = case, settings.device, settings.repeat, step_seconds(case) > SLOW
            requests.append(Request("benchmarks.gpu_timing.measured", arguments, MEASURE))
        for index, answer in answers(requests, 1, deadline):
            case = planned.cases[index - 1]
            if index == 0:
                self.results["ceilings"] = answer
                print(f"ceilings: {answer}", flush=True)
            elif answer is None:
                self.results["late"].append(describe(case))
            else:
                self.add(case, checked[case] | answer)

    def add(self, case: Case, found: dict[str, Any]) -> None:
        """Add a row with its bound, write it, and print it."""
        count, ceilings = launches.expected(case), self.results["ceilings"] or {}
        row = {**case._asdict(), "counted": count.launches, **found}
        if "train_ms" in row and "copy" in ceilings:
            row["bound_ms"] = 1000 * bound(count, case.precision, ceilings)
            if row.get("device_ms"):
                row["of_bound"] = row["bound_ms"] / row["device_ms"]
        self.results["rows"].append(row)
        self.write()
        print(line(row), flush=True)

    def report(self, phase: str) -> None:
        """Write when a phase has ended."""
        self.results["about"][f"{phase}_ended"] = round(time.monotonic() - self.start, 1)
        self.write()

    def finish(self) -> int:
        """Print what failed and what was cut; return the exit status."""
        results = self.results
        failed = [row for row in results["rows"] if "failure" in row]
        for row in failed:
            print("\n".join([line(row), *(f"    {text}" for text in row.get("traceback", ()))]))
        for text in (*results["cut"], *(f"{text}: no time was left" for text in results["late"])):
            print(f"cut: {text}")
        if results["tests"] is not None:
            print(gpu_tests.summary(results["tests"]))
        measured = f"{len(results['rows']) - len(failed)} rows, {len(failed)} failed, {len(results['cut'])} cut"
        print(f"{measured}, {len(results['late'])} late, {results['about']['seconds']} s: {self.settings.json}")
        has_ceilings = "copy" in (results["ceilings"] or {})
        return int(bool(failed or results["late"]) or not has_ceilings or not gpu_tests.has_passed(results["tests"]))


def bound(count: launches.Count, precision: str, ceilings: dict[str, float]) -> float:
    """Return the seconds that the card needs at least, for the bytes or the products of a training step.

    Products of float32 without TF32 take three products of TF32, which keep its accuracy.
    """
    rate = ceilings["tf32"] / 3 if precision == "float32" else ceilings["bfloat16"]
    return max(count.bytes / ceilings["copy"], count.flops / max(rate, ceilings["float32"]))


def line(row: dict[str, Any]) -> str:
    """Return a row as a line of the terminal."""
    name = f"{row['model']:<26.26} {row['precision'][:4]:<4} {row['batch']}x{row['steps']}x{row['hidden']}"
    if "train_ms" not in row:
        return f"{name:<44} {row['failure']}"
    device, share = (row.get(key) or float("nan") for key in ("device_ms", "of_bound"))
    times = f"{row['train_ms']:8.2f} {device:8.2f} {percent(share, 1):>7}"
    figures = f"{row['path']:<14.14} {row.get('launches') or '–':>5} {times}"
    return f"{name:<44} {figures} {row['train_to_gru']:6.2f}"


def conditions(settings: Settings, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the command, the GPU and the versions."""
    given = [f"json={Path(settings.json).name}" if each.startswith("json=") else each for each in arguments]
    found = {
        "command": " ".join(("python -m benchmarks.gpu", *given)),
        **settings._asdict(),
        **provenance(settings.commit),
    }
    del found["json"]
    found |= {"python": platform.python_version(), "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    for name in ("triton", "fla"):
        try:
            found[name] = importlib.import_module(name).__version__
        except ImportError:
            found[name] = None
    if settings.device == "cuda":
        found["device_name"] = torch.cuda.get_device_name()
        found["compute_capability"] = ".".join(map(str, torch.cuda.get_device_capability()))
        found["driver"] = driver()
    return found


def driver() -> str:
    """Return what the driver says about the card: version, clocks and limit of power."""
    asked = "--query-gpu=driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,memory.total"
    try:
        command = ["nvidia-smi", asked, "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip()


def main(arguments: Sequence[str]) -> int:
    """Test, measure and report; return the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    try:
        settings = parse(arguments)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    # of all processes that this one starts
    os.environ |= {"TRITON_INTERPRET": str(int(settings.device == "cpu")), "OMP_NUM_THREADS": "1"}
    os.environ["TRITON_CACHE_AUTOTUNING"] = "1"  # the process that measures a row takes what its comparison has chosen
    return Run(settings, arguments).everything()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
