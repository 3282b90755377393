"""The kernels of flash-linear-attention (package fla-core) as kernels of `gyral.ops.delta`, for comparison.

Each of their functions has one micro-step in each of its steps, so that n micro-steps become n steps, of which the
first alone decays and the last alone is read. Without `erase` they are those of gated linear attention (GLA), with it
those of a diagonal plus a low-rank matrix (DPLR), S ← e^γ ⊙ S + b aᵀS + k vᵀ. DPLR reads the memory before the decay:
a = −r ⊙ e^γ and b = k. The package's functions for one decay of a whole memory, such as `chunk_simple_gla`, do more in
tensor cores, but refuse to compute gradients on Hopper GPUs with Triton 3.4 to 3.7.0, which would be wrong.

An H100 (Triton 3.6) computes the same as single steps. The functions of version 0.6.0 compute correct results for any
decay. DPLR does so without its options `safe_gate` and `lower_bound` alone: with one of them the exponentials overflow
if γ is less than about −9.5 in several steps, and a matrix is inverted in float16.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.delta import naive
from gyral.ops.operator import KernelUnavailableError

DTYPES = (torch.float32,)
VERSION = "0.6"
UNIT = 16  # sizes of keys and values are multiples of it; a product of tensor cores has no smaller one
LARGEST_KEY = 256  # of DPLR


class Functions(NamedTuple):
    """Functions of fla.ops."""

    gla: Callable[..., tuple[Tensor, Tensor]]
    dplr: Callable[..., tuple[Tensor, Tensor]]


@functools.cache
def load() -> Functions:
    """Import and return the functions.

    Raises:
        ImportError: The package is missing, or has a version whose functions were not checked.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about packages that other functions need
        import fla

        if not fla.__version__.startswith(f"{VERSION}."):
            raise ImportError(f"it has version {fla.__version__}, not {VERSION}")
        from fla.ops.generalized_delta_rule import chunk_dplr_delta_rule
        from fla.ops.gla import chunk_gla
    return Functions(chunk_gla, chunk_dplr_delta_rule)


def prepare(device: torch.device) -> None:
    """Import the package.

    Raises:
        KernelUnavailableError: It cannot be used.
    """
    try:
        load()
    except ImportError as error:
        raise KernelUnavailableError(f"flash-linear-attention cannot be used: {error}") from error


@contextlib.contextmanager
def precision() -> Iterator[None]:
    """Let the kernels that are compiled in this context multiply in TF32 only if torch may do so, too."""
    from triton import knobs

    with knobs.language.scope():
        if torch.backends.cuda.matmul.fp32_precision != "tf32":
            knobs.language.fp32_default = "ieee"
        yield


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs (T, B, H, V) and final memory; nothing is saved."""
    steps, batch, _, heads, value = a.v.shape
    return [a.v.new_empty(steps, batch, heads, value), torch.empty_like(a.s0)], []


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    with precision():
        return [tensor.contiguous() for tensor in scan(a)], []


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`. The forward pass runs again."""
    leaves = {
        name: tensor.detach().requires_grad_()
        for name, tensor in a._asdict().items()
        if isinstance(tensor, Tensor) and tensor.is_floating_point()
    }
    with precision():
        with torch.enable_grad():
            results = list(scan(a._replace(**leaves)))
        given = [
            torch.zeros_like(result) if gradient is None else gradient
            for result, gradient in zip(results, gradients, strict=True)
        ]
        found = torch.autograd.grad(results, list(leaves.values()), given)
    return dict(zip(leaves, found, strict=True))


def scan(a: Any) -> tuple[Tensor, Tensor]:
    """Return outputs (T, B, H, V) and final memory (B, H, K, V), once differentiable."""
    steps, batch, micro, heads, value = a.v.shape
    key = a.k.shape[-1]
    if batch == 0 or (a.erase is not None and key > LARGEST_KEY):
        return naive.delta_scan(*a)
    q, k, v, erase = naive.expanded(a.q, a.k, a.v, a.erase, a.write, a.unit)
    decay, starts, outside = a.decay, a.starts, None
    if a.lengths is not None:  # beyond them the memory keeps what it has
        outside = torch.arange(steps, device=k.device).unsqueeze(1) >= a.lengths
        k = k.masked_fill(outside[:, :, None, None, None], 0.0)
        decay = None if decay is None else decay.masked_fill(outside.view(steps, batch, *[1] * (decay.dim() - 2)), 0.0)
        starts = None if starts is None else starts & ~outside

    # n steps for each step: the first one decays, the last one is read
    if decay is None:
        decay = v.new_zeros(steps, batch, heads)
    decay = F.pad(decay.view(steps, batch, 1, heads, -1), (0, 0, 0, 0, 0, micro - 1))
    q = F.pad(q.unsqueeze(2), (0, 0, 0, 0, micro - 1, 0))
    groups = heads // q.shape[3]
    q, k = q.repeat_interleave(groups, 3), k.repeat_interleave(groups, 3)
    memory = F.pad(a.s0, (0, -value % UNIT, 0, -key % UNIT))
    arguments = {"q": _in_rows(q), "k": _in_rows(k), "v": _in_rows(v)}
    rates = _in_rows(decay.expand_as(k))
    if erase is None:
        run, arguments["g"] = load().gla, rates
    else:
        run, arguments["gk"], arguments["b"] = load().dplr, rates, arguments["k"]
        arguments["a"] = _in_rows(-erase.repeat_interleave(groups, 3) * decay.exp())

    last = None
    if starts is not None:  # one row of all segments, each with its first and last memory
        begins = starts.T.clone()
        begins[:, 0] = True
        segment = begins.flatten().cumsum(0).view(batch, steps) - 1
        last = segment[:, -1]
        bounds = F.pad(begins.flatten().nonzero().squeeze(1), (0, 1), value=batch * steps) * micro
        memory = memory.masked_fill(starts[0, :, None, None, None], 0.0)
        memory = memory.new_zeros(len(bounds) - 1, *memory.shape[1:]).index_copy(0, segment[:, 0], memory)
        arguments = {name: tensor.flatten(0, 1).unsqueeze(0) for name, tensor in arguments.items()}
        arguments["cu_seqlens"] = bounds

    with warnings.catch_warnings():  # of float32 "on some platforms", without more
        warnings.filterwarnings("ignore", "ChunkDeltaRuleFunction does not support float32")
        outputs, memory = run(**arguments, scale=1.0, initial_state=memory, output_final_state=True)
    outputs = outputs.view(batch, steps, micro, heads, -1)[:, :, -1, :, :value].transpose(0, 1)
    if outside is not None:
        outputs = outputs.masked_fill(outside[:, :, None, None], 0.0)
    return outputs, (memory if last is None else memory[last])[..., :key, :value]


def _in_rows(tensor: Tensor) -> Tensor:
    """Return (T, B, n, H, W) as (B, T · n, H, W), with zeros up to a multiple of `UNIT` channels."""
    return F.pad(tensor.transpose(0, 1).flatten(1, 2), (0, -tensor.shape[-1] % UNIT))
