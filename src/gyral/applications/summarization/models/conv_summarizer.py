"""Summarizer of residual blocks: an encoder of convolutions, and a decoder of convolutions that attends to it."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from gyral.applications.summarization.data.batches import START_ID, STOP_ID, UNKNOWN_ID, SummaryBatch
from gyral.applications.summarization.models.beam import BeamSearch, Hypotheses
from gyral.applications.summarization.models.multi_head import KeysAndValues, MultiHeadAttention, sinusoids
from gyral.applications.summarization.models.pointer_generator import extend, mix, nothing
from gyral.applications.summarization.models.summarizer import Predictions, Summarizer, Trace
from gyral.cells.base import RecurrentCell, State
from gyral.cells.convolution import ConvolutionCell
from gyral.core.checks import check_boolean, check_integer
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.nn.block import FeedForward, PreNormStack
from gyral.nn.dropout import SequenceDropout
from gyral.nn.recurrent import Recurrent

CellFactory = Callable[..., RecurrentCell]


class Encoded(NamedTuple):
    """An encoded batch.

    Attributes:
        memory: keys and values of each layer of the decoder.
        mask: (B, S) True at words, False at padding.
        words: (B, S) words of the articles, with extended numbers.
        extra: number of extended numbers.
    """

    memory: tuple[KeysAndValues, ...]
    mask: Tensor
    words: Tensor
    extra: int


class DecoderState(NamedTuple):
    """State of a decoder with R rows: the state of each layer's cell, and the number (R,) of words so far."""

    cells: tuple[State, ...]
    position: Tensor


class CenteredEncoder(nn.Module):
    """Residual blocks of convolutions with centered windows.

    Args:
        factories: makes the cell of each layer.
        width: D, size of inputs and outputs.
        dropout: probability of dropout of the outputs of each part of a block.

    Raises:
        OptionError: a cell is not a convolution, or its kernel_size is even.
    """

    def __init__(self, factories: Sequence[CellFactory], width: int, dropout: float) -> None:
        super().__init__()
        self.cells = nn.ModuleList(make(width) for make in factories)
        for cell in self.convolutions():
            if not isinstance(cell, ConvolutionCell):
                reason = f"must be false for {type(cell).__name__}, which reads in two directions instead"
                raise OptionError("centered", True, reason)
            cell.check_centered()
        sizes = [cell.output_size for cell in self.convolutions()]
        self.blocks = PreNormStack(width, width, sizes, SequenceDropout(dropout))
        self.output_size = width

    def convolutions(self) -> list[ConvolutionCell]:
        """Return the cells of all layers."""
        return list(self.cells)  # type: ignore[arg-type]

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs (S, B, D) for vectors (S, B, D), zero beyond the lengths."""
        for layer, cell in enumerate(self.convolutions()):
            outputs = cell.centered(self.blocks.normalize(layer, vectors), lengths)
            vectors = self.blocks.add(layer, vectors, outputs)
        return self.blocks.finish(vectors, lengths)


class DecoderLayer(nn.Module):
    """A block with three parts: any cell, attention to the article, and a feed-forward network.

        y = x + W cell(LN(x)) + b,   z = y + attention(LN(y)),   outputs z + W_2 ReLU(W_1 LN(z) + b_1) + b_2

    Args:
        cell: makes the cell.
        width: D.
        memory_size: size of the vectors of the encoder.
        heads: number of heads of the attention.
        dropout: probability of dropout of the outputs of each part.
        backend: see `gyral.nn.recurrent.Recurrent`.
    """

    def __init__(
        self, cell: CellFactory, width: int, memory_size: int, heads: int, dropout: float, backend: str
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.recurrent = Recurrent(cell, width, backend=backend)
        self.output = nn.Linear(self.recurrent.output_size, width)
        self.attention_norm = nn.LayerNorm(width)
        self.attention = MultiHeadAttention(width, memory_size, heads)
        self.dropout = SequenceDropout(dropout)
        self.feed_forward = FeedForward(width, self.dropout)

    def forward(self, stream: Tensor, state: Any, memory: KeysAndValues, mask: Tensor) -> tuple[Tensor, Any, Tensor]:
        """Run over words (T, B, D).

        Returns:
            The outputs (T, B, D), the state of the cell after the last word, and the scores (B, heads, T, S).
        """
        outputs, (state,) = self.recurrent(self.norm(stream), None if state is None else (state,))
        stream = stream + self.dropout(self.output(outputs))
        queries = self.attention_norm(stream).transpose(0, 1)
        articles = len(mask)  # in a search, each article has several rows, and each row is a query
        found, scores = self.attention(queries.reshape(articles, -1, queries.shape[2]), memory, mask)
        found = found.view(queries.shape).transpose(0, 1)
        return self.feed_forward(stream + self.dropout(found)), state, scores


class ConvSummarizer(Summarizer):
    """Encoder and decoder of residual blocks, as for light and dynamic convolutions (Wu et al., ICLR 2019).

    Each layer of the encoder is a convolution with a window around each word, in a residual block with a feed-forward
    network; the layers of the decoder attend to the last one (`DecoderLayer`). Words enter as embeddings times √D, plus
    sinusoidal positions, and leave through the same embedding:

        P_vocab = softmax(E LN(z) + b)

    With `pointer` the words of the article have additional probability, as in a pointer-generator network; p_gen is a
    function of LN(z), and the attention is the mean over the heads of the last layer. The paper has no
    pointer, but uses byte-pair encoding; this task has whole words, and most names are not in the vocabulary.
    Normalization precedes each part of a block; in the code of the paper it follows each part by default.

    Initialization: E normal with standard deviation 1/√D, b zero; other weights as in torch or their classes.

    Args:
        encoder: makes the cell of a layer of the encoder from its input size.
        decoder: makes the cell of a layer of the decoder.
        vocabulary_size: V.
        output_size: number of classes that a task passes to every model; it is V.
        embedding_size: D, width of embedding and blocks.
        encoder_kernels, decoder_kernels: kernel_size of each layer's cell, such as [3, 7, 15, 31]; None: `num_layers`
            layers of the unchanged cell.
        num_layers: number of layers of encoder and decoder without a list of kernel sizes.
        centered: whether the encoder's windows are centered, which requires convolutions. False: any cell, in two
            directions.
        attention_heads: number of heads of the attention, which divides D.
        dropout: probability of dropout of the embedded words and of the outputs of each part of a block.
        pointer: whether words are copied from the article.
        backend: backend of the cells (`gyral.nn.recurrent.Recurrent`).

    Raises:
        OptionError: an option is out of bounds, or does not fit the cells.
    """

    def __init__(
        self,
        encoder: CellFactory,
        decoder: CellFactory,
        vocabulary_size: int,
        output_size: int | None = None,
        *,
        embedding_size: int = 256,
        encoder_kernels: Sequence[int] | None = None,
        decoder_kernels: Sequence[int] | None = None,
        num_layers: int = 2,
        centered: bool = True,
        attention_heads: int = 4,
        dropout: float = 0.1,
        pointer: bool = True,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.vocabulary_size = check_integer("vocabulary_size", vocabulary_size, minimum=STOP_ID + 1)
        width = check_integer("embedding_size", embedding_size)
        check_integer("attention_heads", attention_heads)
        check_integer("num_layers", num_layers)
        self.embedding = nn.Embedding(vocabulary_size, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        factories = _layers("encoder_kernels", encoder, encoder_kernels, num_layers)
        self.encoder: CenteredEncoder | Recurrent
        if check_boolean("centered", centered):
            self.encoder = CenteredEncoder(factories, width, dropout)
        else:
            self.encoder = Recurrent(factories, width, len(factories), True, dropout, backend=backend, block="prenorm")
        memory_size = self.encoder.output_size
        self.layers = nn.ModuleList(
            DecoderLayer(make, width, memory_size, attention_heads, dropout, backend)
            for make in _layers("decoder_kernels", decoder, decoder_kernels, num_layers)
        )
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, 1) if check_boolean("pointer", pointer) else None
        self.dropout = SequenceDropout(dropout)

    def _decoder_layers(self) -> list[DecoderLayer]:
        return list(self.layers)  # type: ignore[arg-type]

    def _embed(self, words: Tensor, positions: Tensor) -> Tensor:
        """Return the vectors (…, D) of words (…) at positions (…)."""
        width = self.embedding.embedding_dim
        vectors = self.embedding(words) * math.sqrt(width)
        return self.dropout(vectors + sinusoids(positions, width).to(vectors.dtype))

    def encode(self, batch: SummaryBatch) -> Encoded:
        """Return the encoded articles."""
        words, lengths = batch.article.T, batch.lengths.to(batch.article.device)
        positions = torch.arange(len(words), device=words.device)
        vectors = self._embed(words, positions.unsqueeze(1))
        if isinstance(self.encoder, CenteredEncoder):
            outputs = self.encoder(vectors, lengths)
        else:
            outputs, _ = self.encoder(vectors, lengths=lengths)
        memory = tuple(layer.attention.project(outputs) for layer in self._decoder_layers())
        mask = positions < lengths.unsqueeze(1)
        return Encoded(memory, mask, batch.article_extended, batch.extra)

    def decode(self, encoded: Encoded, words: Tensor, state: DecoderState) -> tuple[Tensor, Tensor, DecoderState]:
        """Run the decoder over words (T, R); R / B consecutive rows per article.

        Returns:
            LN(z) (T, R, D), the attention scores (B, heads, T · R / B, S) of the last layer, the new state.
        """
        positions = state.position + torch.arange(len(words), device=words.device).unsqueeze(1)
        stream = self._embed(words, positions)
        cells = []
        scores = stream
        for layer, memory, cell in zip(self._decoder_layers(), encoded.memory, state.cells, strict=True):
            stream, new, scores = layer(stream, cell, memory, encoded.mask)
            cells.append(new)
        return self.norm(stream), scores, DecoderState(tuple(cells), state.position + len(words))

    def begin(self, rows: int) -> DecoderState:
        """Return the initial state of the decoder."""
        cells = tuple(layer.recurrent.init_state(rows)[0] for layer in self._decoder_layers())
        return DecoderState(cells, torch.zeros(rows, dtype=torch.int64, device=self.bias.device))

    def forward(self, batch: SummaryBatch) -> Predictions:
        """Return the log-probabilities of the targets of a batch; the coverage loss is zero.

        Without `pointer`, a target that has an extended number counts as `<unk>`.
        """
        encoded = self.encode(batch)
        found, scores, _ = self.decode(encoded, batch.inputs.T, self.begin(len(batch.inputs)))
        has_target = batch.targets != IGNORED
        target, found = batch.targets[has_target], found.transpose(0, 1)[has_target]
        is_known = target < self.vocabulary_size
        logits = F.linear(found, self.embedding.weight, self.bias)
        if self.gate is None:
            log_probabilities = -F.cross_entropy(logits, target.where(is_known, UNKNOWN_ID), reduction="none")
        else:
            generated = -F.cross_entropy(
                logits, target.where(is_known, IGNORED), ignore_index=IGNORED, reduction="none"
            )
            generated = generated.masked_fill(~is_known, nothing(generated))
            is_copy = (encoded.words.unsqueeze(1) == batch.targets.unsqueeze(2)) & encoded.mask.unsqueeze(1)
            attention = _mean_attention(scores)[has_target]
            log_probabilities = mix(self.gate(found).squeeze(-1), generated, attention, is_copy[has_target])
        every = log_probabilities.new_zeros(has_target.shape).masked_scatter(has_target, log_probabilities)
        return Predictions(every, torch.zeros_like(every))

    def decode_step(self, encoded: Encoded, state: DecoderState, tokens: Tensor) -> tuple[Tensor, DecoderState]:
        """Run one step of the decoder; see
        `gyral.applications.summarization.models.pointer_generator.PointerGenerator.decode_step`."""
        tokens = tokens.where(tokens < self.vocabulary_size, UNKNOWN_ID)
        found, scores, state = self.decode(encoded, tokens.unsqueeze(0), state)
        found = found.squeeze(0)
        generated = F.linear(found, self.embedding.weight, self.bias).log_softmax(dim=-1)
        if self.gate is None:
            return F.pad(generated, (0, encoded.extra), value=-math.inf), state
        words = encoded.words.repeat_interleave(len(tokens) // len(encoded.words), dim=0)
        attention = _mean_attention(scores).exp().flatten(0, 1)
        return extend(self.gate(found).squeeze(-1), generated, attention, words, encoded.extra), state

    @torch.inference_mode()
    def summarize(self, batch: SummaryBatch, search: BeamSearch) -> Hypotheses:
        """Return the summaries that a search finds for all articles of a batch at once."""
        state = self.begin(len(batch.lengths))
        return search(partial(self.decode_step, self.encode(batch)), state, start=START_ID, stop=STOP_ID)

    def trace(self, batch: SummaryBatch) -> Trace:
        encoded = self.encode(batch)
        found, scores, _ = self.decode(encoded, batch.inputs.T, self.begin(len(batch.inputs)))
        attention = _mean_attention(scores).exp()
        if self.gate is None:
            return Trace(attention, torch.zeros_like(attention[..., 0]))
        pointed = (attention * (encoded.words.unsqueeze(1) == batch.targets.unsqueeze(2))).sum(dim=-1)
        copied = torch.sigmoid(-self.gate(found).squeeze(-1)).T * pointed
        return Trace(attention, copied / self(batch).log_probabilities.exp())

    @torch.no_grad()
    def state_size(self) -> int:
        """Return the number of state values that the cells carry from step to step per sequence.

        Centered convolutions of the encoder carry no state.
        """
        states: list[Any] = [self.begin(1).cells]
        if isinstance(self.encoder, Recurrent):
            states.append(self.encoder.init_state(1))
        return sum(leaf.numel() for leaf in tree_leaves(states))


def _layers(option: str, cell: CellFactory, kernels: Sequence[int] | None, num_layers: int) -> list[CellFactory]:
    """Return the factory of the cell of each layer."""
    if kernels is None:
        return [cell] * num_layers
    if not kernels:
        raise OptionError(option, kernels, "must have a kernel size for each layer, such as [3, 7, 15]; or null")

    def make(kernel_size: int, input_size: int) -> RecurrentCell:
        try:
            return cell(input_size, kernel_size=kernel_size)
        except TypeError as error:
            raise OptionError(option, kernels, "must be null, because the cell has no kernel_size") from error

    return [partial(make, check_integer(option, size, minimum=2)) for size in kernels]


def _mean_attention(scores: Tensor) -> Tensor:
    """Return the logarithm (B, T, S) of the mean over the heads of the attention with scores (B, heads, T, S).

    At padding it is finite: with −∞ in all heads, the gradient would be NaN.
    """
    of_heads = scores.log_softmax(dim=-1)
    of_heads = of_heads.masked_fill(of_heads.isneginf(), nothing(of_heads))
    return of_heads.logsumexp(dim=1) - math.log(scores.shape[1])
