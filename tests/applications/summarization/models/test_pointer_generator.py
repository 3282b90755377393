"""The pointer-generator network against its equations, by hand and word by word, with any cell at both places."""

import functools
import math
from typing import Any

import hydra
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.applications.summarization.data.batches import START_ID, STOP_ID, UNKNOWN_ID, SummaryBatch
from gyral.applications.summarization.models.pointer_decoder import repetition
from gyral.applications.summarization.models.pointer_generator import PointerGenerator, extend, mix
from gyral.applications.summarization.models.summarizer import summary_mean
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.mamba import MambaCell
from gyral.cells.rum import RUMCell
from gyral.config.groups import choices
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.data.vocabulary import PADDING_ID
from gyral.generation.beam import BeamSearch
from gyral.nn.recurrent import reorder
from tests.generation.test_beam import plain
from tests.helpers.found import at_least
from tests.helpers.running import compose_config

MODELS = at_least(45, choices("cell"))
V, H, X = 9, 4, 3
OWN = V  # the first extended number
ARTICLES = [[5, OWN, 4, OWN + 1, OWN], [7, 7, OWN], [6], [4, 5, 6, 7]]
SUMMARIES = [[OWN + 1, 5, STOP_ID], [OWN, 8, 7, STOP_ID], [STOP_ID], [6, 4]]

lstm = functools.partial(LSTMCell, hidden_size=H)
gru = functools.partial(GRUCell, hidden_size=H)
rum = functools.partial(RUMCell, hidden_size=H, lambd=1.0)
mamba = functools.partial(MambaCell, hidden_size=H)  # its state has no vector
PAIRS = [
    (mamba, mamba),
    (lstm, mamba),
    (lstm, lstm),
    (lstm, rum),
    (rum, lstm),
    (rum, rum),
    (gru, functools.partial(RUMCell, hidden_size=6)),
]
# the others have the same states at both places, or those of two pairs together
SELECTED = (PAIRS[1], PAIRS[3], PAIRS[4], PAIRS[6])
every_pair = pytest.mark.parametrize(
    ("encoder", "decoder"),
    [pytest.param(*pair, marks=() if pair in SELECTED else pytest.mark.slow) for pair in PAIRS],
)


def made(encoder: Any = lstm, decoder: Any = lstm, **options: Any) -> PointerGenerator:
    """Return a network in float64 without small weights."""
    network = PointerGenerator(encoder, decoder, V, embedding_size=X, **options).double()
    for name, parameter in network.named_parameters():
        if not name.startswith(("encoder", "decoder.cell")):
            torch.nn.init.normal_(parameter)
    return network


def batch_of(rows: list[int]) -> SummaryBatch:
    def filled(sequences: list[list[int]], padding: int) -> Tensor:
        longest = max(map(len, sequences))
        return torch.tensor([[*sequence, *[padding] * (longest - len(sequence))] for sequence in sequences])

    articles, summaries = [ARTICLES[row] for row in rows], [SUMMARIES[row] for row in rows]
    extended, targets = filled(articles, PADDING_ID), filled(summaries, IGNORED)
    inputs = filled([[START_ID, *summary[:-1]] for summary in summaries], PADDING_ID)
    return SummaryBatch(
        extended.where(extended < V, UNKNOWN_ID),
        extended,
        torch.tensor([len(article) for article in articles]),
        inputs.where(inputs < V, UNKNOWN_ID),
        targets,
        torch.zeros(len(rows), max(max(article) - V + 1 for article in [*articles, [OWN - 1]]), dtype=torch.long),
        torch.tensor(rows),
    )


WHOLE = batch_of([0, 1, 2, 3])


# --- the mixture


def test_a_mixture_by_hand() -> None:
    # p_gen = 3/4; the article is "2 4 2" with words 0 to 3 of the vocabulary and the extended word 4
    gate, generated = torch.tensor(3.0).log(), torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    attention, words = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([2, 4, 2])
    expected = torch.tensor([0.075, 0.15, 0.225 + 0.175, 0.3, 0.075])
    found = extend(gate.view(1), generated.view(1, 4), attention.view(1, 3), words.view(1, 3), 1)
    torch.testing.assert_close(found.exp(), expected.view(1, 5))
    word = torch.arange(5)
    of_words = F.pad(generated, (0, 1), value=-1e30)
    found = mix(gate.expand(5), of_words, attention.log().expand(5, 3), words == word.unsqueeze(1))
    torch.testing.assert_close(found.exp(), expected)


def test_gradients_of_the_mixture_agree_with_finite_differences() -> None:
    # targets: a word to copy or to write, one to write, one to copy, one to copy from two places
    target = torch.tensor([2, 3, 4, 1])
    words = torch.tensor([[2, 0, 4, 0], [2, 0, 4, 0], [2, 0, 4, 0], [1, 0, 1, 0]])
    mask = torch.tensor([True, True, True, False])

    def mixed(gate: Tensor, logits: Tensor, scores: Tensor) -> Tensor:
        known = target < 4
        generated = logits.log_softmax(dim=1).gather(1, target.where(known, 0).unsqueeze(1)).squeeze(1)
        log_attention = scores.masked_fill(~mask, -math.inf).log_softmax(dim=1)
        return mix(gate, generated.masked_fill(~known, -1e300), log_attention, (words == target.unsqueeze(1)) & mask)

    arguments = [torch.randn(*shape, dtype=torch.double, requires_grad=True) for shape in ((4,), (4, 4), (4, 4))]
    assert torch.autograd.gradcheck(mixed, arguments)


@pytest.mark.parametrize(("gate", "size"), [(-500.0, 1e4), (0.0, 1.0), (0.0, 1e4), (500.0, 1.0), (500.0, 1e4)])
def test_certain_predictions_have_finite_loss_and_gradients(gate: float, size: float) -> None:
    scores = (size * torch.tensor([[1.0, -1.0, 0.0]])).requires_grad_()
    logits = (size * torch.tensor([[-1.0, 1.0]])).requires_grad_()
    is_copy = torch.tensor([[False, True, False]])
    logit = torch.tensor([gate], requires_grad=True)
    for known in (True, False):
        for copies in (is_copy, torch.zeros_like(is_copy)):
            generated = logits.log_softmax(dim=1)[:, 0]
            if not known:
                generated = generated.masked_fill(torch.tensor([True]), torch.finfo(torch.float).min / 4)
            loss = -mix(logit, generated, scores.log_softmax(dim=1), copies)
            gradients = torch.autograd.grad(loss, [logit, scores, logits])
            assert all(tensor.isfinite().all() for tensor in (loss, *gradients))


# --- losses


def test_the_coverage_loss_by_hand() -> None:
    attention = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.0, 0.8], [0.9, 0.0, 0.1]])
    coverage = torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.7, 0.5, 0.8]])
    torch.testing.assert_close(repetition(attention, coverage), torch.tensor([0.0, 0.2, 0.8]))


def test_the_loss_is_the_mean_of_the_summaries_means() -> None:
    values = torch.tensor([[1.0, 3.0, 0.0], [5.0, 0.0, 0.0], [1.0, 2.0, 6.0]])
    targets = torch.tensor([[4, 4, IGNORED], [4, IGNORED, IGNORED], [4, 4, 4]])
    assert summary_mean(values, targets).item() == pytest.approx((2 + 5 + 3) / 3)


# --- the network


def by_hand(network: PointerGenerator, article: list[int], summary: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    """Return P(w*) and the coverage loss of each step, as the paper's equations read; between two LSTMs."""

    def read(word: int) -> Tensor:
        return network.embedding.weight[word if word < V else UNKNOWN_ID]

    directions = []
    for cell, words in zip(network.encoder.cells, (article, article[::-1]), strict=True):
        states = [cell.init_state(1)]
        for word in words:
            states.append(cell(read(word).unsqueeze(0), states[-1])[1])
        directions.append(states[1:])
    forward, backward = directions
    h = [torch.cat([f.hidden[0], b.hidden[0]]) for f, b in zip(forward, backward[::-1], strict=True)]
    ends = [torch.cat([forward[-1][leaf], backward[-1][leaf]], dim=1) for leaf in (0, 1)]
    layers = network.bridge.layers
    state = LSTMCell.State(layers["hidden"](ends[0]).relu(), layers["cell"](ends[1]).relu())

    decoder, attention = network.decoder, network.decoder.attention
    context, covered = torch.zeros_like(h[0]), torch.zeros(len(h), dtype=torch.double)
    probabilities, losses = [], []
    for last, word in zip([START_ID, *summary], summary, strict=False):
        merge = torch.cat([decoder.merge_input.weight, decoder.merge_context.weight], dim=1)
        x = merge @ torch.cat([read(last), context]) + decoder.merge_input.bias
        output, state = decoder.cell(x.unsqueeze(0), state)
        s = torch.cat([state.hidden[0], state.cell[0]])
        e = []
        for i, h_i in enumerate(h):
            energy = attention.memory.weight @ h_i + attention.query.weight @ s + attention.query.bias
            if attention.coverage is not None:
                energy = energy + attention.coverage * covered[i]
            e.append(attention.score.weight[0] @ energy.tanh())
        a = torch.stack(e).exp() / torch.stack(e).exp().sum()
        context = sum((a_i * h_i for a_i, h_i in zip(a, h, strict=True)), torch.zeros_like(h[0]))
        p_gen = network.gate(torch.cat([context, s, x])).sigmoid()
        p_vocab = network.vocabulary(network.combine(torch.cat([output[0], context]))).softmax(dim=0)
        copied = sum((a_i for a_i, w_i in zip(a, article, strict=True) if w_i == word), torch.zeros(()))
        probabilities.append(p_gen * (p_vocab[word] if word < V else 0) + (1 - p_gen) * copied)
        losses.append(torch.minimum(a, covered).sum())
        covered = covered + a
    return probabilities, losses


@pytest.mark.parametrize("coverage", [False, True])
def test_the_network_computes_its_equations(coverage: bool) -> None:
    network = made(coverage=coverage)
    found = network(WHOLE)
    for row, (article, summary) in enumerate(zip(ARTICLES, SUMMARIES, strict=True)):
        probabilities, losses = by_hand(network, article, summary)
        steps = len(summary)
        torch.testing.assert_close(found.log_probabilities[row, :steps].exp(), torch.cat(probabilities))
        torch.testing.assert_close(found.repetition[row, :steps], torch.stack(losses))
        assert found.log_probabilities[row, steps:].eq(0).all()
        assert found.repetition[row, steps:].eq(0).all()


@every_pair
@torch.no_grad()
def test_steps_give_the_same_probabilities_and_these_sum_to_one(encoder: Any, decoder: Any) -> None:
    for coverage in (False, True):
        check_steps(made(encoder, decoder, coverage=coverage))


def check_steps(network: PointerGenerator) -> None:
    expected = network(WHOLE).log_probabilities
    encoded, state = network.encode(WHOLE)
    tokens = torch.full((4,), START_ID)
    for step in range(expected.shape[1]):
        log_probabilities, state = network.decode_step(encoded, state, tokens)
        assert log_probabilities.shape == (4, V + 2)
        torch.testing.assert_close(log_probabilities.exp().sum(dim=1), torch.ones(4, dtype=torch.double))
        assert log_probabilities[1:, OWN + 1].isneginf().all()
        assert log_probabilities[2:, OWN].isneginf().all()
        target = WHOLE.targets[:, step]
        there = target != IGNORED
        found = log_probabilities.gather(1, target.where(there, 0).unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(found[there], expected[there, step])
        tokens = target.where(there, STOP_ID)  # including extended words


@every_pair
def test_an_article_depends_on_no_other_and_not_on_padding(encoder: Any, decoder: Any) -> None:
    network = made(encoder, decoder, coverage=True)
    whole = network(WHOLE)
    for row, summary in enumerate(SUMMARIES):
        alone = network(batch_of([row]))
        for ours, theirs in zip(alone, whole, strict=True):
            torch.testing.assert_close(ours[0], theirs[row, : len(summary)])


def test_several_rows_per_article_equal_one_row_each() -> None:
    network = made(coverage=True)
    encoded, state = network.encode(WHOLE)
    _, state = network.decode_step(encoded, state, torch.full((4,), START_ID))
    words = torch.tensor([[4, 5, OWN], [6, 7, 4], [5, 5, 8], [4, 7, 6]])
    rows = torch.arange(4).repeat_interleave(3)
    together, after = network.decode_step(encoded, reorder(state, rows), words.flatten())
    for place in range(3):
        alone, after_alone = network.decode_step(encoded, state, words[:, place])
        torch.testing.assert_close(together[place::3], alone)
        torch.testing.assert_close(after.coverage[place::3], after_alone.coverage)


def test_gradients_of_the_network_agree_with_finite_differences() -> None:
    network = made(coverage=True)
    names = ["decoder.attention.coverage", "bridge.layers.cell.bias", "gate.bias"]
    parameters = dict(network.named_parameters())

    def loss(*values: Tensor) -> Tensor:
        found = torch.func.functional_call(network, dict(zip(names, values, strict=True)), (WHOLE,))
        return summary_mean(found.repetition - found.log_probabilities, WHOLE.targets)

    assert torch.autograd.gradcheck(loss, [parameters[name].detach().requires_grad_() for name in names])


def test_a_network_trained_without_coverage_continues_with_it() -> None:
    before = made(coverage=False)
    after = made(coverage=True)
    start = torch.nn.init.zeros_(after.decoder.attention.coverage).clone()
    saved = before.state_dict()
    after.load_state_dict(saved)
    assert torch.equal(after.decoder.attention.coverage, start)
    assert "decoder.attention.coverage" not in saved
    torch.testing.assert_close(after(WHOLE), before(WHOLE))
    found = after(WHOLE)
    summary_mean(found.repetition - found.log_probabilities, WHOLE.targets).backward()
    assert after.decoder.attention.coverage.grad.abs().min() > 0
    with pytest.raises(RuntimeError, match=r"Unexpected key.*decoder\.attention\.coverage"):
        before.load_state_dict(after.state_dict())
    torch.nn.init.ones_(after.decoder.attention.coverage)
    other = made(coverage=True)
    other.load_state_dict(after.state_dict())
    assert other.decoder.attention.coverage.eq(1).all()


def test_size_equals_the_paper() -> None:
    cell = functools.partial(LSTMCell, hidden_size=256)
    second_biases = 3 * 4 * 256  # which torch's LSTM has
    for coverage, own in ((False, 0), (True, 512)):
        with torch.device("meta"):
            network = PointerGenerator(cell, cell, 50_000, coverage=coverage)
        assert sum(weight.numel() for weight in network.parameters()) == 21_499_600 + 1_153 + own + second_biases


@functools.cache
def cell_of(model: str) -> Any:
    """Return the factory of a small cell of a YAML in conf/model."""
    cell = compose_config(f"model={model}").model.cell
    options = {"chunk_size": 2} if "chunk_size" in cell else {}
    return hydra.utils.instantiate(cell, hidden_size=H, **options)


@pytest.mark.named("dynamic_conv", "fast_weights", "fs_rum", "lantm", "urnn")
@pytest.mark.parametrize("model", MODELS)
def test_every_cell_reads_and_writes(model: str) -> None:
    cell = cell_of(model)
    for encoder, decoder in ((cell, lstm), (gru, cell)):  # the contract of tasks has both of one cell
        network = PointerGenerator(encoder, decoder, V, embedding_size=X, coverage=True, backend="reference")
        found = network(WHOLE)
        summary_mean(found.repetition - found.log_probabilities, WHOLE.targets).backward()
        for name, parameter in network.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
        written = network.eval().summarize(WHOLE, BeamSearch(2, min_length=1, max_length=3))
        assert written.scores[:, 0].isfinite().all()
        assert network.state_size() > 0


def test_a_decoder_starts_from_the_matching_state_of_the_encoder() -> None:
    def first(encoder: Any, decoder: Any) -> tuple[PointerGenerator, Any, Tensor]:
        network = made(encoder, decoder)
        encoded, state = network.encode(WHOLE)
        return network, state.cell, encoded.memory.states

    # hidden from hidden; the encoder has no cell vector, and a rotation is not made of rotations
    assert first(gru, lstm)[1].cell.eq(0).all()
    assert first(gru, lstm)[1].hidden.abs().sum() > 0
    torch.testing.assert_close(first(rum, rum)[1].memory, torch.eye(H).double().expand(4, H, H))
    # no vector of an FS-LSTM is called hidden: from the last outputs of both directions, each at its end
    network, state, outputs = first(cell_of("fs_lstm"), lstm)
    last = WHOLE.lengths - 1
    ends = torch.cat([outputs[torch.arange(4), last, :H], outputs[:, 0, H:]], dim=1)
    torch.testing.assert_close(state.hidden, network.bridge.layers["hidden"](ends).relu())
    assert state.cell.eq(0).all()


def test_a_bridge_of_all_vectors_equals_the_code_of_the_authors() -> None:
    def first(encoder: Any, decoder: Any) -> tuple[Any, Any, list[Any]]:
        network = made(encoder, decoder, bridge="all")
        _, state = network.encode(WHOLE)
        _, last = network.encoder(network.embedding(WHOLE.article.T), lengths=WHOLE.lengths)
        return network.bridge, state.cell, [torch.cat(leaves, dim=1) for leaves in zip(*last, strict=True)]

    plain_rum = functools.partial(RUMCell, hidden_size=H)
    # encRUM: the LSTM's cell vector from the hidden vectors
    bridge, state, (hidden,) = first(plain_rum, lstm)
    torch.testing.assert_close(state.hidden, bridge.layers["hidden"](hidden).relu())
    torch.testing.assert_close(state.cell, bridge.layers["cell"](hidden).relu())
    # decRUM: the cell vectors enter RUM's hidden vector
    bridge, state, (hidden, cell) = first(lstm, plain_rum)
    parts = bridge.layers["hidden"](hidden).relu(), bridge.layers["merged_cell"](cell).relu()
    torch.testing.assert_close(state.hidden, bridge.merge(torch.cat(parts, dim=1)).relu())
    # nothing to lift or to merge: the same layers
    for cells in ((lstm, lstm), (rum, rum)):
        networks = [PointerGenerator(*cells, V, bridge=bridge) for bridge in ("shared", "all")]
        assert [list(network.state_dict()) for network in networks] == [list(networks[0].state_dict())] * 2


@every_pair
def test_a_bridge_of_all_vectors_trains_and_writes(encoder: Any, decoder: Any) -> None:
    network = made(encoder, decoder, bridge="all")
    network(WHOLE).log_probabilities.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.bridge.parameters())
    assert network.summarize(WHOLE, BeamSearch(2, min_length=1, max_length=3)).scores[:, 0].isfinite().all()


def test_the_initialization_of_the_authors_code() -> None:
    width, size = 50, 40
    cell = functools.partial(LSTMCell, hidden_size=size, initialization="uniform")
    torch.manual_seed(1)
    default = PointerGenerator(cell, cell, V, embedding_size=width, coverage=True)
    torch.manual_seed(1)
    network = PointerGenerator(cell, cell, V, embedding_size=width, coverage=True, initialization="authors")
    attention, decoder = network.decoder.attention, network.decoder
    bounds = {
        "decoder.attention.score.weight": math.sqrt(3 / (2 * size)),
        "decoder.attention.coverage": math.sqrt(6 / (1 + 2 * size)),
        "decoder.merge_input.weight": math.sqrt(6 / (width + 2 * size + width)),
        "decoder.merge_context.weight": math.sqrt(6 / (width + 2 * size + width)),
    }
    assert attention.size == 2 * size
    for name, bound in bounds.items():
        drawn = network.get_parameter(name).detach()
        assert drawn.abs().max() <= bound
        assert drawn.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)
    assert decoder.merge_input.bias.count_nonzero() == 0
    same = network.state_dict().keys() - bounds.keys()
    assert all(
        torch.equal(network.state_dict()[name], default.state_dict()[name]) for name in same if "bridge" not in name
    )


@pytest.mark.parametrize(("encoder", "decoder", "beam"), [(*PAIRS[0], 1), (*PAIRS[1], 3)])
@torch.no_grad()
def test_a_batch_is_decoded_as_one_by_one(encoder: Any, decoder: Any, beam: int) -> None:
    network = made(encoder, decoder, coverage=True)
    search = BeamSearch(beam, min_length=2, max_length=5, block_ngrams=2, forbidden=[PADDING_ID, START_ID])
    found = network.summarize(WHOLE, search)
    for row in range(4):
        encoded, state = network.encode(batch_of([row]))
        expected = plain(search, functools.partial(network.decode_step, encoded), state, START_ID, STOP_ID)
        for place, (score, tokens) in enumerate(expected):
            assert found.tokens[row, place, : len(tokens)].tolist() == tokens
            assert found.scores[row, place].item() == pytest.approx(score, abs=1e-9)


def test_a_word_that_the_article_lacks_has_a_high_but_finite_loss() -> None:
    batch = WHOLE._replace(targets=WHOLE.targets.clone())
    batch.targets[2, 0] = OWN + 1
    network = PointerGenerator(lstm, lstm, V, embedding_size=X)
    found = network(batch)
    assert found.log_probabilities[2, 0] < -1e30
    found.log_probabilities.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


@every_pair
def test_half_precision_is_close_to_single(encoder: Any, decoder: Any) -> None:
    network = made(encoder, decoder, coverage=True).float()
    expected = network(WHOLE).log_probabilities
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = network(WHOLE)
        written = network.summarize(WHOLE, BeamSearch(3, min_length=1, max_length=4))
    # log-probabilities down to −30, with the relative rounding error of bfloat16; with other weights that of the
    # reference backend reaches 0.19
    torch.testing.assert_close(found.log_probabilities, expected, rtol=2**-7, atol=0.15)
    assert written.scores.dtype == torch.float
    (found.repetition - found.log_probabilities).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary_size": 3}, r"vocabulary_size=3: must be an integer ≥ 4"),
        ({"embedding_size": 0}, r"embedding_size=0: must be an integer ≥ 1"),
        ({"coverage": 1}, r"coverage=1: must be true or false"),
        ({"initialization": "see"}, r"initialization=see: must be one of default, authors"),
        ({"bridge": "none"}, r"bridge=none: must be one of shared, all"),
    ],
)
def test_wrong_options_are_errors_of_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}$"):
        PointerGenerator(lstm, lstm, **{"vocabulary_size": V, **options})


@pytest.mark.parametrize("coverage", [False, True])
def test_a_trace_contains_the_parts_of_each_probability(coverage: bool) -> None:
    network = made(coverage=coverage)
    with torch.no_grad():
        trace = network.trace(WHOLE)
        encoded, state = network.encode(WHOLE)
    there = WHOLE.targets != IGNORED
    torch.testing.assert_close(trace.attention[there].sum(dim=-1), torch.ones(int(there.sum())).double())
    for step in range(WHOLE.targets.shape[1]):
        # a word outside the article is never copied, and a word outside the vocabulary is always copied
        with torch.no_grad():
            probabilities, state = network.decode_step(encoded, state, WHOLE.inputs[:, step])
        for row, target in enumerate(WHOLE.targets[:, step].tolist()):
            if target == IGNORED:
                continue
            places = WHOLE.article_extended[row, : WHOLE.lengths[row]] == target
            share = trace.copied[row, step]
            assert 0 <= share <= 1 + 1e-12
            assert (share == 0) == (not places.any())
            if target >= V:
                assert share == pytest.approx(1)
            # p_gen is the same for all words of a step and follows from the copied share of this word
            copied = share * probabilities[row, target].exp()
            assert copied <= trace.attention[row, step, : len(places)][places].sum() + 1e-12
