"""Time and memory of recurrent layers, for forward and for forward with backward."""

import copy
import ctypes
import gc
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from benchmarks.equivalence import FLOAT32, Precision
from benchmarks.sequences import WHOLE, Sequences, call

Maker = Callable[[], nn.Module]
RESET_PEAK = Path("/proc/self/clear_refs")  # Linux: writing 5 resets the peak resident size to the current one
LIBC = ctypes.CDLL(None)
SECONDS = 100.0
BASELINE = "torch.nn.GRU"  # the layer whose time and memory others are divided by


class Load(Protocol):
    """A computation to time."""

    def forward(self) -> None:
        """Run forward without gradients, as in evaluation."""

    def train(self) -> None:
        """Run forward and backward, as in one training step."""


class Layer:
    """A layer with random inputs (T, B, X) that require a gradient, as after an embedding or another layer."""

    def __init__(self, make: Maker, input_shape: Sequence[int], precision: Precision = FLOAT32) -> None:
        self.module, self.precision = make(), precision
        self.device = next(self.module.parameters()).device
        self.sequences = WHOLE
        self.inputs = torch.randn(*input_shape, device=self.device, requires_grad=True)
        # one step gives the width; more would leave freed memory that the measurement reuses
        with torch.no_grad(), precision.context(self.device):
            outputs = self.module(self.inputs[:1])[0]
        self.cotangent = torch.randn(*input_shape[:2], outputs.shape[-1], device=self.device, dtype=outputs.dtype)

    def on(self, sequences: Sequences) -> "Layer":
        """Return the same module with the same inputs as another load."""
        other = copy.copy(self)
        other.sequences = sequences.to(self.device)
        return other

    def run(self) -> torch.Tensor:
        """Return the outputs."""
        with self.precision.context(self.device):
            return call(self.module, self.inputs, None, self.sequences)[0]

    @torch.no_grad()
    def forward(self) -> None:
        self.run()
        self.finish()

    def train(self) -> None:
        self.step()
        self.finish()

    def step(self) -> None:
        """Run forward and backward without waiting for the GPU."""
        self.inputs.grad = None
        self.module.zero_grad()
        self.run().backward(self.cotangent)

    def finish(self) -> None:
        """Wait for the GPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Products:
    """The matrix products with a cell's weights: a lower bound for implementations that use torch's products.

    Forward: one product for all input projections, and one recurrent product (B, N)·(N, rows) per step. Backward: one
    product for the gradient of the state per step, and one product each for the gradients of weights and inputs. A
    cell that consists of cells has the products of each, as if all their inputs were known in advance.

    Args:
        steps, batch: T, B.
        shapes: Shapes of the input weights (rows, X) and the recurrent weights (rows, N) of each cell.
    """

    def __init__(self, steps: int, batch: int, shapes: Sequence[tuple[tuple[int, int], tuple[int, int]]]) -> None:
        self.parts = [_CellProducts(steps, batch, *pair) for pair in shapes]

    def forward(self) -> None:
        for part in self.parts:
            part.forward()

    def train(self) -> None:
        for part in self.parts:
            part.train()


class _CellProducts:
    """The products of one cell."""

    def __init__(self, steps: int, batch: int, shape_ih: tuple[int, int], shape_hh: tuple[int, int]) -> None:
        self.inputs, self.weight_ih = torch.randn(steps * batch, shape_ih[1]), torch.randn(shape_ih)
        self.hidden, self.weight_hh = torch.randn(steps, batch, shape_hh[1]), torch.randn(shape_hh)
        self.projected = torch.randn(steps * batch, shape_ih[0])
        self.recurrent = torch.randn(steps, batch, shape_hh[0])

    def forward(self) -> None:
        torch.mm(self.inputs, self.weight_ih.T, out=self.projected)
        weight = self.weight_hh.T
        for hidden, recurrent in zip(self.hidden.unbind(0), self.recurrent.unbind(0), strict=True):
            torch.mm(hidden, weight, out=recurrent)

    def train(self) -> None:
        self.forward()
        for hidden, recurrent in zip(self.hidden.unbind(0), self.recurrent.unbind(0), strict=True):
            torch.mm(recurrent, self.weight_hh, out=hidden)
        self.recurrent.flatten(0, 1).T @ self.hidden.flatten(0, 1)
        self.projected.T @ self.inputs
        self.projected @ self.weight_ih


def weight_shapes(module: nn.Module) -> tuple[tuple[Any, Any], ...] | None:
    """Return the shapes of input and recurrent weights of each cell, or None if a cell does not have one of each."""
    inputs, recurrent = (
        [tuple(p.shape) for name, p in module.named_parameters() if part in name and p.dim() == 2]
        for part in ("weight_ih", "weight_hh")
    )
    return tuple(zip(inputs, recurrent, strict=True)) if len(inputs) == len(recurrent) > 0 else None


def milliseconds(action: Callable[[], None]) -> float:
    """Return the duration of `action` in milliseconds."""
    start = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - start)


def times(
    loads: Sequence[Load], repeat: int, seconds: float = SECONDS, fewest: int = 3
) -> tuple[list[tuple[float, float]], int]:
    """Return the median times of each load, forward and forward with backward, in ms, and the number of rounds.

    Runs fewer rounds than `repeat`, but at least `fewest`, if all would take longer than `seconds`.
    """

    def one_round() -> list[tuple[float, float]]:
        return [(milliseconds(load.forward), milliseconds(load.train)) for load in loads]

    start = time.perf_counter()
    one_round()  # warm-up, not counted
    repeat = min(repeat, max(fewest, int(seconds / (time.perf_counter() - start))))
    # every round runs every load, so that changes of the machine's speed affect all loads equally
    rounds = [one_round() for _ in range(repeat)]
    return [tuple(map(statistics.median, zip(*pairs, strict=True))) for pairs in zip(*rounds, strict=True)], repeat


def peak_memories(makers: Sequence[Maker], input_shape: Sequence[int], threads: int) -> list[float]:
    """Return the `peak_memory` of each layer in MiB, measured in a new process each. The makers are pickled."""
    context = multiprocessing.get_context("forkserver")
    # the server only imports modules: its children start without this process's heap and its peak
    context.set_forkserver_preload(["benchmarks.equivalence", "benchmarks.measure", "hydra.utils", "rich.table"])
    measure = partial(peak_memory, input_shape=input_shape, threads=threads)
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        return list(pool.map(measure, makers))


def peak_memory(make: Maker, input_shape: Sequence[int], threads: int) -> float:
    """Return the increase in MiB of this process's peak resident size in one forward with backward."""
    torch.set_num_threads(threads)
    load = Layer(make, input_shape)
    # run two steps first, in the same way: this loads kernels and Python modules, starts threads and compiles
    load.module(load.inputs[:2].detach().requires_grad_())[0].backward(load.cotangent[:2])
    load.module.zero_grad()
    gc.collect()
    if hasattr(LIBC, "malloc_trim"):  # otherwise the measurement would reuse memory that these steps freed
        LIBC.malloc_trim(0)
    if RESET_PEAK.exists():
        RESET_PEAK.write_text("5", encoding="utf-8")
    before = peak_resident()
    load.train()
    return (peak_resident() - before) / 2**20


def peak_resident() -> int:
    """Return the peak resident size of this process in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
