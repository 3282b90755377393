"""The kernels of `gyral.ops.m2rnn` for the CPU: m2rnn.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native import library

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("m2rnn.cpp"))
prepare = KERNEL.prepare
CHUNK = 32  # steps; with the default sizes, the kept memories then take no more space than the projected inputs


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs (T, B, H, V) and final memory; and the memories (chunks, B, H, K, V) before every chunk."""
    kept = a.s0.new_empty(-(-len(a.v) // CHUNK), *a.s0.shape)
    return [torch.empty_like(a.v), torch.empty_like(a.s0)], [kept]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    outputs, final = results
    _run(a, saved[0], backward=False, outputs=outputs, final=final)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    grad_outputs, grad_final = gradients
    if grad_outputs is None:
        grad_outputs = torch.zeros_like(results[0])
    found = {name: torch.zeros_like(getattr(a, name)) for name in ("q", "k", "v", "forget")}
    found["s0"] = torch.zeros_like(a.s0) if grad_final is None else grad_final.clone()  # the kernel overwrites it
    found["weight"] = a.weight.new_empty(len(a.s0), *a.weight.shape)
    further = {f"grad_{name}": tensor for name, tensor in found.items()}
    _run(a, saved[0], backward=True, grad_outputs=grad_outputs, **further)
    return {**found, "weight": found["weight"].sum(0)}


def _run(a: Any, kept: Tensor, *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    steps, batch, heads, value = a.v.shape
    groups, key = a.q.shape[2:]
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch * groups,
        groups=groups,
        heads=heads // groups,
        key=key,
        value=value,
        chunk=CHUNK,
        clip=a.clip,
        q=a.q,
        k=a.k,
        v=a.v,
        forget=a.forget,
        weight=a.weight,
        s0=a.s0,
        lengths=a.lengths,
        starts=a.starts,
        kept=kept,
        **further,
    )
