"""Times on a GPU: of a row beside cuDNN's layers, on the host and on the device, and the ceilings of the card."""

import gc
import statistics
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from benchmarks import gpu_rows, measure
from benchmarks.gpu_rows import Case

BASELINES = ("torch.nn.GRU", "torch.nn.LSTM")  # measured beside each row, in the same rounds
SECONDS = 0.5  # a row that would take longer runs fewer rounds
DEVICE_ROUNDS = 5
LONGEST_WAIT = 1.0  # seconds that the device waits for the host to queue a training step
CYCLES = 2e9  # of a second, about
COPY_BYTES, PRODUCT = 2**30, 8192


def measured(case: Case, device_name: str, repeat: int, slow: bool) -> dict[str, Any]:
    """Measure a case and the baselines in the same rounds.

    Args:
        case: The case.
        device_name: "cuda" or "cpu".
        repeat: Largest number of rounds.
        slow: Whether one round is enough, for a case that is expected to take long.

    Returns:
        Medians in ms of forward and of the training step, the ratios of training steps, the peak memory, and what
        `device_times` returns.
    """
    device = torch.device(device_name)
    with gpu_rows.conditions(case, device):
        return _measured(case, device, repeat, slow)


def _measured(case: Case, device: torch.device, repeat: int, slow: bool) -> dict[str, Any]:
    others = [_baseline(case._replace(model=name, fla=False), device) for name in BASELINES]
    gc.collect()  # earlier modules
    before = 0
    if device.type == "cuda":
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
    load = _load(case, device)
    found: dict[str, Any] = {}
    if device.type == "cuda":
        found["peak_memory_mib"] = (torch.cuda.max_memory_allocated(device) - before) / 2**20
    (own, *base), rounds = measure.times([load, *others], repeat, SECONDS, fewest=1 if slow else 3)
    found |= {"rounds": rounds, "forward_ms": own[0], "train_ms": own[1]}
    for name, (forward, train) in zip(BASELINES, base, strict=True):
        short = name.rpartition(".")[-1].lower()
        found |= {f"{short}_forward_ms": forward, f"{short}_train_ms": train, f"train_to_{short}": own[1] / train}
    if device.type == "cuda":
        found |= device_times(load, own[1] / 1000, 1 if slow else DEVICE_ROUNDS)
    return found


def _load(case: Case, device: torch.device) -> measure.Layer:
    """Return a load that has run."""
    shape = case.steps, case.batch, case.input
    load = measure.Layer(partial(gpu_rows.build, case, device), shape, gpu_rows.precision_of(case))
    gpu_rows.warm_up(load)
    return load


@cache
def _baseline(case: Case, device: torch.device) -> measure.Layer:
    return _load(case, device)


def device_times(load: measure.Layer, wall: float, rounds: int) -> dict[str, Any]:
    """Return medians in ms of a training step: on the host until everything is queued, and on the device from then on.

    The device first waits while the host queues the step, so that its time has no gaps in which it would wait for the
    host. `is_held` is False if the host took longer, as for more launches than the queue holds: then the time of the
    device is an upper bound.

    Args:
        load: The training step.
        wall: Seconds that it takes.
        rounds: Number of measurements.
    """
    wait = min(LONGEST_WAIT, 0.001 + 1.5 * wall)
    found = []
    for _ in range(rounds):
        begin, start, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        torch.cuda.synchronize()
        begin.record()
        torch.cuda._sleep(int(wait * CYCLES))
        start.record()
        host = measure.milliseconds(load.step)
        end.record()
        torch.cuda.synchronize()
        found.append((start.elapsed_time(end), host, begin.elapsed_time(start)))
    device, host, held = map(statistics.median, zip(*found, strict=True))
    return {"device_ms": device, "host_ms": host, "is_held": host < held}


def ceilings(device_name: str) -> dict[str, float]:
    """Measure the limits of the card: bytes copied and products per second, and the time of an empty launch.

    Returns:
        `copy` in bytes read and written, `bfloat16`, `tf32` and `float32` in floating-point operations, per second;
        on a GPU also `launch_host_us` and `launch_device_us`, of a kernel that adds 1 to a number.
    """
    device = torch.device(device_name)
    size, copied = (PRODUCT, COPY_BYTES) if device.type == "cuda" else (256, 2**20)
    pair = torch.empty(2, copied, dtype=torch.int8, device=device)
    found = {"copy": 2 * copied / _seconds(lambda: pair[0].copy_(pair[1]), device)}
    a, b = torch.randn(2, size, size, device=device)
    for name, dtype, tf32 in (
        ("float32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("bfloat16", torch.bfloat16, False),
    ):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        factors = a.to(dtype), b.to(dtype)
        found[name] = 2 * size**3 / _seconds(lambda factors=factors: torch.mm(*factors), device)  # type: ignore[misc]
    gpu_rows.exact_products()
    if device.type == "cuda":
        found |= _launches(device)
    return found


def _seconds(action: Callable[[], object], device: torch.device, rounds: int = 5) -> float:
    """Return the median time of an action on the device."""
    action()
    found = []
    for _ in range(rounds):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            action()
            end.record()
            torch.cuda.synchronize(device)
            found.append(start.elapsed_time(end) / 1000)
        else:
            start_s = time.perf_counter()
            action()
            found.append(time.perf_counter() - start_s)
    return max(statistics.median(found), 1e-9)


def _launches(device: torch.device, count: int = 1000) -> dict[str, float]:
    """Return the microseconds of a launch: on the host, and on the device in a graph of many launches."""
    number = torch.zeros(1, device=device)

    def launch() -> None:
        for _ in range(count):
            number.add_(1)

    launch()
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    launch()
    host = time.perf_counter() - start
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    device_seconds = _seconds(graph.replay, device)
    return {"launch_host_us": 1e6 * host / count, "launch_device_us": 1e6 * device_seconds / count}
