"""Layers with the interface of `torch.nn.GRU`, one per cell: `RUM(input_size, hidden_size)`."""

# Made by `python -m gyral.nn.stubs`; do not edit.

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gyral.cells.base import RecurrentCell, State
from gyral.core.edges import Edges
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

    cell_class: ClassVar[type[RecurrentCell]]
    hidden_size: int
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
    ) -> None: ...
    def __call__(
        self,
        inputs: Any,
        state: Any = None,
        lengths: Tensor | Sequence[int] | None = None,
        starts: Tensor | None = None,
        write: Tensor | None = None,
        edges: Edges | Tensor | None = None,
    ) -> tuple[Any, Any]: ...
    def forward(
        self,
        inputs: Any,
        state: Any = None,
        lengths: Tensor | Sequence[int] | None = None,
        starts: Tensor | None = None,
        write: Tensor | None = None,
        edges: Edges | Tensor | None = None,
    ) -> tuple[Any, Any]: ...
    def split_state(self, state: Any, batch_size: int) -> tuple[State, ...]: ...
    def join_states(self, states: tuple[State, ...]) -> Any: ...
    def flatten_parameters(self) -> None: ...

class TorchWeights(nn.Module): ...

class RUM(Layer):
    """Rotational unit of memory; see `gyral.cells.rum.RUMCell`.

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
        lambd: λ, any finite number: the power of the associative memory that a step keeps.
        eta: η > 0, the norm of the hidden vector, or None for no time normalization.
        activation: The function f: "relu", "tanh", "sigmoid" or "softsign".
        update_gate: Whether there is an update gate; without it h' = h̃.
        trainable_target: Whether to train W_hh^τ and W_xh^τ. If False (RUM′) their gradient is exactly zero; do not
            combine it with weight decay.
        trainable_embedding: Whether to train W̃_xh, likewise.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016, with gain and bias) to τ, to u before its
            sigmoid, and to ε̃ + R h before f.
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        zoneout: See `gyral.cells.base.RecurrentCell`; the dropout acts on h in τ and u.
        recurrent_dropout: See `gyral.cells.base.RecurrentCell`; the dropout acts on h in τ and u.
        initialization: Of the kernels [W_xh; W_hh] (X + N, N) of τ and u. "two_block": two orthogonal blocks of N/2
            columns side by side, and W̃ orthogonal, as in the authors' TensorFlow code, which they used for the
            experiments of the paper. "one_block": orthogonal, and W̃ Xavier-uniform, as in their PyTorch code. In both
            b^τ = b^u = 1 and b̃ = 0.
    """

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
        lambd: float = 0.0,
        eta: float | None = None,
        activation: str = "relu",
        update_gate: bool = True,
        trainable_target: bool = True,
        trainable_embedding: bool = True,
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-05,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "two_block",
    ) -> None: ...

class GRU(TorchWeights, Layer):
    """Gated recurrent unit; see `gyral.cells.gru.GRUCell`.

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
        bias: Whether the gates have biases.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016), with gain 1 and bias 0 at the start.
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        zoneout: See `gyral.cells.base.RecurrentCell`.
        recurrent_dropout: See `gyral.cells.base.RecurrentCell`.
    """

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
        bias: bool = True,
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-05,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None: ...

class LSTM(TorchWeights, Layer):
    """Long short-term memory; see `gyral.cells.lstm.LSTMCell`.

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
        bias: Whether the gates have biases.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016), with gain 1 and bias 0 at the start.
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        zoneout: See `gyral.cells.base.RecurrentCell`; zoneout acts on h.
        zoneout_cell: Zoneout probability, in [0, 1), of c in the state; h_t uses the new c (Krueger et al. 2017,
            equation 4).
        recurrent_dropout: See `gyral.cells.base.RecurrentCell`; zoneout acts on h.
        initialization: "torch": every weight and bias is uniform in ±1/√N. In all others the biases are 0, except 1 in
            the forget gate, which is the bias of its normalization if there is one. Without biases and normalization
            there is no forget bias, and a warning says so. The kernels W_ih and W_hh are:
    """

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
        bias: bool = True,
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-05,
        zoneout: float = 0.0,
        zoneout_cell: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "torch",
    ) -> None: ...

class RNN(TorchWeights, Layer):
    """Elman network; see `gyral.cells.rnn.RNNCell`.

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
        nonlinearity: The function f, "tanh" or "relu".
        bias: Whether there are biases.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016), with gain 1 and bias 0 at the start.
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        zoneout: See `gyral.cells.base.RecurrentCell`.
        recurrent_dropout: See `gyral.cells.base.RecurrentCell`.
    """

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
        nonlinearity: str = "tanh",
        bias: bool = True,
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-05,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None: ...

class GORU(Layer):
    """Gated orthogonal recurrent unit; see `gyral.cells.goru.GORUCell`.

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
        capacity: L, from 1 to N, layers of U that pair neighbours, or "fft": ⌈log₂ N⌉ layers that pair i with i + 2^k.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016, with gain and bias) to r and g before their
            sigmoids.
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        zoneout: See `gyral.cells.base.RecurrentCell`.
        recurrent_dropout: See `gyral.cells.base.RecurrentCell`.
        initialization: "default": b_g = 0. "authors": b_g is uniform in ±√(3/N), the default of TensorFlow, as in the
            code of Dangovski et al. (TACL 2019; rdangovs/rotational-unit-of-memory on GitHub). The code of the paper
            on GORU (jingli9111/GORU-tensorflow) differs from it in b_c = 0.01.
    """

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
        capacity: int | str = 2,
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-05,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "default",
    ) -> None: ...

class EURNN(Layer):
    """Efficient unitary recurrent network; see `gyral.cells.eurnn.EURNNCell`.

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
        capacity: L, from 1 to N, layers that pair neighbours (tunable style; N is full capacity), or "fft": ⌈log₂ N⌉
            layers that pair i with i + 2^k (FFT style).
        is_complex: Whether units, rotations and D are complex. If False they are real, without φ and D.
        zoneout: See `gyral.cells.base.RecurrentCell`.
        recurrent_dropout: See `gyral.cells.base.RecurrentCell`.
        initialization: "default": V is Xavier-uniform. "authors": V is uniform in ±0.01, as in the authors' code
            (jingli9111/EUNN-tensorflow on GitHub) and in that of Dangovski et al. (TACL 2019). In both b = 0.
    """

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
        capacity: int | str = 2,
        is_complex: bool = True,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "default",
    ) -> None: ...

class URNN(Layer):
    """Unitary evolution recurrent network; see `gyral.cells.urnn.URNNCell`.

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
        zoneout: See `gyral.cells.base.RecurrentCell`.
        recurrent_dropout: See `gyral.cells.base.RecurrentCell`.
        initialization: "default": v is uniform in ±1, b = 0. "authors": v is uniform in ±√(3/(N + 1)), on whose scale
            the size of an update of R depends, and b in ±0.01, as in the authors' code (amarshah/complex_RNN on
            GitHub).
        learned_initial_state: Whether z_0 is a parameter, uniform in ±√(3/(2N)) at the start, as in the authors' code,
            instead of zero.
    """

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
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "default",
        learned_initial_state: bool = False,
    ) -> None: ...

class FullURNN(Layer):
    """Full-capacity unitary recurrent network; see `gyral.cells.full_urnn.FullURNNCell`.

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
        zoneout: See `gyral.cells.base.RecurrentCell`.
        recurrent_dropout: See `gyral.cells.base.RecurrentCell`.
        initialization: "default": b = 0. "authors": b is uniform in ±0.01, as in the authors' code (stwisdom/urnn on
            GitHub).
        learned_initial_state: Whether z_0 is a parameter, uniform in ±√(3/(2N)) at the start, as in the authors' code,
            instead of zero.
    """

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
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "default",
        learned_initial_state: bool = False,
    ) -> None: ...

class FastWeights(Layer):
    """Recurrent network with fast weights; see `gyral.cells.fast_weights.FastWeightsCell`.

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
        decay: λ, in [0, 1].
        rate: η ≥ 0.
        inner_steps: S ≥ 1.
        activation: The function f, "relu" or "tanh".
        recurrent_scale: Scale of the identity that W is initialized to; 0.05 in the paper.
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        zoneout: See `gyral.cells.base.RecurrentCell`; the dropout acts on h in W h.
        recurrent_dropout: See `gyral.cells.base.RecurrentCell`; the dropout acts on h in W h.
    """

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
        decay: float = 0.95,
        rate: float = 0.5,
        inner_steps: int = 1,
        activation: str = "relu",
        recurrent_scale: float = 0.05,
        layer_norm_eps: float = 1e-05,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None: ...

class WeiNet(Layer):
    """Recurrent network whose recurrent weights are a memory; see `gyral.cells.weinet.WeiNetCell`.

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
        layer_norm: Whether to apply LN (Ba et al. 2016, with gain and bias).
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        zoneout: See `gyral.cells.base.RecurrentCell`; the dropout acts on h in the gates.
        recurrent_dropout: See `gyral.cells.base.RecurrentCell`; the dropout acts on h in the gates.
    """

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
        layer_norm: bool = True,
        layer_norm_eps: float = 1e-05,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None: ...

class ONLSTM(Layer):
    """Ordered-neurons LSTM; see `gyral.cells.on_lstm.ONLSTMCell`.

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
        chunk_size: C, from 1 to N − 1: with a single chunk the master gates are constant.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016, with gain and bias) to f, i, o and ĉ before
            their nonlinearities.
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        zoneout: See `gyral.cells.base.RecurrentCell`.
        recurrent_dropout: See `gyral.cells.base.RecurrentCell`.
        initialization: "default": every weight and bias is uniform in ±1/√N. "authors": `weight_ih` is uniform in
            ±1/√X, `weight_hh` in ±1/√N, and `bias` is the sum of two biases, one uniform in each of the intervals, as
            the two linear layers of the authors' code (yikangshen/Ordered-Neurons on GitHub) have them.
    """

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
        chunk_size: int = 10,
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-05,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "default",
    ) -> None: ...

class FSRNN(Layer):
    """Fast-slow recurrent network; see `gyral.cells.fs_rnn.FSRNNCell`.

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
        fast: Return a cell for its input size and `hidden_size`, such as `partial(LSTMCell, layer_norm=True)`.
        slow: Return a cell for its input size and `hidden_size`, such as `partial(LSTMCell, layer_norm=True)`.
        slow_size: Hidden size of the slow cell; `hidden_size` if None.
        num_fast: k ≥ 2.
        cell_dropout: Probability, in [0, 1), of each of the dropouts, in training.
    """

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
        fast: Callable[..., RecurrentCell],
        slow: Callable[..., RecurrentCell],
        slow_size: int | None = None,
        num_fast: int = 2,
        cell_dropout: float = 0.0,
    ) -> None: ...

class LANTM(Layer):
    """Lie-access neural Turing machine; see `gyral.cells.lantm.LANTMCell`.

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
        controller: Returns the controller for its input size and `hidden_size`; None: `LSTMCell`.
        width: W ≥ 1, the width of the vectors in the memory.
        weighting: "inv_norm" or "softmax".
        group: "translation", "rotation", "scaling_rotation" or "hyperbolic"; see `gyral.ops.lie_access.groups`.
        normalize_steps: Whether ṽ is divided by its norm. The initial steps are not.
        write_gate_bias: Initial bias of g and γ of the write head. With −10 the head writes on a straight line.
        capacity: Largest number of vectors in the memory. None: the most that the task writes, or 100 for endless
            streams.
        forget: How many of the oldest vectors a full memory drops before a write; 0: such a write is an error. None:
            60 % of the capacity, rounded.
    """

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
        controller: Callable[..., RecurrentCell] | None = None,
        width: int = 20,
        weighting: str = "inv_norm",
        group: str = "translation",
        normalize_steps: bool = True,
        write_gate_bias: float = -10.0,
        capacity: int | None = None,
        forget: int | None = None,
    ) -> None: ...

class NTM(Layer):
    """Neural Turing machine; see `gyral.cells.ntm.NTMCell`.

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
        controller: Returns the controller for its input size and `hidden_size`, such as
            `gyral.cells.feedforward.Feedforward`; None: `LSTMCell`.
        slots: C ≥ 1, 128 in the paper.
        width: W ≥ 1, 20 in the paper.
        read_heads: Number of read heads, ≥ 1.
        write_heads: Number of write heads, ≥ 1.
        max_shift: Shifts are from −max_shift to max_shift, ≥ 0.
        initial_memory: M_0: "constant" is 1e-6 everywhere, the best in the comparison of Collier and Beel (2018);
            "random" is uniform in ±1/√(C + W), drawn once for the cell and not trained; "learned" is the same, trained.
    """

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
        controller: Callable[..., RecurrentCell] | None = None,
        slots: int = 128,
        width: int = 20,
        read_heads: int = 1,
        write_heads: int = 1,
        max_shift: int = 1,
        initial_memory: str = "constant",
    ) -> None: ...

class DNC(Layer):
    """Differentiable neural computer; see `gyral.cells.dnc.DNCCell`.

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
        controller: Returns the controller for its input size and `hidden_size`; None: `LSTMCell`.
        slots: C ≥ 1.
        width: W ≥ 1.
        read_heads: R ≥ 1. There is one write head.
    """

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
        controller: Callable[..., RecurrentCell] | None = None,
        slots: int = 16,
        width: int = 16,
        read_heads: int = 4,
    ) -> None: ...

class MAGEGRU(Layer):
    """GRU that reads earlier states along typed edges; see `gyral.cells.mage_gru.MAGEGRUCell`.

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
        edge_types: E ≥ 1, the number of types besides the edge from the previous step.
        edge_size: The units of each type 1 … E; None: all types share the N units.
        carry: c_t. "previous": h_{t−1}, as in the paper's equations. "linked": g_t, as in its text and in that code;
            not with `edge_size=None`.
        capacity: C; edges can reach back over C + 1 steps. None: the longest sequence of the task, or 100.
    """

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
        edge_types: int = 1,
        edge_size: int | None = None,
        carry: str = "previous",
        capacity: int | None = None,
    ) -> None: ...

class MAGE(Layer):
    """Any cell, with its hidden vector gathered along typed edges; see `gyral.cells.mage.MAGECell`.

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
        cell: Returns the cell for its input size and `hidden_size`, such as `partial(RUMCell, lambd=1)`; its state has
            a field `hidden`. None: `GRUCell`.
        edge_types: E ≥ 1, the number of types besides the edge from the previous step.
        edge_size: The units of each type 1 … E; None: hidden vectors are summed over all edges.
        capacity: C; edges can reach back over C + 1 steps. None: the longest sequence of the task, or 100.
    """

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
        cell: Callable[..., RecurrentCell] | None = None,
        edge_types: int = 1,
        edge_size: int | None = None,
        capacity: int | None = None,
    ) -> None: ...

class LightConv(Layer):
    """Light convolution; see `gyral.cells.light_conv.LightConvCell`.

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
        kernel_size: K ≥ 2, the number of steps in the window.
        heads: H, from 1 to N. If H does not divide N, some heads have one channel more than others.
        weight_dropout: Probability, in [0, 1), that a weight is zero in training after the softmax (DropConnect), the
            same weights at all steps of a batch; the others are multiplied by 1 / (1 − p).
    """

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
        kernel_size: int = 31,
        heads: int = 4,
        weight_dropout: float = 0.0,
    ) -> None: ...

class DynamicConv(Layer):
    """Dynamic convolution; see `gyral.cells.dynamic_conv.DynamicConvCell`.

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
        kernel_size: K ≥ 2, the number of steps in the window.
        heads: H, from 1 to N. If H does not divide N, some heads have one channel more than others.
        weight_dropout: Probability, in [0, 1), that a weight of a step is zero in training after the softmax
            (DropConnect); the others are multiplied by 1 / (1 − p).
    """

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
        kernel_size: int = 31,
        heads: int = 4,
        weight_dropout: float = 0.0,
    ) -> None: ...
