"""The contract of a recurrent cell.

A cell is one recurrence: what depends on the inputs alone (`project`, all steps at once), what depends on neither
inputs nor state (`constants`: random masks, matrices made of parameters), what one step does (`step`), and its initial
state. It knows no task, and no time loop: `gyral.nn.recurrent.Recurrent` runs it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from gyral.core.checks import check_boolean, check_integer, check_real
from gyral.ops.dropout import dropout_mask, keep_mask, zoneout
from gyral.ops.fast_slow.sequence import SubCell
from gyral.ops.scan import Shared

State = Any  # a NamedTuple of tensors, batch first in every leaf


class DropoutMasks(NamedTuple):
    """Random masks of a sequence, None where there is none: `keep` (…, B, N) of zoneout, `drop` (B, N) of dropout."""

    keep: Tensor | None
    drop: Shared | None


class RecurrentCell(nn.Module, ABC):
    """Base of all cells. B batch, T time, X input size, N hidden size.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1.
        output_size: width of what a step puts out, N if None.
        zoneout: probability, in [0, 1), that a unit of the hidden vector keeps its old value in training; its
            expectation at test (Krueger et al. 2017).
        recurrent_dropout: probability, in [0, 1), that a unit of the hidden vector is zero where it enters the
            recurrent weights, in training, the same units at all steps of a sequence (Gal and Ghahramani 2016).

    Attributes:
        fused_keeps_states: whether the fused path keeps the state of every step for backward.
        recorded: the states since `record_states` was entered; None outside.

    Raises:
        OptionError: an argument out of bounds or of another type.
    """

    fused_keeps_states = False
    recorded: list[State] | None = None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        output_size: int | None = None,
        *,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.input_size = check_integer("input_size", input_size)
        self.hidden_size = check_integer("hidden_size", hidden_size)
        self.output_size = hidden_size if output_size is None else output_size
        self.zoneout = check_real("zoneout", zoneout, minimum=0, below=1)
        self.recurrent_dropout = check_real("recurrent_dropout", recurrent_dropout, minimum=0, below=1)

    @abstractmethod
    def init_state(self, batch_size: int) -> State:
        """Return the state before the first step, every leaf (B, …), on the cell's device and in its dtype."""

    @abstractmethod
    def project(self, inputs: Tensor) -> Any:
        """Return what depends on the inputs (…, B, X) alone; leaves keep the leading dimensions.

        Called once for the whole sequence (T, B, X).
        """

    def sequence_constants(self, *shape: int) -> Any:
        """Return what a sequence of shape (T, B), or a step of shape (B,), needs besides inputs and state.

        Random masks have the leading dimensions of the shape; what all steps share, such as a matrix made of
        parameters, is wrapped in `Shared`. The base has the masks of its own options, as `DropoutMasks`.
        """
        return self.draw_masks(*shape)

    @abstractmethod
    def step(self, projected: Any, state: State, constants: Any) -> tuple[Tensor, State]:
        """Take one step: what `project` gave for it, the state before, what `constants` gave → (output, state).

        The output has shape (B, output_size).
        """

    def scan_step(self, at_a_time: tuple[Any, Any], state: State) -> tuple[Tensor, State]:
        """Take one step on what `project` and `constants` gave, as `gyral.ops.scan.scan` calls it."""
        projected, constants = at_a_time
        output, new = self.step(projected, state, constants)
        if self.recorded is not None:
            self.recorded.append(new)
        return output, new

    @contextmanager
    def record_states(self) -> Iterator[list[State]]:
        """Within this context `take` appends every new state, and sequences are run step by step, as they are read."""
        self.recorded = []
        try:
            yield self.recorded
        finally:
            self.recorded = None

    def forward(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Take one step on inputs (B, X), from the initial state unless one is given, as `torch.nn.GRUCell` does."""
        batch_size = inputs.shape[0]
        if state is None:
            state = self.init_state(batch_size)
        return self.step(self.project(inputs), state, self.sequence_constants(batch_size))

    def fused_unsupported_reason(self) -> str | None:
        """Return why `fused` cannot run this cell as it is configured, where it lies; None where it can."""
        return f"{type(self).__name__} has no fused path"

    def fused(self, inputs: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        """Run the whole sequence (T, B, X) at once → (outputs (T, B, output_size), final state); see `Recurrent`."""
        raise NotImplementedError(self.fused_unsupported_reason())

    def subcell_unsupported_reason(self) -> str | None:
        """Return why `turn` cannot be had of this cell as it is configured, where it lies; None where it can."""
        return f"{type(self).__name__} has no fused path within another cell"

    def as_subcell(self, constants: Any) -> SubCell:
        """Return what a fused path of a cell made of cells needs of this one; `constants`: what `constants` gave."""
        raise NotImplementedError(self.subcell_unsupported_reason())

    def phases(self) -> list[Tensor]:
        """Return the parameters, or views of them, that decide the angles of the cell's rotations; none by default."""
        return []

    def zeros(self, *shape: int) -> Tensor:
        """Zeros on the cell's device and in its dtype."""
        parameter = next(self.parameters())
        return torch.zeros(shape, dtype=parameter.dtype, device=parameter.device)

    def draw_masks(self, *shape: int) -> DropoutMasks:
        """Draw the masks for the steps of a sequence (T, B), or for one of shape (B,)."""
        drop = None
        if self.training and self.recurrent_dropout > 0:
            drop = Shared(self.spread(dropout_mask(self.zeros(shape[-1], self.hidden_size), self.recurrent_dropout)))
        return DropoutMasks(self.draw_keep(self.zoneout, *shape), drop)

    def draw_keep(self, probability: float, *shape: int) -> Tensor | None:
        """Draw a zoneout mask (*shape, output_size), None at test and where the probability is zero."""
        if not self.training or probability == 0:
            return None
        return self.spread(keep_mask(self.zeros(*shape, self.hidden_size), probability))

    def spread(self, mask: Tensor) -> Tensor:
        """Return a mask of units (…, N) as one of the hidden vector (…, output_size): here these are the same."""
        return mask

    def fused_keep(self, *shape: int) -> Tensor | float | None:
        """Return zoneout as fused paths take it: a mask in training, its probability at test, None without."""
        mask = self.draw_keep(self.zoneout, *shape)
        return (self.zoneout or None) if mask is None else mask

    def apply_recurrent_dropout(self, hidden: Tensor, masks: DropoutMasks) -> Tensor:
        """Return the hidden vector (B, N) as it enters the recurrent weights."""
        return hidden if masks.drop is None else hidden * masks.drop.value

    def apply_zoneout(self, new: Tensor, old: Tensor, masks: DropoutMasks) -> Tensor:
        """Return the hidden vector (B, N) after zoneout."""
        if self.zoneout == 0:
            return new
        return zoneout(new, old, self.zoneout if masks.keep is None else masks.keep)


class HiddenState(NamedTuple):
    """State of a cell that carries its hidden vector (B, N) alone."""

    hidden: Tensor


class LayerNorms(nn.Module):
    """Layer normalization (Ba et al. 2016), with gain and bias, of each of several parts of a vector (…, parts · N)."""

    def __init__(self, parts: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(parts, size))
        self.bias = nn.Parameter(torch.zeros(parts, size))

    def forward(self, vector: Tensor) -> Tensor:
        parts = vector.unflatten(-1, self.weight.shape)
        return torch.addcmul(self.bias, F.layer_norm(parts, self.weight.shape[1:]), self.weight).flatten(-2)


class LayerCell(RecurrentCell):
    """Base of the cells that torch.nn has as a layer: parameters and, without further options, fused path are its own.

    Parameters are named as torch.nn names them: `layer.weight_ih_l0`, `layer.weight_hh_l0`, `layer.bias_ih_l0`,
    `layer.bias_hh_l0`; initialization is torch's, every weight and bias uniform in ±1/√N.
    """

    def __init__(self, layer: nn.RNNBase, *, layer_norm: bool, zoneout: float, recurrent_dropout: float) -> None:
        super().__init__(layer.input_size, layer.hidden_size, zoneout=zoneout, recurrent_dropout=recurrent_dropout)
        self.layer = layer
        self.layer_norm = check_boolean("layer_norm", layer_norm)

    def init_state(self, batch_size: int) -> State:
        return HiddenState(self.zeros(batch_size, self.hidden_size))

    def project(self, inputs: Tensor) -> Tensor:
        weight, bias = self._parameters_of("ih")
        return F.linear(inputs, weight, bias)

    def recur(self, hidden: Tensor, masks: DropoutMasks) -> Tensor:
        """Return the recurrent projection of the hidden vector (B, N) for all gates."""
        weight, bias = self._parameters_of("hh")
        return F.linear(self.apply_recurrent_dropout(hidden, masks), weight, bias)

    def normalization(self, parts: int) -> nn.Module:
        """Return what normalizes the last dimension, `parts` times N: nothing without the option layer_norm."""
        return LayerNorms(parts, self.hidden_size) if self.layer_norm else nn.Identity()

    def _parameters_of(self, part: str) -> tuple[Tensor, Tensor | None]:
        """Return the layer's weight and bias of the input ("ih") or the recurrent ("hh") projection."""
        weight: Any = getattr(self.layer, f"weight_{part}_l0")
        return weight, getattr(self.layer, f"bias_{part}_l0") if self.layer.bias else None

    def fused_unsupported_reason(self) -> str | None:
        options = ("layer_norm", "zoneout", "zoneout_cell", "recurrent_dropout")
        given = [option for option in options if getattr(self, option, False)]
        return f"torch.nn.{type(self.layer).__name__} has no {', '.join(given)}" if given else None

    def fused(self, inputs: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        if parametrize.is_parametrized(self.layer):  # the layer holds on to the weights it was made with
            self.layer._flat_weights = [getattr(self.layer, name) for name in self.layer._flat_weights_names]
        leaves = tuple(leaf.unsqueeze(0).contiguous() for leaf in state)
        initial = leaves if len(leaves) > 1 else leaves[0]
        if lengths is None:
            outputs, final = self.layer(inputs, initial)
        elif inputs.device.type == "cpu":
            outputs, final = self._run_in_stretches(inputs, leaves, lengths)
        else:
            packed = pack_padded_sequence(inputs, lengths.cpu(), enforce_sorted=False)
            outputs, final = self.layer(packed, initial)
            outputs, _ = pad_packed_sequence(outputs, total_length=inputs.shape[0])
        final = final if len(leaves) > 1 else (final,)
        return outputs, type(state)(*(leaf.squeeze(0) for leaf in final))

    def _run_in_stretches(
        self, inputs: Tensor, leaves: tuple[Tensor, ...], lengths: Tensor
    ) -> tuple[Tensor, Tensor | tuple[Tensor, ...]]:
        """Run the layer from one end of a sequence to the next, each time over the sequences that go on.

        On a CPU torch runs a packed sequence step by step, which takes two to nine times as long.

        Args:
            inputs: (T, B, X).
            leaves: (1, B, N) each, of the state.
            lengths: (B,) integers in [1, T].

        Returns:
            What the layer returns of a packed sequence: outputs (T, B, N), zero beyond the lengths, and the state.
        """
        steps, batch_size = inputs.shape[:2]
        ends, counts = lengths.unique(return_counts=True)  # ascending
        # longest first, so that the sequences that go on are the first ones
        order = lengths.argsort(descending=True, stable=True) if len(ends) > 1 else None
        if order is not None:
            inputs = inputs.index_select(1, order)
            leaves = tuple(leaf.index_select(1, order) for leaf in leaves)
        outputs, finals = [], []
        start, going = 0, batch_size
        for end, ending in zip(ends.tolist(), counts.tolist(), strict=True):
            initial = tuple(leaf[:, :going].contiguous() for leaf in leaves)
            stretch, final = self.layer(inputs[start:end, :going], initial if len(initial) > 1 else initial[0])
            outputs.append(F.pad(stretch, (0, 0, 0, batch_size - going)))
            leaves = final if isinstance(final, tuple) else (final,)
            start, going = end, going - ending
            finals.append([leaf[:, going:] for leaf in leaves])
        ended = tuple(torch.cat(parts, dim=1) for parts in zip(*reversed(finals), strict=True))
        whole = F.pad(torch.cat(outputs), (0, 0, 0, 0, 0, steps - start))
        if order is not None:
            back = order.argsort()
            whole, ended = whole.index_select(1, back), tuple(leaf.index_select(1, back) for leaf in ended)
        return whole, ended if len(ended) > 1 else ended[0]
