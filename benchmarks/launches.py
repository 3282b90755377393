"""Counts kernel launches, bytes and products of a training step of every cell, without a GPU.

Usage: python -m benchmarks.launches, which writes benchmarks/records/count.json for the sizes of `make gpu`

The operations run on the device "meta", which computes nothing. Those that launch a kernel are counted, forward and
backward; views launch none. Operators with kernels in Triton run their Python functions, which launch nothing there.
Normalizations by root mean squares count as layer normalizations, which have as many launches on a GPU: elsewhere
torch computes them in several steps. A cell without a function for whole sequences runs as a loop there, and as a CUDA
graph on a GPU: its count grows linearly with the steps, and is extrapolated from short sequences.
"""

import contextlib
import copy
import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu_rows import INPUT, LAYERS, SIZES, Case, models
from benchmarks.provenance import ROOT
from gyral.cells.base import RecurrentCell
from gyral.core.errors import UserError
from gyral.nn.recurrent import Recurrent
from gyral.ops import operator as operators
from gyral.ops.operator import Operator

RECORD = ROOT / "benchmarks" / "records" / "count.json"
ROWS = 2  # of the batch, on which no count depends
SHORT = (8, 16)  # steps from which the count of a loop is extrapolated
KERNELS = ("GRU", "LSTM", "RNN")  # cells with kernels of cuDNN
KERNEL_LAUNCHES = 20  # of these, about: two kernels, with the copies and products around them
RUMS = ("RUM", "RUM:lambd=1")  # cells with kernels in Triton, and no functions of torch in their place
TRITON = ".triton"  # in the name of a module of kernels
# bytes for each entry of a matrix of N² that each step reads and writes, or for RUM one step of 16 writes
MATRICES = {"FastWeights": 24, "RUM:lambd=1": 13, "WeiNet": 24}
ON_CHIP = 64 * 1024  # bytes of a matrix that a program keeps in registers and shared memory
# operations that launch nothing, except views
FREE = {"alias", "detach", "empty", "empty_like", "empty_strided", "is_same_size", "lift_fresh", "new_empty"}
FREE |= {"_local_scalar_dense", "_reshape_alias", "_unsafe_view", "new_empty_strided", "promote_types", "view"}


class Count(NamedTuple):
    """Kernel launches of a training step at a size, and a lower bound of the bytes and products it needs.

    Attributes:
        path: "kernels": those of cuDNN or in Triton; "whole": functions of torch for the whole sequence; "loop".
        forward, backward: Operations that launch a kernel.
        bytes: Inputs, projected inputs and outputs, of X, P and N float32 values a step, are read or written 3, 6 and 4
            times in a training step. A matrix that does not fit on chip is read and written forward, and backward both
            it and its gradient; see `MATRICES`.
        flops: Of the products with the weights: one forward, two for the gradients of its factors.
    """

    path: str
    forward: int
    backward: int
    bytes: int
    flops: int

    @property
    def launches(self) -> int:
        return self.forward + self.backward


class Launches(TorchDispatchMode):
    """Counts the operations that launch a kernel, and the launches of operators with kernels in Triton."""

    def __init__(self, operators: Sequence[Operator] = ()) -> None:
        super().__init__()
        self.count = 0
        self.runs: dict[Any, Any] = {each.forward_operator: each._forward for each in operators}
        self.runs |= {each.backward_operator: each._backward for each in operators}

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        run = self.runs.get(function)
        if run is not None:
            with self, launching(self):
                return run(*arguments)
        aliases = [result.alias_info for result in function._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in aliases)
        self.count += not is_view and function.__name__.partition(".")[0] not in FREE
        return function(*arguments, **(options or {}))


class Unlaunched:
    """The functions of a module of kernels in Triton, on any device."""

    def __init__(self, module: Any) -> None:
        self.DTYPES, self.allocate, self.forward, self.backward = (
            getattr(module, name) for name in ("DTYPES", "allocate", "forward", "backward")
        )

    def prepare(self, device: torch.device) -> None:
        """Compare nothing."""


@contextlib.contextmanager
def launching(counted: Launches) -> Iterator[None]:
    """Within this context, kernels in Triton are counted in place of launched."""
    from triton.runtime.jit import KernelInterface

    def launch(*given: Any, **options: Any) -> None:
        counted.count += 1

    with mock.patch.object(KernelInterface, "__getitem__", return_value=launch):
        yield


def has_triton(operator: Operator | None) -> bool:
    """Return whether an operator has kernels in Triton."""
    return operator is not None and TRITON in str(operator.kernels.get("cuda"))


def triton_operators() -> list[Operator]:
    """Return the operators with kernels in Triton of all modules that are imported."""
    modules = [module for name, module in sys.modules.items() if name.startswith("gyral.ops.")]
    found = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, Operator)}
    return [operator for operator in found.values() if has_triton(operator)]


@contextlib.contextmanager
def unlaunched(operators_: Sequence[Operator]) -> Iterator[None]:
    """Within this context, operators run their Python functions on tensors without memory."""
    with contextlib.ExitStack() as stack:
        for operator in operators_:
            kernels = Unlaunched(importlib.import_module(operator.kernels["cuda"]))
            stack.enter_context(mock.patch.dict(operator.kernels, {"meta": kernels, "cpu": kernels}))
            stack.enter_context(mock.patch.object(operator.checks, "prepare", partial(contiguous, operator)))
        stack.enter_context(mock.patch.object(operators, "in_memory", lambda _, gradient: gradient.contiguous()))
        stack.enter_context(mock.patch.object(F, "rms_norm", rms_norm))
        yield


def contiguous(operator: Operator, given: Sequence[Any]) -> Any:
    """Return the named tuple of the arguments, whose copies launch kernels."""
    return operator.Arguments._make(each.contiguous() if isinstance(each, Tensor) else each for each in given)


def rms_norm(values: Tensor, shape: Sequence[int], gain: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Return a tensor of the shape of `torch.nn.functional.rms_norm`, in the number of its launches on a GPU."""
    return F.layer_norm(values, list(shape), gain, None, eps or 0.0)


def count(model: str, batch: int, steps: int, hidden: int, input_size: int = INPUT) -> Count:
    """Return the counts of a model at a size."""
    make = partial(models()[model], input_size=input_size, hidden_size=hidden)
    torch.manual_seed(0)
    cell = make()
    is_whole = copy.deepcopy(cell).to("meta").fused_unsupported_reason() is None
    has_kernels = has_triton(cell.fused_operator or cell.kernel_operator) and is_supported(cell)
    path = "kernels" if model in (*KERNELS, *RUMS) or has_kernels else "whole" if is_whole else "loop"
    needs = needs_of(cell, MATRICES.get(model, 0), batch * steps)
    if model in KERNELS:
        return Count(path, KERNEL_LAUNCHES // 2, KERNEL_LAUNCHES // 2, *needs)
    if path != "loop":
        return Count(path, *launches(cell, steps, "fused"), *needs)
    few, more = (launches(cell, each, "reference") for each in SHORT)
    forward, backward = (
        a + (b - a) * (steps - SHORT[0]) // (SHORT[1] - SHORT[0]) for a, b in zip(few, more, strict=True)
    )
    return Count(path, forward, backward, *needs)


def is_supported(cell: RecurrentCell) -> bool:
    """Return whether kernels in Triton support the options and the size of a cell."""
    with unlaunched(triton_operators()):
        return copy.deepcopy(cell).to("meta").fused_unsupported_reason() is None


def launches(cell: RecurrentCell, steps: int, backend: str) -> tuple[int, int]:
    """Return the launches of a cell over a sequence, forward and backward."""
    counted = triton_operators()
    with unlaunched(counted):
        return _launches(cell, steps, backend, counted)


def _launches(cell: RecurrentCell, steps: int, backend: str, counted: Sequence[Operator]) -> tuple[int, int]:
    for device in ("meta", "cpu"):  # some cells need numbers from their parameters
        moved = copy.deepcopy(cell).to(device)
        inputs = torch.zeros(steps, ROWS, cell.input_size, device=device, requires_grad=True)
        try:
            module = Recurrent(lambda _, moved=moved: moved, cell.input_size, backend=backend)  # type: ignore[misc]
            with Launches(counted) as forward:
                outputs = module(inputs)[0]
        except (NotImplementedError, RuntimeError, UserError):
            continue
        gradient = torch.ones_like(outputs)  # of what follows the layer
        with Launches(counted) as backward:
            outputs.backward(gradient)
        return forward.count, backward.count
    raise RuntimeError(f"{type(cell).__name__} runs neither on meta nor on the CPU")


def needs_of(cell: RecurrentCell, of_matrix: int, steps: int) -> tuple[int, int]:
    """Return the bytes and the products of a training step with that many steps, those of all sequences together.

    `of_matrix` are the bytes of a step for each entry of a matrix; see `MATRICES`.
    """
    return steps * bytes_of_a_step(cell, of_matrix), 6 * steps * len_of_weights(cell)


def bytes_of_a_step(cell: RecurrentCell, of_matrix: int) -> int:
    """Return the bytes that a training step reads and writes for each sequence and time step, at least."""
    weights = [parameter for parameter in cell.parameters() if parameter.dim() == 2]
    projected = sum(len(weight) for weight in weights if weight.shape[1] == cell.input_size)
    matrix = cell.output_size**2
    vectors = 4 * (3 * cell.input_size + 6 * projected + 4 * cell.output_size)
    return vectors + of_matrix * matrix * (4 * matrix > ON_CHIP)


def len_of_weights(cell: RecurrentCell) -> int:
    """Return the number of entries of matrices that multiply vectors."""
    return sum(parameter.numel() for parameter in cell.parameters() if parameter.dim() >= 2)


def name_of(size: tuple[int, int, int]) -> str:
    """Return a size as 128x53x50."""
    return "x".join(map(str, size))


def size_of(name: str) -> tuple[int, int, int]:
    """Return the size of a name."""
    batch, steps, hidden = map(int, name.split("x"))
    return batch, steps, hidden


@cache
def recorded() -> dict[str, dict[str, Any]]:
    """Return the record: for each size the counts by model."""
    found: dict[str, dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def expected(case: Case) -> Count:
    """Return the recorded counts of a case; for another size, launches in proportion to those of the recorded sizes.

    Launches of kernels are counted: for large hidden sizes some are launched for each step. A layer of torch has those
    of the cell whose equations it computes.
    """
    model = LAYERS[case.model][1] if case.model in LAYERS else case.model
    at_size = {size_of(name): Count(**counts[model]) for name, counts in recorded().items()}
    size = case.batch, case.steps, case.hidden
    if size in at_size and case.input == INPUT:
        return at_size[size]
    if at_size[SIZES[0]].path == "kernels":
        return count(model, *size, case.input)
    cell = models()[model](input_size=case.input, hidden_size=case.hidden)
    needs = needs_of(cell, MATRICES.get(model, 0), case.batch * case.steps)
    return Count(at_size[SIZES[0]].path, *between(at_size, case.steps), *needs)


def between(at_size: Mapping[tuple[int, int, int], Count], steps: int) -> tuple[int, int]:
    """Return the launches forward and backward at a number of steps, on the line through the nearest two counts."""
    near, far = sorted(at_size, key=lambda size: abs(size[1] - steps))[:2]
    share = (steps - near[1]) / (far[1] - near[1])
    pairs = zip(at_size[near][1:3], at_size[far][1:3], strict=True)
    forward, backward = (max(1, round(one + share * (other - one))) for one, other in pairs)
    return forward, backward


def main(arguments: Sequence[str]) -> int:
    """Count everything, and write the record; print what this does if there are arguments, which it does not take."""
    if arguments:
        print(__doc__)
        return 0 if {"-h", "--help"} & set(arguments) else 2
    found = {name_of(size): {model: count(model, *size)._asdict() for model in models()} for size in SIZES}
    RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
