"""The layers are `Recurrent` over their cells, called as `torch.nn.GRU` is."""

import copy
import pickle
from functools import partial
from typing import Any

import pytest
import torch

from gyral.cells.base import RecurrentCell
from gyral.cells.lstm import LSTMCell
from gyral.core.errors import OptionError
from gyral.nn import layers
from gyral.nn.recurrent import Recurrent

X, N, BATCH, STEPS = 3, 6, 4, 5
LAYERS = {layer.__name__: layer for layer in layers.Layer.__subclasses__()}
OPTIONS: dict[str, dict[str, Any]] = {
    "FSRNN": {"fast": partial(LSTMCell, layer_norm=True), "slow": LSTMCell, "num_fast": 3},
    "ONLSTM": {"chunk_size": 2},
    "RUM": {"lambd": 1.0, "eta": 1.0},
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_the_loop_over_its_cell(name: str) -> None:
    layer_class, options = LAYERS[name], OPTIONS.get(name, {})
    assert layer_class.cell_class.__name__ == f"{name}Cell"
    torch.manual_seed(1)
    layer = layer_class(X, N, 2, batch_first=True, dropout=0.3, bidirectional=True, backend="reference", **options)
    torch.manual_seed(1)
    factory = partial(layer_class.cell_class, hidden_size=N, **options)
    loop = Recurrent(factory, X, 2, True, 0.3, batch_first=True, backend="reference")
    assert all(torch.equal(value, loop.state_dict()[key]) for key, value in layer.state_dict().items())
    inputs = torch.randn(BATCH, STEPS, X)
    for model in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.manual_seed(2)
        outputs, _ = model(inputs)
        torch.manual_seed(2)
        assert torch.equal(outputs, loop(inputs)[0])
    assert outputs.shape == (BATCH, STEPS, layer.output_size)


def test_every_cell_but_the_external_one_has_a_layer() -> None:
    classes, found = [RecurrentCell], set()
    while classes:
        classes += (parent := classes.pop()).__subclasses__()
        if parent.__module__.startswith("gyral.cells.") and not parent.__abstractmethods__:
            found.add(parent.__name__.removesuffix("Cell"))
    assert found - {"External"} == set(LAYERS)


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match=r"^eta=0: must be a finite number > 0$"):
        layers.RUM(X, N, eta=0)
    with pytest.raises(OptionError, match=r"^backend=quick: must be one of "):
        layers.RUM(X, N, backend="quick")
    with pytest.raises(TypeError, match="colour"):
        layers.RUM(X, N, colour=1)
    assert layers.LSTM(X, N, weight_drop=0.5).weight_drop == 0.5
