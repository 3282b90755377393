"""Rotational unit of memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import DropoutMasks, HiddenState, RecurrentCell
from gyral.core.checks import check_boolean, check_choice, check_integer, check_real
from gyral.ops import fast_slow, rotation, rum
from gyral.ops.fast_slow.sequence import SubCell
from gyral.ops.kernels import KernelUnavailableError

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "softsign": F.softsign}
INITIALIZATIONS = ("one_block", "two_block")


class AssociativeState(NamedTuple):
    """Hidden vector (B, N) and associative memory (B, N, N), a rotation."""

    hidden: Tensor
    memory: Tensor


class Projected(NamedTuple):
    """What the inputs alone decide; leaves (…, B, N) but for `axis.nonzero`, (…, B, 1)."""

    target: Tensor
    gate: Tensor | None
    embedded: Tensor
    axis: rotation.Direction
    fallback: Tensor


class RUMCell(RecurrentCell):
    """RUM (Dangovski et al., "Rotational Unit of Memory", TACL 2019, Algorithm 1).

    τ_t  = W_hh^τ h_{t−1} + W_xh^τ x_t + b^τ            memory target
    u_t  = σ(W_hh^u h_{t−1} + W_xh^u x_t + b^u)         update gate
    ε̃_t  = W̃_xh x_t + b̃                                embedded input
    R_t  = (R_{t−1})^λ Rotation(ε̃_t, τ_t)               associative memory, R_0 = I
    h̃_t  = f(ε̃_t + R_t h_{t−1})                         candidate
    h'_t = u_t ⊙ h_{t−1} + (1 − u_t) ⊙ h̃_t
    h_t  = η h'_t / ‖h'_t‖                              time normalization; h_t = h'_t without η

    The state is h (B, N) alone for λ = 0, and (h, R) with R (B, N, N) otherwise. A step costs O(N²) a sample for λ = 0
    and λ = 1 (R is updated in the rank-two form of `gyral.ops.rotation`), and O(N³) for any other λ, whose R must stay
    without the eigenvalue −1 (`gyral.ops.rotation.power`).

    Parameters are laid out as in `torch.nn.GRUCell`: `weight_ih` (3N, X), rows [target; gate; embedding]; `weight_hh`
    (2N, N), rows [target; gate]; `bias` (3N). Without the update gate its rows are absent. Layer normalizations are
    `norm_target`, `norm_gate`, `norm_candidate`.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 2, since a rotation needs a plane.
        lambd: λ, any finite number: how much of the associative memory a step carries on.
        eta: η > 0, the norm of the hidden vector, or None for no time normalization.
        activation: f: "relu", "tanh", "sigmoid" or "softsign".
        update_gate: whether there is one; without, h' = h̃.
        trainable_target: False holds W_hh^τ and W_xh^τ constant (RUM′). Their gradient is then exactly zero; combine
            with no weight decay.
        trainable_embedding: False holds W̃_xh constant, likewise.
        layer_norm: normalize (Ba et al. 2016, with gain and bias) τ, u before its sigmoid, and ε̃ + R h before f.
        zoneout, recurrent_dropout: of `gyral.cells.base.RecurrentCell`; the dropout is that of h in τ and u.
        initialization: of the kernels [W_xh; W_hh] (X + N, N) of τ and u. "two_block": two orthogonal blocks of N/2
            columns side by side, W̃ orthogonal, as in the authors' TensorFlow code, which ran the paper's experiments.
            "one_block": orthogonal, W̃ Xavier-uniform, as in their PyTorch code. b^τ = b^u = 1, b̃ = 0 in both.

    Raises:
        OptionError: an option out of the bounds above or of another type.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        lambd: float = 0.0,
        eta: float | None = None,
        activation: str = "relu",
        update_gate: bool = True,
        trainable_target: bool = True,
        trainable_embedding: bool = True,
        layer_norm: bool = False,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "two_block",
    ) -> None:
        check_integer("hidden_size", hidden_size, minimum=2)
        super().__init__(input_size, hidden_size, zoneout=zoneout, recurrent_dropout=recurrent_dropout)
        self.lambd = check_real("lambd", lambd)
        self.eta = None if eta is None else check_real("eta", eta, above=0)
        self.activation = check_choice("activation", activation, tuple(ACTIVATIONS))
        self.update_gate = check_boolean("update_gate", update_gate)
        self.trainable_target = check_boolean("trainable_target", trainable_target)
        self.trainable_embedding = check_boolean("trainable_embedding", trainable_embedding)
        self.initialization = check_choice("initialization", initialization, INITIALIZATIONS)

        recurrent_rows = 2 if update_gate else 1
        self.weight_ih = nn.Parameter(torch.empty((recurrent_rows + 1) * hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(recurrent_rows * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.empty((recurrent_rows + 1) * hidden_size))
        normalized = check_boolean("layer_norm", layer_norm)
        self.norm_target = nn.LayerNorm(hidden_size) if normalized else nn.Identity()
        self.norm_gate = nn.LayerNorm(hidden_size) if normalized and update_gate else nn.Identity()
        self.norm_candidate = nn.LayerNorm(hidden_size) if normalized else nn.Identity()
        self._cosines: list[Tensor] | None = None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the kernels as `initialization` says and set the biases."""
        size = self.hidden_size
        widths = [size] if self.initialization == "one_block" else [size // 2, size - size // 2]
        for recurrent, inputs in zip(self.weight_hh.split(size), self.weight_ih.split(size), strict=False):
            blocks = [nn.init.orthogonal_(torch.empty(self.input_size + size, width)) for width in widths]
            kernel = torch.cat(blocks, dim=1).T
            inputs.copy_(kernel[:, : self.input_size])
            recurrent.copy_(kernel[:, self.input_size :])
        embedding = self.weight_ih[-size:]
        if self.initialization == "one_block":
            nn.init.xavier_uniform_(embedding)
        else:
            nn.init.orthogonal_(embedding)
        self.bias.fill_(1.0)
        self.bias[-size:] = 0.0

    def init_state(self, batch_size: int) -> HiddenState | AssociativeState:
        hidden = self.zeros(batch_size, self.hidden_size)
        if self.lambd == 0:
            return HiddenState(hidden)
        identity = torch.eye(self.hidden_size, dtype=hidden.dtype, device=hidden.device)
        return AssociativeState(hidden, identity.expand(batch_size, -1, -1).clone())

    def project(self, inputs: Tensor) -> Projected:
        parts = F.linear(inputs, self._kernel(self.weight_ih), self.bias).split(self.hidden_size, dim=-1)
        axis = rotation.direction(parts[-1])
        return Projected(
            target=parts[0],
            gate=parts[1] if self.update_gate else None,
            embedded=parts[-1],
            axis=axis,
            fallback=rotation.perpendicular(axis.unit),
        )

    def _kernel(self, weight: Tensor) -> Tensor:
        """Return weight_ih or weight_hh with the rows that are held constant cut from the graph."""
        held_target, held_embedding = not self.trainable_target, not self.trainable_embedding
        if not held_target and (not held_embedding or weight is self.weight_hh):
            return weight
        rows = list(weight.split(self.hidden_size))
        if held_target:
            rows[0] = rows[0].detach()
        if held_embedding and weight is self.weight_ih:
            rows[-1] = rows[-1].detach()
        return torch.cat(rows)

    def step(
        self, projected: Projected, state: HiddenState | AssociativeState, constants: DropoutMasks
    ) -> tuple[Tensor, HiddenState | AssociativeState]:
        old = state.hidden
        target, gate = self._recur(self.apply_recurrent_dropout(old, constants))
        target = self.norm_target(projected.target + target)
        turn = rotation.plane(projected.axis, target, projected.fallback)
        if self._cosines is not None:
            self._cosines.append(turn.cosine.detach().squeeze(-1))

        rotated = rotation.apply(turn, old)
        memory = None
        if isinstance(state, AssociativeState):
            memory = state.memory if self.lambd == 1 else rotation.power(state.memory, self.lambd)
            p, u, q, r = rotation.factors(turn)
            columns = memory @ torch.stack((rotated, p, q), dim=-1)
            rotated = columns[..., 0]
            memory = torch.baddbmm(memory, columns[..., 1:], torch.stack((u, r), dim=-2))

        hidden = ACTIVATIONS[self.activation](self.norm_candidate(projected.embedded + rotated))
        if gate is not None and projected.gate is not None:
            update = torch.sigmoid(self.norm_gate(projected.gate + gate))
            hidden = hidden + update * (old - hidden)
        if self.eta is not None:
            hidden = self.eta * rotation.direction(hidden).unit
        hidden = self.apply_zoneout(hidden, old, constants)
        return hidden, HiddenState(hidden) if memory is None else AssociativeState(hidden, memory)

    def _recur(self, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the recurrent parts (B, N) of the memory target and, if there is one, of the update gate."""
        parts = F.linear(hidden, self._kernel(self.weight_hh)).split(self.hidden_size, dim=-1)
        return parts[0], parts[1] if self.update_gate else None

    def fused_unsupported_reason(self) -> str | None:
        if self.lambd not in (0, 1):
            return f"λ = {self.lambd:g} has no fused path, 0 and 1 have"
        if self.recurrent_dropout > 0:
            return "recurrent_dropout has no fused path"
        try:
            rum.kernels_for(self.bias)
        except KernelUnavailableError as error:
            return str(error)
        return None

    def fused(
        self, inputs: Tensor, state: HiddenState | AssociativeState, lengths: Tensor | None
    ) -> tuple[Tensor, HiddenState | AssociativeState]:
        memory = state.memory if isinstance(state, AssociativeState) else None
        outputs, hidden, memory, cosines = rum.scan(
            rum.kernels_for(self.bias),
            inputs,
            self._kernel(self.weight_ih),
            self._kernel(self.weight_hh),
            self.bias,
            state.hidden,
            memory,
            self._norms(),
            self.fused_keep(*inputs.shape[:2]),
            lengths,
            rum.Options(self.activation, self.update_gate, self.eta),
        )
        if self._cosines is not None:
            self._cosines.extend(cosines.unbind(0))
        return outputs, HiddenState(hidden) if memory is None else AssociativeState(hidden, memory)

    def subcell_unsupported_reason(self) -> str | None:
        if self.lambd != 0:
            return f"RUM with λ = {self.lambd:g} has no fused path within another cell, λ = 0 has"
        if self.recurrent_dropout > 0:
            return "recurrent_dropout has no fused path"
        return fast_slow.unsupported_reason(self.bias)

    def as_subcell(self, constants: DropoutMasks) -> SubCell:
        keep = (self.zoneout or None) if constants.keep is None else constants.keep
        options = rum.Options(self.activation, self.update_gate, self.eta)
        weights = self._kernel(self.weight_ih), self.bias, self._kernel(self.weight_hh), self._norms()
        return SubCell(partial(rum.subcell_problem, keep=keep, options=options), *weights, self._cosines)

    def phases(self) -> list[Tensor]:
        return [self.weight_hh[: self.hidden_size], self.weight_ih[: self.hidden_size]]

    def _norms(self) -> Tensor | None:
        """Return gains and biases (3, 2, N) of the layer normalizations of target, gate and candidate."""
        layers = [self.norm_target, self.norm_gate if self.update_gate else self.norm_target, self.norm_candidate]
        pairs = [torch.stack((layer.weight, layer.bias)) for layer in layers if isinstance(layer, nn.LayerNorm)]
        return torch.stack(pairs) if pairs else None

    @contextmanager
    def record_cosines(self) -> Iterator[list[Tensor]]:
        """Within this context every step appends cos θ_t (B,), the angle from ε̃_t to τ_t (1 where either is zero)."""
        self._cosines = []
        try:
            yield self._cosines
        finally:
            self._cosines = None
