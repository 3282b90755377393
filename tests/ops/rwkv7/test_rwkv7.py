"""`gyral.ops.rwkv7` against its equations, one step after another; test_contract.py has what every operator keeps."""

import math

import torch
from torch import Tensor

from gyral.ops.rwkv7 import SEQUENCES, VECTORS, rwkv7
from tests.ops.contract import Contract, Named


def drawn(steps: int, batch: int, heads: int, size: int) -> tuple[Named, Named]:
    width = heads * size
    shapes = dict.fromkeys(SEQUENCES, (steps, batch, width)) | dict.fromkeys(VECTORS, (width,))
    shapes |= {"r_k": (heads, size), "s0": (batch, heads, size, size)}
    return {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}, {}


def step_by_step(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    gate: Tensor,
    k_k: Tensor,
    k_a: Tensor,
    r_k: Tensor,
    gain: Tensor,
    bias: Tensor,
    s0: Tensor,
    lengths: Tensor | None,
    starts: Tensor | None,
) -> tuple[Tensor, Tensor]:
    memory, outputs = s0, []
    for time in range(len(r)):
        ended = torch.tensor(False) if lengths is None else time >= lengths
        now = [each[time].unflatten(-1, r_k.shape) for each in (r, w, k, v, a, gate)]
        by_head = [each.view(r_k.shape) for each in (k_k, k_a, gain, bias)]
        before = memory if starts is None else memory.masked_fill(starts[time].view(-1, 1, 1, 1), 0.0)
        output, new = one_step(*now, *by_head, r_k, before)
        outputs.append(output.flatten(1).masked_fill(ended.unsqueeze(-1), 0.0))
        memory = torch.where(ended.view(-1, 1, 1, 1), memory, new)
    return torch.stack(outputs), memory


def one_step(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    gate: Tensor,
    k_k: Tensor,
    k_a: Tensor,
    gain: Tensor,
    bias: Tensor,
    r_k: Tensor,
    memory: Tensor,
) -> tuple[Tensor, Tensor]:
    rate, key = torch.sigmoid(a), k * k_k
    key, written = key / key.norm(dim=-1, keepdim=True), k * (1 + (rate - 1) * k_a)
    decay = torch.exp(-math.exp(-0.5) * torch.sigmoid(w))
    erased = torch.einsum("bhkv,bhk->bhv", memory, key)
    memory = decay.unsqueeze(-1) * memory
    memory = memory - torch.einsum("bhk,bhv->bhkv", rate * key, erased) + torch.einsum("bhk,bhv->bhkv", written, v)
    read = torch.einsum("bhkv,bhk->bhv", memory, r)
    read = read - read.mean(-1, keepdim=True)
    normal = read / (read.square().mean(-1, keepdim=True) + 64e-5).sqrt()
    return (normal * gain + bias + (r * written * r_k).sum(-1, keepdim=True) * v) * gate, memory


CONTRACT = Contract(
    run=rwkv7,
    draw=drawn,
    # T, B, H, V: a single number, vectors around a register, several chunks, and several parts of the columns
    sizes=[(1, 1, 1, 1), (7, 5, 2, 8), (35, 2, 1, 17), (3, 2, 1, 70)],
    small=(19, 9, 2, 5),
    tiny=(3, 2, 1, 3),
    states=["s0"],
    truth=step_by_step,
    exact=1e-11,
    single=1e-4,
)
