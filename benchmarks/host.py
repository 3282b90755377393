"""Time on the host of small calls: all but the kernels of a GPU, which are replaced by functions that do nothing.

    python -m benchmarks.host
    python -m benchmarks.host base=../other seconds=0.1

The tensors are small, because the host does the same for any size. RUM has the kernels of a GPU on the CPU, without
their content; the other cells have those of the CPU. `base` is a checkout of another commit, which is measured in the
same run, in turns; `seconds` is the time for each of the measurements. They are of processor time, so that other
processes on the machine change them less.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

INPUT, HIDDEN = 36, 50
ROUNDS = 7


class Nothing:
    """Stands in for a Triton kernel."""

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *given, **options: None


def kernel_names(module: Any) -> list[str]:
    """Return the names of the Triton kernels in a module."""
    return [name for name in vars(module) if name.startswith(("forward_", "backward_"))]


def stub_rum() -> None:
    """Give RUM on the CPU the functions that launch the kernels of a GPU, without the kernels."""
    from gyral.ops import operator, rum
    from gyral.ops.native import products
    from gyral.ops.rum import triton
    from gyral.ops.rum.triton import launch

    for name in kernel_names(launch):
        setattr(launch, name, Nothing())
    launch._processors = lambda _: 132  # type: ignore[assignment]
    products._is_supported = lambda _: False  # type: ignore[assignment]  # as on a GPU
    triton.prepare = lambda _: None
    rum.OPERATOR.kernels = {"cpu": "gyral.ops.rum.triton"}
    operator.load_or_reason.cache_clear()


def cases() -> dict[str, Callable[[], Any]]:
    """Return the calls that are timed, by name."""
    import gyral

    torch.manual_seed(0)

    def step(module: nn.Module, steps: int, batch: int) -> Callable[[], None]:
        inputs = torch.randn(steps, batch, INPUT, requires_grad=True)
        gradient, wanted = torch.ones_like(module(inputs)[0]), [inputs, *module.parameters()]

        def run() -> None:
            torch.autograd.grad(module(inputs)[0], wanted, gradient)

        return run

    def forward(module: nn.Module, gradients: bool = True) -> Callable[[], None]:
        inputs: Tensor = torch.randn(1, 1, INPUT)

        def run() -> None:
            with torch.set_grad_enabled(gradients):
                module(inputs)

        return run

    def stream(module: nn.Module) -> Callable[[], None]:
        inputs = torch.randn(1, 1, INPUT)
        state = module(inputs)[1]

        @torch.inference_mode()
        def run() -> None:
            module(inputs, state)

        return run

    layers: dict[str, Any] = {
        "GRU": gyral.GRU(INPUT, HIDDEN),
        "LSTM": gyral.LSTM(INPUT, HIDDEN),
        "DeltaNet": gyral.DeltaNet(INPUT, HIDDEN),
        "LRU": gyral.LRU(INPUT, HIDDEN),
        "torch.nn.GRU": nn.GRU(INPUT, HIDDEN),
        "torch.nn.LSTM": nn.LSTM(INPUT, HIDDEN),
    }
    found = {f"{name} forward, T = B = 1": forward(layer) for name, layer in layers.items()}
    found |= {f"{name} forward, T = B = 1, no_grad": forward(layer, False) for name, layer in layers.items()}
    found |= {f"{name} step of a stream": stream(layer) for name, layer in layers.items()}
    found |= {f"{name} training step, T = 2, B = 1": step(layer, 2, 1) for name, layer in layers.items()}
    stub_rum()
    for lambd in (0, 1):
        layer = gyral.RUM(INPUT, HIDDEN, lambd=lambd)
        assert layer.backend == "fused"
        found[f"RUM λ = {lambd} training step without kernels"] = step(layer, 2, 1)
        found[f"RUM λ = {lambd} forward without kernels"] = forward(layer)
    return found


def measure(run: Callable[[], Any], seconds: float) -> float:
    """Return the time of the processor that a call takes, in microseconds."""
    for _ in range(5):
        run()
    start, count = time.process_time(), 0  # of this process alone, which may share the processor
    while time.process_time() - start < seconds:
        for _ in range(10):
            run()
        count += 10
    return 1e6 * (time.process_time() - start) / count


def serve(seconds: float) -> None:
    """Time a case for each line of the standard input."""
    torch.set_num_threads(1)
    found = cases()
    print(json.dumps(list(found)), flush=True)
    for line in sys.stdin:
        print(measure(found[line.strip()], seconds), flush=True)


def start(folder: Path, seconds: float) -> tuple[Any, list[str]]:
    """Start a process with the package of a checkout; return it and the names of its cases.

    Raises:
        ChildProcessError: The process ended, after it has printed why.
    """
    environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "serve", str(seconds)]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", bufsize=1
    )
    assert process.stdout is not None
    names = process.stdout.readline()
    if not names:
        process.communicate()
        raise ChildProcessError(f"{folder}: this checkout cannot be measured; exit status {process.returncode}")
    return process, json.loads(names)


def main(arguments: list[str]) -> int:
    """Print a table of medians; return the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    folders, seconds = {"here": Path(__file__).parents[1]}, 0.1
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key == "base" and Path(value, "src", "gyral").is_dir():
            folders["base"] = Path(value)
        elif key == "seconds" and re.fullmatch(r"\d*\.?\d+", value) and float(value) > 0:
            seconds = float(value)
        else:
            print(f"{argument}: must be base=<folder of a checkout> or seconds=<number above 0>", file=sys.stderr)
            return 2
    started: dict[str, tuple[Any, list[str]]] = {}
    times: dict[tuple[str, str], list[float]] = {}
    try:
        for which, folder in folders.items():
            started[which] = start(folder, seconds)
        names = started["here"][1]
        for _ in range(ROUNDS):
            for name in names:
                for which, (process, _) in started.items():
                    process.stdin.write(name + "\n")
                    times.setdefault((which, name), []).append(float(process.stdout.readline()))
    except ChildProcessError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        for process, _ in started.values():
            process.communicate()
    print(f"{'':44} {'here':>8} {'base':>8} {'ratio':>6}   microseconds, medians of {ROUNDS}")

    def ratio(one: tuple[str, str], other: tuple[str, str]) -> float:
        return statistics.median(a / b for a, b in zip(times[one], times[other], strict=True))

    for name in names:
        line = f"{name:44} {statistics.median(times['here', name]):8.0f}"
        if "base" in started:
            base = statistics.median(times["base", name])
            line += f" {base:8.0f} {ratio(('here', name), ('base', name)):6.2f}"
        if (twin := f"torch.nn.{name}") in names:
            line += f"   {ratio(('here', name), ('here', twin)):.2f} × torch.nn"
        print(line)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(float(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1:]))
