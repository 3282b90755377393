"""The Python functions that launch the kernels."""

import functools
import sys
from typing import Any

import torch

from gyral.ops.convolution import convolution
from gyral.ops.convolution.triton.kernels import (
    WARPS,
    Config,
    backward_values,
    backward_weights,
    forward_convolution,
)
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
LANES = 32  # channels of a program: 128 bytes are read at once
WIDEST = 128  # channels of a head in one program
NUMBERS = 512  # of a tile: 16 for each thread
MOST_STEPS = 64  # of a tile


def _config(a: Any) -> Config:
    """Return the compile-time constants of the kernels."""
    channels, (heads, kernel), dynamic = a.values.shape[2], a.weights.shape[-2:], a.weights.dim() == 4
    most = -(-channels // heads)  # channels of a head
    width = min(WIDEST, _power(most))
    group = max(1, min(LANES // width, _power(heads)))
    return Config(
        channels=channels,
        heads=heads,
        kernel=kernel,
        back=kernel - 1 if a.back is None else a.back,
        past=0 if a.history is None else a.history.shape[1],
        dynamic=dynamic,
        softmax=dynamic and a.softmax,
        group=group,
        width=width,
        blocks=-(-most // width),
        steps=min(MOST_STEPS, NUMBERS // (group * width)),
    )


def _power(count: int) -> int:
    """Return the power of 2 that is not below a positive number."""
    return 1 << (count - 1).bit_length()


def _run(kernel: Any, a: Any, config: Config, tiles: int, *given: Any) -> None:
    """Launch a kernel on a number of tiles of steps of each row."""
    steps, batch = a.values.shape[:2]
    programs = -(-config.heads // config.group) * config.blocks * batch * tiles
    launch(kernel, programs, (*given, steps, batch), config, WARPS)


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the outputs, and what the kernels save of the scores of each head."""
    has_softmax = a.weights.dim() == 4 and a.softmax
    saved = [a.values.new_empty(*a.weights.shape[:3], 2)] if has_softmax else []
    return [torch.empty_like(a.values)], saved


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    (results, saved), config = allocate(a), _config(a)
    given = a.values, a.weights, _history(a), a.mask, a.lengths, as_bytes(a.starts)
    _run(forward_convolution, a, config, -(-len(a.values) // config.steps), *given, *results, _first(saved))
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    config, steps = _config(a), len(a.values)
    tiles, masks, stats = -(-steps // config.steps), (a.lengths, as_bytes(a.starts)), _first(saved)
    found: dict[str, Any] = {"values": torch.empty_like(a.values)}
    if a.history is not None:
        found["history"] = torch.empty_like(a.history)
    _run(
        backward_values,
        a,
        config,
        -(-(steps + config.past) // config.steps),
        *(a.weights, a.mask, *masks, stats, *gradients, found["values"], found.get("history") if config.past else None),
    )
    if needs.get("weights", True):
        shape = (config.blocks, *a.weights.shape) if config.dynamic else (tiles, a.values.shape[1], config.blocks)
        partial = a.values.new_empty(*shape, *(() if config.dynamic else a.weights.shape))
        given = a.values, a.weights, _history(a), a.mask, *masks, stats, *results, *gradients, partial
        _run(backward_weights, a, config, tiles, *given)
        is_whole = config.dynamic and config.blocks == 1
        found["weights"] = partial[0] if is_whole else partial.sum(0 if config.dynamic else (0, 1, 2))
    return found


def _history(a: Any) -> Any:
    """Return the values before the first step, or None if there are none."""
    return None if a.history is None or a.history.shape[1] == 0 else a.history


def _first(saved: list[Any]) -> Any:
    return saved[0] if saved else None


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The examples have two tiles; they have all masks, or none."""
    steps, batch, channels, heads, kernel = MOST_STEPS + 1, 2, 5, 2, 3
    values, history = waves(device, steps, batch, channels), waves(device, batch, kernel - 1, channels)
    scores, weights = 2 * waves(device, steps, batch, heads, kernel), waves(device, heads, kernel)
    lengths, starts = torch.arange(steps - 1, steps + batch - 1, device=device), waves(device, steps, batch) > 0.9
    module, names = sys.modules[__name__], ("values", "weights", "history")
    masked = values, scores, history, scores.sin() + 1, lengths, starts
    return difference(module, convolution, masked, names) or difference(
        module, convolution, (values, weights, history), names
    )


prepare = preparation("convolutions", _probe)
