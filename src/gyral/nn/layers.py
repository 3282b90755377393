"""Layers with the interface of `torch.nn.GRU`, one per cell: `RUM(input_size, hidden_size)`."""

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten

from gyral.cells.base import RecurrentCell, State
from gyral.cells.dnc import DNCCell
from gyral.cells.dynamic_conv import DynamicConvCell
from gyral.cells.eurnn import EURNNCell
from gyral.cells.fast_weights import FastWeightsCell
from gyral.cells.fs_rnn import FSRNNCell
from gyral.cells.full_urnn import FullURNNCell
from gyral.cells.goru import GORUCell
from gyral.cells.gru import GRUCell
from gyral.cells.lantm import LANTMCell
from gyral.cells.light_conv import LightConvCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.mage import MAGECell
from gyral.cells.mage_gru import MAGEGRUCell
from gyral.cells.ntm import NTMCell
from gyral.cells.on_lstm import ONLSTMCell
from gyral.cells.rnn import RNNCell
from gyral.cells.rum import RUMCell
from gyral.cells.urnn import URNNCell
from gyral.cells.weinet import WeiNetCell
from gyral.core.edges import Edges
from gyral.nn.arguments import check_state
from gyral.nn.layer_options import ConstructorSignature, layer_docstring, layer_signature, option_names
from gyral.nn.recurrent import RecurrentBase


class Layer(RecurrentBase):
    """Base class of the layers. A subclass sets `cell_class`.

    A layer is called like `torch.nn.GRU`: on inputs (T, B, X), (B, T, X) with `batch_first`, (T, X) or a
    `PackedSequence`. Its state is one tensor (num_layers · directions, B, N) if the state of the cell is one hidden
    vector, else a NamedTuple of such tensors.

    Args:
        input_size: X, the width of the inputs.
        hidden_size: N, the hidden size of each cell.
        num_layers: Number of layers; each reads the outputs of the layer below.
        batch_first: Whether inputs and outputs are (B, T, …) instead of (T, B, …).
        dropout: Probability, in [0, 1), of dropout on the outputs of each layer except the last, in training.
        bidirectional: Whether each layer has a second cell that reads the sequence backwards; their outputs are
            concatenated.
        device: Device of the parameters; the default of torch if None.
        dtype: Floating-point dtype of the parameters; the default of torch if None.
        backend: "auto", "reference", "fused", "compile" or "graph"; see `gyral.nn.recurrent.RecurrentBase`.
        locked_dropout: Whether `dropout` drops the same units at all steps of a sequence (Gal and Ghahramani 2016).
        weight_drop: Probability, in [0, 1), that an entry of the recurrent weights is zero in training, the same
            entries at all steps of a sequence (Merity et al. 2018).
        **options: All options of the cell. An option with a name from above has the prefix `cell_`.

    Attributes:
        cell_class: The class of the cells.

    Raises:
        OptionError: An option is out of bounds or has another type.
        TypeError: The cell does not have an option.
    """

    cell_class: type[RecurrentCell]
    _cell_options: dict[str, str]  # names in the cell by names in the layer
    _signature: inspect.Signature  # of the constructor that passes all options on

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if hasattr(cls, "cell_class"):
            constructor = partial(Layer.__init__, None)  # without `self`
            cls._cell_options = option_names(constructor, cls.cell_class)
            cls._signature = layer_signature(constructor, cls.cell_class)
            cls.__doc__ = layer_docstring(vars(cls).get("__doc__"), Layer, cls._cell_options, cls.cell_class)
        is_inherited = "__init__" not in vars(cls) and hasattr(cls, "cell_class")
        signature = cls._signature if is_inherited else inspect.signature(partial(cls.__init__, None))
        cls.__signature__ = ConstructorSignature(signature)  # type: ignore[attr-defined]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        backend: str = "auto",
        locked_dropout: bool = False,
        weight_drop: float = 0.0,
        **options: Any,
    ) -> None:
        arguments = {
            "batch_first": batch_first,
            "dropout": dropout,
            "bidirectional": bidirectional,
            "backend": backend,
            "locked_dropout": locked_dropout,
            "weight_drop": weight_drop,
        }
        of_cell = {self._cell_options.get(name, name): value for name, value in options.items()}
        factory = partial(self.cell_class, hidden_size=hidden_size, **of_cell)
        super().__init__(factory, input_size, num_layers, device=device, dtype=dtype, **arguments)
        self.hidden_size = hidden_size
        defaults = self._signature.parameters
        given = {"num_layers": num_layers, **arguments, **options}
        self._shown = [  # strings, since options may be factories that cannot be pickled
            f"{name}={_show(value)}"
            for name, value in given.items()
            if name not in defaults or value != defaults[name].default
        ]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([str(self.input_size), str(self.hidden_size), *self._shown])})"

    def forward(
        self,
        inputs: Any,
        state: Any = None,
        lengths: Tensor | Sequence[int] | None = None,
        starts: Tensor | None = None,
        write: Tensor | None = None,
        edges: Edges | Tensor | None = None,
    ) -> tuple[Any, Any]:
        """Run over whole sequences.

        Args:
            inputs: (T, B, X); (B, T, X) with `batch_first`; (T, X), one sequence; or a `PackedSequence`.
            state: The state before the first step, in the form of the state that is returned or as a plain tuple of its
                tensors; the initial state if None. It has no batch dimension if the inputs have none.
            lengths: (B,) integers in [1, T]. Steps beyond the length of a sequence do not change its state, and their
                outputs are zero; the backward direction starts at the end of the sequence.
            starts: (T, B) bool, (B, T) with `batch_first`, or (T,) without batch dimension: True where a new segment of
                a row begins, such as an episode or a document; see `gyral.nn.recurrent.Recurrent.forward`.
            write: A mask like `starts`: True where a cell may write to its external memory; None: everywhere. Cells
                without an external memory ignore it.
            edges: Typed edges between steps, (T, B, E, D) in the leaves, (B, T, E, D) with `batch_first`, or (T, E, D)
                without batch dimension; or the tensor `earlier` of them. Cells that do not read along edges ignore
                them.

        Returns:
            The outputs (…, directions · output size of the cell) of the last layer, in the form of the inputs, and the
            state after the last step of each sequence.

        Raises:
            OptionError: The backend does not support the cell on this device.
            TypeError: Inputs or state have another dtype than the parameters, outside autocast.
            ValueError: Inputs, state, lengths, starts, write or edges have another shape, lengths are not in [1, T], or
                an edge comes from before the first step.
        """
        if isinstance(inputs, PackedSequence):
            return self._run_packed(inputs, state, lengths, starts, write, edges)
        if isinstance(inputs, Tensor) and inputs.dim() == 2:
            return self._run_unbatched(inputs, state, lengths, starts, write, edges)
        return self.run(inputs, state, lengths, starts, write, edges)

    def _run_unbatched(
        self, inputs: Tensor, state: Any, lengths: Any, starts: Any, write: Any, edges: Any
    ) -> tuple[Tensor, Any]:
        if lengths is not None:
            raise ValueError("lengths need inputs with a batch dimension")
        if inputs.shape[1] != self.input_size:
            width = self.input_size
            raise ValueError(f"inputs have shape {tuple(inputs.shape)}, must have (T, B, {width}) or (T, {width})")
        batch = 0 if self.batch_first else 1
        if state is not None:
            checked = check_state(state, self._cell(0).init_state(1), len(self.cells))
            state = tree_map(lambda leaf: leaf.unsqueeze(1), checked)
        starts, write = (
            mask.unsqueeze(batch) if isinstance(mask, Tensor) and mask.dim() == 1 else mask for mask in (starts, write)
        )
        edges = tree_map_only(Tensor, lambda leaf: leaf.unsqueeze(batch) if leaf.dim() == 3 else leaf, edges)
        outputs, final = self.run(inputs.unsqueeze(batch), state, None, starts, write, edges)
        return outputs.squeeze(batch), tree_map(lambda leaf: leaf.squeeze(1), final)

    def _run_packed(
        self, packed: PackedSequence, state: Any, lengths: Any, starts: Any, write: Any, edges: Any
    ) -> tuple[PackedSequence, Any]:
        if lengths is not None:
            raise ValueError("a PackedSequence has its own lengths; lengths must be None")
        data, batch_sizes, order, inverse = packed
        # as it is packed, longest first: states and masks follow, outputs are packed in the same way
        sequences, lengths = pad_packed_sequence(PackedSequence(data, batch_sizes), self.batch_first)
        if state is not None and order is not None:
            checked = check_state(state, self._cell(0).init_state(1), len(self.cells), len(lengths))
            state = tree_map(lambda leaf: leaf.index_select(1, order), checked)
        if order is not None:
            batch = 0 if self.batch_first else 1
            starts, write, edges = tree_map_only(
                Tensor, lambda leaf: leaf.to(order.device).index_select(batch, order), (starts, write, edges)
            )
        outputs, final = self.run(sequences, state, lengths, starts, write, edges)
        if inverse is not None:
            final = tree_map(lambda leaf: leaf.index_select(1, inverse), final)
        repacked = pack_padded_sequence(outputs, lengths, self.batch_first)
        return PackedSequence(repacked.data, batch_sizes, order, inverse), final

    def split_state(self, state: Any, batch_size: int) -> tuple[State, ...]:
        checked = check_state(state, self._cell(0).init_state(1), len(self.cells), batch_size)
        leaves, structure = tree_flatten(checked)
        return tuple(tree_unflatten(own, structure) for own in zip(*(leaf.unbind(0) for leaf in leaves), strict=True))

    def join_states(self, states: tuple[State, ...]) -> Any:
        joined = tree_map(_stack, *states)
        leaves = tree_leaves(joined)
        return leaves[0] if len(leaves) == 1 else joined

    def flatten_parameters(self) -> None:
        """Do nothing; for code that calls it on `torch.nn.GRU`."""


def _stack(*leaves: Tensor) -> Tensor:
    return torch.stack(leaves) if len(leaves) > 1 else leaves[0].unsqueeze(0)  # a view: memories may be large


def _show(value: Any) -> str:
    """Return the representation of an option's value: of a class its name, of a factory its call."""
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, partial):
        parts = [_show(value.func), *map(_show, value.args), *(f"{k}={_show(v)}" for k, v in value.keywords.items())]
        return f"partial({', '.join(parts)})"
    return repr(value)


class TorchWeights(nn.Module):
    """Lets a layer whose cell is a `gyral.cells.torch_layer.TorchLayerCell` load the state dict of torch's layer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.register_load_state_dict_pre_hook(_rename_torch_weights)


def _rename_torch_weights(module: nn.Module, saved: dict[str, Any], prefix: str, *_: Any) -> None:
    """Rename the entries of torch's layer, such as `weight_hh_l1_reverse`, to those of the cells."""
    assert isinstance(module, Layer)
    for index, cell in enumerate(module.cells):
        layer, backward = divmod(index, module.directions)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            key = f"{prefix}{name}_l{layer}{'_reverse' * backward}"
            if key in saved:
                own = f"{name}_l0"
                if parametrize.is_parametrized(cell.layer, own):
                    own = f"parametrizations.{own}.original"
                saved[f"{prefix}cells.{index}.layer.{own}"] = saved.pop(key)


class RUM(Layer):
    """Rotational unit of memory; see `gyral.cells.rum.RUMCell`."""

    cell_class = RUMCell


class GRU(TorchWeights, Layer):
    """Gated recurrent unit; see `gyral.cells.gru.GRUCell`."""

    cell_class = GRUCell


class LSTM(TorchWeights, Layer):
    """Long short-term memory; see `gyral.cells.lstm.LSTMCell`."""

    cell_class = LSTMCell


class RNN(TorchWeights, Layer):
    """Elman network; see `gyral.cells.rnn.RNNCell`."""

    cell_class = RNNCell


class GORU(Layer):
    """Gated orthogonal recurrent unit; see `gyral.cells.goru.GORUCell`."""

    cell_class = GORUCell


class EURNN(Layer):
    """Efficient unitary recurrent network; see `gyral.cells.eurnn.EURNNCell`."""

    cell_class = EURNNCell


class URNN(Layer):
    """Unitary evolution recurrent network; see `gyral.cells.urnn.URNNCell`."""

    cell_class = URNNCell


class FullURNN(Layer):
    """Full-capacity unitary recurrent network; see `gyral.cells.full_urnn.FullURNNCell`."""

    cell_class = FullURNNCell


class FastWeights(Layer):
    """Recurrent network with fast weights; see `gyral.cells.fast_weights.FastWeightsCell`."""

    cell_class = FastWeightsCell


class WeiNet(Layer):
    """Recurrent network whose recurrent weights are a memory; see `gyral.cells.weinet.WeiNetCell`."""

    cell_class = WeiNetCell


class ONLSTM(Layer):
    """Ordered-neurons LSTM; see `gyral.cells.on_lstm.ONLSTMCell`."""

    cell_class = ONLSTMCell


class FSRNN(Layer):
    """Fast-slow recurrent network; see `gyral.cells.fs_rnn.FSRNNCell`."""

    cell_class = FSRNNCell


class LANTM(Layer):
    """Lie-access neural Turing machine; see `gyral.cells.lantm.LANTMCell`."""

    cell_class = LANTMCell


class NTM(Layer):
    """Neural Turing machine; see `gyral.cells.ntm.NTMCell`."""

    cell_class = NTMCell


class DNC(Layer):
    """Differentiable neural computer; see `gyral.cells.dnc.DNCCell`."""

    cell_class = DNCCell


class MAGEGRU(Layer):
    """GRU that reads earlier states along typed edges; see `gyral.cells.mage_gru.MAGEGRUCell`."""

    cell_class = MAGEGRUCell


class MAGE(Layer):
    """Any cell, with its hidden vector gathered along typed edges; see `gyral.cells.mage.MAGECell`."""

    cell_class = MAGECell


class LightConv(Layer):
    """Light convolution; see `gyral.cells.light_conv.LightConvCell`."""

    cell_class = LightConvCell


class DynamicConv(Layer):
    """Dynamic convolution; see `gyral.cells.dynamic_conv.DynamicConvCell`."""

    cell_class = DynamicConvCell
