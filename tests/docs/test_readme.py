"""The commands that README.md shows are the commands that work."""

import re
import shlex
import subprocess
import sys
from itertools import islice

import pytest
from omegaconf import OmegaConf

from gyral.config.groups import choices
from gyral.config.overrides import quote
from gyral.generate import LITERAL, choose
from gyral.reports import catalogue as sweeps
from gyral.reports.figures import drawing
from gyral.training import build
from tests.helpers.running import (
    CONF,
    ROOT,
    SMALL,
    SMALL_SUMMARIES,
    SUMMARIES,
    build_or_skip,
    compose_config,
    keep_small,
)

COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    for line in block.splitlines()
]
TRAIN, EVALUATE, REPORT = "python -m src.train", "python -m src.evaluate", "python -m src.report"
GENERATE, DASHBOARD = "python -m src.generate", "python -m src.dashboard"


def overrides_of(command: str) -> list[str]:
    """Return what stands behind the program's name, without switches."""
    return [word for word in shlex.split(command)[3:] if not word.startswith("-")]


def test_every_command_is_of_a_kind_that_is_tested_here() -> None:
    assert len(COMMANDS) >= 10
    for command in COMMANDS:
        assert command.startswith((TRAIN, EVALUATE, GENERATE, REPORT, DASHBOARD, "make ")), command


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith(TRAIN) and "resume=" not in c])
def test_train_commands_compose_and_build(command: str) -> None:
    swept = [override.split(",")[0] for override in overrides_of(command)]
    for sweep in sweeps.named():
        if f"sweep={sweep.name}" in swept and not any(word.startswith("experiment=") for word in swept):
            swept.append(f"experiment={sweep.axes['experiment'][0]}")
    config = compose_config(*swept)
    keep_small(config, **SMALL_SUMMARIES)
    task = build_or_skip(config)
    assert sum(parameter.numel() for parameter in task.parameters()) > 0


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith(REPORT)])
def test_report_commands_name_sweeps_and_figures_that_there_are(command: str) -> None:
    allowed = {
        "sweep": [*choices("sweep"), "outputs/sweep"],
        "figure": drawing.NAMES,
        "run": ["outputs/recall", "outputs/questions", "outputs/norms"],
        "watch": ["true"],
        "runs": ["true"],
        "save": ["[table1.html,table1.tex]"],
    }
    for override in overrides_of(command):
        key, _, value = override.partition("=")
        assert value in allowed[key]


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith(DASHBOARD)])
def test_dashboard_commands_give_what_there_is(command: str) -> None:
    options = OmegaConf.load(CONF / "_report" / "dashboard.yaml")
    assert {override.partition("=")[0] for override in overrides_of(command)} <= set(options)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith(GENERATE)])
def test_generate_commands_give_what_a_generator_takes(command: str) -> None:
    task_of_run: tuple[str, ...] = ("task=text_file", "model.cell.hidden_size=2")
    if "story=" in command:
        task_of_run = ("task=babi", "task.generated=true", "model.cell.hidden_size=2")
    elif "input=" in command:
        task_of_run = SUMMARIES
    task = build.build_task(compose_config(*task_of_run))
    shown = command.replace("<run directory>", "outputs/own_text").partition(" <")[0]
    words = [quote(w) if w.partition("=")[0] in LITERAL else w for w in shlex.split(shown)[3:]]
    config = OmegaConf.to_container(compose_config(*words, name="generate"))
    given = {name: value for name, value in config.items() if value is not None and name not in ("run", "checkpoint")}
    assert config["run"]
    generator = choose(task.generators(), given, "task")
    if not {"surprisal", "story", "input"} & set(given):
        assert "".join(islice(generator(**given), 5)).startswith(given.get("prompt", ""))


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_make_commands_are_targets_that_install_first(command: str) -> None:
    printed = subprocess.run(
        [*shlex.split(command), "--dry-run", "--always-make"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    program = {"train": "gyral.train", "test": "pytest", "data": "gyral.data.download"}[shlex.split(command)[1]]
    assert printed.index("pip install") < printed.index(program)


def test_make_alone_prints_its_targets() -> None:
    printed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("train", "test", "lint", "bench"):
        assert f"make {target}" in printed


def test_the_first_command_then_evaluate_and_resume(tmp_path) -> None:
    first = next(command for command in COMMANDS if command.startswith(TRAIN))
    evaluate = next(command for command in COMMANDS if command.startswith(EVALUATE))
    resume = next(command for command in COMMANDS if "resume=" in command)
    run = tmp_path / "run"

    def call(command: str, *extra: str) -> str:
        words = shlex.split(command.replace("<run directory>", str(run)))
        result = subprocess.run(
            [sys.executable, *words[1:], *extra], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert "baseline beaten" in call(first, *SMALL, f"hydra.run.dir={run}")
    assert (run / "DONE").is_file()
    assert "test/loss" in call(evaluate)
    assert "baseline beaten" in call(resume)
