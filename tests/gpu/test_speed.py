"""Fused paths as CUDA graphs on a GPU take a fraction of the time. `make gpu` runs these tests alone, as the last."""

import time

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from gyral.nn.recurrent import Recurrent
from tests.gpu.test_graphs import DEVICE, build


def step_time(module: Recurrent, inputs: Tensor, repeats: int) -> float:
    """Return the median time in seconds of a training step."""
    times = []
    for index in range(repeats + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        module.zero_grad()
        module(inputs)[0].sum().backward()
        torch.cuda.synchronize()
        if index >= 2:
            times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


@pytest.mark.parametrize(("model", "least"), [("SLSTM", 4), ("M2RNN", 4), ("DeltaNet", 3), ("LRU", 2)])
def test_a_graph_is_faster(model: str, least: float) -> None:
    inputs = torch.randn(53, 128, 36, device=DEVICE)
    module, plain = (build(model, 50, 36, recorded) for recorded in (True, False))
    if module.choice(module.cells[0]).reason is None:
        pytest.skip("it has kernels")
    graph, eager = step_time(module, inputs, 15), step_time(plain, inputs, 5)
    assert eager >= least * graph, f"{1e3 * eager:.2f} ms without a graph, {1e3 * graph:.2f} ms as a graph"
