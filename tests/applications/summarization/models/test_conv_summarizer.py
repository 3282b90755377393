"""The summarizer of convolutions: with any cell, rows alone and in batches, steps and whole sequences."""

from functools import partial
from typing import Any

import pytest
import torch

from gyral.applications.summarization.data.batches import START_ID, STOP_ID, UNKNOWN_ID
from gyral.applications.summarization.models.conv_summarizer import ConvSummarizer
from gyral.cells.dynamic_conv import DynamicConvCell
from gyral.cells.gru import GRUCell
from gyral.cells.light_conv import LightConvCell
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.generation.beam import BeamSearch
from tests.applications.summarization.models.test_pointer_generator import SUMMARIES, WHOLE, V, batch_of
from tests.generation.test_beam import plain

D = 8
light = partial(LightConvCell, hidden_size=D, kernel_size=3, heads=2)
dynamic = partial(DynamicConvCell, hidden_size=D, kernel_size=3, heads=2)
gru = partial(GRUCell, hidden_size=6)
NETWORKS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "light": (light, light, {}),
    "dynamic without a pointer": (dynamic, dynamic, {"pointer": False}),
    "kernels by layer": (dynamic, light, {"encoder_kernels": [3, 5], "decoder_kernels": [2, 3, 4]}),
    "gru": (gru, gru, {"centered": False}),
}
every_network = pytest.mark.parametrize("name", NETWORKS)


def made(name: str, **options: Any) -> ConvSummarizer:
    torch.manual_seed(0)
    encoder, decoder, own = NETWORKS[name]
    return ConvSummarizer(encoder, decoder, V, **{"embedding_size": D, **own, **options}).double().eval()


@every_network
def test_every_parameter_is_trained(name: str) -> None:
    network = made(name).train()
    network(WHOLE).log_probabilities.sum().backward()
    for parameter_name, parameter in network.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
    assert network.state_size() > 0


@every_network
@torch.no_grad()
def test_rows_are_independent(name: str) -> None:
    network = made(name)
    whole = network(WHOLE)
    assert whole.repetition.eq(0).all()
    for row, summary in enumerate(SUMMARIES):
        alone = network(batch_of([row])).log_probabilities[0]
        torch.testing.assert_close(alone, whole.log_probabilities[row, : len(summary)])


@every_network
@torch.no_grad()
def test_steps_of_decoding_equal_the_whole_sequence(name: str) -> None:
    network = made(name)
    expected = network(WHOLE).log_probabilities
    encoded, state = network.encode(WHOLE), network.begin(4)
    for step in range(WHOLE.targets.shape[1]):
        found, state = network.decode_step(encoded, state, WHOLE.inputs[:, step])
        assert found.exp().sum(dim=1).allclose(torch.ones(4).double())
        target = WHOLE.targets[:, step]
        if not NETWORKS[name][2].get("pointer", True):
            assert found[:, V:].isneginf().all()
            target = target.where(target < V, UNKNOWN_ID)
        present = target != IGNORED
        chosen = found[present].gather(1, target[present].unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(chosen, expected[present, step])


@every_network
def test_a_batch_is_decoded_as_one_by_one(name: str) -> None:
    network = made(name)
    search = BeamSearch(2, min_length=1, max_length=4)
    found = network.summarize(WHOLE, search)
    for row in range(4):
        encoded = network.encode(batch_of([row]))
        expected = plain(search, partial(network.decode_step, encoded), network.begin(1), START_ID, STOP_ID)
        for place, (score, tokens) in enumerate(expected):
            assert found.tokens[row, place, : len(tokens)].tolist() == tokens
            assert found.scores[row, place].item() == pytest.approx(score, abs=1e-9)


@every_network
@torch.no_grad()
def test_the_trace_is_a_share_of_the_probability(name: str) -> None:
    found = made(name).trace(WHOLE)
    torch.testing.assert_close(found.attention.sum(dim=-1), torch.ones(4, 4).double())
    present = WHOLE.targets != IGNORED
    assert ((found.copied[present] >= 0) & (found.copied[present] <= 1 + 1e-9)).all()
    is_own = present & (WHOLE.targets >= V)
    if NETWORKS[name][2].get("pointer", True):
        torch.testing.assert_close(found.copied[is_own], torch.ones(int(is_own.sum())).double())
    else:
        assert found.copied.eq(0).all()


@pytest.mark.parametrize(
    ("encoder", "options", "message"),
    [
        (gru, {}, "centered=True: must be false for GRUCell, which reads in two directions instead"),
        (gru, {"centered": False, "encoder_kernels": [3]}, "encoder_kernels=.*must be null, because the cell has no"),
        (light, {"encoder_kernels": [4]}, "kernel_size=4: must be odd for a centered window"),
        (light, {"encoder_kernels": []}, "encoder_kernels=.*must have a kernel size for each layer"),
        (light, {"attention_heads": 3}, "attention_heads=3: must divide embedding_size, 8"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(encoder: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ConvSummarizer(encoder, light, V, **{"embedding_size": D, **options})
