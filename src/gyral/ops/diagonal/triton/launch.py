"""The Python functions that launch the kernels, and the arguments of the operators in the form of the kernels."""

import functools
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.ops.diagonal import diagonal_scan
from gyral.ops.diagonal.triton.coefficients import Config
from gyral.ops.diagonal.triton.kernels import BLOCK, BLOCK_STEPS, backward_scan, forward_scan
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, summed, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)


class Form(NamedTuple):
    """The arguments of an operator in the form of the kernels, see `forward_scan`, by their names."""

    kind: str
    values: str
    gates: str = ""  # there are none
    gates_at: int = 0  # index of the first gate in its tensor
    constants: tuple[str, ...] = ()  # whose gradients are sums over the steps, in this order


def form_of(a: Any) -> Form:
    """Return the form of the arguments, whose class has the name of the operator."""
    match type(a).__name__:
        case "diagonal_scan":
            is_constant = a.decay.dim() == 1
            return Form("constant", "values", constants=("decay",)) if is_constant else Form("decay", "values", "decay")
        case "min_gated":
            size = a.h0.shape[1]
            return Form("min_gru" if a.projected.shape[2] == 2 * size else "min_lstm", "projected", "projected", size)
        case name:
            assert name == "blend"
            return Form("blend", "inputs", "gate")


def run(kernel: Any, config: Config, values: Tensor, gates: Tensor | None, a: Any, written: list[Any]) -> None:
    """Launch a kernel.

    Args:
        kernel: `forward_scan` or `backward_scan`.
        config: What is fixed when it is compiled.
        values, gates: See `forward_scan`.
        a: The arguments of the operator, of which it takes constants, state, lengths and starts.
        written: What it takes in addition to them, in its order.
    """
    constants = [getattr(a, "decay", None) if config.sums else None, getattr(a, "bias", None)]
    given = [values, gates, *constants, a.h0, getattr(a, "fresh", None), a.lengths, as_bytes(a.starts), *written]
    steps, batch = values.shape[:2]
    launch(kernel, -(-batch * config.size // BLOCK.value), (*given, steps, batch), config)


def _config(a: Any, form: Form) -> Config:
    """Return the compile-time constants of the kernels."""
    is_complex = getattr(a, "is_complex", False)
    size = a.h0.shape[1] // (2 if is_complex else 1)
    return Config(
        kind=form.kind,
        size=size,
        is_complex=is_complex,
        activation=getattr(a, "activation", ""),
        values_width=getattr(a, form.values).shape[2],
        gates_width=getattr(a, form.gates).shape[2] if form.gates else 0,
        gates_at=form.gates_at,
        two_gates=is_complex or form.kind == "min_lstm",
        block=size,
        sums=sum(getattr(a, name).numel() for name in form.constants) // size,
    )


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results; nothing else is saved for the backward pass."""
    steps = getattr(a, form_of(a).values).shape[0]
    return [a.h0.new_empty(steps, *a.h0.shape), torch.empty_like(a.h0)], []


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    (results, saved), form = allocate(a), form_of(a)
    gates = getattr(a, form.gates) if form.gates else None
    run(forward_scan, _config(a, form), getattr(a, form.values), gates, a, [*results, None])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    form = form_of(a)
    config, gates = _config(a, form), getattr(a, form.gates) if form.gates else None
    found = {name: torch.empty_like(getattr(a, name)) for name in ("h0", form.values, form.gates) if name}
    sums = a.h0.new_empty(len(a.h0), config.sums, config.size) if config.sums else None
    written = [found[form.values], found.get(form.gates), sums, found["h0"]]
    run(backward_scan, config, getattr(a, form.values), gates, a, [results[0], *gradients, *written])
    return found if sums is None else found | summed(sums, {name: getattr(a, name) for name in form.constants})


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The examples have two tiles; they have all masks, or none."""
    steps, batch, size, names = BLOCK_STEPS.value + 1, 3, 6, ("values", "decay", "h0")
    values, h0 = waves(device, steps, batch, size), waves(device, batch, size)
    lengths, starts = torch.arange(steps - batch + 1, steps + 1, device=device), waves(device, steps, batch) > 0.9
    module, masked = sys.modules[__name__], (values, 0.7 * values.sin(), h0, lengths, starts, True)
    return difference(module, diagonal_scan, masked, names) or difference(
        module, diagonal_scan, (values, waves(device, size), h0), names
    )


prepare = preparation("diagonal scans", _probe)
