"""What operators and layers refuse, in one line that names the argument and what is allowed."""

from typing import Any

import pytest
import torch
from torch import Tensor

import gyral
from gyral.core.errors import InputError
from gyral.ops.diagonal import diagonal_scan

T, B, N = 3, 2, 4


def given(**changed: Any) -> dict[str, Any]:
    return {"values": torch.randn(T, B, N), "decay": torch.rand(N), "h0": torch.zeros(B, N), **changed}


WRONG = {
    "h0 is on meta, must be on cpu, the device of values": {"h0": torch.zeros(B, N, device="meta")},
    "decay has dtype torch.float64, must have that of values, torch.float32": {"decay": torch.rand(N).double()},
    "h0 is of layout torch.sparse_coo, must be dense (torch.strided)": {"h0": torch.zeros(B, N).to_sparse()},
    "h0 has shape (3, 4), must have (2, 4)": {"h0": torch.zeros(3, N)},
    "h0 is of type NoneType, must be of type Tensor": {"h0": None},
    "lengths have values from 1 to 9, must be in [1, 3]": {"lengths": torch.tensor([1, 9])},
    "lengths have dtype torch.int32, must have torch.int64": {"lengths": torch.tensor([1, 1]).int()},
    "starts have shape (2, 3), must have (3, 2)": {"starts": torch.zeros(B, T, dtype=torch.bool)},
}


@pytest.mark.parametrize("message", WRONG)
def test_an_operator_names_the_argument(message: str) -> None:
    diagonal_scan(**given())  # an earlier call says nothing about others
    with pytest.raises(InputError) as refused:
        diagonal_scan(**given(**WRONG[message]))
    assert str(refused.value) == message


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_layer_names_the_argument(backend: str) -> None:
    layer, inputs = gyral.RUM(6, 8, backend=backend), torch.randn(T, B, 6)

    def refusal(*arguments: Tensor, **options: Tensor) -> str:
        with pytest.raises(RuntimeError) as refused:  # the class that torch.nn raises
            layer(*arguments, **options)
        return str(refused.value)

    meta = torch.zeros(1, B, 8, device="meta")
    assert refusal(inputs, meta) == "states are on meta, must be on cpu, the device of the initial state"
    assert refusal(inputs.to("meta")) == "inputs are on meta, must be on cpu, the device of the parameters"
    assert refusal(inputs.to_sparse()) == "inputs are of layout torch.sparse_coo, must be dense (torch.strided)"
    assert refusal(inputs, lengths=torch.ones(B, dtype=torch.int64, device="meta")).startswith("lengths are on meta")
    layer.cells[0].weight_hh = torch.nn.Parameter(layer.cells[0].weight_hh.to("meta"))
    assert "weight_hh is on meta" in refusal(inputs) or "w_hh is on meta" in refusal(inputs)
