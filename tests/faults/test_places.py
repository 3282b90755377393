"""Files of somebody else in the current directory, which is a run, a sweep or a folder with one: nothing is executed.

Each attack starts a real process. A file that is executed makes the file CANARY beside itself.
"""

import itertools
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.helpers.attacks import Attack
from tests.helpers.running import SMALL_COPY, spawn, train

CANARY = "CANARY"
TOUCH = f"import os\nopen(os.path.join(os.path.dirname(os.path.abspath(__file__)), '{CANARY}'), 'w').close()\n"
SCRIPT = f'#!/bin/sh\n: > "$(dirname "$0")/{CANARY}"\n'
# Installed or not. Python imports the first ones before Gyral can leave out an empty entry of PYTHONPATH.
AT_START = (
    *("gyral", "sitecustomize", "usercustomize", "multiprocessing", "json", "random", "yaml", "importlib", "logging"),
    *("hydra", "omegaconf"),
)
LATER = (
    *("torch", "numpy", "wandb", "matplotlib", "pytorch_lightning", "submitit", "joblib", "cmaes", "fla", "triton"),
    *("ray", "scipy", "pandas"),
)
PROGRAMS = ("git", "nvidia-smi", "c++", "g++", "clang++", "python3", "sh", "squeue", "sbatch", "wandb-core")
Plant = Callable[[Path], None]


def module(name: str, content: str = TOUCH) -> Plant:
    """Return what writes a module into a directory."""

    def write(directory: Path) -> None:
        path = directory / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.replace("abspath(__file__)", f"abspath({str(directory / 'x')!r})"))

    return write


def program(name: str) -> Plant:
    """Return what writes a program into a directory."""

    def write(directory: Path) -> None:
        (directory / name).write_text(SCRIPT)
        (directory / name).chmod(0o755)

    return write


def settings(name: str, content: str) -> Plant:
    """Return what writes settings of a library into a directory."""

    def write(directory: Path) -> None:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content)

    return write


def with_conf(*plants: Plant) -> Plant:
    """Return what writes several things into a directory, and a folder conf/, which makes own modules importable."""

    def write(directory: Path) -> None:
        settings("conf/model/mine.yaml", "_target_: evil.Model\n")(directory)
        for plant in plants:
            plant(directory)

    return write


def repository(directory: Path) -> None:
    """Write a git repository whose settings name a program."""
    subprocess.run(["git", "init", "--quiet", directory], check=True)
    program("monitor")(directory)
    with (directory / ".git" / "config").open("a") as file:
        file.write(f"[core]\n\tfsmonitor = {directory}/monitor\n\tpager = {directory}/monitor\n")
    shutil.copy(directory / "monitor", directory / ".git" / "hooks" / "post-index-change")


PLANTS: dict[str, Plant] = {
    **{f"{name}.py": module(name) for name in (*AT_START, *LATER)},
    **{f"the program {name}": program(name) for name in PROGRAMS},
    "a plugin of Hydra": with_conf(module("hydra_plugins/evil")),
    "a plugin of Hydra like Gyral's": with_conf(module("hydra_plugins/gyral")),
    "a plugin of Hydra without conf/": module("hydra_plugins/evil"),
    "modules beside conf/": with_conf(*map(module, ("evil", "cmaes", "fla", "sitecustomize", "usercustomize"))),
    "a table beside conf/": with_conf(module("evil"), settings("conf/table/evil.yaml", "rows: ${oc.env:HOME}\n")),
    "a launcher beside conf/": with_conf(module("evil"), settings("conf/launcher/evil.yaml", "_target_: evil.L\n")),
    "settings of matplotlib": with_conf(module("evil"), settings("matplotlibrc", "backend: module://evil\n")),
    "settings of matplotlib and LaTeX": settings("matplotlibrc", "text.usetex: true\nanimation.ffmpeg_path: ./sh\n"),
    "a repository of git": repository,
    "settings of W&B": settings("wandb/settings", "[default]\nbase_url = http://127.0.0.1:9\nmode = online\n"),
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "resume": ("train", "resume={run}"),
    "resume with DDP": ("train", "resume={run}"),
    "evaluate": ("evaluate", "run={run}"),
    "figure": ("report", "figure=loss_line", "run={run}"),
    "table": ("report", "sweep={sweep}"),
    "page": ("report", "sweep={sweep}", "save=report.html", "runs=true"),
    "completion": ("-sc", "query=bash"),
}
PLACES = {"run": ("run", ".", "."), "sweep": (".", "run", "."), "inside": ("run/checkpoints", "..", "../..")}
CASES = list(itertools.product(PLANTS, COMMANDS, PLACES))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a second."""
    steps = ("trainer.max_steps=2", "trainer.val_check_interval=1", "trainer.log_every_n_steps=1")
    return train(tmp_path_factory.mktemp("places") / "run", *SMALL_COPY, "model=rum", *steps)


@pytest.fixture
def sweep(trained: Path, tmp_path: Path) -> Path:
    """A directory with a run that was stopped after its last step."""
    run = tmp_path / "sweep" / "run"
    shutil.copytree(trained, run)
    (run / "DONE").unlink()
    (run.parent / "multirun.yaml").write_text("{}\n")
    return run.parent


@pytest.mark.attacks(sampled=1, whole=len(CASES) // 5)
def test_nothing_in_the_current_directory_is_executed(attack: Attack, sweep: Path) -> None:
    order = random.Random(f"{attack.seed} places").sample(CASES, len(CASES))
    plant, command, place = order[attack.number]
    here, run, whole = PLACES[place]
    PLANTS[plant](sweep / here)
    if command == "resume with DDP":
        config = OmegaConf.load(sweep / "run" / "config.yaml")
        config.trainer.update(strategy="ddp", devices=2)
        OmegaConf.save(config, sweep / "run" / "config.yaml")
    words = [word.format(run=run, sweep=whole) for word in COMMANDS[command]]
    # an empty entry is the current directory, for Python and for shells
    paths = {"PATH": f":{os.environ['PATH']}:.", "PYTHONPATH": f":{os.environ.get('PYTHONPATH', '')}"}
    if plant.removesuffix(".py") in AT_START or (plant.startswith("modules")):
        del paths["PYTHONPATH"]
    line = {"COMP_LINE": "gyral train model=", "COMP_POINT": "18"}
    ended = spawn("-P", "-m", "gyral", *words, cwd=sweep / here, WANDB_MODE="offline", **paths, **line)
    assert not list(sweep.rglob(CANARY)), (plant, command, place, ended)
    assert "Traceback" not in ended.err, ended
    assert ended.status == 0, (plant, command, place, ended)


def test_the_plants_are_executed_where_the_directory_is_the_users(tmp_path: Path) -> None:
    """The canary tells an execution."""
    PLANTS["a plugin of Hydra"](tmp_path)
    spawn("-P", "-m", "gyral", "train", "--cfg", "job", cwd=tmp_path)
    assert (tmp_path / CANARY).exists()
