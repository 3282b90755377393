"""RUM in readable functions of torch: the equations of `gyral.cells.rum.RUMCell.step`, and `run` in terms of them.

The kernels compute what `run` does. `run` provides their second derivative.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops import rotation
from gyral.ops.autograd import outside_autocast
from gyral.ops.scan import scan
from gyral.ops.zoneout import zoneout

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "softsign": F.softsign}


class Options(NamedTuple):
    """The options that determine the equations of a step; see `gyral.cells.rum.RUMCell`.

    `epsilon` belongs to the layer normalizations.
    """

    activation: str
    update_gate: bool
    eta: float | None
    epsilon: float = 1e-5


class Embedded(NamedTuple):
    """The embedded input ε̃ (…, B, N), its direction, and a unit vector orthogonal to it; see `rotation.plane`."""

    vector: Tensor
    axis: rotation.Direction
    fallback: Tensor


def embed(vector: Tensor) -> Embedded:
    """Return the embedded input with the values that depend on it alone."""
    axis = rotation.direction(vector)
    return Embedded(vector, axis, rotation.perpendicular(axis.unit))


def associate(
    embedded: Embedded, target: Tensor, hidden: Tensor, memory: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Rotate from ε̃ to the memory target τ.

    Args:
        embedded: ε̃ (B, N).
        target: τ (B, N).
        hidden: h_{t−1} (B, N).
        memory: (R_{t−1})^λ (B, N, N), or None for λ = 0.

    Returns:
        ε̃ + R_t h_{t−1} (B, N), R_t = (R_{t−1})^λ Rotation(ε̃, τ) or None, and the cosine (B, 1) of the angle.
    """
    plane = rotation.plane(embedded.axis, target, embedded.fallback)
    rotated = rotation.apply(plane, hidden)
    if memory is not None:
        # outside autocast: the memory is the product of all rotations so far, whose rounding errors add up
        with outside_autocast(memory.device):
            p, u, q, r = (vector.to(memory.dtype) for vector in rotation.factors(plane))
            columns = memory @ torch.stack((rotated.to(memory.dtype), p, q), dim=-1)
            memory = torch.baddbmm(memory, columns[..., 1:], torch.stack((u, r), dim=-2))
        rotated = columns[..., 0]
    return embedded.vector + rotated, memory, plane.cosine


def update(candidate: Tensor, gate: Tensor | None, old: Tensor, activation: str, eta: float | None) -> Tensor:
    """Return h_t (B, N) before zoneout.

    Args:
        candidate: ε̃ + R h (B, N), normalized where the cell has layer normalization.
        gate: The update gate before its sigmoid (B, N), or None without one.
        old: h_{t−1} (B, N).
        activation: The function f, one of `ACTIVATIONS`.
        eta: η, or None for no time normalization.
    """
    hidden = ACTIVATIONS[activation](candidate)
    if gate is not None:
        hidden = hidden + torch.sigmoid(gate) * (old - hidden)
    return hidden if eta is None else eta * rotation.direction(hidden).unit.to(hidden.dtype)


def step(
    parts: Tensor,
    weight_hh: Tensor,
    hidden: Tensor,
    memory: Tensor | None,
    norms: Tensor | None,
    keep: Tensor | float | None,
    options: Options,
) -> tuple[Tensor, Tensor | None]:
    """Take one step with λ = 0 or λ = 1 on the arguments of the kernels.

    Args:
        parts: (B, G N), the input's contributions; see `gyral.ops.rum.sequence.Arguments`.
        weight_hh, hidden, memory, norms, options: See there.
        keep: Zoneout: None, a mask (B, N), or the probability.

    Returns:
        h_t (B, N), and R_t (B, N, N) or None.
    """
    size = hidden.shape[-1]

    def normalize(vector: Tensor, which: int) -> Tensor:
        return (
            vector
            if norms is None
            else F.layer_norm(vector, (size,), norms[which, 0], norms[which, 1], options.epsilon)
        )

    vector = parts[..., len(weight_hh) :]
    target, *gate = (parts[..., : len(weight_hh)] + F.linear(hidden, weight_hh)).split(size, dim=-1)
    candidate, memory, _ = associate(embed(vector), normalize(target, 0), hidden, memory)
    normalized_gate = normalize(gate[0], 1) if gate else None
    new = update(normalize(candidate, 2), normalized_gate, hidden, options.activation, options.eta)
    return new if keep is None else zoneout(new, hidden, keep), memory


class Tensors(NamedTuple):
    """The arguments of `gyral.ops.rum.run` with a gradient; see there."""

    inputs: Tensor
    weight_ih: Tensor
    weight_hh: Tensor
    bias: Tensor
    hidden: Tensor
    memory: Tensor | None
    norms: Tensor | None


class FixedArguments(NamedTuple):
    """The other arguments of `gyral.ops.rum.run`, and the dtype of autocast if it is enabled."""

    keep: Tensor | float | None
    lengths: Tensor | None
    starts: Tensor | None
    options: Options
    autocast_dtype: torch.dtype | None

    def split(self) -> tuple[tuple[Tensor | None, ...], "FixedArguments"]:
        """Return the tensors (mask of zoneout, lengths, starts), and the fixed arguments without them."""
        mask, keep = (self.keep, None) if isinstance(self.keep, Tensor) else (None, self.keep)
        return (mask, self.lengths, self.starts), self._replace(keep=keep, lengths=None, starts=None)

    def joined(self, mask: Tensor | None, lengths: Tensor | None, starts: Tensor | None) -> "FixedArguments":
        """Return the fixed arguments with the tensors that `split` returned."""
        return self._replace(keep=self.keep if mask is None else mask, lengths=lengths, starts=starts)


def of(fixed: FixedArguments) -> Callable[..., tuple[Tensor, Tensor, Tensor | None]]:
    """Return the function `run` of all `Tensors` for these fixed."""
    return partial(run, fixed)


def run(
    fixed: FixedArguments,
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    hidden: Tensor,
    memory: Tensor | None,
    norms: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run RUM with λ = 0 or λ = 1 step by step.

    Returns:
        outputs (T, B, N), and after the last step of each sequence the hidden state (B, N) and the memory (B, N, N) or
        None.
    """
    keep, lengths, starts, options, _ = fixed
    state: tuple[Tensor, ...] = (hidden,)
    initial: tuple[Tensor, ...] = (torch.zeros_like(hidden),)
    if memory is not None:
        identity = torch.eye(memory.shape[-1], dtype=memory.dtype, device=memory.device)
        state, initial = (hidden, memory), (*initial, identity.expand_as(memory))

    def one_step(values: tuple[Tensor, Tensor | None], state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        parts, mask = values
        old, *rest = state
        old_memory = rest[0] if rest else None
        new, memory = step(parts, weight_hh, old, old_memory, norms, keep if mask is None else mask, options)
        return new, (new,) if memory is None else (new, memory)

    sequence = F.linear(inputs, weight_ih, bias), keep if isinstance(keep, Tensor) else None
    outputs, final = scan(one_step, sequence, state, lengths, starts, initial)
    return outputs, final[0], None if memory is None else final[1]
