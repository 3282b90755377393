"""Rotational unit of memory (RUM)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import AssociativeState, DropoutMasks, HiddenState, RegularizedCell, kernel_zoneout
from gyral.cells.initialization import orthogonal_
from gyral.cells.subcell import SubCellMixin
from gyral.core.errors import UserError
from gyral.core.options import FiniteFloat, OneOf, PositiveFloat, Range
from gyral.ops import rotation, rum
from gyral.ops.compiler import is_exporting_to_onnx
from gyral.ops.rum import naive
from gyral.ops.rum.naive import ACTIVATIONS

if TYPE_CHECKING:
    from gyral.ops.fast_slow import SubCell

INITIALIZATIONS = ("one_block", "two_block")


class Projected(NamedTuple):
    """The values that depend only on the inputs; leaves (…, B, N), except for one mask (…, B, 1)."""

    target: Tensor
    gate: Tensor | None
    embedded: naive.Embedded


class RUMCell(RegularizedCell, SubCellMixin):
    """Rotational unit of memory.

    RUM (Dangovski et al., "Rotational Unit of Memory", TACL 2019, Algorithm 1).

        τ_t  = W_hh^τ h_{t−1} + W_xh^τ x_t + b^τ            memory target
        u_t  = σ(W_hh^u h_{t−1} + W_xh^u x_t + b^u)         update gate
        ε̃_t  = W̃_xh x_t + b̃                                embedded input
        R_t  = (R_{t−1})^λ Rotation(ε̃_t, τ_t)               associative memory, R_0 = I
        h̃_t  = f(ε̃_t + R_t h_{t−1})                         candidate
        h'_t = u_t ⊙ h_{t−1} + (1 − u_t) ⊙ h̃_t
        h_t  = η h'_t / max(‖h'_t‖, 10⁻⁶)                   time normalization; h_t = h'_t without η

    f is `activation`. The state is h (B, N) for λ = 0, and (h, R) with R (B, N, N) otherwise. A step costs O(N²) per
    sample for λ = 0 and λ = 1, which updates R in the rank-two form of `gyral.ops.rotation`. It costs O(N³) for any
    other λ, for which R must not have the eigenvalue −1 (see `gyral.ops.rotation.power`); on a CPU a kernel computes
    the power, `gyral.ops.rotation_power`.

    Parameters, in the layout of `torch.nn.GRUCell`: `weight_ih` (3N, X), rows [target; gate; embedding]; `weight_hh`
    (2N, N), rows [target; gate]; `bias` (3N,), rows as in `weight_ih`. Without the update gate its rows are absent.
    `initialization` determines their values. With `layer_norm` also `norm_target`, `norm_gate` and `norm_candidate`,
    gain 1 and bias 0.

    State:
        One tensor (B, N), the hidden vector h, for λ = 0; for others a NamedTuple (hidden, memory): h (B, N) and R (B,
        N, N).

    Args:
        hidden_size: N ≥ 2, since a rotation needs a plane.
        lambd: λ, any finite number: the power of the associative memory that a step keeps.
        eta: η > 0, the norm of the hidden vector, or None for no time normalization.
        activation: The function f: "relu", "tanh", "sigmoid" or "softsign".
        update_gate: Whether there is an update gate; without it h' = h̃.
        trainable_target: Whether to train W_hh^τ and W_xh^τ. If False (RUM′) their gradient is exactly zero; the
            optimizer must have no weight decay for `weight_ih` and `weight_hh`, which it would change.
        trainable_embedding: Whether to train W̃_xh, likewise.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016, with gain and bias) to τ, to u before its
            sigmoid, and to ε̃ + R h before f.
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        zoneout, recurrent_dropout: See `gyral.cells.base.RecurrentCell`; the dropout acts on h in τ and u.
        initialization: Of the kernels [W_xh; W_hh] (X + N, N) of τ and u. "two_block": two orthogonal blocks of N/2
            columns side by side, and W̃ orthogonal, as in the authors' TensorFlow code, which they used for the
            experiments of the paper. "one_block": orthogonal, and W̃ Xavier-uniform, as in their PyTorch code. In both
            b^τ = b^u = 1 and b̃ = 0.

    Example:
        >>> layer = RUM(16, 64, num_layers=2, lambd=1.0)
    """

    kernel_rows = ("τ", "u", "ε̃")
    may_be_fast = False

    hidden_size: Annotated[int, Range(2)] = field(kw_only=False)
    lambd: FiniteFloat = 0.0
    eta: PositiveFloat | None = None
    activation: Annotated[str, OneOf(ACTIVATIONS)] = "relu"
    update_gate: bool = True
    trainable_target: bool = True
    trainable_embedding: bool = True
    layer_norm: bool = False
    layer_norm_eps: PositiveFloat = 1e-5
    initialization: Annotated[str, OneOf(INITIALIZATIONS)] = "two_block"

    def __post_init__(self) -> None:
        size, recurrent = self.hidden_size, 2 if self.update_gate else 1
        self.weight_ih = nn.Parameter(torch.empty((recurrent + 1) * size, self.input_size))
        self.weight_hh = nn.Parameter(torch.empty(recurrent * size, size))
        self.bias = nn.Parameter(torch.empty((recurrent + 1) * size))
        self.norm_target = self._normalization(self.layer_norm)
        self.norm_gate = self._normalization(self.layer_norm and self.update_gate)
        self.norm_candidate = self._normalization(self.layer_norm)
        if not (self.trainable_target and self.trainable_embedding):
            self.constant_parameters = ("weight_ih",) if self.trainable_target else ("weight_ih", "weight_hh")
        self._cosines: list[Tensor] | None = None
        self.reset_parameters()

    def _normalization(self, exists: bool) -> nn.Module:
        return nn.LayerNorm(self.hidden_size, self.layer_norm_eps) if exists else nn.Identity()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        size = self.hidden_size
        widths = [size] if self.initialization == "one_block" else [size // 2, size - size // 2]
        for recurrent, inputs in zip(self.weight_hh.split(size), self.weight_ih.split(size), strict=False):
            kernel = torch.empty(size, self.input_size + size, dtype=inputs.dtype, device=inputs.device)
            for block in kernel.split(widths):
                orthogonal_(block.T)
            inputs.copy_(kernel[:, : self.input_size])
            recurrent.copy_(kernel[:, self.input_size :])
        embedding = self.weight_ih[-size:]
        if self.initialization == "one_block":
            nn.init.xavier_uniform_(embedding)
        else:
            orthogonal_(embedding)
        self.bias.fill_(1.0)
        self.bias[-size:] = 0.0
        for norm in (self.norm_target, self.norm_gate, self.norm_candidate):
            if isinstance(norm, nn.LayerNorm):
                norm.reset_parameters()

    def init_state(self, batch_size: int) -> HiddenState | AssociativeState:
        hidden = self.zeros(batch_size, self.hidden_size)
        if self.lambd == 0:
            return HiddenState(hidden)
        identity = torch.eye(self.hidden_size, dtype=self.state_dtype, device=hidden.device)
        return AssociativeState(hidden, identity.expand(batch_size, -1, -1).clone())

    def project(self, inputs: Tensor) -> Projected:
        parts = F.linear(inputs, self._kernel(self.weight_ih), self.bias).split(self.hidden_size, dim=-1)
        return Projected(parts[0], parts[1] if self.update_gate else None, naive.embed(parts[-1]))

    def _kernel(self, weight: Tensor) -> Tensor:
        """Return weight_ih or weight_hh; rows that are not trained are detached from the graph."""
        fixed_target, fixed_embedding = not self.trainable_target, not self.trainable_embedding
        if not fixed_target and (not fixed_embedding or weight is self.weight_hh):
            return weight
        rows = list(weight.split(self.hidden_size))
        if fixed_target:
            rows[0] = rows[0].detach()
        if fixed_embedding and weight is self.weight_ih:
            rows[-1] = rows[-1].detach()
        return torch.cat(rows)

    def step(
        self, projected: Projected, state: HiddenState | AssociativeState, constants: DropoutMasks
    ) -> tuple[Tensor, HiddenState | AssociativeState]:
        old = state.hidden
        target, gate = self._project_hidden(self.apply_recurrent_dropout(old, constants))
        target = self.norm_target(projected.target + target)
        memory = state.memory if isinstance(state, AssociativeState) else None
        if memory is not None and self.lambd != 1:
            if is_exporting_to_onnx():
                raise UserError(f"RUM with λ = {self.lambd:g} cannot be exported to ONNX; λ = 0 and λ = 1 can")
            memory = rotation.power(memory, self.lambd)
        candidate, memory, cosine = naive.associate(projected.embedded, target, old, memory)
        if self._cosines is not None:
            self._cosines.append(cosine.detach().squeeze(-1))
        if gate is not None and projected.gate is not None:
            gate = self.norm_gate(projected.gate + gate)
        hidden = naive.update(self.norm_candidate(candidate), gate, old, self.activation, self.eta)
        hidden = self.apply_zoneout(hidden, old, constants)
        return hidden, HiddenState(hidden) if memory is None else AssociativeState(hidden, memory)

    def forget_gate(self, projected: Projected, state: HiddenState | AssociativeState) -> Tensor | None:
        """Return the update gate u (B, N), which multiplies the old hidden vector; None with `update_gate=False`."""
        _, gate = self._project_hidden(state.hidden)
        if gate is None or projected.gate is None:
            return None
        return self.norm_gate(projected.gate + gate).sigmoid()

    def _project_hidden(self, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the recurrent terms (B, N) of the memory target and of the update gate, None without a gate."""
        parts = F.linear(hidden, self._kernel(self.weight_hh)).split(self.hidden_size, dim=-1)
        return parts[0], parts[1] if self.update_gate else None

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        if self.recurrent_dropout > 0:
            return "recurrent_dropout has no fused path"
        if self.lambd not in (0, 1):
            from gyral.ops.rotation_power import rotation_power  # which only powers need

            if (reason := rotation_power.unsupported_reason(self.bias)) is not None:
                return f"λ = {self.lambd:g}: {reason}"
        return rum.unsupported_reason(self.bias)

    def fused(
        self, inputs: Tensor, state: HiddenState | AssociativeState, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, HiddenState | AssociativeState]:
        memory = state.memory if isinstance(state, AssociativeState) else None
        outputs, hidden, memory, cosines = rum.rum(
            inputs,
            self._kernel(self.weight_ih),
            self._kernel(self.weight_hh),
            self.bias,
            state.hidden,
            memory,
            self._norms(),
            keep=self.draw_fused_zoneout(*inputs.shape[:2]),
            lengths=lengths,
            starts=starts,
            exponent=self.lambd,
            **self._kernel_options(),
        )
        if self._cosines is not None:
            self._cosines.extend(rum.recorded_cosines(cosines, lengths))
        return outputs, HiddenState(hidden) if memory is None else AssociativeState(hidden, memory)

    def graph_unsupported_reason(self) -> str | None:
        if self.lambd not in (0, 1):
            return f"λ = {self.lambd:g} needs eigenvectors, whose computation a CUDA graph cannot record"
        return None if self._cosines is None else "record_cosines keeps the cosines of each run"

    def is_fused_recordable(self, starts: bool) -> bool:
        return not (starts and self.lambd != 0)  # the kernels keep as many memories as there are starts

    def subcell_unsupported_reason(self) -> str | None:
        if self.lambd != 0:
            return f"RUM with λ = {self.lambd:g} has no fused path within another cell; λ = 0 has one"
        if self.recurrent_dropout > 0:
            return "recurrent_dropout has no fused path"
        from gyral.ops import fast_slow  # which only fast-slow networks need

        return fast_slow.unsupported_reason(self.bias)

    def as_subcell(self, constants: DropoutMasks) -> "SubCell":
        from gyral.ops.fast_slow import SubCell

        weights = self._kernel(self.weight_ih), self.bias, self._kernel(self.weight_hh), self._norms()
        keep = kernel_zoneout(constants.zoneout, self.zoneout)
        return SubCell("rum", *weights, keep=keep, cosines=self._cosines, **self._kernel_options())

    def phases(self) -> list[Tensor]:
        """Return the parameters, or views of them, that determine the angles of rotations; see `figures.landscape`."""
        size = self.hidden_size
        return [self.weight_hh[:size], self.weight_ih[:size], self.bias[:size], self.weight_ih[-size:]]

    def _kernel_options(self) -> dict[str, Any]:
        return {"activation": self.activation, "eta": self.eta, "epsilon": self.layer_norm_eps}

    def _norms(self) -> Tensor | None:
        """Return gains and biases (3, 2, N) of the layer normalizations of target, gate and candidate, or None."""
        if not isinstance(self.norm_target, nn.LayerNorm):
            return None
        layers = [self.norm_target, self.norm_gate if self.update_gate else self.norm_target, self.norm_candidate]
        pairs = [torch.stack((layer.weight, layer.bias)) for layer in layers if isinstance(layer, nn.LayerNorm)]
        return torch.stack(pairs)

    @contextmanager
    def record_cosines(self) -> Iterator[list[Tensor]]:
        """Within this context every step appends cos θ_t (B,) of the angle from ε̃_t to τ_t; 1 where either is 0.

        Beyond the length of a row, fused paths append NaN, and the reference path what it computes there.
        """
        self._cosines = []
        try:
            yield self._cosines
        finally:
            self._cosines = None
