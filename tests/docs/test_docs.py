"""The code blocks of README.md, docs/ and the READMEs of applications work.

The test follows each page from top to bottom in an empty directory, as a reader would: it writes files, executes
Python, and runs commands. Training is shortened to two steps on little data, and a sweep to one job. A block after
`<!-- needs: … -->` requires a cluster, a key, the network or files: its commands are composed instead, and Python that
needs a package runs where that is installed. A command in `<!-- setup: … -->` prepares the assumptions of a page.
"""

import ast
import importlib.util
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from omegaconf import OmegaConf

from gyral.data.catalogue import CATALOGUE
from gyral.reports import catalogue
from tests.helpers.found import at_least
from tests.helpers.running import CONF, ROOT, absent_corpora, compose_config, invoke, without_plots
from tests.helpers.slices import offered_to

# The pages of results have commands that start the missing runs, which tests/docs/test_results.py does not run either.
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(
        {*DOCS.rglob("*.md")} - {*DOCS.glob("results/*.md")} - {*DOCS.glob("applications/*/results.md")},
    ),
    *sorted((ROOT / "src" / "gyral" / "applications").glob("*/README.md")),
]
SHORT = {
    "trainer.max_steps": 2,
    "trainer.val_check_interval": 1,
    "trainer.log_every_n_steps": 1,
    "trainer.limit_val_batches": 1,
    "trainer.limit_test_batches": 1,
    "task.batch_size": 8,
    "task.train_size": 16,
    "task.val_size": 8,
    "task.test_size": 8,
    "task.window": 20,
    "task.warm_up": 5,
    "task.eval_batch_size": 8,
    "task.train_lengths": "[2,4]",
    "task.val_batches": 1,
    "task.test_batches": 1,
    "model.cell.hidden_size": 8,
    "model.encoder.hidden_size": 8,
    "model.decoder.hidden_size": 8,
    "model.embedding_size": 8,
}
ALWAYS = ("logger=none", "threads=1", "trainer.accelerator=cpu", "~callbacks.progress_bar")
SLOW_FIGURES = ("loss_plane",)
OTHER_PROGRAMS = (
    "source",
    "eval",
    "pip",
    "wandb",
    "sed",
    "printf",
    "python -m benchmarks.",
    "python -m gyral.applications.",
)


class Block(NamedTuple):
    """A code block: its language, its text, the requirements that a test lacks, and the file with this content."""

    language: str
    text: str
    needs: str | None
    file: str | None


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the code blocks of a page, and its setup commands as blocks."""
    pattern = r"<!-- setup: (?P<setup>.*?) -->|(?P<before>[^\n]*\n)?\n?```(?P<language>\w+)\n(?P<text>.*?)```"
    for found in re.finditer(pattern, page.read_text(encoding="utf-8"), re.DOTALL):
        if found["setup"]:
            yield Block("bash", found["setup"], None, None)
            continue
        before = (found["before"] or "").strip()
        needs = re.fullmatch(r"<!-- needs: (.*) -->", before)
        file = re.fullmatch(r"`([\w./]+\.(?:py|yaml|mrg|cpp))`:", before)
        yield Block(found["language"], found["text"], needs[1] if needs else None, file[1] if file else None)


def commands_of(block: Block) -> list[str]:
    return [line for line in block.text.replace("\\\n", " ").splitlines() if line.strip()]


def first_values(word: str) -> str:
    """Return an override with the first of several values."""
    key, equals, value = word.partition("=")
    return word if any(sign in value for sign in "[]()'\"") else f"{key}{equals}{value.split(',')[0]}"


def composable(words: list[str]) -> list[str]:
    """Return the overrides of one job of a command."""
    overrides = [first_values(word) for word in words if not word.startswith("-")]
    chosen = next((word.partition("=")[2] for word in overrides if word.startswith("sweep=")), None)
    if chosen in {sweep.name for sweep in catalogue.named()}:
        sweep = catalogue.load(chosen)
        given = {word.partition("=")[0] for word in overrides}
        overrides += [f"{key}={values[0]}" for key, values in sweep.axes.items() if key not in given]
    return overrides


def shortened(words: list[str], config: Any) -> list[str]:
    """Return the words of a training command with settings that make it short."""
    switches = [word for word in words if word.startswith("-")]
    overrides = [word for word in composable(words) if not word.startswith(("launcher=", "hydra.launcher."))]
    missing = object()
    settings = [
        f"{key}={value}"
        for key, value in {**SHORT, **offered_to(config.task._target_, "SHORT")}.items()
        if OmegaConf.select(config, key, default=missing) is not missing
        # small one-hot or real inputs have no embedding
        and not (key == "model.embedding_size" and config.model.embedding_size is None)
    ]
    tune = ["hydra.sweeper.n_trials=1", "optimizer.lr=0.001,0.002"] if "sweep=tune" in overrides else []
    return [*switches, *overrides, *ALWAYS, *settings, *tune]


def run_train(words: list[str], needs: str | None) -> None:
    if "--help" in words:
        assert "python -m src.train" in invoke("--help").out
        return
    if any(word.startswith("resume=") for word in words):
        longer = f"trainer.max_steps={2 * SHORT['trainer.max_steps']}"
        outcome = invoke(*(longer if word.startswith("trainer.max_steps=") else word for word in words))
        assert outcome.status == 0, outcome.err
        return
    overrides = composable(words)
    config = compose_config(*(word for word in overrides if not word.startswith("hydra.") and "=range(" not in word))
    if needs is not None or "trainer=ddp" in words:
        return
    outcome = invoke(*shortened(words, config))
    if absent := re.search(absent_corpora(), outcome.err):
        pytest.skip(absent[0])
    assert outcome.status == 0, outcome.err


def run_report(words: list[str], needs: str | None) -> None:
    options = dict(word.partition("=")[::2] for word in words)
    assert set(options) <= set(OmegaConf.load(CONF / "_report" / "report.yaml"))
    if needs is not None or options.get("figure") in SLOW_FIGURES:
        return
    outcome = invoke(*(word for word in words if word != "watch=true"), entry="report")
    assert outcome.status == 0, outcome.err


def run_generate(command: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    writer, is_given, _ = command.rpartition(" | ")
    text = subprocess.run(["bash", "-c", writer], capture_output=True).stdout if is_given else b""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), encoding="utf-8"))
    outcome = invoke(*words, entry="generate")
    assert outcome.status == 0, outcome.err


def run_command(command: str, needs: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a line of a shell, or check it as far as possible if its requirements are missing."""
    if command.startswith(OTHER_PROGRAMS):
        return
    if command.startswith("make"):
        subprocess.run([*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, check=True)
        return
    line = command.rpartition(" | ")[2].partition(" < ")[0]
    program, name, *words = shlex.split(line)
    assert program == "gyral", f"{command}: is not a command that this test knows"
    if name == "train":
        run_train(words, needs)
    elif name == "report":
        run_report(words, needs)
    elif name == "generate":
        if needs is None:
            run_generate(command, words, monkeypatch)
    elif name in ("evaluate", "export", "predict"):
        assert needs is not None or invoke(*words, entry=name).status == 0
    elif name == "fetch":
        assert set(words) <= set(CATALOGUE)
    elif name == "sweep":
        assert invoke(*words[: words.index(">")], entry="sweep").status == 0
    elif name == "dashboard":
        options = OmegaConf.load(CONF / "_report" / "dashboard.yaml")
        assert {word.partition("=")[0] for word in words} <= set(options)
    else:
        assert command == "gyral --help"


def run_script(text: str) -> None:
    """Check a script of bash, and compose the training that it starts."""
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    for found in re.finditer(r"\bgyral train ([^'\n]*)", text):
        run_train(shlex.split(found[1].replace("$SLURM_PROCID", "0")), "cluster")


def run_python(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    """Execute a block with little training, unless it needs something else than a package that is installed."""
    if block.needs is not None and not (block.needs.isidentifier() and importlib.util.find_spec(block.needs)):
        return
    torch.manual_seed(0)
    text = re.sub(r"trainer\.max_steps=\d+", "trainer.max_steps=2", block.text)
    text = text.replace('"task=recall"', '"task=recall", "task.val_size=8", "task.test_size=8"')
    with pytest.MonkeyPatch.context() as patch, without_plots():
        patch.setenv("WANDB_MODE", "disabled")  # whose process takes seconds to start
        exec(compile(text, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.named("README.md", "docs/how-to/task.md")  # commands, Python, files
def test_every_block_works(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    modules = set(sys.modules)
    (tmp_path / "README.md").write_text((ROOT / "README.md").read_text())
    namespace: dict[str, Any] = {"__name__": "page"}
    try:
        for block in blocks_of(page):
            if block.file is not None:
                Path(block.file).parent.mkdir(parents=True, exist_ok=True)
                Path(block.file).write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                run_python(block, page, namespace)
            elif block.language == "json":
                assert [*map(json.loads, block.text.splitlines())]
            elif block.language == "sh":
                run_script(block.text)
            elif block.language == "yaml":
                OmegaConf.create(block.text)
            elif block.language == "bash":
                for command in commands_of(block):
                    run_command(command, block.needs, monkeypatch)
    finally:
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]


def test_blocks_of_all_kinds_are_found() -> None:
    blocks = [block for page in at_least(46, PAGES) for block in blocks_of(page)]
    for language, count in (("bash", 142), ("python", 60), ("yaml", 7), ("sh", 3), ("json", 2), ("cpp", 1)):
        at_least(count, (block for block in blocks if block.language == language))
    at_least(290, (command for block in blocks if block.language == "bash" for command in commands_of(block)))
    at_least(16, (block for block in blocks if block.file))
    at_least(48, (block for block in blocks if block.needs))
    at_least(10, (block for block in blocks if block.language == "bash" and "\n" not in block.text))  # setups


def test_python_of_the_results_imports_what_there_is() -> None:
    """It needs runs of hours, so that only its imports are executed."""
    found = 0
    for page in sorted(DOCS.glob("results/*.md")):
        for block in blocks_of(page):
            if block.language == "python":
                tree = ast.parse(block.text)
                imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
                exec(compile(ast.Module(imports, []), str(page), "exec"), {})
                found += 1
    assert found == 2


def test_readme_is_short_and_starts_with_one_command() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 150
    assert "make train" in "\n".join(lines[:20])
