"""The Python functions that launch the kernels."""

import functools
import sys
from typing import Any

import torch

from gyral.ops.permutation_scan import permutation_scan
from gyral.ops.permutation_scan.triton import scan, scores
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
AHEAD = 4  # steps that are loaded together, if one warp has all numbers
OF_A_WARP = 1024  # pairs of numbers for which a warp compares places in a step
ENTRIES = 2048  # of the dictionary in the registers of a warp: 64 for each thread, and as many of its gradient
GROUPS = 256  # of steps and rows, which a program each goes through


def _power(count: int) -> int:
    """Return the power of 2 that is not below a positive number."""
    return 1 << (count - 1).bit_length()


def _scan(kernel: Any, a: Any, given: list[Any]) -> None:
    """Launch a kernel of the scan."""
    (steps, batch), size = a.values.shape[:2], a.dictionary.shape[1]
    width = _power(size)
    warps = max(1, min(16, width**2 // OF_A_WARP))
    launch(kernel, batch, (*given, steps, batch), scan.Config(size, width, AHEAD if warps == 1 else 1), warps)


def _scores_config(a: Any) -> scores.Config:
    """Return the compile-time constants of the kernels of the scores."""
    matrices, size = a.dictionary.shape[:2]
    width, depth = _power(size), _power(matrices)
    return scores.Config(size, matrices, width, depth, max(1, min(width, ENTRIES // (width * depth))))


def _share(a: Any) -> tuple[int, int]:
    """Return the number of steps and rows of a program, and the number of groups of them."""
    count = a.values.shape[0] * a.values.shape[1]
    share = max(1, -(-count // GROUPS))
    return share, -(-count // share)


def _scores(kernel: Any, a: Any, given: list[Any]) -> None:
    """Launch a kernel of the scores."""
    config, (share, groups) = _scores_config(a), _share(a)
    numbers = config.width * config.depth * config.columns
    warps = 1 if numbers <= ENTRIES else min(16, 2 * numbers // ENTRIES)
    launch(kernel, groups * _blocks(config), (*given, *a.values.shape[:2], share), config, warps)


def _blocks(config: scores.Config) -> int:
    """Return the number of programs that have all columns."""
    return -(-config.size // config.columns)


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results, and the places to which the numbers of the states go."""
    places = a.values.new_empty(*a.values.shape[:2], a.dictionary.shape[1], dtype=torch.int16)
    return [torch.empty_like(a.values), torch.empty_like(a.h0)], [places]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _scores(scores.choose_places, a, [a.selection, a.dictionary, *saved])
    _scan(scan.forward_scan, a, [*saved, a.decay, a.values, a.h0, a.lengths, as_bytes(a.starts), *results])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    found = {name: torch.empty_like(getattr(a, name)) for name in ("decay", "values", "h0")}
    masks = a.lengths, as_bytes(a.starts)
    _scan(scan.backward_scan, a, [*saved, a.decay, a.h0, *masks, results[0], *gradients, *found.values()])
    blocks = _blocks(_scores_config(a))
    of_selection = a.selection.new_empty(blocks, *a.selection.shape)
    of_dictionary = a.dictionary.new_empty(_share(a)[1], *a.dictionary.shape)
    given = [a.selection, a.dictionary, a.decay, a.h0, *masks, results[0], found["values"]]
    _scores(scores.backward_scores, a, [*given, of_selection, of_dictionary])
    found["selection"] = of_selection[0] if blocks == 1 else of_selection.sum(0)
    found["dictionary"] = of_dictionary.sum(0)
    return found


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The example has all masks."""
    steps, batch, size, matrices = AHEAD + 2, 3, 3, 2
    shapes = (steps, batch, matrices), (matrices, size, size), (steps, batch, 2 * size), (steps, batch, 2 * size)
    selection, dictionary, decay, values = (waves(device, *shape) for shape in shapes)
    lengths, starts = torch.arange(steps - batch + 1, steps + 1, device=device), waves(device, steps, batch) > 0.9
    given = selection, 3 * dictionary, decay.sin(), values, waves(device, batch, 2 * size), lengths, starts
    return difference(sys.modules[__name__], permutation_scan, given, permutation_scan.Arguments._fields[:5])


prepare = preparation("permutation scans", _probe)
