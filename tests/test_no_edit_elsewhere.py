"""A new task is three new files, and so is a new cell; a cell with a kernel is seven. The suites find
them, and no other file of the project changes.

A copy of the checkout gets the files, and another Python runs the suites there on what was added.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.running import ROOT

COPIED = ("conf", "src", "tests")  # modules find the folder of the project by their own paths
LINKED = ("Makefile", "README.md", "benchmarks", "docs", "examples", "pyproject.toml")
# suites that go through all cells or tasks in one case, or that read what the project has
OTHERS = (
    *("tests/nn/test_layers.py", "tests/nn/test_docstrings.py", "tests/nn/test_causality.py", "tests/nn/test_uses.py"),
    *("tests/nn/test_backends.py", "tests/test_public_api.py", "tests/test_imports.py", "tests/test_main.py"),
    *("tests/config", "tests/training/test_build.py", "tests/docs/test_commands.py"),
)
CELL_TEST = """import torch

import gyral


def test_the_first_output_is_the_candidate_as_far_as_the_gate_is_open():
    cell, inputs = gyral.MGUCell(3, 2), torch.randn(4, 3)
    output, _ = cell(inputs)
    gate, candidate = cell.project(inputs).chunk(2, dim=-1)
    torch.testing.assert_close(output, gate.sigmoid() * candidate.tanh())
"""
CONTRACT = """import torch

from gyral.ops.decay import decay
from tests.ops.contract import Contract


def drawn(steps, batch, size):
    values, h0 = (torch.randn(*of, size, dtype=torch.float64) for of in ((steps, batch), (batch,)))
    return {"values": values, "a": torch.rand(size, dtype=torch.float64), "h0": h0}, {}


def one_step_after_the_other(values, a, h0, lengths, starts):
    outputs, final = torch.zeros_like(values), h0.clone()
    for row in range(len(h0)):
        for time in range(len(values) if lengths is None else lengths[row]):
            before = 0 if starts is not None and starts[time, row] else final[row]
            outputs[time, row] = final[row] = a * before + values[time, row]
    return outputs, final


CONTRACT = Contract(
    run=decay,
    draw=drawn,
    sizes=[(1, 1, 1), (7, 5, 3), (4, 2, 17)],
    small=(9, 19, 5),
    tiny=(4, 2, 2),
    states=["h0"],
    truth=one_step_after_the_other,
    loops=True,
)
"""
FUSED_TEST = """import torch

import gyral


def test_the_kernel_equals_the_steps():
    fused, reference = (gyral.Decay(4, 3, backend=backend) for backend in ("fused", "reference"))
    reference.load_state_dict(fused.state_dict())
    inputs = torch.randn(7, 5, 4)
    torch.testing.assert_close(fused(inputs), reference(inputs))
"""


class Addition(NamedTuple):
    """What is added to the project.

    Attributes:
        files: the contents of the new files, by their paths.
        suites: the tests with cases for what is added.
        pattern: the option -k of pytest that selects these cases.
        cases: the smallest number of these cases.
    """

    files: dict[str, str]
    suites: tuple[str, ...]
    pattern: str
    cases: int


def block_of(page: str, before: str) -> str:
    """Return the code block of a page of the documentation that follows a line."""
    text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")
    found = re.search(rf"{re.escape(before)}\n\n```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page}: no code follows {before!r}"
    return found[1]


def new_task() -> Addition:
    """Return the task of docs/how-to/task.md."""
    choice = block_of("task.md", "`conf/task/parity.yaml`:")
    files = {
        "src/gyral/tasks/parity.py": block_of("task.md", "`parity.py`:"),
        "conf/task/parity.yaml": choice.replace(" parity.", " gyral.tasks.parity."),
        "tests/tasks/test_parity.py": block_of("task.md", "`tests/tasks/test_parity.py`:"),
    }
    return Addition(files, ("tests/tasks/test_contract.py", "tests/tasks/test_parity.py"), "parity", 20)


def new_cell() -> Addition:
    """Return the cell of docs/how-to/cell.md, with the example that a docstring has in a checkout."""
    choice, end = block_of("cell.md", "`conf/cell/mgu.yaml`:"), '    """\n\n    def __init__'
    text, example = block_of("cell.md", "`mgu.py`:"), block_of("cell.md", "a test runs:")
    assert text.count(end) == 1
    files = {
        "src/gyral/cells/mgu.py": text.replace(end, f"\n{example}{end}"),
        "conf/cell/mgu.yaml": choice.replace(" mgu.", " gyral.cells.mgu."),
        "tests/cells/test_mgu.py": CELL_TEST,
    }
    suites = ("tests/cells/test_contract.py", "tests/cells/test_mgu.py", "tests/nn/test_layers.py")
    return Addition(files, suites, "mgu or MGU", 12)


def new_kernel() -> Addition:
    """Return the cell with a kernel of docs/how-to/kernel.md."""
    files = {
        f"src/gyral/ops/decay/{name}": block_of("kernel.md", f"`decay/{name}`:").replace(
            "from decay import naive", "from gyral.ops.decay import naive"
        )
        for name in ("__init__.py", "naive.py", "decay.cpp")
    }
    cell = block_of("kernel.md", "`decay_cell.py`:").replace("from decay import", "from gyral.ops.decay import")
    files |= {
        "src/gyral/cells/decay.py": cell,
        "conf/cell/decay.yaml": "_target_: gyral.cells.decay.DecayCell\n",
        "tests/cells/test_decay.py": FUSED_TEST,
        "tests/ops/decay/test_decay.py": CONTRACT,
    }
    suites = (
        "tests/ops/test_contract.py",
        "tests/ops/decay",
        "tests/cells/test_contract.py",
        "tests/cells/test_decay.py",
    )
    return Addition(files, (*suites, "tests/nn/test_layers.py"), "decay or Decay", 30)


def checkout(folder: Path, additions: Sequence[Addition]) -> Path:
    """Return a copy of the project with new files, none of which is there without them."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, symlinks=True)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    for name, content in ((name, content) for addition in additions for name, content in addition.files.items()):
        (folder / name).parent.mkdir(exist_ok=True)
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(content)
    return folder


def run_tests(folder: Path, *words: str) -> str:
    """Run tests of a copy of the project in a new process, and return what pytest prints."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(folder)])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_cell_and_a_task_are_three_new_files_each(tmp_path: Path) -> None:
    additions = [new_task(), new_cell()]
    folder = checkout(tmp_path, additions)
    suites = [suite for addition in additions for suite in addition.suites]
    printed = run_tests(folder, *suites, "-k", " or ".join(addition.pattern for addition in additions))
    for suite in suites:
        assert f"\n{suite}::" in printed, f"{suite} has no case of its own"
    for addition in additions:
        pattern = addition.pattern.replace(" or ", "|")
        cases = re.findall(rf"^\S+::.*({pattern}).* PASSED", printed, re.MULTILINE)
        assert len(cases) >= addition.cases, printed


@pytest.mark.slow
def test_no_other_suite_fails_with_a_new_cell_and_task(tmp_path: Path) -> None:
    folder = checkout(tmp_path, [new_task(), new_cell()])
    run_tests(folder, *OTHERS, "-m", "not slow")
    of_both = ("tests/tasks/test_tiny_examples.py", "tests/training/test_build.py", "tests/training/test_lightning.py")
    printed = run_tests(folder, *of_both, "-k", "parity or mgu")
    for suite in of_both:
        assert f"\n{suite}::" in printed, f"{suite} has no case of its own"


@pytest.mark.slow
def test_a_cell_with_a_kernel_is_seven_new_files(tmp_path: Path) -> None:
    added = new_kernel()
    assert len(added.files) == 7
    printed = run_tests(checkout(tmp_path, [added]), *added.suites, "-k", added.pattern, "-m", "not slow")
    assert printed.count(" PASSED") >= added.cases, printed
