"""Readers: against a reader in numpy by the equations, and properties that hold with any cell."""

import itertools
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.applications.reading.data.encoded import EncodedQuestions
from gyral.applications.reading.data.questions import Question
from gyral.applications.reading.models.reader import Reader
from gyral.applications.reading.models.readouts import UNMENTIONED, AttentionClassifier, AttentionSum
from gyral.cells.gru import GRUCell
from gyral.cells.inputs import LinkedInputs
from gyral.cells.mage_gru import MAGEGRUCell
from gyral.cells.rum import RUMCell
from gyral.core.edges import Edge
from gyral.core.errors import OptionError
from tests.applications.reading.examples import QUESTIONS, VOCABULARY, batch_of
from tests.helpers.running import read_choice

CELLS = {
    "gru": partial(GRUCell, hidden_size=6),
    "rum": partial(RUMCell, hidden_size=6),
    "mage_gru": partial(MAGEGRUCell, hidden_size=6, edge_size=2),
}
OPTIONS: list[dict[str, Any]] = [
    {"num_layers": layers, "joined": joined, "query_inputs": inputs, "query_indicator": more, "chain_features": more}
    for layers, joined, inputs, more in itertools.product(
        (1, 3), (True, False), ("outputs", "embeddings"), (False, True)
    )
    if not (joined and layers > 1 and inputs == "embeddings")
]


def reader(cell: str = "gru", readout: Any = AttentionSum, **options: Any) -> Reader:
    options = {"embedding_size": 5, **options, "chain_features": 2 * options.get("chain_features", 0)}
    return Reader(CELLS[cell], len(VOCABULARY), 3, readout=readout, **options).double()


def softmax(values: np.ndarray, axis: int = 0) -> np.ndarray:
    exponentials = np.exp(values - values.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def run_layer(layer: Any, vectors: np.ndarray, edges: list[Edge]) -> np.ndarray:
    """Return the outputs (T, H) of a layer for the vectors (T, X) of one sequence with its own edges."""
    distances = torch.zeros(len(vectors), 1, 1, 1, dtype=torch.int64)
    for edge in edges:
        distances[edge.target] = edge.target - edge.source
    with torch.no_grad():
        return layer(LinkedInputs(torch.tensor(vectors).unsqueeze(1), distances))[0][:, 0].numpy()


def read_in_numpy(model: Reader, question: Question) -> np.ndarray:
    """Return the logits of one question, by the equations, with the recurrent layers of the model."""
    n, words = len(question.document), [*question.document, *question.query]
    indices = [VOCABULARY.index[word] for word in words]
    vectors = model.embedding.weight.detach().numpy()[indices]
    if model.chain_features:
        chains = np.array(question.chains or (0,) * len(words))
        vectors = np.concatenate([vectors, chains[:, None] == np.arange(1, model.chain_features + 1)], axis=1)
    document = document_inputs = vectors[:n]
    query = query_inputs = vectors[n:]
    inside = [edge for edge in question.edges if edge.target < n]
    shifted = [Edge(edge.source - n, edge.target - n) for edge in question.edges if edge.source >= n]
    for index, layer in enumerate(model.layers):
        if index > 0:
            document_inputs = np.stack([state * (softmax(query @ state) @ query) for state in document])
            query_inputs = vectors[n:] if model.query_inputs == "embeddings" else query
        if model.indicator is not None and index == len(model.layers) - 1:
            bits = model.indicator.weight.detach().numpy()[[int(word in question.query) for word in words]]
            document_inputs = np.concatenate([document_inputs, bits[:n]], axis=1)
            if model.joined:
                query_inputs = np.concatenate([query_inputs, bits[n:]], axis=1)
        if model.joined:
            outputs = run_layer(layer, np.concatenate([document_inputs, query_inputs]), list(question.edges))
            document, query = outputs[:n], outputs[n:]
        else:
            document = run_layer(layer, document_inputs, inside)
            query = run_layer(model.query_layers[index], query_inputs, shifted)
    half = query.shape[1] // 2
    asked = np.concatenate([query[-1, :half], query[0, half:]])
    attention = softmax(document @ (query[question.placeholder] if question.placeholder >= 0 else asked))
    if isinstance(model.readout, AttentionClassifier):
        return model.readout.dense.weight.detach().numpy() @ (attention @ document)
    sums = np.array([attention[np.array(question.mentions) == candidate].sum() for candidate in (1, 2, 3)])
    return np.log(np.where(sums > 0, sums / sums.sum(), np.exp(UNMENTIONED)))


@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_a_reader_computes_the_equations(number: int) -> None:
    options = OPTIONS[number]
    readout = (AttentionSum, AttentionClassifier)[(number + options["num_layers"]) % 2]
    model = reader("mage_gru", readout, **options)
    outputs = model(batch_of(0, 1, 2)).detach().numpy()
    expected = np.stack([read_in_numpy(model, question) for question in QUESTIONS])
    np.testing.assert_allclose(outputs, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cell", CELLS)
def test_gradients_of_a_question_reach_every_parameter(cell: str) -> None:
    model = reader(cell, num_layers=2, joined=False, query_indicator=True, chain_features=True)
    model(batch_of(0, 1, 2)).select(1, 0).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_edges_across_the_join_are_read_where_it_is_one_sequence() -> None:
    across = batch_of(0, 2)
    inside = EncodedQuestions([q._replace(edges=q.edges[:-1]) for q in QUESTIONS], VOCABULARY).batch(np.array([0, 2]))
    joined, apart = reader("mage_gru"), reader("mage_gru", joined=False)
    assert not torch.allclose(joined(across), joined(inside))
    assert torch.equal(apart(across), apart(inside))


def random_reading(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(9, 4, generator=generator, dtype=torch.float64)
    states = torch.randn(9, 4, 5, generator=generator, dtype=torch.float64)
    return scores, states, torch.randint(0, 4, (9, 4), generator=generator)


def test_attention_sums_are_normalized_over_the_candidates() -> None:
    scores, states, mentions = random_reading(0)
    scores[6:, 0] = -torch.inf
    mentions[:, 3] = 0  # no candidate is mentioned
    mentions[:, 2] = mentions[:, 2].clamp(max=2)
    logits = AttentionSum(5, 5, 3)(scores, states, mentions)
    attention = scores.softmax(dim=0)
    for row in range(4):
        sums = torch.stack([attention[mentions[:, row] == candidate, row].sum() for candidate in (1, 2, 3)])
        expected = (sums / sums.sum()).log()
        expected = torch.where(expected.isfinite(), expected, UNMENTIONED)
        torch.testing.assert_close(logits[row], expected)
    assert logits[3].tolist() == [UNMENTIONED] * 3


def test_gradients_of_attention_sums_are_finite_and_correct() -> None:
    scores, states, mentions = random_reading(1)
    scores[6:, 0], mentions[:, 3] = -torch.inf, 0
    readout, finite = AttentionSum(5, 5, 3), scores.isfinite()

    def function(values: Tensor) -> Tensor:
        return readout(scores.masked_scatter(finite, values), states, mentions)

    values = scores[finite].requires_grad_()
    assert torch.autograd.gradcheck(function, (values,))
    # a correct answer has a gradient even without attention
    far = torch.tensor([[0.0], [-300.0]], requires_grad=True)
    loss = -readout(far, torch.zeros(2, 1, 5), torch.tensor([[1], [2]]))[0, 1]
    loss.backward()
    assert loss.item() == pytest.approx(300)
    assert far.grad is not None
    torch.testing.assert_close(far.grad, torch.tensor([[1.0], [-1.0]]))


@pytest.mark.parametrize("readout", [AttentionSum, AttentionClassifier])
def test_answers_after_a_prefix_equal_the_answers_to_the_prefix(readout: Any) -> None:
    model, batch = reader("mage_gru", readout), batch_of(0)
    after = model.answers_after(batch, [2, 6])
    reading = model.read(batch)
    assert after.shape == (2, 1, 3)
    if readout is AttentionSum:
        torch.testing.assert_close(after[1], model(batch))
        attention = reading.attention[:3, 0]  # john went home
        torch.testing.assert_close(after[0, 0, 0].exp(), attention[2] / (attention[0] + attention[2]))
    else:
        expected = model.readout.dense(reading.states[[2, 6], 0]).log_softmax(dim=-1)
        torch.testing.assert_close(after[:, 0], expected)


def test_dropout_is_only_active_in_training() -> None:
    model, batch = reader(dropout=0.5), batch_of(0, 1)
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))


def test_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OptionError, match="query_inputs=embeddings: must be outputs with joined=true"):
        reader(num_layers=2, query_inputs="embeddings")
    with pytest.raises(OptionError, match="num_layers=0"):
        reader(num_layers=0)


@pytest.mark.parametrize("model", ["attention_sum", "gated_attention"])
def test_yaml_files_contain_every_option_with_its_default(model: str) -> None:
    config = read_choice("model", model)
    given = {name: value for name, value in config.items() if not str(name).startswith("_") and name != "cell"}
    defaults = {name: each.default for name, each in signature(Reader).parameters.items()}
    for name in ("cell", "vocabulary_size", "output_size", "readout"):
        del defaults[name]
    assert given == defaults | {"num_layers": 1 if model == "attention_sum" else 3}
