"""On a GPU the tests compile no kernels for the CPU, and start none of flash-linear-attention: both take minutes."""

import pytest
import torch

from gyral.ops import delta
from gyral.ops.native import library

if torch.cuda.is_available():
    library.compiler = lambda: None  # cells that are on a CPU run as loops


@pytest.fixture(autouse=True)
def without_fla(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use no kernels of flash-linear-attention, which has tests of its own."""
    monkeypatch.delitem(delta.delta_scan.kernels, "cuda")
