"""Plant faults, one at a time, in a copy of the project, and report which of them the tests find.

Usage: python -m tests.mutations [key=value …], or make test-mutations SEED=1

  seed=0            chooses the places
  places=40         number of places in Python, spread evenly over the areas of the source
  cpp=4             number of further places in C++
  seconds=60        CPU seconds that the tests of one place may take
  json=FILE         outcomes; places of an earlier file are not tried again, so that a run that ended early continues
  again=FILE        the places of this file of outcomes, with the test files that found them, without a record
  tree=FOLDER       the project; default: this one
  covering=FOLDER   a record of the suite that was made before; default: make it, which takes as long as make test

The suite runs once with coverage, to find the tests that execute each line. Places are on lines that a test executes.
For each place, the tests that execute it run until one fails, those of the file itself first. The working tree is never
changed.
Exit status: 0, or 2 if a value is not allowed or the suite fails without a planted fault.
"""

import ast
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from gyral.core.cache import cache_directory
from tests.mutations.covering import Covering
from tests.mutations.places import Found, Place, find

ROOT = Path(__file__).resolve().parents[2]
# areas of the source, as beginnings of paths; each gets as many places as the others
AREAS = {
    "core": ("core/",),
    "ops": ("ops/",),
    "cells": ("cells/",),
    "nn": ("nn/",),
    "models and data": ("models/", "data/"),
    "tasks": ("tasks/",),
    "config": ("config/",),
    "runs": ("runs/",),
    "training": ("training/",),
    "sweeps": ("sweeps/",),
    "reports": ("reports/", "figures/", "plotting/", "generation/"),
    "applications": ("applications/",),
}
# imported before the forks; nothing of gyral
HEAVY = (
    *("torch", "torch.func", "torch.autograd.gradcheck", "torch.utils._pytree", "pytorch_lightning", "torchmetrics"),
    *("hydra", "hydra.utils", "hydra.main", "omegaconf", "numpy", "pandas", "matplotlib.pyplot", "matplotlib.figure"),
    *("pytest", "wandb", "rich.table", "pydantic"),
)
COMPILER = "compiler"  # in a copy
NOT_FOUND = re.compile(r"^ERROR: not found: (?:\S*?/)?(tests/.*)$", re.MULTILINE)


class Settings(NamedTuple):
    """The options of the command line."""

    seed: int = 0
    places: int = 40
    cpp: int = 4
    seconds: int = 60
    json: str = str(ROOT / "outputs" / "mutations.json")
    again: str = ""
    tree: str = str(ROOT)
    covering: str = ""


def parse(arguments: Sequence[str]) -> Settings:
    """Parse key=value arguments.

    Raises:
        ValueError: A key or value is not allowed.
    """
    given: dict[str, Any] = {}
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key not in Settings._fields:
            raise ValueError(f"{argument}: must be <key>=<value>, where <key> is one of {', '.join(Settings._fields)}")
        default = Settings._field_defaults[key]
        if isinstance(default, int) and not value.isdecimal():
            raise ValueError(f"{argument}: must be a number")
        given[key] = int(value) if isinstance(default, int) else value
    return Settings(**given)


def copy_tree(tree: Path, folder: Path) -> None:
    """Copy the files of a project that git does not ignore."""
    command = ["git", "-C", str(tree), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0"):
        if name and (tree / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, folder / name)
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)  # some tests ask for the commit
    for key, value in (("user.name", "tests"), ("user.email", "tests@example.org")):
        subprocess.run(["git", "-C", str(folder), "config", key, value], check=True)
    subprocess.run(["git", "-C", str(folder), "commit", "--quiet", "--allow-empty", "-m", "copy"], check=True)


def environment(folder: Path) -> dict[str, str]:
    """Return the variables with which Python imports the copy of the project."""
    golden = Path(os.environ.get("GYRAL_GOLDEN", ROOT.parent / "shared" / "golden"))
    paths = os.pathsep.join((str(folder / "src"), str(folder)))
    found = {**os.environ, "PYTHONPATH": paths, "GYRAL_GOLDEN": str(golden), "OMP_NUM_THREADS": "1"}
    compiler = folder / COMPILER
    return found | ({"CXX": str(compiler)} if compiler.is_file() else {})


def write_compiler(folder: Path) -> None:
    """Write a compiler that optimizes little: the kernels of a changed header take minutes to compile."""
    (folder / COMPILER).write_text('#!/bin/sh\nexec c++ "$@" -O1\n', encoding="utf-8")
    (folder / COMPILER).chmod(0o755)


def record(tree: Path, folder: Path) -> bool:
    """Run the suite once with coverage; return whether it passes."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.mutations.recording", "-n", "auto", "-q"]
    command += ["-m", "not slow and not cluster"]
    run = subprocess.run(command, cwd=tree, env=environment(tree) | {"RECORDED": str(folder)}, check=False)
    return run.returncode == 0


def choose(settings: Settings, tree: Path, covering: Covering) -> list[Place]:
    """Return places on lines that tests execute: as many in each area, of different files as far as there are some."""
    chosen = random.Random(settings.seed)
    places: list[Place] = []
    found = {file: find(tree / file, file) for file in sorted(covering.of_file) if covering.of_file[file]}
    for number, prefixes in enumerate(AREAS.values()):
        wanted = settings.places * (number + 1) // len(AREAS) - settings.places * number // len(AREAS)
        files = [file for file in found if file.removeprefix("src/gyral/").startswith(prefixes)]
        kept: list[Place] = []
        while files and len(kept) < wanted:
            lines = [len(found[file]) for file in files]
            file = chosen.choices(files, lines)[0]
            executed = [
                place for place, at in found[file].items() if place not in kept and tests_of(covering, file, at)
            ]
            if executed:
                kept.append(chosen.choice(executed))
        places += kept
    sources = sorted(str(path.relative_to(tree)) for path in (tree / "src/gyral/ops").rglob("*.[ch]pp"))
    in_cpp = [place for file in sources for place in find(tree / file, file)]
    return [*places, *chosen.sample(in_cpp, settings.cpp)]


def tests_of(covering: Covering, file: str, at: Found) -> set[str]:
    """Return the tests that execute a place; for a line that only the import executes, those of the file."""
    tests = covering.tests(file, range(at.first, at.last + 1))
    named = tests - {""}
    return named or (covering.of_file[file] if tests else set())


def tests_of_cpp(covering: Covering, file: str, tree: Path) -> set[str]:
    """Return the tests that run the kernels of a folder, for a header that all share those of all folders."""
    beside = str(Path(file).parent)
    calls = [name for name in covering.of_file if re.fullmatch(r"src/gyral/ops/\w+/(cpu|__init__)\.py", name)]
    modules = [name for name in calls if name.startswith(f"{beside}/")] or calls
    # a function that computes, not the declarations that every test of a layer reads
    return set().union(*(covering.tests(name, _inner_lines(tree / name)) for name in modules)) - {""}


def _inner_lines(file: Path) -> list[int]:
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    bodies = [f for f in functions if f.name in ("forward", "_run", "run", "sizes")]
    return [line for f in bodies for line in range(f.body[0].lineno, (f.end_lineno or 0) + 1)]


def run_tests(folder: Path, tests: list[str], seconds: int, log: Path) -> int | str:
    """Run tests in a fork of this process until one fails; return pytest's status, "time" or a signal's name."""
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for descriptor in (1, 2):
                os.dup2(output, descriptor)
            os.chdir(folder)
            os.environ.update(environment(folder), GYRAL_CACHE=str(folder / "cache"))
            for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "gyral")]:
                del sys.modules[name]
            sys.path[:] = [
                str(folder / "src"),
                str(folder),
                *(p for p in sys.path if p not in ("", str(ROOT), str(ROOT / "src"))),
            ]
            import pytest

            quiet = ("-q", "--tb=short", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
            status = pytest.main(["-x", *quiet, *tests])
            sys.stdout.flush()
            os._exit(int(status))
        except BaseException:  # whatever it is, a fork must not go on as its parent
            traceback.print_exc()
            os._exit(3)
    until = time.monotonic() + 10 * seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.05)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return "time" if name in ("SIGXCPU", "SIGKILL") else name
    return os.WEXITSTATUS(status)


def compiles(folder: Path, file: str) -> bool:
    """Return whether a C++ source compiles, or for a header a source of its folder."""
    path = folder / file
    sources = [path] if path.suffix == ".cpp" else [*path.parent.glob("*.cpp"), *path.parent.parent.glob("gated/*.cpp")]
    command = ["c++", "-std=c++17", "-fsyntax-only", f"-I{folder / 'src/gyral/ops'}", str(sources[0])]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def plan(place: Place, at: Found, covering: Covering, seconds: int, tree: Path) -> list[list[str]]:
    """Return the tests to run for a place of a project, in parts: those that execute it."""
    is_cpp = not place.file.endswith(".py")
    tests = tests_of_cpp(covering, place.file, tree) if is_cpp else tests_of(covering, place.file, at)
    return covering.split(covering.choose(place.file, tests, 0.6 * seconds))


def plan_again(place: Place, folder: Path, found_by: str) -> list[list[str]]:
    """Return the test files to run for a place: the one that found it earlier, then those named like its own file."""
    source = Path(place.file.removeprefix("src/gyral/"))
    names = [source.stem, source.parent.name, f"{source.stem}s"]
    folders = [folder / "tests" / source.parent, folder / "tests" / source.parent.parent]
    candidates = [above / f"test_{name}.py" for above in folders for name in names]
    near = [path for path in candidates if path.is_file()] or [path for path in folders[:1] if path.is_dir()]
    files = [folder / found_by.partition("::")[0]] if found_by else []
    files += [path for path in near if path not in files]
    return [[str(path.relative_to(folder))] for path in files if path.exists()]


def try_place(place: Place, at: Found, parts: list[list[str]], folder: Path, seconds: int) -> dict[str, Any]:
    """Change a place in the copy, run tests until one fails, and put the file back; return the outcome."""
    if not parts:
        return {"outcome": "no test"}
    path, log = folder / place.file, folder / "log"
    source = path.read_text(encoding="utf-8")
    path.write_text(source[: at.start] + place.change + source[at.end :], encoding="utf-8")
    start = time.monotonic()
    try:
        if path.suffix != ".py" and not compiles(folder, place.file):
            return {"outcome": "does not compile"}
        for part in parts:
            status = run_tests(folder, part, seconds, log)
            text = log.read_text(encoding="utf-8", errors="replace")
            if absent := set(NOT_FOUND.findall(text)):  # their names have changed, as those of values that are a folder
                status = run_tests(folder, [test for test in part if test not in absent], seconds, log)
                text = log.read_text(encoding="utf-8", errors="replace")
            if status != 0:
                break
    finally:
        path.write_text(source, encoding="utf-8")
    failed = [
        line.removeprefix("FAILED ").removeprefix("ERROR ")
        for line in text.splitlines()
        if line.startswith(("FAILED ", "ERROR "))
    ]
    # a crash, a failed test, or modules that cannot be imported; at the time limit it is not known
    is_caught = status == 1 or (status not in (0, "time") and (isinstance(status, str) or "Error" in text))
    outcome = "caught" if is_caught else {0: "missed", "time": "time"}.get(status, f"pytest {status}")
    found = {"outcome": outcome, "status": status, "line": at.first}
    return found | {"failed": failed[:1], "wall": round(time.monotonic() - start, 1)}


def table(outcomes: list[dict[str, Any]]) -> str:
    """Return the outcomes by area, and the places that no test finds."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for row in outcomes:
        name = row["place"][0].removeprefix("src/gyral/")
        area = next((area for area, prefixes in AREAS.items() if name.startswith(prefixes)), "others")
        counted["C++" if not name.endswith(".py") else area][row["outcome"]] += 1
    lines = [
        f"{area:<16} {', '.join(f'{n} {what}' for what, n in counts.most_common())}" for area, counts in counted.items()
    ]
    for row in outcomes:
        if row["outcome"] != "caught":
            file, function, text, change, _ = row["place"]
            lines.append(f"{row['outcome']}: {file}:{row.get('line')} {function}: {' '.join(text.split())} → {change}")
    total = Counter(row["outcome"] for row in outcomes)
    return "\n".join([*lines, f"{len(outcomes)} places: {', '.join(f'{n} {what}' for what, n in total.most_common())}"])


def work(settings: Settings, places: dict[Place, str], covering: Covering | None, tree: Path) -> list[dict[str, Any]]:
    """Try all places in as many copies of the project as there are cores; write the outcomes after each.

    Args:
        settings: the options of the command line.
        places: the places, each with the test that found it earlier, "" if there is none.
        covering: which tests execute a line. None: the tests follow from the names of files.
        tree: the project.
    """
    file = Path(settings.json)
    outcomes = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    done = {tuple(row["place"]) for row in outcomes}
    with tempfile.TemporaryDirectory(prefix="gyral-mutations-") as scratch:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(os.cpu_count() or 1):
            copy_tree(tree, folder := Path(scratch, str(number)))
            write_compiler(folder)
            shutil.copytree(cache_directory(), folder / "cache", ignore=shutil.ignore_patterns("compiling*"))
            copies.put(folder)

        def attempt(place: Place) -> None:
            folder = copies.get()
            outcome: dict[str, Any] = {"place": place, "outcome": "gone"}
            if (at := find(folder / place.file, place.file).get(place)) is not None:
                again = plan_again(place, folder, places[place])
                parts = again if covering is None else plan(place, at, covering, settings.seconds, folder)
                outcome |= try_place(place, at, parts, folder, settings.seconds)
            copies.put(folder)
            outcomes.append(outcome)
            file.write_text(json.dumps(outcomes, indent=1) + "\n", encoding="utf-8")
            print(f"{outcome['outcome']:<8} {place.file} {place.function}: {place.text[:50]!r}", flush=True)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(attempt, [place for place in places if tuple(place) not in done]))
    return outcomes


def main(arguments: Sequence[str]) -> int:
    """Choose places, try them, and print a table; return the exit status."""
    try:
        settings = parse(arguments)
    except ValueError as error:
        print(f"error: {error}\n\n{__doc__}", file=sys.stderr)
        return 2
    tree = Path(settings.tree).resolve()
    for name in HEAVY:
        import_module(name)
    covering = None
    if settings.again:
        rows = json.loads(Path(settings.again).read_text(encoding="utf-8"))
        places = {Place(*row["place"]): next(iter(row.get("failed", ())), "") for row in rows}
    else:
        with tempfile.TemporaryDirectory() as scratch:
            if not settings.covering and not record(tree, Path(scratch)):
                print("error: the tests fail without a planted fault", file=sys.stderr)
                return 2
            covering = Covering(Path(settings.covering or scratch))
        places = dict.fromkeys(choose(settings, tree, covering), "")
    print(table(work(settings, places, covering, tree)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
