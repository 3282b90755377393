"""GRU, LSTM and RNN have the words of `torch.nn`: names of weights, arguments, attributes and classes of errors."""

import copy
import pickle
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import gyral
from docs.uses import LAYERS
from gyral.nn.layers import TorchWeights
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each
from tests.helpers.running import ROOT

X, N, STEPS, BATCH = 3, 5, 4, 2
LAYERS_PAGE = ROOT / "docs" / "how-to" / "layers.md"
NAMES = ("GRU", "LSTM", "RNN")
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "whole": {"num_layers": 2, "bidirectional": True, "dropout": 0.5, "batch_first": True},
    "no bias": {"num_layers": 2, "bias": False},
}
CASES = [
    *((name, options) for name in NAMES for options in OPTIONS.values()),
    ("LSTM", {"num_layers": 2, "proj_size": 2, "bidirectional": True}),
    ("RNN", {"nonlinearity": "relu"}),
]


def both(name: str, *sizes: Any, **options: Any) -> tuple[Any, Any]:
    """Return torch's layer, and this one with its weights, in evaluation."""
    theirs = getattr(nn, name)(*sizes, **options).eval()
    ours = getattr(gyral, name)(*sizes, **options).eval()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


@for_each("case", CASES)
def test_weights_are_parameters_of_the_layer_with_the_names_of_torch(case: tuple[str, dict[str, Any]]) -> None:
    name, options = case
    theirs, ours = both(name, X, N, **options)
    own = dict(ours.named_parameters(remove_duplicate=False))
    assert {key: weight.shape for key, weight in own.items()} == {k: w.shape for k, w in theirs.named_parameters()}
    assert [*ours.state_dict()] == [*theirs.state_dict()] == ours._flat_weights_names == [*own]
    assert all(one is other for one, other in zip(ours._flat_weights, own.values(), strict=True))
    inputs = torch.randn(BATCH, STEPS, X)
    for key, weight in own.items():  # as programs initialize weights
        if "weight_hh" in key:
            nn.init.orthogonal_(weight)
    assert not torch.allclose(ours(inputs)[0], theirs(inputs)[0])
    assert torch.equal(ours.cells[-1].layer.weight_hh_l0, [w for k, w in own.items() if "weight_hh" in k][-1])
    torch.testing.assert_close(functional_call(ours, dict(theirs.named_parameters()), (inputs,)), theirs(inputs))
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(inputs)[0], theirs(inputs)[0])
    ours.reset_parameters()
    assert all(0 < weight.abs().max() <= N**-0.5 for weight in own.values())


@for_each("kind", ["weight_norm", "prune", "attribute"])
@for_each("backend", ["reference", "fused"])
def test_what_acts_on_a_weight_by_name_acts_on_one_weight_of_one_cell(kind: str, backend: str) -> None:
    layer = gyral.LSTM(X, N, 2, bidirectional=True, backend=backend)
    inputs, key = torch.randn(STEPS, BATCH, X), "weight_hh_l1_reverse"
    before = layer(inputs)[0]
    if kind == "weight_norm":
        parametrizations.weight_norm(layer, key)
        torch.testing.assert_close(layer(inputs)[0], before)
        with torch.no_grad():
            layer.parametrizations[key].original0.mul_(2)  # type: ignore[operator]
    elif kind == "prune":
        prune.l1_unstructured(layer, key, 0.5)
    else:
        setattr(layer, key, nn.Parameter(torch.zeros(4 * N, N)))
    after = layer(inputs)[0]
    assert torch.equal(after[..., :N], before[..., :N])
    assert not torch.allclose(after[..., N:], before[..., N:])
    for wrong in ("weight_hh_l2", "weight_hh"):
        with pytest.raises(ValueError, match="does not have a parameter"):
            parametrizations.weight_norm(layer, wrong)
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrizations.weight_norm(gyral.MinGRU(X, N), "weight_hh_l0")


@for_each("name", NAMES)
def test_checkpoints_of_earlier_versions_load(name: str) -> None:
    """They had the names of `Recurrent`, such as cells.1.layer.weight_hh_l0."""
    layer_class = getattr(gyral, name)
    inputs = torch.randn(STEPS, BATCH, X)
    for options in ({}, {"weight_drop": 0.5}, {"layer_norm": True}):
        of_cell = {key: value for key, value in options.items() if key == "layer_norm"}
        of_network = {key: value for key, value in options.items() if key == "weight_drop"}
        factory = partial(layer_class.cell_class, hidden_size=N, **of_cell)
        former = Recurrent(factory, X, 2, bidirectional=True, **of_network).eval()
        layer = layer_class(X, N, 2, bidirectional=True, **options).eval()
        whole = nn.Sequential(layer)
        saved = nn.Sequential(former).state_dict()
        assert any(key.startswith("0.cells.1.layer.") for key in saved)
        whole.load_state_dict(saved)
        assert torch.equal(layer(inputs)[0], former(inputs)[0])
    with pytest.raises(RuntimeError, match="Unexpected key"):
        layer.load_state_dict({**former.state_dict(), "cells.7.layer.weight_hh_l0": torch.zeros(1)})


def test_pickles_of_earlier_versions_load() -> None:
    """The weights were in the cells, in a subclass of `torch.nn.RNNBase`."""
    layer = gyral.GRU(X, N, 2, dropout=0.25)
    former = copy.deepcopy(layer)
    for cell in former.cells:
        inner: Any = cell.layer
        weights = {key: former._parameters.pop(other) for key, other in inner.names.items()}
        vars(inner).update(_parameters=weights, _flat_weights_names=[*weights], _flat_weights=[], _flat_weight_refs=[])
        del vars(inner)["names"], vars(inner)["holder"], vars(cell)["holder"]
    former._modules["dropout"] = former._modules.pop("sequence_dropout")
    again = pickle.loads(pickle.dumps(former))
    assert [*again.state_dict()] == [*layer.state_dict()]
    assert again.dropout == 0.25
    inputs = torch.randn(STEPS, BATCH, X)
    assert torch.equal(again.eval()(inputs)[0], layer.eval()(inputs)[0])


def test_weights_are_in_one_piece_of_memory_for_cudnn_on_every_device(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[torch.dtype]] = []
    monkeypatch.setattr(  # which does nothing on a CPU
        nn.RNNBase, "flatten_parameters", lambda layer: seen.append([weight.dtype for weight in layer._flat_weights])
    )
    layer = gyral.GRU(X, N, 2)
    assert seen[:2] == [[torch.float32] * 4] * 2
    layer.double()
    assert seen[-2:] == [[torch.float64] * 4] * 2
    seen.clear()
    layer.flatten_parameters()
    assert seen == [[torch.float64] * 4] * 2


ATTRIBUTES = ("mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")


@for_each("case", CASES)
def test_attributes_and_arguments_are_those_of_torch(case: tuple[str, dict[str, Any]]) -> None:
    name, options = case
    theirs, ours = both(name, X, N, **options)
    assert isinstance(ours, TorchWeights)
    for attribute in (*ATTRIBUTES, "proj_size", *["nonlinearity"] * (name == "RNN")):
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    assert [len(of_cell) for of_cell in ours.all_weights] == [len(of_cell) for of_cell in theirs.all_weights]
    assert ours.flatten_parameters() is None
    if not options.keys() & {"proj_size", "nonlinearity"}:
        assert repr(ours) == repr(theirs)
        assert ours.extra_repr() == theirs.extra_repr()
    inputs = torch.randn(BATCH, STEPS, X)
    given = theirs(inputs)[1]
    torch.testing.assert_close(ours(input=inputs, hx=given), theirs(input=inputs, hx=given))
    torch.testing.assert_close(ours(inputs, hx=given)[0], theirs(inputs, hx=given)[0])
    ours.dropout = 0.75
    assert ours.dropout == 0.75


def test_arguments_have_the_order_of_torch() -> None:
    further = 2, False, True, 0.0, True
    for name, arguments in (("GRU", further), ("LSTM", (*further, 2)), ("RNN", (2, "relu", *further[1:]))):
        theirs, ours = both(name, X, N, *arguments)
        inputs = torch.randn(BATCH, STEPS, X)
        torch.testing.assert_close(ours(inputs), theirs(inputs))


def test_dropout_that_is_set_acts_between_layers() -> None:
    layer = gyral.GRU(X, N, 2)
    inputs = torch.randn(STEPS, BATCH, X)
    plain = layer(inputs)[0]
    layer.dropout = 0.5
    assert not torch.equal(layer(inputs)[0], plain)
    with pytest.raises(ValueError, match=r"^dropout=1\.5: must be a finite number"):
        layer.dropout = 1.5


x, hidden = torch.randn(STEPS, BATCH, X), torch.zeros(1, BATCH, N)
MISTAKES: dict[str, Callable[[Any], Any]] = {  # of a program that calls `make(*sizes, **options)`
    "hidden_size=0": lambda make: make(X, 0),
    "hidden_size of another type": lambda make: make(X, "5"),
    "input_size of another type": lambda make: make(3.0, N),
    "num_layers=0": lambda make: make(X, N, num_layers=0),
    "num_layers of another type": lambda make: make(X, N, num_layers=1.5),
    "bias of another type": lambda make: make(X, N, bias=1),
    "batch_first of another type": lambda make: make(X, N, batch_first=1),
    "dropout out of bounds": lambda make: make(X, N, 2, dropout=1.5),
    "dropout of another type": lambda make: make(X, N, 2, dropout=True),
    "an option that there is not": lambda make: make(X, N, layers=2),
    "no hidden_size": lambda make: make(X),
    "proj_size": lambda make: make(X, N, proj_size=N),
    "no inputs": lambda make: make(X, N)(),
    "an argument that there is not": lambda make: make(X, N)(x, h=hidden),
    "inputs of another width": lambda make: make(X + 1, N)(x),
    "unbatched inputs of another width": lambda make: make(X + 1, N)(x[:, 0]),
    "inputs of one dimension": lambda make: make(X, N)(x[0, 0]),
    "inputs of four dimensions": lambda make: make(X, N)(x[None]),
    "inputs of another dtype": lambda make: make(X, N)(x.double()),
    "a state of another width": lambda make: make(X, N)(x, state_of(make, hidden[..., 1:])),
    "a state of another batch size": lambda make: make(X, N)(x, state_of(make, hidden[:, 1:])),
    "a state of more layers": lambda make: make(X, N)(x, state_of(make, hidden.repeat(2, 1, 1))),
    "a state without batch": lambda make: make(X, N)(x, state_of(make, hidden[:, 0])),
    "a state with batch": lambda make: make(X, N)(x[:, 0], state_of(make, hidden)),
    "a weight that is missing": lambda make: make(X, N).load_state_dict({}),
    "a weight that there is not": lambda make: parametrizations.weight_norm(make(X, N), "weight_hh_l1"),
    "a weight to prune that there is not": lambda make: prune.l1_unstructured(make(X, N), "weight_hh_l1", 0.5),
}


def state_of(make: Any, tensor: Tensor) -> Any:
    return (tensor, tensor) if make.__name__ == "LSTM" else tensor


@for_each("mistake", MISTAKES)
def test_errors_are_of_the_class_that_torch_raises(mistake: str) -> None:
    for name in NAMES:
        with pytest.raises(Exception) as theirs:  # noqa: PT011
            MISTAKES[mistake](getattr(nn, name))
        with pytest.raises(theirs.type) as ours:
            MISTAKES[mistake](getattr(gyral, name))
        assert "\n" not in str(ours.value) or theirs.type is RuntimeError
    for given in ({"inputs": x, "input": x}, {"inputs": x, "hx": hidden, "state": hidden}):
        with pytest.raises(TypeError, match=r"^(inputs and input|state and hx) are the same argument; only one of "):
            gyral.GRU(X, N)(**given)


def test_packed_sequences_by_the_name_of_torch() -> None:
    theirs, ours = both("GRU", X, N)
    packed = pack_sequence([torch.randn(4, X), torch.randn(2, X)])
    result = ours(input=packed)[0]
    assert isinstance(result, PackedSequence)
    torch.testing.assert_close(result.data, theirs(input=packed)[0].data)


def test_the_documentation_names_the_layers_with_a_recurrent_matrix() -> None:
    """A loop over the parameters with weight_hh in their names finds nothing in the others."""
    [row] = re.findall(r"^\| a matrix `weight_hh` \| (.*) \|$", LAYERS_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    made = ((layer.name, layer.make(4, 4, device="meta")) for layer in LAYERS.values())
    with_matrix = {name for name, layer in made if any("weight_hh" in key for key, _ in layer.named_parameters())}
    assert set(re.findall(r"`(\w+)`", row)) == with_matrix


@for_each("words", [("input", "hx"), ("inputs", "hx"), ("input", "state")])
def test_models_that_torch_fx_records_may_have_the_names_of_torch(words: tuple[str, str]) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = gyral.LSTM(X, N)

        def forward(self, inputs: Tensor, state: Any) -> Any:
            return self.layer(**dict(zip(words, (inputs, state), strict=True)))

    model, given = Model(), (x, (hidden + 1, hidden))
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(*given), model(*given))
