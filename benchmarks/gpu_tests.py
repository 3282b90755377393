"""The tests for a GPU, in several processes: most of their time compiles kernels."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_share import COLLECTED
from benchmarks.provenance import ROOT

ALONE = "tests/gpu/test_speed.py"  # tests of times
# what the others run; the longest files are first, because they may compile most
KERNELS = [
    *map(str, sorted(ROOT.glob("tests/ops/*/test_*triton*.py"), key=lambda path: -path.stat().st_size)),
    "tests/ops/test_preparation.py",
]
PATHS = (*KERNELS, "tests/gpu", f"--ignore={ALONE}")
OPTIONS = ("-v", "-p", "no:cacheprovider", "-p", "benchmarks.gpu_share", "--tb=short", "--durations=10")
PYTEST = (sys.executable, "-m", "pytest", *OPTIONS)
NO_TESTS = 5  # exit status of pytest where there are none, as in a share of few tests
GRACE = 5  # seconds for the report of an interrupted process
REPORT = 8000  # characters of the failures of a process that are kept
OUTCOME = re.compile(r"^(\S.*::.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", re.MULTILINE)
SLOWEST = re.compile(r"^([\d.]+)s (?:call|setup) +(\S.*)$", re.MULTILINE)


def run(
    device: str, deadline: float, processes: int, models: Sequence[str] = (), paths: Sequence[str] = PATHS
) -> dict[str, Any]:
    """Run the tests.

    Args:
        device: "cuda", or "cpu" for Triton's interpreter and for the tests of `tests.gpu` on the CPU.
        deadline: When they are interrupted, in seconds of `time.monotonic`.
        processes: Number of processes.
        models: Models whose tests of `tests.gpu` run; all if empty.
        paths: Test files, folders and options.

    Returns:
        Numbers of tests by outcome, the `failures` in one line each, the names of the tests that were `cut`, the
        `reports` of the failures, the `slowest` tests, and the `seconds`.
    """
    start = time.monotonic()
    source = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONUNBUFFERED": "1", "COLUMNS": "300"}
    environment |= {"GYRAL_TEST_DEVICE": device, "GYRAL_TEST_MODELS": ",".join(models)}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the tests need no other plugin
    found: dict[str, Any] = {"passed": 0, "skipped": 0, "failures": [], "cut": [], "reports": [], "slowest": []}
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, str(index)) for index in range(processes)]
        running = []
        for index, log in enumerate(logs):
            own = environment | {"GYRAL_TEST_SHARE": f"{index}/{processes}"}
            with log.open("wb") as file:
                running.append(subprocess.Popen((*PYTEST, *paths), cwd=ROOT, env=own, stdout=file, stderr=file))
        end(running, deadline)
        tests: dict[str, None] = {}  # in their order
        reported = set()
        for process, log in zip(running, logs, strict=True):
            text = read(log)
            names = re.findall(f"^{COLLECTED}(.*)$", text, re.MULTILINE)
            tests |= dict.fromkeys(names)
            reported |= {name for name, _ in OUTCOME.findall(text)}
            add(text, found)
            # pytest itself failed, or died of a signal
            allowed = (0, 1, 2, NO_TESTS, -signal.SIGKILL) if names else ()
            if process.returncode not in allowed:
                found["failures"].append(f"exit code {process.returncode}: {last_line(log)}")
                found["reports"].append(text[-REPORT:])
        found["cut"] = [name for name in tests if name not in reported]
    found["failures"] = list(dict.fromkeys(found["failures"]))  # each process collects the tests
    found["slowest"] = sorted(found["slowest"], reverse=True)[:15]
    return found | {"seconds": round(time.monotonic() - start, 1)}


def end(processes: Sequence[subprocess.Popen[bytes]], deadline: float) -> None:
    """Wait for processes; at the deadline interrupt them, so that pytest reports what has run."""
    for stop, limit in ((subprocess.Popen.send_signal, deadline), (None, deadline + GRACE)):
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, limit - time.monotonic()))
        for process in processes:
            if process.poll() is None:
                process.kill() if stop is None else stop(process, signal.SIGINT)
    for process in processes:
        process.wait()


def read(log: Path) -> str:
    """Return the output of a process."""
    return log.read_text(encoding="utf-8", errors="replace")


def last_line(log: Path) -> str:
    """Return the last line of a file that is not empty."""
    return (["no output"] + [line for line in read(log).splitlines() if line.strip()])[-1]


def add(log: str, found: dict[str, Any]) -> None:
    """Add the outcomes in the output of pytest."""
    outcomes = Counter(outcome for _, outcome in OUTCOME.findall(log))
    found["passed"] += outcomes["PASSED"]
    found["skipped"] += outcomes["SKIPPED"]
    found["failures"] += re.findall(r"^(?:FAILED|ERROR) (.*)$", log, re.MULTILINE)
    found["slowest"] += [[float(seconds), name] for seconds, name in SLOWEST.findall(log)]
    sections = re.search(r"^=+ (?:FAILURES|ERRORS) =+$.*?(?=^=+ (?:slowest|short test summary))", log, re.M | re.S)
    if sections:
        found["reports"].append(sections[0][:REPORT])


def joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the outcomes of two runs as those of one."""
    return {key: value + other[key] for key, value in one.items()}


def has_passed(found: dict[str, Any] | None) -> bool:
    """Return whether no test failed or was cut, or no tests were run."""
    return found is None or not (found["failures"] or found["cut"])


def summary(found: dict[str, Any]) -> str:
    """Return the outcome in some lines."""
    lines = [f"FAILED {failure}" for failure in found["failures"]]
    lines += [f"cut: {name}" for name in found["cut"][:5]]
    outcome = f"{found['passed']} tests passed, {len(found['failures'])} failed, {found['skipped']} skipped, "
    return "\n".join([*lines, f"{outcome}{len(found['cut'])} cut in {found['seconds']} s"])
