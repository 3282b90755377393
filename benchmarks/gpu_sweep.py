"""A sweep of `gyral train` on a machine with a GPU, torch and no network: the packages that it needs come along.

    python -m benchmarks.gpu_sweep collect                 where there is a network: downloads the packages
    PYTHONPATH=src python -m benchmarks.gpu_sweep run      on the machine with the GPU

  wheels=.wheels    folder of the packages; run installs them into a temporary folder. wheels= : they are installed
  python=3.12       version of Python on that machine, which has an x86-64 processor and Linux
  out=outputs       an existing folder; gets sweep.json, the summary, and sweep.tar.gz, the runs without checkpoints
  jobs=16           runs at the same time on each GPU
  seconds=240       after which the sweep is stopped; the installation comes before
  commit=…          the commit of this tree, where git does not know it, as in a copy

All other arguments of run are overrides of `gyral train`, and replace the default ones: 32 runs of RUM and LSTM.
Exit status: 0 success, 1 a run is not DONE, or a package cannot be had, 2 a key or value is not allowed.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import gpu_tests
from benchmarks.provenance import ROOT, provenance
from gyral.core.checks import check_integer
from gyral.core.errors import OptionError, UserError

# All packages that a sweep without a logger imports, besides torch, NumPy and what torch needs;
# tests/benchmarks/test_gpu_sweep.py runs one with these alone. Their versions are those of constraints.txt.
PACKAGES = (
    *("hydra-core", "omegaconf", "antlr4-python3-runtime", "PyYAML", "packaging", "typing_extensions"),
    *("pydantic", "pydantic_core", "annotated-types", "typing-inspection"),
    *("pytorch-lightning", "lightning-utilities", "torchmetrics", "fsspec", "tqdm"),
    *("joblib", "cloudpickle", "filelock", "rich", "pillow"),
)
FROM_SOURCE = ("antlr4-python3-runtime",)  # has no wheels of this version
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
OVERRIDES = ("model=rum,lstm", "task=copy,recall", "seed=1,2,3,4,5,6,7,8", "trainer.max_steps=500")
OPTIONS = ("launcher=joblib", "logger=none")


class Settings(NamedTuple):
    """The options of the command line."""

    wheels: str = ".wheels"
    python: str = "3.12"
    out: str = "outputs"
    jobs: int = 16
    seconds: int = 240
    commit: str = ""


def parse(arguments: Sequence[str]) -> tuple[Settings, list[str]]:
    """Return the settings and the other arguments.

    Raises:
        UserError: A value is not allowed.
    """
    given: dict[str, Any] = {}
    others = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if key not in Settings._fields or not equals:
            others.append(argument)
        elif isinstance(Settings._field_defaults[key], int):
            given[key] = check_integer(key, int(value) if value.isdecimal() else value, minimum=1)
        else:
            given[key] = value
    return Settings(**given), others


def requirements() -> list[str]:
    """Return name==version of each package."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
    return [f"{name}=={pinned[name]}" for name in PACKAGES]


def collect(settings: Settings) -> None:
    """Download or build a wheel of each package into the folder of wheels.

    Raises:
        subprocess.CalledProcessError: pip has failed, and has said why.
    """
    wanted = requirements()
    built = [each for each in wanted if each.startswith(FROM_SOURCE)]
    options = [f"--python-version={settings.python}", "--implementation=cp", "--only-binary=:all:"]
    options += [f"--platform={platform}" for platform in PLATFORMS]
    pip("wheel", "--no-deps", "--wheel-dir", settings.wheels, *built)
    pip("download", "--no-deps", "--dest", settings.wheels, *options, *(each for each in wanted if each not in built))
    size = sum(file.stat().st_size for file in Path(settings.wheels).glob("*.whl"))
    print(f"{len(wanted)} packages, {size / 2**20:.1f} MiB: {settings.wheels}")


def pip(*arguments: str) -> None:
    """Run pip."""
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def run(settings: Settings, overrides: Sequence[str]) -> int:
    """Run a sweep, and write its summary and archive; return the exit status.

    Raises:
        OptionError: A folder does not exist.
        subprocess.CalledProcessError: pip has failed, and has said why.
    """
    out = Path(settings.out)
    if not out.is_dir():
        raise OptionError("out", settings.out, "must be an existing folder")
    if settings.wheels and not Path(settings.wheels).is_dir():
        raise OptionError(
            "wheels", settings.wheels, "must be the folder of collect, or empty to use installed packages"
        )
    command = ["-m", "src.train", "-m", *(overrides or OVERRIDES), *OPTIONS, f"hydra.launcher.gpus={1 / settings.jobs}"]
    with tempfile.TemporaryDirectory() as folder:
        site, sweep = f"{folder}/site", Path(folder, "sweep")
        if settings.wheels:
            options = "--no-index", "--find-links", settings.wheels, "--no-deps", "--no-compile", "--target", site
            pip("install", *options, *requirements())
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (site, os.environ.get("PYTHONPATH"))))}
        start = time.monotonic()
        process = subprocess.Popen([sys.executable, *command, f"hydra.sweep.dir={sweep}"], cwd=ROOT, env=environment)
        gpu_tests.end([process], start + settings.seconds)
        found = summary(sweep, time.monotonic() - start)
        if sweep.is_dir():
            with tarfile.open(out / "sweep.tar.gz", "w:gz") as archive:
                archive.add(sweep, "sweep", filter=lambda each: None if each.name.endswith("/checkpoints") else each)
    about = {"command": " ".join(("python", *command)), "jobs": settings.jobs, **provenance(settings.commit)}
    (out / "sweep.json").write_text(json.dumps(about | found, indent=1) + "\n", encoding="utf-8")
    print("{done} of {runs} runs in {seconds:.0f} s: {runs_a_minute:.1f} runs a minute".format(**found))
    return int(process.returncode != 0 or found["done"] < found["runs"])


def summary(sweep: Path, seconds: float) -> dict[str, Any]:
    """Return the figures of a sweep that took some seconds, with the start of its processes.

    Returns:
        The numbers of `runs`, of those that are `done` and of these a minute, their `steps` a second in total, the
        medians of `seconds_a_step` and `peak_memory_mb` of a run, and the names of the GPUs.
    """
    runs = [file.parent for file in sweep.rglob("provenance.json")]
    done = [json.loads((run / "DONE").read_text(encoding="utf-8")) for run in runs if (run / "DONE").exists()]
    gpus = {json.loads((run / "provenance.json").read_text(encoding="utf-8"))["gpu"] for run in runs}

    def middle(key: str) -> float | None:
        return statistics.median(each[key] for each in done) if done else None

    return {
        "runs": len(runs),
        "done": len(done),
        "seconds": round(seconds, 1),
        "runs_a_minute": 60 * len(done) / seconds,
        "steps_a_second": sum(each["steps"] for each in done) / seconds,
        "seconds_a_step": middle("seconds_a_step"),
        "peak_memory_mb": middle("peak_memory_mb"),
        "gpus": sorted(filter(None, gpus)),
    }


def main(arguments: Sequence[str]) -> int:
    """Collect the packages or run a sweep; return the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    try:
        verb, *rest = arguments or [""]
        settings, others = parse(rest)
        if verb == "run":
            return run(settings, others)
        if verb != "collect" or others:
            raise UserError(f"{' '.join(arguments)}: must be collect or run, with <key>=<value>; see --help")
        collect(settings)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except subprocess.CalledProcessError:  # pip says why
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
