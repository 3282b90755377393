"""Base class of the cells that `torch.nn` has as a layer: LSTM, GRU and RNN."""

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from gyral.cells.base import DropoutMasks, HiddenState, RegularizedCell, State
from gyral.cells.layer_norm import LayerNorms
from gyral.core import compat
from gyral.core.options import PositiveFloat
from gyral.ops import gated
from gyral.ops.autograd import NOTHING
from gyral.ops.declaration import LAYERS_OF_TORCH, register


def _supports_autocast(dtype: torch.dtype) -> bool:
    """Return whether the layers of torch support autocast in a dtype on this CPU.

    Autocast leaves LSTM to oneDNN, which raises an error on a processor without the instructions: AVX-512 for bfloat16,
    and for float16 those that most processors lack.
    """
    if dtype != torch.bfloat16:
        return False
    return not torch.backends.mkldnn.is_available() or compat.has_bfloat16_instructions()


class TorchLayer(nn.Module):
    """The weights of a cell with the names of torch's layer, and the functions of torch that compute the layer.

    A layer such as `gyral.GRU` holds the weights of its cells, under names such as `weight_hh_l1_reverse`. Reading and
    setting `weight_hh_l0` of this module then reads and sets them there.

    Args:
        mode: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU".
        input_size, hidden_size, bias, proj_size: As of torch.

    Attributes:
        names: The names of the weights here, with those in the module that holds them.
        holder: The module that holds the weights, no part of this one; this one if None.
    """

    holder: nn.Module | None = None
    num_layers, batch_first, bidirectional = 1, False, False  # of a cell, for `flatten_parameters`

    def __init__(self, mode: str, input_size: int, hidden_size: int, bias: bool = True, proj_size: int = 0) -> None:
        super().__init__()
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.bias, self.proj_size = bias, proj_size
        rows = hidden_size * {"LSTM": 4, "GRU": 3}.get(mode, 1)
        self.weight_ih_l0 = nn.Parameter(torch.empty(rows, input_size))
        self.weight_hh_l0 = nn.Parameter(torch.empty(rows, proj_size or hidden_size))
        if bias:
            self.bias_ih_l0 = nn.Parameter(torch.empty(rows))
            self.bias_hh_l0 = nn.Parameter(torch.empty(rows))
        if proj_size > 0:
            self.weight_hr_l0 = nn.Parameter(torch.empty(proj_size, hidden_size))
        self.names = {name: name for name in self._parameters}
        self.flatten_parameters()
        self.reset_parameters()

    def read(self) -> list[Tensor]:
        """Return the weights; hooks and parametrizations may have computed them."""
        holder = self.holder or self
        return [getattr(holder, name) for name in self.names.values()]

    def stored(self) -> dict[str, nn.Parameter]:
        """Return the parameters by their names here, also those of which hooks or parametrizations compute weights."""
        holder, found = self.holder or self, {}
        here = {other: name for name, other in self.names.items()}
        for path, parameter in holder.named_parameters():
            weight, *further = path.removeprefix("parametrizations.").split(".")
            if (name := here.get(weight.removesuffix("_orig"))) is not None:
                found[".".join((name, *further))] = parameter
        return found

    @property
    def _flat_weights_names(self) -> list[str]:
        return [*self.names]

    @property
    def _flat_weights(self) -> list[Tensor | None]:
        """The parameters that are weights, and None for each weight that is computed."""
        return [(self.holder or self)._parameters.get(name) for name in self.names.values()]

    def flatten_parameters(self) -> None:
        """Put the weights of cuDNN, on a GPU, in one piece of memory, in which it would else copy them at each call."""
        nn.RNNBase.flatten_parameters(self)  # type: ignore[arg-type]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "TorchLayer":
        super()._apply(fn, recurse)
        self.flatten_parameters()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "names" not in state:  # of a layer that an earlier version has pickled, a subclass of `torch.nn.RNNBase`
            state["names"] = {name: name for name in state.pop("_flat_weights_names")}
            del state["_flat_weights"], state["_flat_weight_refs"]
        super().__setstate__(state)

    def reset_parameters(self) -> None:
        """Draw all weights as torch does, uniform in ±1/√N."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.stored().values():
            nn.init.uniform_(parameter, -bound, bound)

    def __getattr__(self, name: str) -> Any:
        holder = vars(self).get("holder")
        if holder is None or name not in self.names:
            return super().__getattr__(name)
        return getattr(holder, self.names[name])

    def __setattr__(self, name: str, value: Any) -> None:
        if self.holder is None or name not in self.names:
            super().__setattr__(name, value)
        else:
            setattr(self.holder, self.names[name], value)

    @property
    def torch_name(self) -> str:
        """The name of torch's class."""
        return f"torch.nn.{self.mode.split('_')[0]}"

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"

    def forward(
        self, inputs: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Run over inputs (T, B, X) from the leaves (B, N) of a state.

        Returns:
            The outputs (T, B, N), and the leaves of the state after the last step of each sequence.
        """
        weights = self.read()
        function = getattr(torch, self.mode.lower())
        leaves = [leaf.unsqueeze(0).contiguous() for leaf in state]
        options = self.bias, 1, 0.0, self.training, False  # biases, one layer, no dropout, one direction
        if lengths is None:
            initial = leaves if len(leaves) > 1 else leaves[0]
            with _without_warning() if self.proj_size > 0 else NOTHING:
                outputs, *final = function(inputs, initial, weights, *options, False)
            return outputs, tuple(leaf.squeeze(0) for leaf in final)
        packed = pack_padded_sequence(inputs, lengths.cpu(), enforce_sorted=False)
        assert packed.sorted_indices is not None
        assert packed.unsorted_indices is not None
        leaves = [leaf.index_select(1, packed.sorted_indices) for leaf in leaves]
        initial = leaves if len(leaves) > 1 else leaves[0]
        with _without_warning() if self.proj_size > 0 else NOTHING:
            data, *final = function(packed.data, packed.batch_sizes, initial, weights, *options)
        outputs, _ = pad_packed_sequence(packed._replace(data=data), total_length=inputs.shape[0])
        return outputs, tuple(leaf.squeeze(0).index_select(0, packed.unsorted_indices) for leaf in final)


@contextmanager
def _without_warning() -> Iterator[None]:
    """Within this context torch does not warn that oneDNN has no projections, for which torch has another function."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "LSTM with projections")
        yield


class TorchLayerCell(RegularizedCell):
    """Base class of the cells that `torch.nn` has as a layer, which holds the parameters.

    The fused path is the kernels of `gyral.ops.gated`, or the layer where there are no kernels, or where the layer is
    faster, as on a GPU. The layer has fewer options, no resets, and no support by compilers.

    Parameters have the names of `torch.nn`: `layer.weight_ih_l0`, `layer.weight_hh_l0`, `layer.bias_ih_l0`,
    `layer.bias_hh_l0`, and with a projection `layer.weight_hr_l0`; a layer such as `gyral.GRU` holds them as its own
    parameters, `weight_ih_l0` and so on. The initialization is the one of `torch.nn`: every
    weight and bias uniform in ±1/√N.

    Args:
        bias: Whether the gates have biases.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016), with gain 1 and bias 0 at the start.
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.

    Attributes:
        mode, proj_size: Those of the layer, see `TorchLayer`.
        layer_is_faster: Whether, on a CPU, the layer is faster than the kernels for sequences of one length.
        without_kernels: Names of the options that the kernels do not have.
    """

    proj_size: int = field(init=False, default=0)
    layer_is_faster: ClassVar[bool] = False
    without_kernels: ClassVar[tuple[str, ...]] = ("layer_norm",)
    kernel_operator = gated.OPERATOR

    mode: str = field(init=False)
    bias: bool = True
    layer_norm: bool = False
    layer_norm_eps: PositiveFloat = 1e-5

    def __post_init__(self) -> None:
        self.output_size = self.units = self.proj_size or self.hidden_size
        sizes = self.input_size, self.hidden_size
        self.layer = TorchLayer(self.mode, *sizes, bias=self.bias, proj_size=self.proj_size)
        self.create_norms()

    def lend_weights(self, holder: nn.Module, names: dict[str, str]) -> None:
        """Let a layer hold the weights, under names that are given for the names in `layer`.

        They are moved, unless the layer has them already.
        """
        for name, other in names.items():
            if name in self.layer._parameters:
                holder.register_parameter(other, self.layer._parameters.pop(name))
        vars(self)["holder"] = holder
        vars(self.layer).update(holder=holder, names=names)

    @abstractmethod
    def create_norms(self) -> None:
        """Create the layer normalizations, and parameters that the layer does not have."""

    def reset_parameters(self) -> None:
        """Reset all parameters, including the parameters of the layer."""
        self.layer.reset_parameters()
        for module in self.children():
            if isinstance(module, LayerNorms):
                module.reset()

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
        return LayerNorms(parts, self.hidden_size, self.layer_norm_eps) if self.layer_norm else nn.Identity()

    def _parameters_of(self, projection: str) -> tuple[Tensor, Tensor | None]:
        """Return the layer's weight and bias of the input projection ("ih") or the recurrent one ("hh")."""
        layer: Any = self._modules["layer"]  # this, and reading a parameter from the dict, is no call of Python code
        holder, names = self.holder or layer, layer.names
        parameters, found = holder._parameters, []
        for kind in ("weight", "bias") if layer.bias else ("weight",):
            name = names[f"{kind}_{projection}_l0"]
            parameter = parameters.get(name)
            found.append(getattr(holder, name) if parameter is None else parameter)
        return found[0], found[1] if layer.bias else None

    # ---------------------------------------------------------------- the fused path

    def kernel_extra(self) -> Tensor | None:
        """Return the argument `extra` of `gyral.ops.gated.gated`."""
        return None

    @abstractmethod
    def kernel_options(self, constants: Any) -> dict[str, Any]:
        """Return the fields of `gyral.ops.gated.gated` other than weights, states, lengths and starts.

        Args:
            constants: The return value of `sequence_constants` for the whole sequence.
        """

    def summed_kernel_weights(self) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return weight_ih, the sum of both biases or None, and weight_hh."""
        weight_ih, bias_ih = self._parameters_of("ih")
        weight_hh, bias_hh = self._parameters_of("hh")
        return weight_ih, None if bias_ih is None or bias_hh is None else bias_ih + bias_hh, weight_hh

    def common_kernel_options(self, masks: DropoutMasks) -> dict[str, Any]:
        """Return the `kernel_options` that all cells have."""
        return {**self.kernel_masks(masks), "units": self.hidden_size, "chunk": 1}

    def kernel_unsupported_reason(self) -> str | None:
        """Return the reason why the kernels do not support these options, device or dtype, or None if they do."""
        for option in self.without_kernels:
            if getattr(self, option):
                return f"the kernels have no {option}"
        return gated.unsupported_reason(self._parameters_of("hh")[0])

    def _has_kernel(self) -> bool:
        if self.kernel_unsupported_reason() is None:
            return True
        gated.OPERATOR.is_ready(self._parameters_of("hh")[0])  # one line of the log says why not
        return False

    def layer_unsupported_reason(self, *, starts: bool = False) -> str | None:
        """Return the reason why the layer of torch does not support these options, or None if it does."""
        name = self.layer.torch_name
        if torch.compiler.is_compiling():
            return f"torch.compile does not support {name}"
        if self._parameters_of("hh")[0].device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
            if not _supports_autocast(dtype):
                return f"{name} does not support {str(dtype).removeprefix('torch.')} autocast on this CPU"
        options = ("layer_norm", "peepholes", "zoneout", "zoneout_cell", "recurrent_dropout")
        unsupported = [option for option in options if getattr(self, option, False)]
        if starts:
            unsupported.append("starts")
        return f"{name} has no {', '.join(unsupported)}" if unsupported else None

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        layer_reason, kernel_reason = self.layer_unsupported_reason(starts=starts), self.kernel_unsupported_reason()
        return None if layer_reason is None or kernel_reason is None else f"{layer_reason}, and {kernel_reason}"

    def is_fused_recordable(self, starts: bool) -> bool:
        return self.layer_unsupported_reason(starts=starts) is not None  # else the layer of torch runs

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        is_faster = inputs.is_cuda or (self.layer_is_faster and lengths is None)
        if (is_faster or not self._has_kernel()) and self.layer_unsupported_reason(starts=starts is not None) is None:
            if is_in_torch_dispatch_mode():
                register(LAYERS_OF_TORCH)
            outputs, final = self.layer(inputs, state, lengths)
            # under autocast the layer returns its own dtype; kernels and reference return the dtype of the state
            return outputs.to(state[0].dtype), type(state)(*final)
        options = self.kernel_options(self.sequence_constants(*inputs.shape[:2]))
        weight_ih, bias_ih = self._parameters_of("ih")
        weight_hh, bias_hh = self._parameters_of("hh")
        weights = weight_ih, bias_ih, weight_hh, self.kernel_extra()
        outputs, *leaves = gated.gated(
            options.pop("kind"), inputs, *weights, *state, b_hh=bias_hh, lengths=lengths, starts=starts, **options
        )
        return outputs, type(state)(*leaves[: len(state)])
