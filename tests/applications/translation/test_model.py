"""Translators of every kind: rows alone and in batches, steps and whole sequences, search."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gyral.applications.translation.data.batches import TranslationBatch, assemble
from gyral.applications.translation.data.corpus import START_ID, STOP_ID
from gyral.applications.translation.model import Translator
from gyral.cells.dynamic_conv import DynamicConvCell
from gyral.cells.gru import GRUCell
from gyral.cells.light_conv import LightConvCell
from gyral.cells.lstm import LSTMCell
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.generation.beam import BeamSearch
from gyral.models.self_attention import AverageAttention, SelfAttention
from tests.generation.test_beam import plain

V, D = 11, 8
SOURCES = [[4, 5, 6, 7, 8], [9], [5, 5, 10], [4, 10]]
TARGETS = [[6, 7], [8, 9, 10, 4], [5], [7, 6, 5]]
light = partial(LightConvCell, hidden_size=D, kernel_size=3, heads=2)
dynamic = partial(DynamicConvCell, hidden_size=D, kernel_size=3, heads=2)
attention = partial(SelfAttention, hidden_size=D, heads=2)
average = partial(AverageAttention, hidden_size=6)
NETWORKS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "light": (light, light, {"encoder_kernels": [3, 5]}),
    "dynamic without softmax": (partial(dynamic, softmax=False), partial(dynamic, softmax=False), {}),
    "lstm, additive": (
        partial(LSTMCell, hidden_size=3),
        partial(GRUCell, hidden_size=6),
        {"centered": False, "attention": "additive"},
    ),
    "self-attention": (attention, attention, {}),
    "limited": (attention, attention, {"encoder_kernels": [3, 5], "decoder_kernels": [2, 3]}),
    "average": (average, average, {"attention": "additive"}),
}
every_network = pytest.mark.parametrize("name", NETWORKS)


def made(name: str, **options: Any) -> Translator:
    torch.manual_seed(0)
    encoder, decoder, own = NETWORKS[name]
    sizes = {"embedding_size": D, "attention_heads": 2, **own, **options}
    return Translator(encoder, decoder, V, **sizes).double().eval()


def batch_of(rows: list[int]) -> TranslationBatch:
    return assemble([SOURCES[row] for row in rows], [TARGETS[row] for row in rows], np.array(rows))


WHOLE = batch_of([0, 1, 2, 3])


@every_network
def test_every_parameter_is_trained(name: str) -> None:
    network = made(name).train()
    logits = network(WHOLE)
    F.cross_entropy(logits, WHOLE.targets[WHOLE.targets != IGNORED]).backward()
    for parameter_name, parameter in network.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


@every_network
@torch.no_grad()
def test_rows_are_independent(name: str) -> None:
    network = made(name)
    alone = torch.cat([network(batch_of([row])) for row in range(4)])
    torch.testing.assert_close(alone, network(WHOLE))


@every_network
@torch.no_grad()
def test_steps_of_decoding_equal_the_whole_sequence(name: str) -> None:
    network = made(name)
    expected = torch.zeros(*WHOLE.targets.shape, V).double()
    expected[WHOLE.targets != IGNORED] = network(WHOLE).log_softmax(dim=-1)
    memory, state = network.read(WHOLE.source, WHOLE.lengths), network.begin(4)
    for step in range(WHOLE.targets.shape[1]):
        found, state = network.decode_step(memory, state, WHOLE.inputs[:, step])
        present = WHOLE.targets[:, step] != IGNORED
        torch.testing.assert_close(found[present], expected[present, step])


@every_network
def test_a_batch_is_translated_as_one_by_one(name: str) -> None:
    network = made(name)
    search = BeamSearch(2, min_length=1, max_length=4)
    found = network.translate(WHOLE, search)
    for row in range(4):
        alone = batch_of([row])
        step = partial(network.decode_step, network.read(alone.source, alone.lengths))
        for place, (score, tokens) in enumerate(plain(search, step, network.begin(1), START_ID, STOP_ID)):
            assert found.tokens[row, place, : len(tokens)].tolist() == tokens
            assert found.scores[row, place].item() == pytest.approx(score, abs=1e-9)


def test_the_state_of_growing_attention_does_not_count() -> None:
    assert made("self-attention").state_size() == 0
    assert made("average").state_size() == 2 * (D + 1)
    assert made("light").state_size() == 2 * 2 * D


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("self-attention", {"centered": False}, "centered=False: must be true for SelfAttention, which reads in all"),
        ("self-attention", {"encoder_kernels": [4]}, "kernel_size=4: must be odd for a centered window"),
        ("average", {"decoder_kernels": [3]}, "decoder_kernels=.*must be null, because the cell has no kernel_size"),
        ("lstm, additive", {"centered": True}, "centered=True: must be false for LSTMCell"),
        ("light", {"attention": "dot"}, "attention=dot: must be one of multi_head, additive"),
    ],
)
def test_options_that_do_not_fit_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        made(name, **options)
