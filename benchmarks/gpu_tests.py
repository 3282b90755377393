"""The tests for a GPU, in as many processes as the machine has cores: most of their time compiles kernels."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.provenance import ROOT

PATHS = ("tests/gpu", "tests/nn/test_cuda_graph.py", "tests/ops/rum/test_rum_triton.py")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short")
MAX_PROCESSES = 12
GRACE = 10  # seconds for the report of an interrupted process


def run(device: str, seconds: float, paths: tuple[str, ...] = PATHS) -> dict[str, Any]:
    """Run the tests.

    Args:
        device: "cuda", or "cpu" for Triton's interpreter and for the tests of `tests.gpu` on the CPU.
        seconds: Time limit.
        paths: Test files and folders.

    Returns:
        Numbers of tests by outcome, the `failures` in one line each, the `seconds`, and whether all tests `finished`.
    """
    start = time.monotonic()
    source = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": source, "GYRAL_TEST_DEVICE": device}
    found: dict[str, Any] = {"passed": 0, "skipped": 0, "failures": [], "finished": True}
    with tempfile.TemporaryDirectory() as folder:
        logs: list[Path] = []

        def begin(*arguments: str) -> subprocess.Popen[bytes]:
            logs.append(Path(folder, str(len(logs))))
            with logs[-1].open("wb") as log:
                return subprocess.Popen((*PYTEST, *arguments), cwd=ROOT, env=environment, stdout=log, stderr=log)

        collection = begin("--collect-only", *paths)
        collection.wait()
        tests = [line for line in logs[0].read_text(encoding="utf-8").splitlines() if "::" in line]
        processes = min(MAX_PROCESSES, os.cpu_count() or 1, len(tests))
        running = [begin(*tests[index::processes]) for index in range(processes)]
        finished = [end(process, start + seconds) for process in running]
        found["finished"] = all(finished)
        if collection.returncode != 0 or not tests:
            found["failures"].append(f"collection: {last_line(logs[0])}")
        for process, has_finished, log in zip(running, finished, logs[1:], strict=True):
            count(log.read_text(encoding="utf-8"), found)
            if has_finished and process.returncode not in (0, 1):  # pytest itself failed, or died of a signal
                found["failures"].append(last_line(log))
    return found | {"seconds": round(time.monotonic() - start, 1)}


def end(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Wait for a process; at the deadline interrupt it, so that pytest reports what has run, and return False."""
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
        return True
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return False


def last_line(log: Path) -> str:
    """Return the last line of a file that is not empty."""
    return (["no output"] + [line for line in log.read_text(encoding="utf-8").splitlines() if line.strip()])[-1]


def count(log: str, found: dict[str, Any]) -> None:
    """Add the outcomes in the output of pytest."""
    found["failures"] += re.findall(r"^(?:FAILED|ERROR) (.*)$", log, re.MULTILINE)
    for outcome in ("passed", "skipped"):
        found[outcome] += sum(map(int, re.findall(rf"(\d+) {outcome}\b.* in [\d.]+s", log)))


def has_passed(found: dict[str, Any] | None) -> bool:
    """Return whether no test failed, or no tests were run. Tests that the time limit stopped are no failures."""
    return found is None or not found["failures"]


def summary(found: dict[str, Any]) -> str:
    """Return the outcome in some lines."""
    lines = [f"FAILED {failure}" for failure in found["failures"]]
    note = "" if found["finished"] else ", stopped at the time limit"
    outcome = f"{found['passed']} tests passed, {len(found['failures'])} failed, {found['skipped']} skipped"
    return "\n".join([*lines, f"{outcome} in {found['seconds']} s{note}"])
