"""Tests and speed of all cells on a CUDA GPU. Needs torch, triton and pytest alone; gyral need not be installed.

Usage: PYTHONPATH=src python -m benchmarks.gpu [key=value …], or make gpu

  json=gpu.json       file of the results, written after each of them; default: benchmarks/records/gpu.json
  seconds=380         for the first part; rows that would begin later are cut
  tests=190           of these for the tests and comparisons; 0 skips the tests
  second=120          seconds for the second part, half of them for its comparisons; 0 leaves it out
  check=60            for a comparison, which compiles kernels; one that takes longer is stopped and named
  model=RUM,GRU       cells; default: all, and the layers of torch
  precision=float32   float32 without TF32; also: bfloat16 and float16, with autocast
  size=128x53x50,…    batch x time steps x hidden size; default: also 8x1024x128 and 128x150x250
  input=36            size of the inputs
  repeat=20           rounds; a time is the median over the rounds. Slow rows run fewer rounds, at least 3
  device=cuda         cpu tries everything but the GPU itself, with Triton's interpreter, and one process for the rows
  commit=…            the commit of this tree, where git does not know it, as in a copy

First, in parallel: the tests, and for each row a comparison with the float64 reference of its cell and a count of its
launches; this compiles all kernels. Then, one after another: the ceilings of the card, and for each row the times on
the backend that `auto` chooses, beside cuDNN's GRU and LSTM (torch.nn) in the same rounds. The rows with the longest
CUDA graphs, which take long to record, are left out, as many as it takes for the others to fit into the time; they are
named. A row that fails is recorded, and the others follow.

If nothing fails, the second part follows, at the size with the most steps: the same models in bfloat16, and GLA and
DeltaNet with the kernels of flash-linear-attention, which run in these rows alone. Its rows are cut and named where
the package is missing or the time ends. Exit status: 0 success, 1 a test or a row failed, or the time of the first part
ended before it, 2 a key or value is not allowed, or there is no GPU.
"""

import contextlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks import fla, gpu_plan, gpu_rows, gpu_tests, launches
from benchmarks.gpu_plan import SHORT_STEP, SLOW, describe, launches_of, names, plan, step_seconds
from benchmarks.gpu_rows import Case
from benchmarks.gpu_workers import GRACE, Pool, Request
from benchmarks.provenance import ROOT, provenance
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError, UserError, one_line
from gyral.core.measures import percent

MEASURE = 30.0  # seconds of a row: one that takes longer is stopped
ALONE = 30.0  # seconds of the tests of times
OPTIONAL = ("tests", "second")  # what 0 leaves out
NO_TIME = "no time was left"


class Settings(NamedTuple):
    """The options of the command line."""

    json: str = str(ROOT / "benchmarks" / "records" / "gpu.json")
    seconds: int = 380
    tests: int = 190
    second: int = 120
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
            given[key] = check_integer(
                key, int(value) if value.isdecimal() else value, minimum=int(key not in OPTIONAL)
            )
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
    path = Path(settings.json).absolute()
    if path.is_dir() or not path.parent.is_dir():
        raise OptionError("json", settings.json, "must be the path of a file in an existing folder")
    return settings


def unsupported_reason(device: str, case: Case) -> str | None:
    """Return the reason why a case of the second part cannot run here, or None if it can."""
    if case.fla:
        if device == "cpu":
            return "flash-linear-attention needs a GPU"
        try:
            fla.load()
        except Exception as error:  # of another package
            return f"flash-linear-attention cannot be used: {one_line(error)}"
    return None


class Run:
    """A run with its results."""

    def __init__(self, settings: Settings, arguments: Sequence[str]) -> None:
        self.start = time.monotonic()
        self.settings, self.pool, self.is_on_gpu = settings, Pool(), settings.device == "cuda"
        self.results: dict[str, Any] = {"about": conditions(settings, arguments), "ceilings": None, "tests": None}
        self.results |= {"rows": [], "cut": [], "late": []}
        sizes = [launches.size_of(name) for name in settings.size]
        self.cases = gpu_plan.first_part(settings.model or names(), settings.precision, sizes, settings.input)
        following = gpu_plan.second_part(self.cases) if settings.second else []
        self.following, cut = gpu_plan.separate(following, partial(unsupported_reason, settings.device))
        self.results["cut"] += cut
        self.comparing = settings.tests or max(settings.check, settings.seconds // 2)
        self.write()

    def write(self) -> None:
        """Write the results to the file, at once or not at all."""
        self.results["about"]["seconds"] = round(time.monotonic() - self.start, 1)
        new = Path(f"{self.settings.json}.new")
        new.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")
        new.replace(self.settings.json)

    def everything(self) -> int:
        """Test, compare and measure; return the exit status."""
        self.announce()
        with self.pool:
            self.first_part()
            if self.following and not self.has_failed():
                self.second_part()
        return self.finish()

    def announce(self) -> None:
        """Print the plan of the run."""
        settings = self.settings
        rows = plan(self.cases, settings.seconds - self.comparing)
        print(f"first part: tests and comparisons in at most {self.comparing} s, then {rows}")
        if settings.second:
            half = settings.second // 2
            rows = plan(self.following, settings.second - half)
            print(f"second part, if nothing fails: comparisons in at most {half} s, then {rows}")
        for text in self.results["cut"]:
            print(f"cut: {text}")
        sys.stdout.flush()

    def first_part(self) -> None:
        """Run the tests, and compare and measure the cases."""
        settings, results = self.settings, self.results
        deadline = self.start + self.comparing
        processes = max(1, (os.cpu_count() or 1) // (2 if settings.tests else 1)) if self.is_on_gpu else 1
        with ThreadPoolExecutor(1) as thread:
            tests = None
            if settings.tests > 0:
                models = [model for model in settings.model if model not in gpu_rows.LAYERS]
                # without a GPU, `make test` interprets the kernels
                paths = gpu_tests.PATHS[0 if self.is_on_gpu else len(gpu_tests.KERNELS) :]
                tests = thread.submit(gpu_tests.run, settings.device, deadline, processes, models, paths)
            checked = self.check(self.cases, max(1, processes - 1), deadline)
            self.report("checks")
            if tests is not None:
                results["tests"] = tests.result()
                if self.is_on_gpu:
                    late = time.monotonic() + ALONE
                    alone = gpu_tests.run(settings.device, late, 1, (), (gpu_tests.ALONE,))
                    results["tests"] = gpu_tests.joined(results["tests"], alone)
                print(gpu_tests.summary(results["tests"]), flush=True)
        self.report("tests")
        deadline = self.start + settings.seconds - GRACE
        for _, answer in self.pool.answers(
            [Request("benchmarks.gpu_timing.ceilings", (settings.device,), MEASURE)], 1, deadline
        ):
            results["ceilings"] = answer
        print(f"ceilings: {results['ceilings']}", flush=True)
        self.measure(self.cases, checked, deadline)
        self.report("rows")

    def second_part(self) -> None:
        """Compare and measure the cases that follow; those for which the time is too short are cut, and no failure."""
        begin, seconds = time.monotonic(), self.settings.second
        processes = max(1, (os.cpu_count() or 1) - 1) if self.is_on_gpu else 1
        checked = self.check(self.following, processes, begin + seconds // 2)
        self.report("second_checks")
        self.measure(self.following, checked, begin + seconds - GRACE)
        self.report("second_rows")

    def check(self, cases: Sequence[Case], processes: int, deadline: float) -> dict[Case, dict[str, Any]]:
        """Compare cases with their references; return the answers."""
        requests = []
        for case in cases:
            arguments = case, self.settings.device, launches_of(case) <= SHORT_STEP
            # the kernels of flash-linear-attention take all the time that there is to choose their configurations
            seconds = self.settings.second if case.fla else self.settings.check
            requests.append(Request("benchmarks.gpu_rows.check", arguments, seconds))
        found = dict(self.pool.answers(requests, processes, deadline))
        if self.is_on_gpu:  # these processes hold memory there, and launches are slower after torch has profiled some
            self.pool.close()
        # several processes share the memory of the GPU
        again = [index for index, each in found.items() if each and "OutOfMemory" in each.get("failure", "")]
        for place, answer in self.pool.answers([requests[index] for index in again], 1, deadline):
            found[again[place]] = answer
        return {cases[index]: answer for index, answer in found.items() if answer is not None}

    def measure(self, cases: Sequence[Case], checked: dict[Case, dict[str, Any]], deadline: float) -> None:
        """Measure the cases that agree with their references, one after another."""
        settings = self.settings
        for case in cases:
            if case not in checked:
                self.warn_skipped(case, NO_TIME)
            elif "failure" in checked[case]:
                self.add(case, checked[case])
        good = [case for case in cases if case in checked and "failure" not in checked[case]]
        planned = plan(good, deadline - time.monotonic())
        self.results["cut"] += planned.cut
        print(f"planned: {planned}")
        print(f"{'':<44} path        launches  wall ms device ms of bound  × GRU", flush=True)
        requests = []
        for case in planned.cases:
            arguments = case, settings.device, settings.repeat, step_seconds(case) > SLOW
            requests.append(Request("benchmarks.gpu_timing.measured", arguments, MEASURE))
        for index, answer in self.pool.answers(requests, 1, deadline):
            case = planned.cases[index]
            if answer is None:
                self.warn_skipped(case, NO_TIME)
            else:
                self.add(case, checked[case] | answer)

    def warn_skipped(self, case: Case, reason: str) -> None:
        """Name a case for which the time is too short. In the second part that is not a failure."""
        if case in self.following:
            self.results["cut"].append(f"{describe(case)}: {reason}")
        else:
            self.results["late"].append(describe(case))
        self.write()

    def add(self, case: Case, found: dict[str, Any]) -> None:
        """Add a row with its bound, write it, and print it."""
        if found.pop("is_late", False) and case in self.following:
            self.warn_skipped(case, found["failure"])
            return
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

    def has_failed(self) -> bool:
        """Return whether a test or a row failed, or the time ended before it."""
        results = self.results
        failed = any("failure" in row for row in results["rows"]) or "copy" not in (results["ceilings"] or {})
        return bool(failed or results["late"] or not gpu_tests.has_passed(results["tests"]))

    def finish(self) -> int:
        """Print the failures and the cases that were cut; return the exit status."""
        results = self.results
        failed = [row for row in results["rows"] if "failure" in row]
        for row in failed:
            print("\n".join([line(row), *(f"    {text}" for text in row.get("traceback", ()))]))
        for text in (*results["cut"], *(f"{text}: {NO_TIME}" for text in results["late"])):
            print(f"cut: {text}")
        if self.following and "second_rows_ended" not in results["about"]:
            print("the second part did not run, because the first one failed")
        if results["tests"] is not None:
            print(gpu_tests.summary(results["tests"]))
        measured = f"{len(results['rows']) - len(failed)} rows, {len(failed)} failed, {len(results['cut'])} cut"
        print(f"{measured}, {len(results['late'])} late, {results['about']['seconds']} s: {self.settings.json}")
        return int(self.has_failed())


def bound(count: launches.Count, precision: str, ceilings: dict[str, float]) -> float:
    """Return the seconds that the card needs at least, for the bytes or the products of a training step.

    Products of float32 without TF32 take three products of TF32, which keep its accuracy.
    """
    rate = ceilings["tf32"] / 3 if precision == "float32" else ceilings["bfloat16"]
    return max(count.bytes / ceilings["copy"], count.flops / max(rate, ceilings["float32"]))


def line(row: dict[str, Any]) -> str:
    """Return a row as a line of the terminal."""
    model = f"{row['model']} fla" if row["fla"] else row["model"]
    name = f"{model:<26.26} {row['precision'][:4]:<4} {row['batch']}x{row['steps']}x{row['hidden']}"
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
    found |= {"triton": version("triton", "pytorch-triton"), "fla": version("fla-core")}
    if settings.device == "cuda":
        found["device_name"] = torch.cuda.get_device_name()
        found["compute_capability"] = ".".join(map(str, torch.cuda.get_device_capability()))
        found["driver"] = driver()
    return found


def version(*packages: str) -> str | None:
    """Return the version of the first of these packages that is installed, or None."""
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(package)
    return None


def driver() -> str:
    """Return the driver's version, and the clocks and the power limit of the card."""
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
