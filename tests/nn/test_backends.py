"""`gyral.backends` names the backend that a layer has."""

import copy
from typing import Any

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


def test_the_choice_follows_options_and_dtype() -> None:
    layer: Any = gyral.RUM(3, 4)
    inputs = torch.randn(5, 2, 3)

    def backend() -> str:
        layer(inputs.to(layer.cells[0].bias.dtype))
        return str(layer.backend)

    assert backend() == "fused"
    layer.cells[0].recurrent_dropout = 0.5
    assert backend() == "reference"
    layer.cells[0].recurrent_dropout = 0.0
    assert backend() == "fused"
    layer.bfloat16()
    assert backend() == "reference"
    layer.float()
    assert backend() == "fused"
    layer.requested_backend = "reference"
    assert backend() == "reference"
    twin = copy.deepcopy(layer)
    twin.requested_backend, twin.cells[0].recurrent_dropout = "auto", 0.5
    assert twin.choice(twin.cells[0]).backend == "reference"
