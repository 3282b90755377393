"""Distances from forget gates: the formulas of the gates, sentences on their own, errors."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gyral.applications.probes.distances import syntactic_distances
from gyral.cells.base import NO_MASKS, RecurrentCell
from gyral.cells.goru import GORUCell
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.on_lstm import ONLSTMCell
from gyral.cells.rnn import RNNCell
from gyral.cells.rum import RUMCell
from gyral.core.errors import UserError
from tests.applications.probes.models import language_model

CELLS: list[tuple[type[RecurrentCell], dict[str, Any]]] = [
    (ONLSTMCell, {"chunk_size": 2}),
    (ONLSTMCell, {"chunk_size": 4, "layer_norm": True}),
    (LSTMCell, {}),
    (LSTMCell, {"layer_norm": True}),
    (GRUCell, {}),
    (GRUCell, {"layer_norm": True}),
    (GORUCell, {}),
    (RUMCell, {"layer_norm": True}),
    (RUMCell, {"lambd": 1.0}),
]
SENTENCES = [["the", "authors", "laugh"], ["unseen"], ["N", "years", "old", "n't", "the", "author"]]


@pytest.mark.parametrize(("cell", "options"), CELLS)
def test_the_gate_multiplies_the_old_state(cell: type[RecurrentCell], options: dict[str, Any]) -> None:
    network = cell(3, 6, **options).double().eval()  # type: ignore[call-arg]
    inputs = torch.randn(4, 3, dtype=torch.float64)
    state = network(inputs)[1]
    projected = network.project(inputs)
    gate = network.forget_gate(projected, state)
    assert gate is not None
    assert ((gate >= 0) & (gate <= 1 + 1e-9)).all()
    if isinstance(network, ONLSTMCell):
        assert (gate.diff(dim=-1) > 0).all()
        assert gate[:, -1].tolist() == pytest.approx([1.0] * 4)
        master = F.linear(inputs, network.weight_ih, network.bias) + F.linear(state.hidden, network.weight_hh)
        assert torch.allclose(gate, master[:, : network.chunks].softmax(-1).cumsum(-1))
    elif isinstance(network, LSTMCell):
        other = state._replace(cell=state.cell + 1)
        steps = [network.step(projected, each, network.sequence_constants(4))[1].cell for each in (state, other)]
        assert torch.allclose(gate, steps[1] - steps[0])
    elif isinstance(network, GRUCell | GORUCell | RUMCell):
        # h' = n + z (h − n): with a bias that closes the gate, h' is the candidate n
        name = "norm_gate" if isinstance(network, RUMCell) else "norm_gates"
        norm = getattr(network, name) if options.get("layer_norm") else None
        biases = {key: value for key, value in network.named_parameters() if "bias" in key and "norm" not in key}
        bias = next(iter(biases.values()))[6:12] if norm is None else norm.bias.view(-1)[-6:]
        with torch.no_grad():
            new = network(inputs, state)[0]
            bias.fill_(-1e9)
            candidate = network(inputs, state)[0]
        assert torch.allclose(new, candidate + gate * (state[0] - candidate))


@pytest.mark.parametrize(("cell", "options"), CELLS[:1] + CELLS[2:3] + CELLS[4:5] + CELLS[-1:])
def test_distances_of_a_sentence_do_not_depend_on_the_batch(cell: type[RecurrentCell], options: dict[str, Any]) -> None:
    task = language_model(cell, **options)
    found = syntactic_distances(task, SENTENCES)
    assert list(found) == ["layer 1", "layer 2"]
    vocabulary = task.data.corpus.vocabulary
    for place, words in enumerate(SENTENCES):
        tokens = torch.from_numpy(vocabulary.encode(["<eos>", *words]).astype(np.int64))
        vectors = F.one_hot(tokens, len(vocabulary)).float()
        for layer, network in zip(found.values(), task.model.recurrent.cells, strict=True):
            state, outputs, distances = network.init_state(1), [], []
            for vector in vectors.unsqueeze(1):
                gate = network.forget_gate(network.project(vector), state)
                distances.append(1 - gate.mean().item())
                output, state = network.step(network.project(vector), state, network.sequence_constants(1))
                outputs.append(output[0])
            assert layer[place] == pytest.approx(distances[1:], abs=1e-6)
            vectors = torch.stack(outputs)


def test_cells_without_a_gate_are_refused() -> None:
    with pytest.raises(UserError, match=r"^distances come from a forget gate, which ONLSTMCell, .*this model has RNNC"):
        syntactic_distances(language_model(RNNCell), SENTENCES)
    ungated = RUMCell(3, 6, update_gate=False)
    assert ungated.forget_gate(ungated.project(torch.ones(1, 3)), ungated.init_state(1)) is None


def test_models_of_other_symbols_are_refused() -> None:
    with pytest.raises(UserError, match=r"^parsing needs a vocabulary of words; this one has symbols of level char$"):
        syntactic_distances(language_model(ONLSTMCell, level="char", chunk_size=2), SENTENCES)
    with pytest.raises(UserError, match=r"^parsing needs a vocabulary with <eos>, before which a sentence starts$"):
        syntactic_distances(language_model(ONLSTMCell, "a line with six words only", chunk_size=2), SENTENCES)


def test_masks_of_training_are_not_drawn() -> None:
    assert NO_MASKS == (None, None)
    task = language_model(LSTMCell, recurrent_dropout=0.5, zoneout=0.3)
    again = [syntactic_distances(task, SENTENCES)["layer 2"][2].tolist() for _ in range(2)]
    assert again[0] == again[1]
