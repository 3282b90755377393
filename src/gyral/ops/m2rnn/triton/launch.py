"""The Python functions that launch the kernels."""

import functools
import sys
from typing import Any

import torch
from torch import Tensor

from gyral.ops.m2rnn import m2rnn
from gyral.ops.m2rnn.triton.kernels import Config, backward_m2rnn, forward_m2rnn
from gyral.ops.native.kernels import before_chunks
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
SMALLEST = ROWS = 16  # of the sizes of factors of a product, and the rows of a memory that a program has
CHUNK = 16  # steps between two memories that are kept


def _config(a: Any) -> Config:
    """Return the compile-time constants of the kernels."""
    shape = *a.v.shape[2:], *a.q.shape[2:]
    # torch refuses to read the older `allow_tf32` where the newer setting was used
    return _config_of(*shape, a.clip is not None, CHUNK, torch.backends.cuda.matmul.fp32_precision)


@functools.cache
def _config_of(heads: int, value: int, groups: int, key: int, clipped: bool, chunk: int, tf32: str) -> Config:
    block = max(SMALLEST, 1 << (value - 1).bit_length())
    # three products of TF32 have the errors of one of float32
    precision = "tf32" if tf32 == "tf32" else "tf32x3"
    return Config(heads, groups, key, value, ROWS, block, chunk, clipped, precision)


def _strips(config: Config) -> int:
    return -(-config.key_size // config.rows)


def _run(kernel: Any, a: Any, config: Config, given: list[Any]) -> None:
    """Launch a kernel, a program for each strip of the memory of each head of each row."""
    steps, batch, heads, _ = a.v.shape
    launch(kernel, batch * heads * _strips(config), (*given, steps, batch), config, warps=config.block // SMALLEST)


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs and final memory, and saved: the memory before each chunk of steps."""
    config, (steps, batch, heads, _) = _config(a), a.v.shape
    kept = before_chunks(a.v, steps, config.chunk, batch * heads * _strips(config), config.rows, config.block)
    return [torch.empty_like(a.v), torch.empty_like(a.s0)], [kept]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    config, strips = _config(a), _strips(_config(a))
    outputs = results[0] if strips == 1 else a.v.new_empty(strips, *a.v.shape)
    given = [a.q, a.k, a.v, a.forget, a.weight, a.s0, a.lengths, as_bytes(a.starts)]
    _run(forward_m2rnn, a, config, [*given, outputs, results[1], *saved])
    if strips > 1:
        torch.sum(outputs, 0, out=results[0])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    config, strips, new = _config(a), _strips(_config(a)), a.v.new_empty
    (steps, batch, heads, value), key = a.v.shape, a.q.shape[3]
    before = new(batch * heads * strips, config.chunk, config.rows, config.block)
    grad_q, grad_k = new(steps, batch, heads, key), new(steps, batch, heads, key)
    grad_v, grad_forget = new(strips, *a.v.shape), new(strips, *a.forget.shape)
    grad_weight, grad_s0 = new(batch, heads, strips, value, value), torch.empty_like(a.s0)
    given = [a.q, a.k, a.v, a.forget, a.weight, a.lengths, as_bytes(a.starts), *saved, before, *gradients]
    given += [grad_q, grad_k, grad_v, grad_forget, grad_weight, grad_s0, 0.0 if a.clip is None else float(a.clip)]
    _run(backward_m2rnn, a, config, given)
    return {
        "q": _of_groups(grad_q, a.q),
        "k": _of_groups(grad_k, a.k),
        "v": grad_v[0] if strips == 1 else grad_v.sum(0),
        "forget": grad_forget[0] if strips == 1 else grad_forget.sum(0),
        "weight": grad_weight.sum((0, 2)),
        "s0": grad_s0,
    }


def _of_groups(gradient: Tensor, like: Tensor) -> Tensor:
    """Return the gradient of keys that the heads of a group share, given those through each head."""
    return gradient if gradient.shape == like.shape else gradient.unflatten(2, (like.shape[2], -1)).sum(3)


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The example has two chunks and strips, and all options."""
    steps, batch, heads, key, value = CHUNK + 2, 2, 2, ROWS + 1, 3
    shared = [waves(device, steps, batch, 1, key) for _ in range(2)]
    others = waves(device, steps, batch, heads, value), waves(device, steps, batch, heads).square()
    given = (*shared, *others, waves(device, heads, value, value), waves(device, batch, heads, key, value))
    lengths, starts = torch.arange(steps - batch + 1, steps + 1, device=device), waves(device, steps, batch) > 0.9
    module, names = sys.modules[__name__], m2rnn.Arguments._fields[: len(given)]
    return difference(module, m2rnn, (*given, 0.5, lengths, starts), names)


prepare = preparation("M²RNN", _probe)
