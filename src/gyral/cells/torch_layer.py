"""Base class of the cells that `torch.nn` has as a layer: LSTM, GRU and RNN."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from gyral.cells.base import DropoutMasks, HiddenState, RecurrentCell, State
from gyral.cells.layer_norm import LayerNorms
from gyral.core.checks import check_boolean


class TorchLayerCell(RecurrentCell):
    """Base class of the cells that `torch.nn` has as a layer. The layer holds the parameters and is the fused path.

    The fused path supports the options that the layer has; `LSTMCell` adds kernels for its other options.

    Parameters have the names of `torch.nn`: `layer.weight_ih_l0`, `layer.weight_hh_l0`, `layer.bias_ih_l0`,
    `layer.bias_hh_l0`. The initialization is that of `torch.nn`: every weight and bias uniform in ±1/√N.

    Args:
        layer: The layer, with one layer and one direction.
        layer_norm: Whether to apply layer normalization.
        zoneout, recurrent_dropout: See `gyral.cells.base.RecurrentCell`.
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

    def project_hidden(self, hidden: Tensor, masks: DropoutMasks) -> Tensor:
        """Return the product of the recurrent weights of all gates with the hidden vector (B, N), plus their bias."""
        weight, bias = self._parameters_of("hh")
        return F.linear(self.apply_recurrent_dropout(hidden, masks), weight, bias)

    def normalization(self, parts: int) -> nn.Module:
        """Return the layer normalization of a vector (…, parts · N), or the identity without `layer_norm`."""
        return LayerNorms(parts, self.hidden_size) if self.layer_norm else nn.Identity()

    def _parameters_of(self, projection: str) -> tuple[Tensor, Tensor | None]:
        """Return the layer's weight and bias of the input projection ("ih") or the recurrent one ("hh")."""
        weight: Any = getattr(self.layer, f"weight_{projection}_l0")
        return weight, getattr(self.layer, f"bias_{projection}_l0") if self.layer.bias else None

    def fused_unsupported_reason(self) -> str | None:
        options = ("layer_norm", "zoneout", "zoneout_cell", "recurrent_dropout")
        unsupported = [option for option in options if getattr(self, option, False)]
        return f"torch.nn.{type(self.layer).__name__} has no {', '.join(unsupported)}" if unsupported else None

    def fused(self, inputs: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        if parametrize.is_parametrized(self.layer):  # the layer caches its weights and misses the parametrized ones
            self.layer._flat_weights = [getattr(self.layer, name) for name in self.layer._flat_weights_names]
        leaves = tuple(leaf.unsqueeze(0).contiguous() for leaf in state)
        initial = leaves if len(leaves) > 1 else leaves[0]
        if lengths is None:
            outputs, final = self.layer(inputs, initial)
        elif inputs.device.type == "cpu":
            outputs, final = self._run_in_segments(inputs, leaves, lengths)
        else:
            packed = pack_padded_sequence(inputs, lengths.cpu(), enforce_sorted=False)
            outputs, final = self.layer(packed, initial)
            outputs, _ = pad_packed_sequence(outputs, total_length=inputs.shape[0])
        final = final if len(leaves) > 1 else (final,)
        return outputs, type(state)(*(leaf.squeeze(0) for leaf in final))

    def _run_in_segments(
        self, inputs: Tensor, leaves: tuple[Tensor, ...], lengths: Tensor
    ) -> tuple[Tensor, Tensor | tuple[Tensor, ...]]:
        """Run the layer from one sequence end to the next, each time on the sequences that have not ended.

        On a CPU torch runs a packed sequence step by step, which takes two to nine times as long.

        Args:
            inputs: (T, B, X).
            leaves: (1, B, N) each, of the state.
            lengths: (B,) integers in [1, T].

        Returns:
            The outputs (T, B, N), zero beyond the lengths, and the final state in the form of the layer.
        """
        steps, batch_size = inputs.shape[:2]
        ends, counts = lengths.unique(return_counts=True)  # ascending
        # longest first, so that the sequences that have not ended are the first rows
        order = lengths.argsort(descending=True, stable=True) if len(ends) > 1 else None
        if order is not None:
            inputs = inputs.index_select(1, order)
            leaves = tuple(leaf.index_select(1, order) for leaf in leaves)
        outputs, finals = [], []
        start, active = 0, batch_size
        for end, ending in zip(ends.tolist(), counts.tolist(), strict=True):
            initial = tuple(leaf[:, :active].contiguous() for leaf in leaves)
            segment, final = self.layer(inputs[start:end, :active], initial if len(initial) > 1 else initial[0])
            outputs.append(F.pad(segment, (0, 0, 0, batch_size - active)))
            leaves = final if isinstance(final, tuple) else (final,)
            start, active = end, active - ending
            finals.append([leaf[:, active:] for leaf in leaves])
        ended = tuple(torch.cat(parts, dim=1) for parts in zip(*reversed(finals), strict=True))
        padded = F.pad(torch.cat(outputs), (0, 0, 0, 0, 0, steps - start))
        if order is not None:
            inverse = order.argsort()
            padded, ended = padded.index_select(1, inverse), tuple(leaf.index_select(1, inverse) for leaf in ended)
        return padded, ended if len(ended) > 1 else ended[0]
