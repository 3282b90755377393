"""The weights of GRU, LSTM and RNN under the names that they have in `torch.nn`."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn.utils import parametrize

from gyral.cells.base import RecurrentCell
from gyral.cells.torch_layer import TorchLayerCell
from gyral.core.errors import UserError
from gyral.nn.recurrent import RecurrentBase

FORMER = re.compile(r"cells\.(?P<cell>\d+)\.layer\.(?P<before>(parametrizations\.)?)(?P<name>\w+_l0)(?P<after>.*)")


class TorchWeights(RecurrentBase):
    """A layer whose cell is a `gyral.cells.torch_layer.TorchLayerCell`, with the weights of torch's layer.

    `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0` and, with a projection, `weight_hr_l0` are the parameters
    of the first layer; `_l1` follows, and `_reverse` for the backward direction. The gates, as rows of these tensors,
    have the order of torch. They are parameters of this module, which the cells read: whatever acts on the weights of
    torch's layer by name acts on these. Both layers load each other's state dict.

    Attributes:
        mode, proj_size: Those of torch's layer: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU", and the size of the
            projection, 0 for none.
        nonlinearity: "tanh" or "relu", of an RNN only.
        all_weights: The weights, a list for each cell.
    """

    mode: str
    proj_size: int
    nonlinearity: str

    def name_weights(self) -> None:
        for index, cell in enumerate(self._cells()):
            number, backward = divmod(index, self.directions)
            suffix = f"{number}{'_reverse' * backward}"
            assert isinstance(cell, TorchLayerCell)
            cell.lend_weights(self, {name: f"{name.removesuffix('0')}{suffix}" for name in cell.layer.names})
        first: Any = self._cells()[0]
        self.mode, self.proj_size = first.mode, first.proj_size
        if hasattr(first, "nonlinearity"):
            self.nonlinearity = first.nonlinearity

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        layers = self._torch_layers()
        # an earlier version has pickled it, with the weights in the cells; dropped weights stay there
        if all(layer.holder is None and layer.names.keys() == layer._parameters.keys() for layer in layers):
            self.name_weights()

    def flatten_parameters(self) -> None:
        """Put the weights of each cell in one piece of memory on a GPU, as torch's layer does; see `TorchLayer`."""
        for layer in self._torch_layers():
            layer.flatten_parameters()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "TorchWeights":
        super()._apply(fn, recurse)  # the modules in this one first, before the weights
        self.flatten_parameters()
        return self

    def _replicate_for_data_parallel(self) -> "TorchWeights":
        replica = super()._replicate_for_data_parallel()
        vars(replica)["_cells"] = partial(_cells_of_replica, replica)
        return replica

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *further: Any) -> None:
        for key in [key for key in state_dict if key.startswith(prefix)]:
            state_dict[f"{prefix}{self._own_name(key.removeprefix(prefix))}"] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *further)

    def _own_name(self, name: str) -> str:
        """Return the name in the state dict of this layer for a name in that of torch's, or of an earlier version."""
        former, layers = FORMER.fullmatch(name), self._torch_layers()
        if former is not None and int(former["cell"]) < len(layers):
            names = layers[int(former["cell"])].names
            name = f"{former['before']}{names.get(former['name'], former['name'])}{former['after']}"
        return f"parametrizations.{name}.original" if parametrize.is_parametrized(self, name) else name

    def _torch_layers(self) -> list[Any]:
        cells: list[Any] = self._cells()
        return [cell.layer for cell in cells]

    @property
    def all_weights(self) -> list[list[Tensor]]:
        return [layer.read() for layer in self._torch_layers()]

    @property
    def _all_weights(self) -> list[list[str]]:  # these three as of torch's layer, for code that reads them
        return [list(layer.names.values()) for layer in self._torch_layers()]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for of_cell in self._all_weights for name in of_cell]

    @property
    def _flat_weights(self) -> list[Tensor]:
        return [weight for of_cell in self.all_weights for weight in of_cell]

    def torch_state_dict(self) -> dict[str, Tensor]:
        """Return the weights as the state dict of torch's layer with the same sizes, which has the same gates.

        It is `state_dict()`, but for layers with `weight_drop`, whose weights have longer names there.

        Raises:
            UserError: The layer has parameters that torch's layer does not have, such as layer normalization.
        """
        names = {self._own_name(name): name for name in self._flat_weights_names}
        state = self.state_dict()
        for name in state:
            if name not in names:
                theirs = self._torch_layers()[0].torch_name
                raise UserError(f"{type(self).__name__}: {theirs} does not have the parameter {name}")
        return {names[name]: tensor for name, tensor in state.items()}


def _cells_of_replica(replica: TorchWeights) -> list[RecurrentCell]:
    """Return the cells of a replica of `torch.nn.DataParallel`, which read its weights."""
    cells = RecurrentBase._cells(replica)
    for cell in cells:
        assert isinstance(cell, TorchLayerCell)
        cell.lend_weights(replica, cell.layer.names)
    return cells
