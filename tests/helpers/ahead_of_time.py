"""Compiles RUM's Triton kernels for a GPU that need not be there.

Usage: python -m tests.helpers.ahead_of_time sample|all

Prints a line for each kernel: its name, the case, and the size of its code in bytes.
"""

import itertools
import sys
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from gyral.ops.rum.triton import launch

HOPPER = GPUTarget("cuda", 90, 32)
STEPS = 2
BATCHES = (3, 400)  # for which a program has one row, or several
SIZES = (50, 200)  # whose weights stay on chip or are read in tiles
CASES = {  # batch, size, whether there is a memory, whether all options are used
    "sample": [(3, 16, True, True)],
    "all": list(itertools.product(BATCHES, SIZES, (False, True), (False, True))),
}


class Driver:
    """The driver of a GPU that only compiles."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return HOPPER


def arguments(batch: int, size: int, has_memory: bool, with_options: bool) -> SimpleNamespace:
    """Return arguments of `gyral.ops.rum.rum`."""
    return SimpleNamespace(
        x=torch.zeros(STEPS, batch, 2),
        w_ih=torch.zeros(3 * size, 2),
        w_hh=torch.zeros(2 * size, size),
        b=torch.zeros(3 * size),
        h0=torch.zeros(batch, size),
        memory=torch.zeros(batch, size, size) if has_memory else None,
        norms=torch.zeros(3, 2, size) if with_options else None,
        keep=torch.ones(STEPS, batch, size) if with_options else torch.tensor(0.5),
        lengths=torch.ones(batch, dtype=torch.int64) if with_options else None,
        starts=torch.zeros(STEPS, batch, dtype=torch.bool) if with_options else None,
        eta=1.0 if with_options else None,
        activation="tanh" if with_options else "relu",
        epsilon=1e-5,
        product_dtype=torch.bfloat16 if with_options else None,
    )


def main(cases: str) -> None:
    driver.set_active(Driver())
    launch._processors = lambda device: 132  # type: ignore[assignment, misc]
    torch.cuda.device_of = lambda tensor: torch.no_grad()  # type: ignore[assignment, misc]
    run, case = JITFunction.run, ""

    def compile_only(self: Any, *given: Any, **options: Any) -> None:
        kernel = run(self, *given, **(options | {"warmup": True}))
        print(f"{self.__name__} {case}: {len(kernel.asm['cubin'])}")

    JITFunction.run = compile_only
    for batch, size, has_memory, with_options in CASES[cases]:
        case = f"batch={batch} size={size} memory={has_memory} options={with_options}"
        a = arguments(batch, size, has_memory, with_options)
        results, saved = launch.forward(a)
        gradients: list[Tensor | None] = [torch.zeros(STEPS, batch, size), None, None, None]
        launch.backward(a, results, saved, gradients, {"x": True})


if __name__ == "__main__":
    main(sys.argv[1])
