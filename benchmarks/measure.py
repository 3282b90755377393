"""Time and memory of recurrent layers on the CPU, forward alone and with backward."""

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

import torch
from torch import nn

Maker = Callable[[], nn.Module]
RESET_PEAK = Path("/proc/self/clear_refs")  # Linux: writing 5 lowers the peak resident size to the present one


class Workload:
    """A layer over random inputs (T, B, X) that need a gradient, as they do under an embedding or another layer."""

    def __init__(self, make: Maker, input_shape: Sequence[int]) -> None:
        self.module = make()
        self.inputs = torch.randn(*input_shape, requires_grad=True)
        with torch.no_grad():  # one step tells the width; more would leave freed memory for the measurement to reuse
            width = self.module(self.inputs[:1])[0].shape[-1]
        self.cotangent = torch.randn(*input_shape[:2], width)

    @torch.no_grad()
    def forward(self) -> None:
        """Run forward alone, as at test."""
        self.module(self.inputs)

    def train(self) -> None:
        """Run forward and backward, as in one training step."""
        self.inputs.grad = None
        self.module.zero_grad()
        self.module(self.inputs)[0].backward(self.cotangent)


def milliseconds(action: Callable[[], None]) -> float:
    """Return how long `action` takes."""
    start = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - start)


def times(makers: Sequence[Maker], input_shape: Sequence[int], repeat: int) -> list[tuple[float, float]]:
    """Return each layer's medians over `repeat` rounds: forward alone, and forward with backward, in ms."""
    workloads = [Workload(make, input_shape) for make in makers]
    rounds = []
    for _ in range(repeat + 1):  # every layer in every round, so that the machine's drift hits all alike
        rounds.append([(milliseconds(load.forward), milliseconds(load.train)) for load in workloads])
    # the first round warms up and does not count
    return [tuple(map(statistics.median, zip(*pairs, strict=True))) for pairs in zip(*rounds[1:], strict=True)]


def peak_memories(makers: Sequence[Maker], input_shape: Sequence[int], threads: int) -> list[float]:
    """Return each layer's `peak_memory` in MiB, every one measured in a new process. The makers are pickled."""
    context = multiprocessing.get_context("forkserver")
    # the server imports once and runs nothing: its children start with neither this process's heap nor its peak
    context.set_forkserver_preload(["benchmarks.equivalence", "benchmarks.measure", "hydra.utils", "rich.table"])
    measure = partial(peak_memory, input_shape=input_shape, threads=threads)
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        return list(pool.map(measure, makers))


def peak_memory(make: Maker, input_shape: Sequence[int], threads: int) -> float:
    """Return by how many MiB one forward with backward raises the peak resident size of this process, a new one."""
    torch.set_num_threads(threads)
    load = Workload(make, input_shape)
    # two steps first, called in the same way: they load kernels and Python modules, start threads and compile
    load.module(load.inputs[:2].detach().requires_grad_())[0].backward(load.cotangent[:2])
    load.module.zero_grad()
    gc.collect()
    if RESET_PEAK.exists():
        RESET_PEAK.write_text("5")
    before = peak_resident()
    load.train()
    return (peak_resident() - before) / 2**20


def peak_resident() -> int:
    """Return the peak resident size of this process in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
