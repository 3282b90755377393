"""The Python functions that launch the Triton kernels of gated recurrences."""

import functools
import math
import sys
from typing import Any

import torch
import triton
from torch import Tensor

from gyral.ops.compilation import start
from gyral.ops.gated import OPERATOR, joined
from gyral.ops.gated.triton import rotations, steps
from gyral.ops.gated.triton.config import Config, config_of
from gyral.ops.gated.triton.loop import backward_loop, forward_loop
from gyral.ops.native.kernels import rows
from gyral.ops.native.products import project, project_backward, recurrent_gradient
from gyral.ops.sequences import split_keep
from gyral.ops.triton.launch import as_bytes, difference, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
ON_CHIP = 128  # the largest number of units for which a program keeps recurrent weights in registers
LIMITS = {"on_lstm": 64}  # kinds for which it is less: six of the largest matrices do not even fit in the first cache
PROGRAMS_PER_PROCESSOR = 4  # of rows of that many units, up to which they are faster than launches for each step
MANY = 8  # rows of parts and further parameters, beyond which the largest matrices have less room


def fits(config: Config) -> bool:
    """Return whether one program can run all steps of a row."""
    return config.size <= LIMITS.get(config.kind, ON_CHIP)


def runs_rows(a: Any) -> bool:
    """Return whether one program runs all steps of a row; else the host launches kernels of all rows for each step."""
    config = config_of(a)
    if not fits(config):
        return False
    programs = PROGRAMS_PER_PROCESSOR * (ON_CHIP // _block(config)) ** 2  # as many run at once as there are registers
    return a.h0.shape[0] <= programs * _processors(a.h0.device)


@functools.cache
def _processors(device: torch.device) -> float:
    """Return the number of multiprocessors of a GPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else math.inf


def _block(config: Config) -> int:
    """Return the columns of a row, a power of 2."""
    block: int = max(triton.next_power_of_2(config.size), 16)
    return block


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results; and saved: parts (T, B, G), cell states (T, B, N), and the last product (T, B, N)."""
    config = config_of(a)
    hidden, cell_state = torch.empty_like(a.h0), None if a.c0 is None else torch.empty_like(a.c0)
    cell_states = rows(a, config.size) if config.has_cell_state else None
    kept = rows(a, config.size) if config.keeps_product else None
    return [rows(a, a.h0.shape[1]), hidden, cell_state], [rows(a, config.width), cell_states, kept]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    if a.partner is not None:
        a = a._replace(w_hh=rotations.matrix(a, rotations.images(a)))
    a = joined(a)
    results, saved = allocate(a)
    project(a.x, a.w_ih, a.b, out=saved[0])
    if not runs_rows(a):
        steps.forward(a, results, saved)
    else:
        _launch(forward_loop, a, _matrices(a, True), [saved[0], results[0], *saved[1:], *results[1:]])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`. They take the place of what `forward` has saved."""
    before, vectors = a, None
    if a.partner is not None:
        vectors = rotations.images(a)
        a = a._replace(w_hh=rotations.matrix(a, vectors))
    a = joined(a)
    outputs, (parts, _, product) = results[0], saved
    run = _backward_loop if runs_rows(a) else steps.backward
    found = run(a, results, saved, gradients) | project_backward(parts, a.x, a.w_ih, a.b, needs)
    if needs["w_hh"]:
        reads = a.h0, outputs, a.starts, a.drop, a.fresh
        if product is None:
            gradient = recurrent_gradient(parts, *reads)
        else:  # the gradient of the product equals the gradient of the parts, except in the kept part
            gradient = torch.cat(
                (recurrent_gradient(parts[..., : -a.units], *reads), recurrent_gradient(product, *reads))
            )
        found["w_hh"] = gradient if vectors is None else rotations.gradient(before, vectors, gradient)
    if before.b is not None and before.b_hh is not None:
        bias = found["b"]
        found["b_hh"] = torch.cat((bias[: -a.units], found["extra"])) if a.kind == "gru" else bias.clone()
    return found


def _backward_loop(a: Any, results: list[Any], saved: list[Any], gradients: list[Any]) -> dict[str, Any]:
    """Return the gradients of states and further parameters; write those of parts and product in their place."""
    parts, h0, c0 = saved[0], torch.empty_like(a.h0), None if a.c0 is None else torch.empty_like(a.c0)
    extra = None if a.extra is None else a.extra.new_empty(len(h0), a.extra.numel())
    fresh = None if a.fresh is None else torch.empty_like(h0)
    absent = [parts if each is None else each for each in gradients]
    tensors = [parts, results[0], *saved[1:], *absent, h0, c0, extra, fresh]
    _launch(backward_loop, a, _matrices(a, False), tensors, *[int(each is not None) for each in gradients])
    sums = {"extra": extra, "fresh": fresh}
    return {"h0": h0, "c0": c0} | {name: None if each is None else each.sum(0) for name, each in sums.items()}


def _matrices(a: Any, is_forward: bool) -> Tensor:
    """Return the recurrent weights for a kernel: a matrix (N, N) for each part and each row of h.

    Its columns are those of the sums: units of the part forward, of h backward. All rows in memory have the alignment
    of the rows of h, so that the compiler gives all of them one layout.
    """
    weight, narrow = a.w_hh, config_of(a).widths[0]
    if narrow < a.units:  # the master gates of on_lstm, of which several units share a row
        first, last = weight.split((2 * narrow, 4 * a.units))
        first = first.view(2, narrow, -1).repeat_interleave(a.chunk, 1)[:, : a.units].flatten(0, 1)
        weight = torch.cat((first, last))
    weight = weight.view(-1, a.units, a.h0.shape[1] // a.units, a.units)  # part, its unit, row of h, its unit
    return (weight.permute(0, 2, 3, 1) if is_forward else weight.transpose(1, 2)).contiguous()


def _launch(kernel: Any, a: Any, weight: Tensor, tensors: list[Tensor | None], *numbers: int) -> None:
    """Run a kernel.

    Args:
        kernel: The kernel.
        a: The arguments of `gyral.ops.gated.naive.gated`, with one bias before the steps and dense weights.
        weight: The recurrent weights in the layout of the kernel.
        tensors, numbers: The arguments that only this kernel has, in order.
    """
    (length, batch, _), parts, config = a.x.shape, tensors[0], config_of(a)
    (keep, keep_mean), (keep_cell_state, keep_cell_state_mean) = split_keep(a.keep), split_keep(a.keep_cell_state)
    given = [
        *(parts, weight, a.extra, a.h0, a.c0, a.fresh, parts if keep is None else keep.float()),
        *(parts if keep_cell_state is None else keep_cell_state.float(), a.drop, a.lengths, as_bytes(a.starts)),
        *(*tensors[1:], *numbers, length, batch, keep_mean, keep_cell_state_mean, float(a.epsilon)),
    ]
    if batch > 0:
        with torch.cuda.device_of(parts):
            start(kernel, batch, *given, **_settings(kernel is forward_loop, config))


@functools.cache  # Triton's functions of integers take microseconds
def _settings(is_forward: bool, config: Config) -> dict[str, Any]:
    """Return the settings that are fixed when a kernel is compiled."""
    block, matrices = _block(config), len(config.widths) * config.hidden
    is_large = block > ON_CHIP // 2
    warps = 8 if is_large else (4 if matrices <= 3 else 8) if block > ON_CHIP // 4 else (1 if matrices <= 4 else 2)
    is_crowded, resident = is_large and len(config.widths) + config.extra > MANY, matrices
    if is_large:  # eight warps have room for three matrices, less what else they have in registers
        resident = min(matrices, (2 if matrices > 3 or config.extra > 1 else 3) if is_forward else 1)
        resident -= is_crowded and (is_forward or (config.zoneout, config.zoneout_cell_state) != ("none", "none"))
    stored = len(config.widths) + config.keeps_product + (config.hidden + config.has_cell_state) * is_forward
    stacked = max(stored, warps, 0 if is_forward else config.extra)  # a row for each warp, see `_stack`
    return {
        "config": config,
        "block": block,
        "resident": resident,
        "stack": triton.next_power_of_2(stacked),
        "groups": warps,
        "early": not is_crowded,
        "num_warps": warps,
        "num_stages": 1,
    }


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The two examples are for the two ways of running the steps."""
    for size in (4, ON_CHIP + 4):
        length, batch, gates = 3, 2, 4 * size
        shapes = (length, batch, 2), (gates, 2), (gates,), (gates, size), (batch, size), (batch, size)
        x, w_ih, b, w_hh, h0, c0 = (waves(device, *shape) for shape in shapes)
        starts, lengths = waves(device, length, batch) > 0.9, torch.tensor((length, length - 1), device=device)
        given = "lstm", x, w_ih, b, w_hh / size**0.5, None, h0, c0, None, None, None, None, lengths, starts, None
        names = "x", "w_ih", "b", "w_hh", "h0", "c0"
        reason = difference(sys.modules[__name__], OPERATOR, (*given, size, 1, 1e-5), names)
        if reason is not None:
            return reason
    return None


prepare = preparation("gated recurrences", _probe)
