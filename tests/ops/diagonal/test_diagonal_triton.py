"""The Triton kernels of diagonal scans against plain torch in float64: on a GPU, else under Triton's interpreter."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

import triton.language as tl
from torch import Tensor

from gyral.ops.diagonal import diagonal_scan
from gyral.ops.diagonal import triton as kernels
from gyral.ops.diagonal.triton import kernels as source
from gyral.ops.diagonal.triton import launch
from gyral.ops.min_gated import blend, min_gated, rg_lru
from gyral.ops.operator import KernelUnavailableError, Operator
from gyral.ops.rum.naive import ACTIVATIONS
from tests.helpers.triton import DEVICE, ON_GPU, kernels_of, mend_interpreter

OPERATORS = (diagonal_scan, min_gated, rg_lru, blend)
TOLERANCE = 1e-5 if ON_GPU else 2e-6  # a GPU's exponential and division are not rounded correctly
KINDS = ("constant", "decay", "complex constant", "complex decay", "min_gru", "min_lstm", "rg_lru", "blend")
SIZES = [(1, 1, 1), (7, 3, 5), (37, 5, 12), (100, 2, 50)]  # T, B, N
MASKS = {"none": (False, False), "lengths": (True, False), "starts": (False, True), "both": (True, True)}


@pytest.fixture(autouse=True)
def triton_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with kernels_of(kernels.__name__, *OPERATORS):
        if not ON_GPU:
            monkeypatch.setattr(source, "BLOCK_STEPS", tl.constexpr(32))  # a sequence of 37 steps has two tiles
        yield


class Case:
    """An operator with arguments: tensors with a gradient, in float64 with values of float32, and others."""

    def __init__(self, kind: str, steps: int, batch: int, size: int, masks: str = "none") -> None:
        def normal(*shape: int) -> Tensor:
            return torch.randn(shape).double()

        self.name = f"{kind} {steps}×{batch}×{size} {masks}"
        self.others: dict[str, Any] = {}
        width = 2 * size if "complex" in kind else size
        sequence = steps, batch
        self.tensors = {"h0": normal(batch, width)}
        if kind in ("min_gru", "min_lstm"):
            self.operator: Operator = min_gated
            self.tensors["projected"] = 2 * normal(*sequence, (2 if kind == "min_gru" else 3) * size)
        elif kind == "rg_lru":
            self.operator = rg_lru
            self.tensors |= {"inputs": normal(*sequence, size), "products": normal(2, *sequence, size)}
            self.tensors |= {"bias": normal(2, size), "decay": 3 * normal(size) - 5}
            self.others["fresh"] = torch.arange(batch) % 2
        elif kind == "blend":
            self.operator = blend
            self.tensors |= {"inputs": normal(*sequence, size), "gate": 2 * normal(*sequence, size)}
            self.others["activation"] = [*ACTIVATIONS][(steps + batch) % len(ACTIVATIONS)]
        else:
            self.operator, self.others["is_complex"] = diagonal_scan, "complex" in kind
            decay = torch.rand(*(() if "constant" in kind else sequence), width) - 0.5
            self.tensors |= {"values": normal(*sequence, width), "decay": 1.4 * decay.double()}
        self.tensors = {name: tensor.float().double() for name, tensor in self.tensors.items()}
        has_lengths, has_starts = MASKS[masks]
        if has_lengths:
            self.others["lengths"] = torch.randint(1, steps + 1, (batch,))
        if has_starts:
            self.others["starts"] = torch.rand(steps, batch) < 0.2

    @property
    def beyond(self) -> Tensor:
        """Where a row has ended, (T, B)."""
        steps = len(next(tensor for name, tensor in self.tensors.items() if name in ("values", "inputs", "projected")))
        return torch.arange(steps).unsqueeze(1) >= self.others["lengths"]

    def results(self, run: Any, dtype: torch.dtype, device: str = "cpu") -> dict[str, Tensor]:
        """Return results and gradients, in float64."""
        leaves = {name: each.to(device, dtype).requires_grad_() for name, each in self.tensors.items()}
        others = {name: each.to(device) if isinstance(each, Tensor) else each for name, each in self.others.items()}
        values = run(**leaves, **others)
        generator = torch.Generator().manual_seed(5)
        by = [torch.randn(value.shape, generator=generator).to(value) for value in values]
        gradients = torch.autograd.grad(values, list(leaves.values()), by)
        found = {"outputs": values[0], "final": values[1]} | dict(zip(leaves, gradients, strict=True))
        return {name: tensor.detach().cpu().double() for name, tensor in found.items()}

    def by_kernels(self) -> dict[str, Tensor]:
        return self.results(self.operator, torch.float32, DEVICE)

    def by_torch(self, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        return self.results(self.operator.naive, dtype)

    def check(self) -> dict[str, Tensor]:
        """Compare the kernels with plain torch; return their results."""
        found, expected = self.by_kernels(), self.by_torch()
        for name, tensor in expected.items():
            error = (found[name] - tensor).norm().item()
            assert error <= TOLERANCE * tensor.norm().item(), f"{name}: {error / tensor.norm().item():.1e}: {self.name}"
        return found


ALL = [" ".join((*map(str, sizes), masks)) for sizes in SIZES for masks in MASKS]


@pytest.mark.parametrize("sizes", ALL)
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_equal_plain_torch(kind: str, sizes: str) -> None:
    *numbers, masks = sizes.split()
    case = Case(kind, *map(int, numbers), masks)
    case.check()
