"""Size of exported layers, and the time of a step of a package of Ahead-of-time Inductor.

    python -m benchmarks.deployment LSTM GRU

prints a row of the table in docs/how-to/deploy.md for each layer, by default for ten of them. A model has 16 inputs,
one layer of 64 units and 16 outputs, and runs one sequence. A time is CPU time, the best of several repeats: other
processes only add to it.
"""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

import gyral
from gyral.models import deployment
from gyral.models.sequence import SequenceModel

LAYERS = ("GRU", "LSTM", "RUM", "MinGRU", "LRU", "Mamba", "GatedDeltaNet", "SLSTM", "MLSTM", "LightConv")
INPUTS, UNITS, OUTPUTS = 16, 64, 16
REPEATS, STEPS = 20, 50  # of a measurement, and in each of its repeats


def seconds_a_step(step: Callable[[list[Any]], list[Any]], state: list[Any]) -> float:
    """Return the time of a step: the best of several repeats.

    Args:
        step: a function of a state that returns the next one.
        state: the first state.
    """
    times = []
    for _ in range(REPEATS):
        begin = time.process_time()
        for _ in range(STEPS):
            state = step(state)
        times.append((time.process_time() - begin) / STEPS)
    return min(times)


def rows_of(names: tuple[str, ...], folder: Path) -> Iterator[str]:
    """Yield a row of the table for each layer."""
    for name in names:
        cell = partial(getattr(gyral, f"{name}Cell"), hidden_size=UNITS)
        torch.manual_seed(0)
        model = SequenceModel(cell, None, OUTPUTS, input_size=INPUTS, backend="reference").eval()
        deployed = deployment.deploy(model, step=True)
        examples = [value[:1] for value in deployed.examples()]
        inputs, first = examples[:2], examples[2:]
        onnx, package = folder / f"{name}.onnx", folder / f"{name}.pt2"
        deployment.write_onnx(deployed, onnx)
        deployment.write_package(deployed, package)

        loaded = torch._inductor.aoti_load_package(str(package))

        def step(state: list[Any], run: Any = loaded, given: tuple[Tensor, ...] = tuple(inputs)) -> list[Any]:
            return list(run(*given, *state)[1:])

        with torch.inference_mode():
            seconds = seconds_a_step(step, first)
        sizes = [f"{path.stat().st_size / 1e3:,.0f}" for path in (onnx, package)]
        parameters = sum(each.numel() for each in model.parameters())
        shown = [f"{parameters:,}", *sizes, f"{1e6 * seconds:.0f}"]
        yield f"| `{name}` | {' | '.join(shown)} |"


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        for row in rows_of(tuple(sys.argv[1:]) or LAYERS, Path(folder)):
            print(row, flush=True)


if __name__ == "__main__":
    main()
