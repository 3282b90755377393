"""Pointer-generator network: reads an article, writes a summary with words of its vocabulary and of the article."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves, tree_map_with_path

from gyral.cells.base import RecurrentCell, State
from gyral.core.checks import check_boolean, check_integer
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.data.summaries.batches import START_ID, STOP_ID, UNKNOWN_ID, SummaryBatch
from gyral.models.attention import last_of
from gyral.models.beam import BeamSearch, Hypotheses
from gyral.nn.recurrent import Recurrent
from gyral.ops.scan import Shared, scan

INITIAL_DEVIATION = 1e-4  # of the weights that See et al. draw from a normal distribution


class Memory(NamedTuple):
    """What a decoder attends to: B articles of S words.

    Attributes:
        states: (B, S, E) outputs of the encoder.
        features: (B, S, A) their share of the attention's energies, W_h h_i.
        mask: (B, S) True at words, False at padding.
    """

    states: Tensor
    features: Tensor
    mask: Tensor


class Encoded(NamedTuple):
    """An encoded batch: what is attended to; the articles' words (B, S), extended; the number of extended words."""

    memory: Memory
    words: Tensor
    extra: int


class DecoderState(NamedTuple):
    """What a decoder carries from step to step, in R rows.

    Attributes:
        cell: the cell's state.
        context: (R, E) the last context vector.
        coverage: (R, S) sum of the attention so far, whether it is looked at or not.
    """

    cell: State
    context: Tensor
    coverage: Tensor


class Predictions(NamedTuple):
    """Of each target, both (B, T) and zero where the target is `IGNORED`.

    Attributes:
        log_probabilities: log P(w*_t).
        repetition: the coverage loss Σ_i min(a_{t,i}, c_{t,i}).
    """

    log_probabilities: Tensor
    repetition: Tensor


class Trace(NamedTuple):
    """How each target came about.

    Attributes:
        attention: (B, T, S) a_t.
        copied: (B, T) the share of P(w*_t) that copying has.
    """

    attention: Tensor
    copied: Tensor


class AdditiveAttention(nn.Module):
    """Attention over an article's words (Bahdanau et al. 2015; See et al. 2017, eqs 1, 2 and 11).

    e_i = vᵀ tanh(W_h h_i + W_s s [+ w_c c_i] + b),   a = softmax(e)

    Initialization: matrices Xavier-uniform, b and w_c zero: attention with coverage starts as attention without it.
    Weights saved without coverage fit one with it, whose w_c stays as it is.

    Args:
        memory_size: E, of h_i.
        query_size: of s.
        coverage: whether there is w_c.

    Attributes:
        size: A, of b; E, as in the authors' code.
    """

    def __init__(self, memory_size: int, query_size: int, coverage: bool) -> None:
        super().__init__()
        self.size = memory_size
        self.memory = nn.Linear(memory_size, self.size, bias=False)
        self.query = nn.Linear(query_size, self.size)
        self.score = nn.Linear(self.size, 1, bias=False)
        self.coverage = nn.Parameter(torch.zeros(self.size)) if coverage else None
        self.register_load_state_dict_pre_hook(_keep_coverage)

    def scores(self, memory: Memory, query: Tensor, coverage: Tensor) -> Tensor:
        """Return e (R, S), −∞ at padding.

        Args:
            memory: of B articles.
            query: s (R, query_size): R / B rows for each article, next to each other.
            coverage: c (R, S).
        """
        articles = len(memory.mask)
        energies = memory.features.unsqueeze(1) + self.query(query).view(articles, -1, 1, self.size)
        if self.coverage is not None:
            energies.addcmul_(coverage.view(*energies.shape[:3], 1), self.coverage)
        # in place: of the energies of all steps, the largest tensors there are, only the tanh is kept for backward
        scores = self.score(energies.tanh_()).squeeze(-1)
        return scores.masked_fill(~memory.mask.unsqueeze(1), -math.inf).flatten(0, 1)


def _keep_coverage(module: nn.Module, saved: dict[str, Any], prefix: str, *_: Any) -> None:
    """Have weights that were saved without coverage fit attention that has it."""
    assert isinstance(module, AdditiveAttention)
    if module.coverage is not None:
        saved.setdefault(prefix + "coverage", module.coverage.detach())


class Decoder(nn.Module):
    """A cell that attends to an article, and reads at each step what it last found there.

    x_t = W [y_t; h*_{t−1}] + b,   (o_t, state_t) = cell(x_t, state_{t−1}),   h*_t = Σ_i a_{t,i} h_i

    with y_t the embedding of the last word and h* the context, zero before the first step. The attention's query s_t is
    made of all vectors of the cell's state: of an LSTM, [hidden; cell], as in the authors' code.

    Args:
        cell: makes the cell from the width of x, which is that of y.
        input_size: X, of y.
        memory_size: E, of h_i.
        coverage: whether attention sees its own past.

    Attributes:
        widths: of o, h*, s and x, the parts in which a step's vectors are put out.

    Raises:
        OptionError: the cell's state has no vector.
    """

    def __init__(self, cell: Callable[[int], RecurrentCell], input_size: int, memory_size: int, coverage: bool) -> None:
        super().__init__()
        self.merge_input = nn.Linear(input_size, input_size)
        self.merge_context = nn.Linear(memory_size, input_size, bias=False)
        self.cell = cell(input_size)
        found = vectors(self.cell.init_state(1))
        if not found:
            raise OptionError(f"decoder={type(self.cell).__name__}: its state must have a vector to attend with")
        query_size = sum(vector.shape[1] for vector in found.values())
        self.attention = AdditiveAttention(memory_size, query_size, coverage)
        self.widths = (self.cell.output_size, memory_size, query_size, input_size)

    def begin(self, memory: Memory, state: State) -> DecoderState:
        """Return the state before the first step, from that of the cell."""
        context = memory.states.new_zeros(len(memory.states), memory.states.shape[2])
        return DecoderState(state, context, context.new_zeros(memory.mask.shape))

    def scan_step(self, at_a_time: tuple[Shared, Tensor, Any], state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Take one step, as `gyral.ops.scan.scan` calls it.

        Args:
            at_a_time: the memory; W_y y + b (R, X), the embedding's share of x; what the cell's `context` gave.
            state: before the step.

        Returns:
            (R, sum of `widths` + 1 + S): o, h*, s, x, the coverage loss and the scores e side by side; the new state.
        """
        fixed, embedded, noise = at_a_time
        memory: Memory = fixed.value
        inputs = embedded + self.merge_context(state.context)
        output, cell = self.cell.scan_step((self.cell.project(inputs), noise), state.cell)
        query = torch.cat([leaf for leaf in tree_leaves(cell) if leaf.dim() == 2], dim=-1)
        scores = self.attention.scores(memory, query, state.coverage)
        attention = scores.softmax(dim=-1)
        context = (attention.view(len(memory.mask), -1, attention.shape[1]) @ memory.states).flatten(0, 1)
        loss = repetition(attention, state.coverage).unsqueeze(1)
        new = DecoderState(cell, context, state.coverage + attention)
        return torch.cat([output, context, query, inputs, loss, scores], dim=-1), new

    def split(self, steps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return of what `take` puts out (…, sum of `widths` + 1 + S) vectors, coverage loss (…) and scores."""
        width = sum(self.widths)
        return steps[..., :width], steps[..., width], steps[..., width + 1 :]


class Bridge(nn.Module):
    """From the last states of both directions of an encoder to the first one of a decoder, whatever their cells are.

    A vector of the decoder's state starts as its cell would start it, which is zero in most, plus

        ReLU(W [forward; backward] + b)

    of the vectors of the same name in the encoder's last states: between two LSTMs hidden from hidden and cell from
    cell (See et al. 2017). Where the encoder has none of that name, the first vector, which is the hidden one, is made
    of the last outputs of both directions, and others start as the cell starts them. So does what is no vector: a
    matrix that is a rotation would be none after it.

    Initialization: W and b truncated normal, of deviation 10⁻⁴.

    Args:
        encoder, decoder: cells.
    """

    def __init__(self, encoder: RecurrentCell, decoder: RecurrentCell) -> None:
        super().__init__()
        sources, wanted = vectors(encoder.init_state(1)), vectors(decoder.init_state(1))
        self.layers = nn.ModuleDict()
        self.sources: dict[str, str | None] = {}  # of each vector: its name in the encoder's state; None: the outputs
        for place, (name, vector) in enumerate(wanted.items()):
            if name in sources or place == 0:
                self.sources[name] = name if name in sources else None
                width = sources[name].shape[1] if name in sources else encoder.output_size
                self.layers[_key(name)] = nn.Linear(2 * width, vector.shape[1])
        for parameter in self.parameters():
            draw_normal_(parameter)

    def forward(self, ends: Tensor, last: tuple[State, State], first: State) -> State:
        """Return the decoder's first state.

        Args:
            ends: (B, 2 · output size of the encoder's cell): the last outputs of both directions.
            last: the last states of both directions.
            first: what the decoder's cell would start with.
        """
        forward, backward = map(vectors, last)

        def start(path: Any, leaf: Tensor) -> Tensor:
            name = keystr(path)
            if name not in self.sources:
                return leaf
            source = self.sources[name]
            ended = ends if source is None else torch.cat([forward[source], backward[source]], dim=-1)
            return leaf + torch.relu(self.layers[_key(name)](ended)).to(leaf.dtype)

        return tree_map_with_path(start, first)


class PointerGenerator(nn.Module):
    """See, Liu and Manning, "Get To The Point: Summarization with Pointer-Generator Networks", ACL 2017.

    P(w) = p_gen P_vocab(w) + (1 − p_gen) Σ_{i: w_i = w} a_i                                          (eq. 9)
    P_vocab = softmax(V' (V [o; h*] + b) + b')                                                       (eq. 4)
    p_gen = σ(w · [h*; s; x] + b)                                                                    (eq. 8)

    over the vocabulary and the words of the article that it lacks, which have extended numbers (`SummaryBatch`). The
    encoder is one bidirectional layer, `Bridge` makes the decoder's first state of its last one, and `Decoder` has what
    is left of the equations. With LSTMs of 256 units, embeddings of 128 and 50,000 words the network has the 21,499,600
    parameters that the paper tells, 1,153 more for p_gen and 512 for coverage; torch's second biases of three LSTMs,
    3,072, are apart from that.

    The mixture is taken of logarithms, so that no probability is rounded to zero before. In training only the target's
    probability is computed.

    Initialization: as in the authors' code: embedding, V' and `Bridge` truncated normal of deviation 10⁻⁴, other
    matrices Xavier-uniform, biases zero; the cells as they are initialized anywhere.

    Args:
        encoder: makes a cell of the encoder from its input size; called once for each direction.
        decoder: makes the decoder's cell.
        vocabulary_size: V.
        output_size: what a task passes to every model; words that are written are read again, so that it is V.
        embedding_size: X, of the embedding that encoder and decoder share.
        coverage: whether attention sees its own past. A checkpoint without it fits a network with it.
        backend: of the encoder (`gyral.nn.recurrent.Recurrent`).

    Attributes:
        coverage: as given.

    Raises:
        OptionError: an option out of bounds or of another type.
    """

    def __init__(
        self,
        encoder: Callable[[int], RecurrentCell],
        decoder: Callable[[int], RecurrentCell],
        vocabulary_size: int,
        output_size: int | None = None,
        *,
        embedding_size: int = 128,
        coverage: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.vocabulary_size = check_integer("vocabulary_size", vocabulary_size, minimum=STOP_ID + 1)
        self.coverage = check_boolean("coverage", coverage)
        self.embedding = nn.Embedding(vocabulary_size, check_integer("embedding_size", embedding_size))
        self.encoder = Recurrent(encoder, embedding_size, bidirectional=True, backend=backend)
        self.decoder = Decoder(decoder, embedding_size, self.encoder.output_size, coverage)
        _, *widths = self.decoder.widths
        self.gate = nn.Linear(sum(widths), 1)
        output = self.decoder.cell.output_size
        self.combine = nn.Linear(output + self.encoder.output_size, output)
        self.vocabulary = nn.Linear(output, vocabulary_size)
        self._initialize()
        self.bridge = Bridge(self._encoder_cell(), self.decoder.cell)

    def _initialize(self) -> None:
        attention = self.decoder.attention
        layers = [attention.memory, attention.query, attention.score, self.decoder.merge_context]
        for layer in (*layers, self.decoder.merge_input, self.gate, self.combine):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        for weight in (self.embedding.weight, self.vocabulary.weight, self.vocabulary.bias):
            draw_normal_(weight)

    def _encoder_cell(self) -> RecurrentCell:
        cell = self.encoder.cells[0]
        assert isinstance(cell, RecurrentCell)
        return cell

    def forward(self, batch: SummaryBatch) -> Predictions:
        """Return the log-probabilities of a batch's targets, and the coverage loss, with or without coverage.

        A target must be a word of the vocabulary, or one of its article; one that is neither has the log-probability of
        nothing, about −10³⁸.
        """
        encoded, steps = self._run(batch)
        targets = batch.targets.T
        there = targets != IGNORED
        found, repeated, scores = self.decoder.split(steps)
        log_attention = scores.log_softmax(dim=-1)
        # what padding stands for needs no logits, which cost most
        target = targets[there]
        logits, gate = self._outputs(found[there])
        is_known = target < self.vocabulary_size
        generated = -F.cross_entropy(logits, target.where(is_known, IGNORED), ignore_index=IGNORED, reduction="none")
        generated = generated.masked_fill(~is_known, _nothing(generated))
        is_copy = (encoded.words == targets.unsqueeze(2)) & encoded.memory.mask
        mixed = mix(gate, generated, log_attention[there], is_copy[there])
        log_probabilities = mixed.new_zeros(there.shape).masked_scatter(there, mixed)
        return Predictions(log_probabilities.T, (repeated * there).T)

    def _run(self, batch: SummaryBatch) -> tuple[Encoded, Tensor]:
        """Return an encoded batch, and what the decoder puts out at each step (T, B, …) when it reads the summaries."""
        encoded, state = self.encode(batch)
        noise = self.decoder.cell.sequence_constants(*batch.targets.T.shape)
        embedded = self.decoder.merge_input(self.embedding(batch.inputs.T))
        steps, _ = scan(self.decoder.scan_step, (Shared(encoded.memory), embedded, noise), state)
        return encoded, steps

    def trace(self, batch: SummaryBatch) -> Trace:
        """Return how a batch's targets come about; where a target is `IGNORED` it says nothing."""
        encoded, steps = self._run(batch)
        found, _, scores = self.decoder.split(steps)
        attention = scores.softmax(dim=-1)
        pointed = (attention * (encoded.words == batch.targets.T.unsqueeze(2))).sum(dim=-1)
        copied = torch.sigmoid(-self._outputs(found)[1]) * pointed
        return Trace(attention.transpose(0, 1), copied.T / self(batch).log_probabilities.exp())

    def _outputs(self, found: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of the vocabulary (…, V) and of p_gen (…), from a decoder's vectors (…, sum of widths)."""
        output, context, *_ = self.decoder.widths
        return self.vocabulary(self.combine(found[..., : output + context])), self.gate(found[..., output:]).squeeze(-1)

    def encode(self, batch: SummaryBatch) -> tuple[Encoded, DecoderState]:
        """Return what the decoder attends to, and its first state."""
        outputs, (forward, backward) = self.encoder(self.embedding(batch.article.T), lengths=batch.lengths)
        size = self._encoder_cell().output_size
        ends = torch.cat([last_of(outputs, batch.lengths)[:, :size], outputs[0, :, size:]], dim=-1)
        first = self.bridge(ends, (forward, backward), self.decoder.cell.init_state(len(batch.lengths)))
        states = outputs.transpose(0, 1).contiguous()
        mask = torch.arange(states.shape[1], device=states.device) < batch.lengths.to(states.device).unsqueeze(1)
        memory = Memory(states, self.decoder.attention.memory(states), mask)
        return Encoded(memory, batch.article_extended, batch.extra), self.decoder.begin(memory, first)

    def decode_step(self, encoded: Encoded, state: DecoderState, tokens: Tensor) -> tuple[Tensor, DecoderState]:
        """Have the decoder read a word a row.

        Args:
            encoded: of B articles.
            state: of R rows, R / B for each article, next to each other.
            tokens: (R,) numbers, extended ones too, which are read as `<unk>`.

        Returns:
            log-probabilities (R, V + extra) of the next word, −∞ of an extended number that the row's article has not;
            the new state.
        """
        tokens = tokens.where(tokens < self.vocabulary_size, UNKNOWN_ID)
        embedded = self.decoder.merge_input(self.embedding(tokens))
        noise = self.decoder.cell.sequence_constants(len(tokens))
        found, state = self.decoder.take((Shared(encoded.memory), embedded, noise), state)
        found, _, scores = self.decoder.split(found)
        logits, gate = self._outputs(found)
        words = encoded.words.repeat_interleave(len(tokens) // len(encoded.words), dim=0)
        generated = logits.log_softmax(dim=-1)
        return extend(gate, generated, scores.softmax(dim=-1), words, encoded.extra), state

    @torch.inference_mode()
    def summarize(self, batch: SummaryBatch, search: BeamSearch) -> Hypotheses:
        """Return the summaries that a search finds, all those of a batch at once."""
        encoded, state = self.encode(batch)
        return search(partial(self.decode_step, encoded), state, start=START_ID, stop=STOP_ID)

    @torch.no_grad()
    def state_size(self) -> int:
        """Number of recurrent state values that encoder and decoder cells carry from step to step for one sequence."""
        states = self.encoder.init_state(1), self.decoder.cell.init_state(1)
        return sum(leaf.numel() for leaf in tree_leaves(states))


def mix(gate: Tensor, generated: Tensor, log_attention: Tensor, is_copy: Tensor) -> Tensor:
    """Return log(p_gen P_vocab(w) + (1 − p_gen) Σ_{i: w_i = w} a_i), one word w for each of (…).

    Args:
        gate: (…) the logit of p_gen.
        generated: (…) log P_vocab(w).
        log_attention: (…, S) log a, −∞ at padding.
        is_copy: (…, S) whether w_i = w; False at padding.
    """
    # not −∞, of which a word that nowhere stands would make NaN in the gradient
    copied = log_attention.masked_fill(~is_copy, _nothing(log_attention)).logsumexp(dim=-1)
    gate = gate.to(copied.dtype)
    return torch.logaddexp(F.logsigmoid(gate) + generated, F.logsigmoid(-gate) + copied)


def extend(gate: Tensor, generated: Tensor, attention: Tensor, words: Tensor, extra: int) -> Tensor:
    """Return the logarithms (R, V + extra) of the same mixture, for all words; no gradient may be taken of −∞.

    Args:
        gate: (R,) the logit of p_gen.
        generated: (R, V) log P_vocab.
        attention: (R, S) a, zero at padding.
        words: (R, S) numbers of the article's words, extended.
        extra: extended numbers.
    """
    gate = gate.to(attention.dtype).unsqueeze(1)
    mixed = F.pad(F.logsigmoid(gate) + generated, (0, extra), value=-math.inf)
    copied = torch.zeros_like(mixed).scatter_add(1, words, attention).gather(1, words).log() + F.logsigmoid(-gate)
    # only what stands in the article changes; where a word stands twice, the same is written twice
    return mixed.scatter_(1, words, torch.logaddexp(mixed.gather(1, words), copied))


def repetition(attention: Tensor, coverage: Tensor) -> Tensor:
    """Return the coverage loss Σ_i min(a_i, c_i) (See et al. 2017, eq. 12).

    Args:
        attention: a (…, S) of a step.
        coverage: c (…, S), the sum of the attention at all steps before.
    """
    return torch.minimum(attention, coverage).sum(dim=-1)


def summary_mean(values: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over the batch of the means over each summary's own steps, as See et al. (2017, eq. 7) take it.

    A word of a short summary counts more than one of a long one.

    Args:
        values: (B, T), zero where there is no target.
        targets: (B, T), at least one of each row not `IGNORED`.
    """
    return (values.sum(dim=1) / (targets != IGNORED).sum(dim=1)).mean()


def vectors(state: State) -> dict[str, Tensor]:
    """Return the leaves (B, N) of a state by their names; the hidden vector comes first."""
    return {keystr(path): leaf for path, leaf in tree_flatten_with_path(state)[0] if leaf.dim() == 2}


def _key(name: str) -> str:
    """Return the name of a state's leaf as one that a module may have."""
    return name.removeprefix(".").replace(".", "_")


def _nothing(like: Tensor) -> float:
    """Return a logarithm that stands for that of 0, finite and with room for sums."""
    return torch.finfo(like.dtype).min / 4


def draw_normal_(weight: Tensor) -> Tensor:
    """Draw a weight from a normal distribution, truncated at two deviations."""
    bound = 2 * INITIAL_DEVIATION
    return nn.init.trunc_normal_(weight, std=INITIAL_DEVIATION, a=-bound, b=bound)
