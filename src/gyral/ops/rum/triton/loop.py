"""The loop over time on the host: for each step a product of torch and the kernels of `steps`.

It reads no value of a tensor on the host, so that a CUDA graph can record it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from gyral.ops.compilation import compiles_only, start
from gyral.ops.native.products import cast
from gyral.ops.rum.triton.memory_steps import backward_memory, finish_backward_step, forward_memory
from gyral.ops.rum.triton.step import StepConfig
from gyral.ops.rum.triton.steps import backward_step, forward_step
from gyral.ops.sequences import split_keep

TILE = 2048, 1024  # elements of the memory that a program reads at once, forward and backward
WIDE = 512  # elements that four warps load at once, 16 bytes of float32 each
PROGRAMS_PER_PROCESSOR = 2  # with rows of the memory, at least
MOST_PROGRAMS = 32  # of one memory, whose sums another kernel adds
SUMS = 4  # such sums that it reads at once
EVERY = 16  # steps after which a memory is written; those between two saved memories are a multiple of it


def stride_of(size: int) -> int:
    """Return the distance of rows of N numbers at which each row begins at a multiple of 16 bytes."""
    return -(-size // 4) * 4


def padded(memory: Tensor, out: Tensor | None = None) -> Tensor:
    """Return a copy (B, N, stride) of (B, N, N) with zeros beyond N; `out` (B, N, N) has it if it has this shape."""
    batch, size, _ = memory.shape
    stride = stride_of(size)
    if stride == size:
        return torch.empty_like(memory).copy_(memory) if out is None else out.copy_(memory)
    wide = memory.new_zeros((batch, size, stride))
    wide[..., :size].copy_(memory)
    return wide


class Programs(NamedTuple):
    """The programs that have the rows of the memories.

    Attributes:
        tile: The rows that a program reads at once.
        share: All rows of a program.
        number: The programs of one memory.
    """

    tile: int
    share: int
    number: int


def programs_of(batch: int, size: int, processors: int, is_forward: bool) -> Programs:
    """Return the programs for a batch and N, on a GPU with that many multiprocessors."""
    tile = max(TILE[not is_forward] // triton.next_power_of_2(size), 1)
    number = min(-(-PROGRAMS_PER_PROCESSOR * processors // max(batch, 1)), -(-size // tile), MOST_PROGRAMS)
    share = -(-size // (number * tile)) * tile
    return Programs(tile, share, -(-size // share))


class Loop(NamedTuple):
    """The steps of a sequence.

    Attributes:
        config: Of the steps.
        dtype: Of the factors of products.
        checkpoint_every: Steps between two saved memories.
        processors: The number of multiprocessors.
    """

    config: StepConfig
    dtype: torch.dtype
    checkpoint_every: int
    processors: int

    def forward(self, a: Any, results: list[Any], saved: list[Any]) -> None:
        """Run all steps.

        Args:
            a: The arguments of `gyral.ops.rum.naive.rum`.
            results, saved: Those of `gyral.ops.rum.triton.launch.allocate`, with the parts W_ih x_t + b.
        """
        parts, *_, checkpoints = saved
        steps, batch, _ = parts.shape
        outputs, final, final_memory, cosines = results
        values = self.values_of(a, outputs, saved, is_forward=True)
        values |= {"final": final, "cosines": cosines}
        values["products"] = products = parts.new_empty((batch, self.config.recurrent), dtype=self.dtype)
        values["rounded"] = rounded = products.new_empty((batch, self.config.size)) if values["rounds"] else None
        if final_memory is not None:
            values["memory"] = memory = padded(a.memory, final_memory)
            run_memory = self.bound(forward_memory, values, parts)
        run_step = self.bound(forward_step, values, parts)
        weight, factor = cast(a.w_hh, self.dtype).T, cast(a.h0, self.dtype)
        with torch.cuda.device_of(parts):
            for t in range(1 if compiles_only() else steps):
                torch.mm(factor, weight, out=products)
                if final_memory is not None:
                    if t > 0 and t % self.checkpoint_every == 0:
                        checkpoints[t // self.checkpoint_every - 1].copy_(memory)
                    run_memory(t=t)
                run_step(t=t)
                factor = outputs[t] if rounded is None else rounded
        if final_memory is not None and memory is not final_memory:
            final_memory.copy_(memory[..., : self.config.size])

    def backward(
        self, a: Any, results: list[Any], saved: list[Any], gradients: list[Any], grad_norms: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Run all steps in reverse, with the gradients of the parts in place of the parts.

        Args:
            a, results, saved: See `forward`.
            gradients: Those of the results, any of them None.
            grad_norms: (B, 3, 2, N), zeros, to which the gradients of the normalizations are added, or None.

        Returns:
            The gradients of the state before the first step, that of a memory (B, N, N) as part of wider rows.
        """
        parts, *_ = saved
        steps, batch, _ = parts.shape
        size, recurrent = self.config.size, self.config.recurrent
        outputs, _, memory, _ = results
        grad_outputs, grad_final, grad_memory, _ = gradients
        values = self.values_of(a, outputs, saved, is_forward=False)
        values |= {"grad_outputs": grad_outputs, "grad_final": grad_final, "grad_norms": grad_norms}
        values |= {"given_outputs": int(grad_outputs is not None), "given_final": int(grad_final is not None)}
        values["grad_hidden"] = grad_hidden = parts.new_empty((batch, size))
        values["products"] = products = parts.new_empty((batch, size), dtype=self.dtype)
        values["rounded"] = rounded = products.new_empty((batch, recurrent)) if values["rounds"] else None
        if memory is not None:
            values["memory"] = memory = padded(memory)
            grad_memory = torch.zeros_like(memory) if grad_memory is None else padded(grad_memory)
            values["grad_memory"] = grad_memory
            values["sums"] = parts.new_empty((batch, values["programs"].number, 5, values["stride"]))
            run_memory, finish = (self.bound(each, values, parts) for each in (backward_memory, finish_backward_step))
        run_step, weight = self.bound(backward_step, values, parts), cast(a.w_hh, self.dtype)
        with torch.cuda.device_of(parts):
            for t in reversed(range(1 if compiles_only() else steps)):
                run_step(t=t)
                if memory is not None:
                    run_memory(t=t)
                    finish(t=t)
                torch.mm(parts[t, :, :recurrent] if rounded is None else rounded, weight, out=products)
        grad_hidden += products
        if a.starts is not None:
            grad_hidden.masked_fill_(a.starts[0].unsqueeze(1), 0.0)
        return grad_hidden, None if memory is None else grad_memory[..., :size]

    def values_of(self, a: Any, outputs: Tensor, saved: list[Any], is_forward: bool) -> dict[str, Any]:
        """Return the values of the kernels' arguments by name, of those that do not depend on the direction."""
        parts, scales, memory_reads, slots, replaced, checkpoints = saved
        steps, batch, _ = parts.shape
        mask, keep_probability = split_keep(a.keep)
        block, stride = triton.next_power_of_2(self.config.size), stride_of(self.config.size)
        programs = programs_of(batch, self.config.size, self.processors, is_forward)
        has_memory = memory_reads is not None
        return {
            "parts": parts,
            "hidden": a.h0,
            "norms": a.norms,
            "keep": None if mask is None else mask.float(),
            "lengths": a.lengths,
            "starts": None if a.starts is None else a.starts.view(torch.uint8),
            "outputs": outputs,
            "scales": scales,
            "memory_reads": memory_reads,
            "slots": slots,
            "replaced": replaced,
            "checkpoints": checkpoints,
            "rotations": parts.new_empty((batch, EVERY, 4 + 5 * stride)) if has_memory else None,
            "steps": steps,
            "batch": batch,
            "keep_probability": keep_probability,
            "eta": 1.0 if a.eta is None else float(a.eta),
            "epsilon": float(a.epsilon),
            "checkpoint_every": self.checkpoint_every,
            "every": EVERY,
            "share": programs.share,
            "config": self.config,
            "has_memory": has_memory,
            "rounds": self.dtype != parts.dtype,
            "stride": stride,
            "block_size": block,
            "block_tile": programs.tile,
            "block_sums": SUMS,
            "groups": min(programs.tile, max(WIDE // block, 1)),
            "programs": programs,
        }

    def bound(self, kernel: Any, values: dict[str, Any], absent: Tensor) -> Callable[..., None]:
        """Return a function that launches a kernel at a step t; `absent` stands for tensors that are None."""
        has_rows = kernel in (forward_memory, backward_memory)
        rows, block = values["batch"], values["block_size"]
        given = {name: values[name] for name in kernel.arg_names if name != "t"}
        given = {name: absent if value is None else value for name, value in given.items()}
        warps, number = min(max(block // 128, 1), 8), rows
        if has_rows:
            # a tile is loaded and overwritten: no two threads may hold the same element
            warps = min(max(block // 256, 4), 8, max(values["block_tile"] * block // 32, 1))
            number *= values["programs"].number
        return partial(start, kernel, number, **given, num_warps=warps, num_stages=1)
