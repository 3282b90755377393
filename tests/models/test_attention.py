"""Readouts against their equations: closed forms, gradients, padding, and what of a sequence is left out."""

import functools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gyral.cells.gru import GRUCell
from gyral.core.errors import OptionError
from gyral.models.attention import Attention, LastStep, RotationalAttention
from gyral.models.sequence import SequenceModel
from gyral.ops.rotation import matrix
from tests.helpers.loops import for_each

READOUTS = [LastStep, Attention, RotationalAttention]
ATTENTIONS = [Attention, RotationalAttention]
H, X, OUT, BATCH, STEPS = 4, 3, 2, 3, 6
LENGTHS = torch.tensor([4, STEPS, 2])


def made(kind: type) -> Any:
    return kind(H, X, OUT).double()


def sequences(steps: int = STEPS) -> tuple[Tensor, Tensor]:
    return torch.randn(steps, BATCH, H, dtype=torch.double), torch.randn(steps, BATCH, X, dtype=torch.double)


def test_the_last_step_alone_is_read() -> None:
    readout = made(LastStep)
    outputs, inputs = sequences()
    expected = torch.stack([readout.dense(outputs[length - 1, row]) for row, length in enumerate(LENGTHS.tolist())])
    torch.testing.assert_close(readout(outputs, inputs, LENGTHS), expected, rtol=0, atol=1e-14)
    torch.testing.assert_close(readout(outputs, inputs), readout.dense(outputs[-1]), rtol=0, atol=1e-14)


@for_each("kind", ATTENTIONS)
def test_attention_is_its_equations(kind: type) -> None:
    readout = made(kind)
    outputs, inputs = sequences()
    logits = readout(outputs, inputs, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        story, query = outputs[: length - 1, row], outputs[length - 1, row]
        p = (story @ query).exp() / (story @ query).exp().sum()
        context = p @ story
        if kind is RotationalAttention:
            query = matrix(readout.embed(inputs[length - 1, row]), context) @ query
        expected = readout.dense.weight @ torch.cat([context, query]) + readout.dense.bias
        torch.testing.assert_close(logits[row], expected, rtol=0, atol=1e-13)


@for_each("kind", ATTENTIONS)
def test_weights_are_a_distribution_over_the_steps_before_the_last(kind: type) -> None:
    outputs, _ = sequences()
    weights = made(kind).weights(outputs, LENGTHS)
    assert weights.shape == (STEPS, BATCH)
    torch.testing.assert_close(weights.sum(dim=0), torch.ones(BATCH, dtype=torch.double))
    before = torch.arange(STEPS).unsqueeze(1) < LENGTHS - 1
    assert torch.equal(weights > 0, before)
    # alike steps are attended to alike; one along the query by e^{its product}
    outputs = torch.zeros(4, 1, H, dtype=torch.double)
    outputs[1, 0, 0], outputs[3, 0, 0] = 2.0, 0.5
    e = math.e
    expected = torch.tensor([[1.0], [e], [1.0], [0.0]], dtype=torch.double) / (2 + e)
    torch.testing.assert_close(made(kind).weights(outputs), expected)


@for_each("kind", READOUTS)
def test_gradients_agree_with_finite_differences(kind: type) -> None:
    readout = made(kind)
    names, parameters = zip(*readout.named_parameters(), strict=True)

    def logits(outputs: Tensor, inputs: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(readout, dict(zip(names, values, strict=True)), (outputs, inputs, LENGTHS))

    arguments = [tensor.detach().requires_grad_() for tensor in (*sequences(), *parameters)]
    assert torch.autograd.gradcheck(logits, arguments)


@for_each("kind", READOUTS)
def test_padding_changes_nothing_and_gets_no_gradient(kind: type) -> None:
    readout = made(kind)
    outputs, inputs = sequences()
    for tensor in (outputs, inputs):
        tensor.masked_fill_((torch.arange(STEPS).unsqueeze(1) >= LENGTHS).unsqueeze(2), 0)
    outputs.requires_grad_()
    logits = readout(outputs, inputs, LENGTHS)
    logits.square().sum().backward()
    for row, length in enumerate(LENGTHS.tolist()):
        alone = readout(outputs[:length, row : row + 1], inputs[:length, row : row + 1])
        torch.testing.assert_close(logits[row : row + 1], alone, rtol=0, atol=1e-13)
        assert outputs.grad[length:, row].abs().sum() == 0
        assert outputs.grad[length - 1, row].abs().sum() > 0
    longer = [torch.cat([tensor, torch.zeros_like(tensor)]) for tensor in (outputs, inputs)]
    torch.testing.assert_close(readout(*longer, LENGTHS), logits, rtol=0, atol=1e-13)


@for_each("kind", ATTENTIONS)
def test_a_query_without_a_story_has_no_context(kind: type) -> None:
    readout = made(kind)
    outputs, inputs = sequences()
    outputs.requires_grad_()
    logits = readout(outputs, inputs, torch.tensor([1, STEPS, 1]))
    for row in (0, 2):
        expected = readout.dense(torch.cat([torch.zeros(H).double(), outputs[0, row]]))
        torch.testing.assert_close(logits[row], expected, rtol=0, atol=1e-14)
    logits.sum().backward()
    assert outputs.grad.isfinite().all()


def test_a_large_product_takes_all_attention_without_overflow() -> None:
    outputs = torch.zeros(3, 1, H)
    outputs[0, 0, 0], outputs[2, 0, 0] = 1e10, 1e10
    assert Attention(H, X, OUT).weights(outputs).flatten().tolist() == [1, 0, 0]


def test_the_rotation_keeps_the_norm_of_the_query() -> None:
    readout = made(RotationalAttention)
    query, context = torch.randn(2, BATCH, H, dtype=torch.double)
    turned = readout.transform_query(query, torch.randn(BATCH, X, dtype=torch.double), context)
    torch.testing.assert_close(turned.norm(dim=-1), query.norm(dim=-1))
    assert not torch.allclose(turned, query)


# --- in a model

gru = functools.partial(GRUCell, hidden_size=H)


@for_each("readout", READOUTS)
@for_each("options", [{}, {"embedding_size": 3, "num_layers": 2}, {"bidirectional": True}])
def test_a_model_has_one_prediction_a_sequence(readout: Any, options: dict[str, Any]) -> None:
    model = SequenceModel(gru, 9, OUT, readout=readout, **options).double().eval()
    tokens = torch.randint(1, 9, (BATCH, STEPS, 3))
    tokens[torch.arange(STEPS) >= LENGTHS.unsqueeze(1)] = 0
    logits, _ = model(tokens, lengths=LENGTHS)
    assert logits.shape == (BATCH, OUT)
    for row, length in enumerate(LENGTHS.tolist()):
        wider = torch.cat([tokens[row : row + 1, :length], torch.zeros(1, length, 2, dtype=torch.long)], dim=2)
        torch.testing.assert_close(model(wider)[0], logits[row : row + 1], rtol=0, atol=1e-12)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@for_each("given", [("mean", 3), ("sum", 1)])
@for_each("embedding_size", [None, 4])
def test_a_step_of_several_tokens_pools_their_vectors(embedding_size: int | None, given: tuple[str, int]) -> None:
    pooling, count = given
    model = SequenceModel(gru, 9, OUT, embedding_size=embedding_size, pooling=pooling).double()
    tokens = torch.tensor([[[3, 5, 5, 0], [7, 0, 0, 0], [0, 0, 0, 0]]])
    vectors = torch.eye(9).double() if model.embedding is None else model.embedding.weight
    expected = torch.stack([(vectors[3] + 2 * vectors[5]) / count, vectors[7], torch.zeros_like(vectors[0])])
    _, inputs, _ = model.run(tokens)
    torch.testing.assert_close(inputs[:, 0], expected, rtol=0, atol=1e-14)
    model(tokens)[0].sum().backward()
    if model.embedding is not None:
        reached = model.embedding.weight.grad.abs().sum(dim=1) > 0
        assert reached.nonzero().flatten().tolist() == [3, 5, 7]


def test_all_occurrences_of_a_token_are_dropped() -> None:
    model = SequenceModel(gru, 9, OUT, embedding_size=4, embedding_dropout=0.5)
    _, inputs, _ = model.run(torch.arange(1, 9).view(1, 8, 1).repeat(2, 1, 1))
    dropped = (inputs == 0).all(dim=-1)
    assert 0 < dropped[:, 0].sum() < 8
    assert torch.equal(dropped[:, 0], dropped[:, 1])


def test_a_readout_cannot_be_tied() -> None:
    with pytest.raises(OptionError, match=r"^tied=True: must be false, because the model has no head at each step "):
        SequenceModel(gru, OUT, OUT, readout=LastStep, embedding_size=H, tied=True)
    assert isinstance(SequenceModel(gru, OUT, OUT, embedding_size=H, tied=True).head, nn.Linear)
