"""The Python functions that launch the kernels."""

import functools
import sys
from typing import Any

import torch
from torch import Tensor

from gyral.ops.slstm import slstm
from gyral.ops.slstm.naive import State, lowest_scale
from gyral.ops.slstm.triton import steps
from gyral.ops.slstm.triton.kernels import Config, backward_slstm, forward_slstm
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
SMALLEST = 16  # sides of a block in registers
TILE = 8  # rows of the weights that are read at once if they are not in registers
ON_CHIP = 128  # the largest d of the kernels that run a head of a row through all steps


@functools.cache
def _settings(size: int, heads: int, lowest: float) -> tuple[Config, int]:
    """Return the constants of a kernel, and its warps."""
    width = size // heads
    block = max(SMALLEST, 1 << (width - 1).bit_length())
    warps = 1 if block <= 32 else 8
    return Config(size, heads, width, block, block <= 64, min(block, TILE), max(warps, 4), lowest), warps


def _is_on_chip(a: Any) -> bool:
    """Return whether a program runs all steps of a head of a row."""
    return bool(a.weight_hh.shape[-1] <= ON_CHIP)


def _run(kernel: Any, a: Any, given: list[Any]) -> None:
    """Launch a kernel, a program for each head of each row."""
    (batch, size), heads = a.hidden.shape, len(a.weight_hh)
    config, warps = _settings(size, heads, lowest_scale(a.hidden.dtype))
    launch(kernel, batch * heads, (*given, len(a.projected), batch), config, warps)


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results, and saved: the sums of the gates (T, B, 4N), and c, n and m after each step (T, B, 3N)."""
    (length, batch, _), size = a.projected.shape, a.hidden.shape[1]
    results = [a.projected.new_empty(length, batch, size), *map(torch.empty_like, (a.hidden,) * len(State._fields))]
    return results, [torch.empty_like(a.projected), a.projected.new_empty(length, batch, 3 * size)]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    if not _is_on_chip(a):
        if len(a.hidden) > 0:
            steps.forward(a, results, saved)
        return results, saved
    turned = a.weight_hh.transpose(2, 3).contiguous()
    state = a.hidden, a.cell, a.normalizer, a.scale
    _run(forward_slstm, a, [a.projected, turned, *state, a.lengths, as_bytes(a.starts), *results, *saved])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`. It overwrites the sums with their gradients."""
    sums, states = saved
    found = {name: torch.empty_like(a.hidden) for name in State._fields}
    if _is_on_chip(a):
        given = [sums, a.weight_hh, a.cell, a.normalizer, a.scale, a.lengths, as_bytes(a.starts), states]
        _run(backward_slstm, a, [*given, *gradients, *found.values()])
    elif len(a.hidden) > 0:
        steps.backward(a, saved, gradients, found)
    return {**found, "projected": sums, "weight_hh": _of_weight(a, sums, results[0])}


def _of_weight(a: Any, d: Tensor, outputs: Tensor) -> Tensor:
    """Return the gradient of R (H, 4, d, d), given those of the sums (T, B, 4N) and the outputs (T, B, N)."""
    heads, _, width, _ = a.weight_hh.shape
    before = torch.cat((a.hidden.unsqueeze(0), outputs[:-1]))
    if a.starts is not None:
        before.masked_fill_(a.starts.unsqueeze(2), 0.0)
    count = outputs.shape[0] * outputs.shape[1]
    of_gates = d.view(count, 4, heads, width).permute(2, 1, 3, 0).reshape(heads, 4 * width, count)
    return (of_gates @ before.view(count, heads, width).transpose(0, 1)).view_as(a.weight_hh)


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The heads of the last example do not fit in registers."""
    module, names = sys.modules[__name__], slstm.Arguments._fields[:-2]

    def find(length: int, batch: int, heads: int, width: int, masked: bool) -> str | None:
        size = heads * width
        state = [waves(device, batch, size) for _ in State._fields]
        state[2] = state[2].square() + 1.0
        weight = waves(device, heads, 4, width, width) / width
        lengths = torch.arange(length - batch + 1, length + 1, device=device) if masked else None
        starts = waves(device, length, batch) > 0.9 if masked else None
        given = waves(device, length, batch, 4 * size), weight, *state, lengths, starts
        return difference(module, slstm, given, names)

    return find(3, 2, 2, 3, True) or find(2, 1, 1, 3, False) or find(3, 2, 1, ON_CHIP + 1, True)


prepare = preparation("sLSTM", _probe)
