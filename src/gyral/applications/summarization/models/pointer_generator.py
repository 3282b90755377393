"""Pointer-generator network: reads an article and writes a summary with words of the vocabulary and of the article."""

import math
from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from gyral.applications.summarization.data.batches import START_ID, STOP_ID, UNKNOWN_ID, SummaryBatch
from gyral.applications.summarization.models.pointer_decoder import Bridge, Decoder, DecoderState, Memory, draw_normal_
from gyral.applications.summarization.models.summarizer import Predictions, Summarizer, Trace
from gyral.cells.base import RecurrentCell
from gyral.core.checks import check_boolean, check_choice, check_integer
from gyral.data.batching import IGNORED
from gyral.generation.beam import BeamSearch, Hypotheses
from gyral.models.attention import last_of
from gyral.nn.recurrent import Recurrent
from gyral.ops.scan import Shared, scan


class Encoded(NamedTuple):
    """An encoded batch.

    Attributes:
        memory: memory that the decoder attends to.
        words: (B, S) words of the articles, with extended numbers.
        extra: number of extended numbers.
    """

    memory: Memory
    words: Tensor
    extra: int


class PointerGenerator(Summarizer):
    """See, Liu and Manning, "Get To The Point: Summarization with Pointer-Generator Networks", ACL 2017.

        P(w) = p_gen P_vocab(w) + (1 − p_gen) Σ_{i: w_i = w} a_i                                          (eq. 9)
        P_vocab = softmax(V' (V [o; h*] + b) + b')                                                       (eq. 4)
        p_gen = σ(w · [h*; s; x] + b)                                                                    (eq. 8)

    w is a word of the vocabulary, or a word of the article that is not in the vocabulary and has an extended number
    (`SummaryBatch`). The encoder is one bidirectional layer, `Bridge` computes the initial state of the decoder, and
    `Decoder` implements the other equations. With LSTMs of 256 units, embeddings of size 128 and 50,000 words, the
    network has the 21,499,600 parameters that the paper reports, 1,153 more for p_gen and 512 for coverage. The second
    biases of torch's three LSTMs are 3,072 additional parameters.

    The mixture is computed from log-probabilities, so that no probability underflows. Training computes only the
    probability of the target.

    Initialization: embedding, V', b' and `Bridge` truncated normal with standard deviation 10⁻⁴, other matrices
    Xavier-uniform, other biases zero. `initialization` determines the size of three of them. Cells
    initialize themselves; the authors' LSTMs correspond to `initialization="uniform"` of `gyral.cells.lstm.LSTMCell`.

    Args:
        encoder: makes the cell of the encoder from its input size; called once per direction.
        decoder: makes the cell of the decoder.
        vocabulary_size: V.
        output_size: number of classes that a task passes to every model; it is V, because the decoder reads the words
            that it writes.
        embedding_size: X, size of the embedding that encoder and decoder share.
        coverage: whether the attention depends on the sum of the earlier attention. A network with coverage loads
            checkpoints of a network without it.
        initialization: of v and w_c of the attention and of the matrix W of the decoder's input, which has a block for
            the embedding and a block for the context vector. "default": v and each block of W are Xavier-uniform
            matrices, and w_c is zero. "authors": as in the code of See et al. (abisee/pointer-generator on GitHub),
            where they have the defaults of TensorFlow's `get_variable`: v is uniform in ±√(3/A), w_c in ±√(6/(1 + A)),
            and W is Xavier-uniform as one matrix.
        bridge: "shared": the initial state of the decoder has the vectors that both cells have. "all": every vector of
            both cells is used (`Bridge`), as in the code of Dangovski et al. (TACL 2019).
        backend: backend of the encoder (`gyral.nn.recurrent.Recurrent`).

    Raises:
        OptionError: an option is out of bounds or has the wrong type.
    """

    small: ClassVar = {"embedding_size": 16, "encoder": {"hidden_size": 16}, "decoder": {"hidden_size": 16}}

    def __init__(
        self,
        encoder: Callable[[int], RecurrentCell],
        decoder: Callable[[int], RecurrentCell],
        vocabulary_size: int,
        output_size: int | None = None,
        *,
        embedding_size: int = 128,
        coverage: bool = False,
        initialization: str = "default",
        bridge: str = "shared",
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
        if check_choice("initialization", initialization, ("default", "authors")) == "authors":
            self._initialize_as_authors()
        complete = check_choice("bridge", bridge, ("shared", "all")) == "all"
        self.bridge = Bridge(self._encoder_cell(), self.decoder.cell, complete)

    def _initialize(self) -> None:
        attention = self.decoder.attention
        layers = [attention.memory, attention.query, attention.score, self.decoder.merge_context]
        for layer in (*layers, self.decoder.merge_input, self.gate, self.combine):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        for weight in (self.embedding.weight, self.vocabulary.weight, self.vocabulary.bias):
            draw_normal_(weight)

    def _initialize_as_authors(self) -> None:
        attention, merge = self.decoder.attention, (self.decoder.merge_input, self.decoder.merge_context)
        width = sum(layer.in_features for layer in merge) + self.decoder.merge_input.out_features
        bounds = [(layer.weight, math.sqrt(6 / width)) for layer in merge]
        bounds.append((attention.score.weight, math.sqrt(3 / attention.size)))
        if attention.coverage is not None:
            bounds.append((attention.coverage, math.sqrt(6 / (1 + attention.size))))
        for weight, bound in bounds:
            nn.init.uniform_(weight, -bound, bound)

    def _encoder_cell(self) -> RecurrentCell:
        cell = self.encoder.cells[0]
        assert isinstance(cell, RecurrentCell)
        return cell

    def forward(self, batch: SummaryBatch) -> Predictions:
        """Return the log-probabilities of the targets of a batch, and the coverage loss, with or without coverage.

        A target must be a word of the vocabulary or of the article. Other targets have a log-probability of about
        −10³⁸.
        """
        encoded, steps = self._run(batch)
        targets = batch.targets.T
        has_target = targets != IGNORED
        found, repeated, scores = self.decoder.split(steps)
        log_attention = scores.log_softmax(dim=-1)
        # Logits are the largest cost; padding does not need them.
        target = targets[has_target]
        logits, gate = self._outputs(found[has_target])
        is_known = target < self.vocabulary_size
        generated = -F.cross_entropy(logits, target.where(is_known, IGNORED), ignore_index=IGNORED, reduction="none")
        generated = generated.masked_fill(~is_known, nothing(generated))
        is_copy = (encoded.words == targets.unsqueeze(2)) & encoded.memory.mask
        mixed = mix(gate, generated, log_attention[has_target], is_copy[has_target])
        log_probabilities = mixed.new_zeros(has_target.shape).masked_scatter(has_target, mixed)
        return Predictions(log_probabilities.T, (repeated * has_target).T)

    def _run(self, batch: SummaryBatch) -> tuple[Encoded, Tensor]:
        """Return an encoded batch, and the outputs of the decoder (T, B, …) when it reads the summaries."""
        encoded, state = self.encode(batch)
        constants = self.decoder.cell.sequence_constants(*batch.targets.T.shape)
        embedded = self.decoder.merge_input(self.embedding(batch.inputs.T))
        steps, _ = scan(self.decoder.scan_step, (Shared(encoded.memory), embedded, constants), state)
        return encoded, steps

    def trace(self, batch: SummaryBatch) -> Trace:
        encoded, steps = self._run(batch)
        found, _, scores = self.decoder.split(steps)
        attention = scores.softmax(dim=-1)
        pointed = (attention * (encoded.words == batch.targets.T.unsqueeze(2))).sum(dim=-1)
        copied = torch.sigmoid(-self._outputs(found)[1]) * pointed
        return Trace(attention.transpose(0, 1), copied.T / self(batch).log_probabilities.exp())

    def _outputs(self, found: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of P_vocab (…, V) and of p_gen (…) from the vectors of the decoder (…, sum of widths)."""
        output, context, *_ = self.decoder.widths
        return self.vocabulary(self.combine(found[..., : output + context])), self.gate(found[..., output:]).squeeze(-1)

    def encode(self, batch: SummaryBatch) -> tuple[Encoded, DecoderState]:
        """Return the encoded articles, and the initial state of the decoder."""
        outputs, (forward, backward) = self.encoder(self.embedding(batch.article.T), lengths=batch.lengths)
        size = self._encoder_cell().output_size
        ends = torch.cat([last_of(outputs, batch.lengths)[:, :size], outputs[0, :, size:]], dim=-1)
        first = self.bridge(ends, (forward, backward), self.decoder.cell.init_state(len(batch.lengths)))
        states = outputs.transpose(0, 1).contiguous()
        mask = torch.arange(states.shape[1], device=states.device) < batch.lengths.to(states.device).unsqueeze(1)
        memory = Memory(states, self.decoder.attention.memory(states), mask)
        return Encoded(memory, batch.article_extended, batch.extra), self.decoder.begin(memory, first)

    def decode_step(self, encoded: Encoded, state: DecoderState, tokens: Tensor) -> tuple[Tensor, DecoderState]:
        """Run one step of the decoder.

        Args:
            encoded: B encoded articles.
            state: state of R rows: R / B consecutive rows per article.
            tokens: (R,) words that the decoder reads; extended numbers are read as `<unk>`.

        Returns:
            log-probabilities (R, V + extra) of the next word, −∞ for extended numbers that the article of the row does
            not have; the new state.
        """
        tokens = tokens.where(tokens < self.vocabulary_size, UNKNOWN_ID)
        embedded = self.decoder.merge_input(self.embedding(tokens))
        constants = self.decoder.cell.sequence_constants(len(tokens))
        found, state = self.decoder.scan_step((Shared(encoded.memory), embedded, constants), state)
        found, _, scores = self.decoder.split(found)
        logits, gate = self._outputs(found)
        words = encoded.words.repeat_interleave(len(tokens) // len(encoded.words), dim=0)
        generated = logits.log_softmax(dim=-1)
        return extend(gate, generated, scores.softmax(dim=-1), words, encoded.extra), state

    @torch.inference_mode()
    def summarize(self, batch: SummaryBatch, search: BeamSearch) -> Hypotheses:
        """Return the summaries that a search finds for all articles of a batch at once."""
        encoded, state = self.encode(batch)
        return search(partial(self.decode_step, encoded), state, start=START_ID, stop=STOP_ID)

    @torch.no_grad()
    def state_size(self) -> int:
        """Return the number of state values that the encoder and decoder cells carry from step to step per sequence."""
        states = self.encoder.init_state(1), self.decoder.cell.init_state(1)
        return sum(leaf.numel() for leaf in tree_leaves(states))


def mix(gate: Tensor, generated: Tensor, log_attention: Tensor, is_copy: Tensor) -> Tensor:
    """Return log(p_gen P_vocab(w) + (1 − p_gen) Σ_{i: w_i = w} a_i), for one word w at each position (…).

    Args:
        gate: (…) logit of p_gen.
        generated: (…) log P_vocab(w).
        log_attention: (…, S) log a, −∞ at padding.
        is_copy: (…, S) whether w_i = w; False at padding.
    """
    # With −∞, the gradient would be NaN for a word that is not in the article.
    copied = log_attention.masked_fill(~is_copy, nothing(log_attention)).logsumexp(dim=-1)
    gate = gate.to(copied.dtype)
    return torch.logaddexp(F.logsigmoid(gate) + generated, F.logsigmoid(-gate) + copied)


def extend(gate: Tensor, generated: Tensor, attention: Tensor, words: Tensor, extra: int) -> Tensor:
    """Return the logarithms (R, V + extra) of the same mixture for all words. Values of −∞ have no gradient.

    Args:
        gate: (R,) logit of p_gen.
        generated: (R, V) log P_vocab.
        attention: (R, S) a, zero at padding.
        words: (R, S) words of the article, with extended numbers.
        extra: number of extended numbers.
    """
    gate = gate.to(attention.dtype).unsqueeze(1)
    mixed = F.pad(F.logsigmoid(gate) + generated, (0, extra), value=-math.inf)
    copied = torch.zeros_like(mixed).scatter_add(1, words, attention).gather(1, words).log() + F.logsigmoid(-gate)
    # Only words of the article change. A word that occurs twice is written twice with the same value.
    return mixed.scatter_(1, words, torch.logaddexp(mixed.gather(1, words), copied))


def nothing(like: Tensor) -> float:
    """Return a finite value that represents log 0 and leaves room for sums."""
    return torch.finfo(like.dtype).min / 4
