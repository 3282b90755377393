"""Light and dynamic convolutions over time in comparison with torch's depthwise convolution of the same kernel size.

Usage: python -m benchmarks.convolutions [key=value …]

  size=32x512x256          batch x time steps x channels; several sizes: 32x512x256,32x1024x256
  kernel=31                steps in the window
  heads=16                 ranges of channels that share weights
  repeat=7                 rounds; a time is the median over the rounds
  threads=1                number of threads of torch
  json=path                append one line of JSON per operator and size to this file

Each operator alone, after the gated linear unit, with its weights: the softmax of the light convolution, the linear
layer and the softmax of the dynamic one. Causal; forward and backward, with the gradients of inputs and parameters.
Every round runs all operators, so that other load on the machine affects all of them. Memory is what is kept for
backward besides the inputs.
Figures are reported only if both convolutions agree with a sum over the window in float64.
Exit status: 0 success, 1 an operator disagrees, 2 a key or value is not allowed.
"""

import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

from benchmarks.provenance import provenance
from gyral.core.checks import check_integer
from gyral.core.errors import OptionError, UserError
from gyral.ops import convolution
from gyral.ops.convolution import naive

DEPTHWISE = "torch conv1d"
TOLERANCE = 1e-5  # relative error of outputs and gradients against float64


class Settings(NamedTuple):
    """The options of the command line."""

    size: str = "32x512x256"
    kernel: int = 31
    heads: int = 16
    repeat: int = 7
    threads: int = 1
    json: str | None = None


class Operator(NamedTuple):
    """A function of its tensors, which need gradients, with the cotangent of its outputs."""

    run: Callable[..., Tensor]
    tensors: list[Tensor]
    cotangent: Tensor

    def train(self) -> tuple[float, float, list[Tensor]]:
        """Return the seconds of forward and of both, and outputs and gradients."""
        start = time.perf_counter()
        outputs = self.run(*self.tensors)
        middle = time.perf_counter()
        gradients = torch.autograd.grad(outputs, self.tensors, self.cotangent)
        return middle - start, time.perf_counter() - start, [outputs.detach(), *gradients]

    def kept_bytes(self) -> int:
        """Return the bytes that are kept for backward, without the tensors themselves; views count once."""
        own = {tensor.untyped_storage().data_ptr() for tensor in self.tensors}
        found: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                found[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            outputs = self.run(*self.tensors)
        del outputs
        return sum(found.values())


def operators(batch: int, steps: int, channels: int, kernel: int, heads: int) -> dict[str, Operator]:
    """Return the operators of one size, with random tensors."""

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape).requires_grad_()

    def depthwise(values: Tensor, weight: Tensor) -> Tensor:
        return F.conv1d(values, weight, padding=kernel - 1, groups=channels)[..., :steps]

    def light(values: Tensor, weight: Tensor) -> Tensor:
        return convolution.convolution(values, weight.softmax(dim=-1))

    def dynamic(values: Tensor, weight: Tensor) -> Tensor:
        return convolution.convolution(values, F.linear(values, weight).unflatten(-1, (heads, kernel)))

    torch.manual_seed(0)
    values, cotangent = draw(steps, batch, channels), torch.randn(steps, batch, channels)
    weight = (draw(heads * kernel, channels) / channels**0.5).detach().requires_grad_()
    return {
        DEPTHWISE: Operator(
            depthwise, [draw(batch, channels, steps), draw(channels, 1, kernel)], torch.randn(batch, channels, steps)
        ),
        "light": Operator(light, [values, draw(heads, kernel)], cotangent),
        "dynamic": Operator(dynamic, [values, weight], cotangent),
    }


def error_of(name: str, operator: Operator, kernel: int, heads: int) -> float:
    """Return the largest relative error of outputs and gradients against the sum over the window in float64."""
    values, weight = (tensor.detach().double().requires_grad_() for tensor in operator.tensors)
    scores = weight.softmax(dim=-1) if name == "light" else F.linear(values, weight).unflatten(-1, (heads, kernel))
    outputs = naive.convolution(values, scores, None, None, None, None, kernel - 1)
    gradients = torch.autograd.grad(outputs, [values, weight], operator.cotangent.double())
    found = operator.train()[2]
    return max(
        ((one - truth).norm() / truth.norm()).item()
        for one, truth in zip(found, [outputs.detach(), *gradients], strict=True)
    )


def measure(settings: Settings, batch: int, steps: int, channels: int) -> list[dict[str, Any]]:
    """Return one row per operator.

    Raises:
        ArithmeticError: An operator disagrees with the float64 sum.
    """
    small = operators(min(batch, 2), min(steps, 300), channels, settings.kernel, settings.heads)
    errors = {name: error_of(name, small[name], settings.kernel, settings.heads) for name in small if name != DEPTHWISE}
    for name, error in errors.items():
        if not error < TOLERANCE:
            raise ArithmeticError(f"{name}: relative error {error:.1e}")
    made = operators(batch, steps, channels, settings.kernel, settings.heads)
    for operator in made.values():
        operator.train()  # warm-up
    rounds = [{name: operator.train()[:2] for name, operator in made.items()} for _ in range(settings.repeat)]
    rows = []
    for name, operator in made.items():
        forward, both = (statistics.median(times[name][part] for times in rounds) for part in (0, 1))
        ratio = statistics.median(times[name][1] / times[DEPTHWISE][1] for times in rounds)
        rows.append(
            {
                "operator": name,
                "batch": batch,
                "steps": steps,
                "channels": channels,
                "kernel": settings.kernel,
                "heads": settings.heads,
                "forward_ms": forward * 1e3,
                "train_ms": both * 1e3,
                "train_ratio": ratio,
                "kept_mib": operator.kept_bytes() / 2**20,
                "error": errors.get(name),
            }
        )
    return rows


def parse(arguments: list[str]) -> Settings:
    """Parse key=value arguments.

    Raises:
        UserError: A key or value is not allowed.
    """
    given: Any = OmegaConf.to_container(OmegaConf.from_cli(arguments))
    for key, value in given.items():
        if key not in Settings._fields:
            raise OptionError(key, value, f"unknown key, must be one of {', '.join(Settings._fields)}")
        if key not in ("size", "json"):
            check_integer(key, value)
    settings = Settings(**given)
    for size in str(settings.size).split(","):
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*x[1-9]\d*", size):
            raise OptionError("size", size, "must be <batch>x<steps>x<channels>, such as 32x512x256")
    return settings


def main(arguments: list[str]) -> int:
    """Run the benchmark; return the exit status."""
    if "--help" in arguments:
        print(__doc__)
        return 0
    try:
        settings = parse(arguments)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    torch.set_num_threads(settings.threads)
    table = Table("operator", "size", "forward ms", "forward + backward ms", "×", "kept for backward MiB")
    for size in settings.size.split(","):
        try:
            rows = measure(settings, *map(int, size.split("x")))
        except ArithmeticError as error:
            print(error, file=sys.stderr)
            return 1
        for row in rows:
            figures = (f"{row['forward_ms']:.1f}", f"{row['train_ms']:.1f}", f"{row['train_ratio']:.2f}")
            table.add_row(row["operator"], size, *figures, f"{row['kept_mib']:.1f}")
        if settings.json is not None:
            with Path(settings.json).open("a", encoding="utf-8") as file:
                for row in rows:
                    file.write(json.dumps(row | {"threads": settings.threads} | provenance()) + "\n")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
