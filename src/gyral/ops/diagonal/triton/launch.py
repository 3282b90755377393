"""The Python functions that launch the kernels, and the arguments of each operator in the form of the kernels."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.ops import diagonal, min_gated
from gyral.ops.diagonal.triton.coefficients import Config
from gyral.ops.diagonal.triton.kernels import backward_scan, forward_scan
from gyral.ops.operator import KernelUnavailableError
from gyral.ops.triton.launch import as_bytes, difference, failure

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
BLOCK = 8  # channels of a program: 32 bytes at a step, as many as are read at once, and programs also for small batches
TILE = 2048  # numbers in a tile; half as many complex ones


class Scan(NamedTuple):
    """The arguments of a call in the form of the kernels, see `forward_scan`, by the names of the operator's arguments.

    Attributes:
        kind: See `Config`.
        values, gates: Names.
        constants: Names of the arguments whose gradients are sums over the steps, in this order.
        gates_at: Index of the first gate.
        activation: See `Config`.
    """

    kind: str
    values: str
    gates: str | None = None
    constants: tuple[str, ...] = ()
    gates_at: int = 0
    activation: str = "positive"


def scan_of(a: Any) -> Scan:
    """Return the form of a call; the class of the arguments has the name of the operator."""
    size = a.h0.shape[1]
    match type(a).__name__:
        case "diagonal_scan" if a.decay.dim() == 1:
            return Scan("constant", "values", constants=("decay",))
        case "diagonal_scan":
            return Scan("decay", "values", "decay")
        case "min_gated":
            kind = "min_gru" if a.projected.shape[2] == 2 * size else "min_lstm"
            return Scan(kind, "projected", "projected", gates_at=size)
        case "rg_lru":
            return Scan("rg_lru", "inputs", "products", constants=("decay", "bias"))
        case "blend":
            return Scan("blend", "inputs", "gate", activation=a.activation)
        case name:
            raise NotImplementedError(name)


def _arguments(a: Any, scan: Scan) -> tuple[list[Any], tuple[int, int], dict[str, Any]]:
    """Return the first arguments of the kernels, T and B, and what is fixed when they are compiled."""
    values = getattr(a, scan.values)
    gates = None if scan.gates is None else getattr(a, scan.gates)
    is_complex = getattr(a, "is_complex", False)
    width = a.h0.shape[1]
    size = width // 2 if is_complex else width
    steps, batch = values.shape[:2]
    config = Config(
        kind=scan.kind,
        size=size,
        is_complex=is_complex,
        activation=scan.activation,
        values_width=values.shape[2],
        gates_width=0 if gates is None else gates.shape[-1],
        gates_at=scan.gates_at,
        sums=sum(getattr(a, name).numel() for name in scan.constants) // size,
    )
    constants = [getattr(a, name) for name in scan.constants]
    given = [values, gates, *constants, *[None] * (2 - len(constants)), a.h0, getattr(a, "fresh", None)]
    settings = {"config": config, "block": BLOCK, "block_steps": TILE // BLOCK // (2 if is_complex else 1)}
    return [*given, a.lengths, as_bytes(a.starts)], (steps, batch), settings


def _launch(kernel: Any, arguments: list[Any], sizes: tuple[int, int], settings: dict[str, Any]) -> None:
    channels = sizes[1] * settings["config"].size
    if channels > 0:
        with torch.cuda.device_of(arguments[0]):
            kernel[(-(-channels // BLOCK),)](*arguments, *sizes, **settings, num_warps=4)


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results; nothing else is saved for the backward pass."""
    steps, batch = getattr(a, scan_of(a).values).shape[:2]
    return [a.h0.new_empty(steps, batch, a.h0.shape[1]), torch.empty_like(a.h0)], []


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    given, sizes, settings = _arguments(a, scan_of(a))
    _launch(forward_scan, [*given, *results], sizes, settings)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    scan = scan_of(a)
    given, sizes, settings = _arguments(a, scan)
    found = {name: torch.empty_like(getattr(a, name)) for name in ("h0", scan.values, scan.gates) if name is not None}
    config, batch = settings["config"], sizes[1]
    sums = a.h0.new_empty(batch, config.sums, config.size) if config.sums else None
    written = [found[scan.values], None if scan.gates is None else found[scan.gates], sums, found["h0"]]
    _launch(backward_scan, [*given, results[0], *gradients, *written], sizes, settings)
    if sums is not None:
        constants = [getattr(a, name) for name in scan.constants]
        flat = sums.flatten(1).sum(0).split([constant.numel() for constant in constants])
        found.update(
            zip(scan.constants, (each.view_as(c) for each, c in zip(flat, constants, strict=True)), strict=True)
        )
    return found


def prepare(device: torch.device) -> None:
    """Compare the kernels with plain torch on small examples, once per device and process.

    Raises:
        KernelUnavailableError: The kernels do not run on the device, or their results differ.
    """
    reason = _probe(device)
    if reason is not None:
        raise KernelUnavailableError(f"the Triton kernels of diagonal scans do not run on {device}: {reason}")


@functools.cache
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The examples have two tiles, the largest scan and the smallest."""
    steps, batch, size = TILE // BLOCK + 1, 3, 3

    def waves(*shape: int) -> Tensor:
        return torch.arange(torch.Size(shape).numel(), dtype=torch.float32, device=device).cos().view(shape)

    lengths = torch.arange(steps - batch + 1, steps + 1, device=device)
    starts = waves(steps, batch) > 0.9
    values, h0 = waves(steps, batch, 2 * size), waves(batch, 2 * size)
    masked = diagonal.diagonal_scan.Arguments(values, 0.7 * values.sin(), h0, lengths, starts, True)
    gated = min_gated.min_gated.Arguments(values, h0[:, :size].contiguous())
    module: Any = _Module(forward, backward)
    examples: list[tuple[Callable[..., Any], Any, tuple[str, ...]]] = [
        (diagonal.naive.diagonal_scan, masked, ("values", "decay", "h0")),
        (min_gated.naive.min_gated, gated, ("projected", "h0")),
    ]
    for example in examples:
        reason = failure(lambda example=example: difference(module, *example))  # type: ignore[misc]
        if reason is not None:
            return reason
    return None


class _Module(NamedTuple):
    """The functions of this module."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]
