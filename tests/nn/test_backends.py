"""`gyral.backends` names the backend that a layer has."""

import pytest
import torch

import gyral
from gyral.nn import layers
from tests.helpers.found import at_least


def test_every_layer_is_there_with_the_backend_that_it_has() -> None:
    found = at_least(42, gyral.backends())
    assert [row.layer for row in found] == sorted(set(layers.__all__) - {"Layer"})
    for row in found:
        if row.backend == "–":
            assert row.reason.startswith("depends on ")
        else:
            assert row.backend == getattr(gyral, row.layer)(4, 20).backend
            assert (row.reason == "") == (row.backend == "fused")


def test_without_kernels_the_reason_is_named() -> None:
    (row,) = (row for row in gyral.backends(dtype=torch.bfloat16) if row.layer == "RUM")
    assert row == ("RUM", "reference", "there are no kernels for torch.bfloat16 on cpu")


def test_it_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print(gyral.backends(dtype=torch.bfloat16))
    lines = capsys.readouterr().out.splitlines()
    assert "RUM             reference      there are no kernels for torch.bfloat16 on cpu" in lines
    assert lines[-1].startswith("The kernels for the CPU are ")
