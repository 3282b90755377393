"""RUM's Triton kernels compile for a GPU. The interpreter does not show whether they do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.running import ROOT

pytest.importorskip("triton", reason="the kernels need triton")


@pytest.mark.slow  # tests/core/test_new_process.py compiles two of them
def test_kernels_compile_for_hopper(tmp_path: Path) -> None:
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
    sizes = [int(line.rpartition(" ")[2]) for line in done.stdout.splitlines()]
    assert len(sizes) == 32
    assert min(sizes) > 10_000
