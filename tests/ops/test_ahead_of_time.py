"""What Triton kernels cost on a GPU, read from their machine code. The interpreter does not show it.

After a change to a kernel, `python -m tests.helpers.ahead_of_time record` writes the record anew; a kernel whose source
differs from the record is compiled here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import ahead_of_time
from tests.helpers.ahead_of_time import CARDS, FAMILIES, HOPPER
from tests.helpers.found import at_least
from tests.helpers.running import ROOT

BARRIERS = 2  # more than recorded that a loop may have: compilers differ


def compile_all(tmp_path: Path) -> dict[str, Any]:
    """Return what the record would have now."""
    pytest.importorskip("triton", reason="the kernels need triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.ahead_of_time", "all"],
        cwd=ROOT,
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(families: dict[str, Any]) -> None:
    """Check that no kernel spills, needs more shared memory than its card has, or waits more often than recorded."""
    record = ahead_of_time.recorded()
    assert families.keys() == record["families"].keys() == FAMILIES.keys()
    found = []
    for name, family in families.items():
        before = record["families"][name]["kernels"]
        assert family["kernels"].keys() == before.keys(), "run python -m tests.helpers.ahead_of_time record"
        for kernel, cost in family["kernels"].items():
            found += ahead_of_time.faults(kernel, cost, record["known_spills"])
            if cost["barriers"] > before[kernel]["barriers"] + BARRIERS:
                found.append(f"{kernel} has {cost['barriers']} barriers, recorded are {before[kernel]['barriers']}")
    assert not found


def test_recorded_kernels_fit_their_cards(tmp_path: Path) -> None:
    record = ahead_of_time.recorded()
    check(record["families"])
    for name, family in FAMILIES.items():
        kernels = record["families"][name]["kernels"]
        assert len(kernels) == sum(case.kernels * len(case.cards) for case in family.cases)
        assert {f"sm_{card}" for card in CARDS} == {kernel.split()[1] for kernel in kernels}
    assert all(stack > ahead_of_time.SPILLS for stack in record["known_spills"].values())
    if any(record["families"][name]["digest"] != ahead_of_time.digest(family) for name, family in FAMILIES.items()):
        check(compile_all(tmp_path))


def test_all_folders_with_kernels_are_recorded() -> None:
    ops = ROOT / "src" / "gyral" / "ops"
    files = at_least(40, (file for file in ops.rglob("*.py") if "@triton.jit" in file.read_text(encoding="utf-8")))
    folders = {file.parent.relative_to(ops).as_posix() for file in files}
    assert folders - {"triton"} <= {family.folder for family in FAMILIES.values()}


@pytest.mark.slow
def test_all_kernels_compile_and_cost_what_is_recorded(tmp_path: Path) -> None:
    check(compile_all(tmp_path))


def test_what_is_a_fault() -> None:
    cost = {"stack": 64, "shared": 227 * 1024}
    kernel, known = f"kernel sm_{HOPPER} case", {f"kernel sm_{HOPPER} case": 96}
    assert not [*ahead_of_time.faults(kernel, cost, {})]
    (fault,) = ahead_of_time.faults(kernel, cost | {"stack": 72}, {})
    assert fault.endswith("spills 72 bytes a thread, must be at most 64")
    assert not [*ahead_of_time.faults(kernel, cost | {"stack": 96}, known)]
    assert [*ahead_of_time.faults(kernel, cost | {"stack": 104}, known)]
    (fault,) = ahead_of_time.faults(kernel, cost | {"shared": 227 * 1024 + 1}, {})
    assert fault.endswith("must be at most 227 KiB")


def test_the_longest_loop_of_machine_code() -> None:
    code = """
.L_x_0:
        /*0010*/                   FADD R1, R2, R3 ;
.L_x_1:
        /*0020*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0030*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0040*/               @P0 BRA `(.L_x_1) ;
.L_x_2:
        /*0050*/                   BRA `(.L_x_2);
        /*0060*/                   BRA `(.L_x_3) ;
.L_x_3:
        /*0070*/                   EXIT ;
"""
    assert ahead_of_time.longest_loop(code) == ["LDG.E.128", "BAR.SYNC.DEFER_BLOCKING", "BRA"]
