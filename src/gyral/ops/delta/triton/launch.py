"""The Python functions that launch the kernels, and the arguments of the operator in the form of the kernels."""

import functools
import sys
from typing import Any

import torch
import triton
from torch import Tensor

from gyral.ops.delta import delta_scan
from gyral.ops.delta.triton.backward import carry_gradient, differentiate_keys, differentiate_values
from gyral.ops.delta.triton.chunks import Config
from gyral.ops.delta.triton.forward import carry_memory, prepare_chunks, read_memory
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, waves

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
SMALLEST = 16  # of the sizes of factors of a product
# Micro-steps of a chunk. With a decay for each channel the pairs of a chunk take C² numbers for each channel. With
# `erase`, factors of more products must fit into the registers.
SMALL_CHUNK, CHUNK = 16, 32
BLOCK = 32  # channels of keys, and of values, that a program handles at once
WARPS = 4
WIDE = 128  # channels of keys above which programs have more threads, and chunks are small
CARRIED = 16  # columns of a memory in the registers of a program


def config_of(a: Any) -> Config:
    """Return the compile-time constants of the kernels."""
    shape = (*a.v.shape[2:], *a.q.shape[2:])
    kinds = 0 if a.decay is None else a.decay.dim(), 0 if a.erase is None else a.erase.dim()
    # torch refuses to read the older `allow_tf32` where the newer setting was used
    return _config(*shape, *kinds, a.write is not None, a.unit, torch.backends.cuda.matmul.fp32_precision)


@functools.cache
def _config(
    micro: int,
    heads: int,
    value: int,
    groups: int,
    key: int,
    decay: int,
    erase: int,
    writes: bool,
    unit: bool,
    tf32: str,
) -> Config:
    padded = [max(SMALLEST, triton.next_power_of_2(size)) for size in (key, value)]
    kind = {0: "none", 3: "scalar", 4: "vector"}[decay]
    return Config(
        groups=groups,
        heads=heads,
        micro=micro,
        key_size=key,
        value_size=value,
        decay=kind,
        erase={0: "none", 4: "rates", 5: "vector"}[erase],
        writes=writes,
        unit=unit,
        # three products of TF32 have the errors of one of float32
        precision="tf32" if tf32 == "tf32" else "tf32x3",
        chunk=SMALL_CHUNK if kind == "vector" or erase or key > WIDE else CHUNK,
        block_key=min(padded[0], BLOCK // 2 if kind == "vector" and erase and padded[0] > BLOCK else BLOCK),
        block_value=min(padded[1], BLOCK),
        padded_key=padded[0],
        padded_value=-(-value // 4) * 4,  # rows of memories begin at multiples of 16 bytes
        carry_value=min(padded[1], CARRIED),
    )


def chunks_of(a: Any, config: Config) -> tuple[int, int]:
    """Return the number of chunks of a sequence, and of those of all heads."""
    steps, batch, micro, heads, _ = a.v.shape
    chunks = -(-steps * micro // config.chunk)
    return chunks, chunks * batch * heads


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs and final memory; the memories before all chunks, and U if there is `erase`."""
    config = config_of(a)
    steps, batch, _, heads, value = a.v.shape
    _, count = chunks_of(a, config)
    results = [a.v.new_empty(steps, batch, heads, value), torch.empty_like(a.s0)]
    saved = [a.v.new_empty(count, config.key_size, config.padded_value)]
    if config.erase != "none":
        saved.append(a.v.new_empty(count, config.chunk, config.padded_value))
    return results, saved


class Scratch:
    """Values of a chunk of a head that one kernel passes to the next; see `gyral.ops.delta.triton.forward`."""

    def __init__(self, a: Any, config: Config) -> None:
        _, count = chunks_of(a, config)
        self.count = count
        rows, square = config.chunk * config.padded_key, config.chunk**2
        erases = config.erase != "none"
        sizes = [rows, rows, rows * erases, square, square * erases, square * erases, config.padded_key]
        parts = a.v.new_empty(count * sum(sizes)).split([count * size for size in sizes])
        self.readers, self.keys, self.behind, self.attention, self.system, self.inverse, self.kept = parts
        self.marks, self.summary = a.v.new_empty(count * (config.chunk + 1), dtype=torch.int32).split(
            [count * config.chunk, count]
        )

    def prepare(
        self, a: Any, config: Config, solved: Tensor | None, grad_outputs: Tensor | None, grad_solved: Tensor | None
    ) -> None:
        """Write it, from the arguments of the operator; see `prepare_chunks` for the others."""
        given = [a.q, a.k, a.v, a.decay, a.erase, a.write, a.lengths, as_bytes(a.starts), grad_outputs]
        given += [self.readers, self.keys, self.behind, solved, self.attention, self.system, self.inverse, self.kept]
        given += [self.marks, self.summary, grad_solved]
        launch(prepare_chunks, self.count, (*given, *a.q.shape[:2]), config)


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    (outputs, final), config = results, config_of(a)
    scratch, states = Scratch(a, config), saved[0]
    solved = saved[1] if len(saved) > 1 else a.v.new_empty(scratch.count, config.chunk, config.padded_value)
    sizes, starts = a.q.shape[:2], as_bytes(a.starts)
    spoiled = torch.empty_like(scratch.summary)
    scratch.prepare(a, config, solved, None, None)
    given = [scratch.keys, scratch.behind, solved, scratch.kept, scratch.marks, scratch.summary, starts]
    given += [a.s0, states, spoiled, final]
    launch(carry_memory, _carriers(a, config), (*given, *sizes), config, _warps(config))
    given = [scratch.readers, solved, scratch.attention, scratch.marks, spoiled, a.lengths, starts, states, outputs]
    launch(read_memory, scratch.count * -(-config.value_size // config.block_value), (*given, *sizes), config)
    return results, saved


def _carriers(a: Any, config: Config) -> int:
    """Return the number of programs that carry memories."""
    return a.s0.shape[:2].numel() * -(-config.value_size // config.carry_value)


def _warps(config: Config) -> int:
    """Return the number of warps of these programs."""
    return WARPS if config.key_size <= WIDE else 2 * WARPS


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    (grad_outputs, grad_final), config = gradients, config_of(a)
    scratch, states = Scratch(a, config), saved[0]
    sizes, starts = a.q.shape[:2], as_bytes(a.starts)
    new = functools.partial(a.v.new_empty, scratch.count)
    grad_solved, grad_states = new(config.chunk, config.padded_value), torch.empty_like(states)
    solved = saved[1] if len(saved) > 1 else new(config.chunk, config.padded_value)
    local = None if grad_outputs is None else grad_solved
    scratch.prepare(a, config, None if len(saved) > 1 else solved, grad_outputs, local)
    found = {
        name: None if getattr(a, name) is None else torch.empty_like(getattr(a, name))
        for name in ("s0", "v", "decay", "write")
    }
    given = [scratch.readers, scratch.keys, scratch.behind, scratch.kept, scratch.marks, scratch.summary]
    given += [a.lengths, starts, grad_outputs, grad_final, grad_solved, grad_states, found["s0"]]
    launch(carry_gradient, _carriers(a, config), (*given, *sizes), config, _warps(config))
    # those of q, k and `erase` for each head of a group, in one tensor, whose sums are one launch
    heads, of_groups = config.heads // config.groups, [a.q, a.k, *([] if a.erase is None else [a.erase])]
    numbers = [-(-tensor.numel() // 4) * 4 for tensor in of_groups]
    stride = sum(numbers)
    shared = a.v.new_empty(heads, stride)
    parts = shared[0].split(numbers)
    pairs = [new(1 if a.erase is None else 2, config.chunk, config.chunk), new(config.chunk)]
    pairs.append(new(config.chunk, dtype=torch.int32))
    given = [a.v, a.decay, a.write, a.lengths, starts, scratch.attention, scratch.system, scratch.inverse, solved]
    given += [grad_outputs, grad_solved, found["v"], found["write"], *pairs]
    launch(differentiate_values, scratch.count, (*given, *sizes), config)
    given = [a.q, a.k, a.decay, a.erase, a.lengths, starts, scratch.inverse, scratch.kept, solved, states]
    given += [grad_outputs, grad_solved, grad_states, *pairs]
    given += [parts[0], parts[1], found["decay"], None if a.erase is None else parts[2], stride]
    launch(differentiate_keys, scratch.count, (*given, *sizes), config, 2 * WARPS)
    parts = parts if heads == 1 else shared.sum(0).split(numbers)
    for name, part, tensor in zip(("q", "k", "erase"), parts, of_groups, strict=False):
        found[name] = part[: tensor.numel()].view_as(tensor)
    return found


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail on an example with two chunks, masks and rates, or None."""
    steps, batch, heads, key, value = SMALL_CHUNK + 1, 2, 2, 5, 6
    q, k = waves(device, steps, batch, 1, key), waves(device, steps, batch, 1, 1, key)
    v, s0 = waves(device, steps, batch, 1, heads, value), waves(device, batch, heads, key, value)
    decay, write = waves(device, steps, batch, heads) - 1.0, waves(device, steps, batch, 1, heads)
    lengths = torch.arange(steps - batch + 1, steps + 1, device=device)
    starts, rates = waves(device, steps, batch) > 0.9, waves(device, steps, batch, 1, 1).square()
    names = ("q", "k", "v", "s0", "decay", "erase", "write")
    given = q, k, v, s0, decay, rates, write, lengths, starts, True
    return difference(sys.modules[__name__], delta_scan, given, names)


prepare = preparation("the delta rule", _probe)
