"""Summarizer of residual blocks: an encoder of convolutions, and a decoder of convolutions that attends to it."""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.applications.summarization.data.batches import START_ID, STOP_ID, UNKNOWN_ID, SummaryBatch
from gyral.applications.summarization.models.pointer_generator import extend, mix, nothing
from gyral.applications.summarization.models.summarizer import Predictions, Summarizer, Trace
from gyral.core.checks import check_boolean, check_integer
from gyral.data.batching import IGNORED
from gyral.generation.beam import BeamSearch, Hypotheses
from gyral.models.encoder_decoder import DecoderState, EncoderDecoder, LayerFactory, Memory


class Encoded(NamedTuple):
    """An encoded batch.

    Attributes:
        memory: what the decoder attends to.
        words: (B, S) words of the articles, with extended numbers.
        extra: number of extended numbers.
    """

    memory: Memory
    words: Tensor
    extra: int


class ConvSummarizer(EncoderDecoder, Summarizer):
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
        encoder: makes the cell of a layer of the encoder, or a layer of `gyral.models.self_attention`, from its input
            size.
        decoder: the same for the decoder.
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
        encoder: LayerFactory,
        decoder: LayerFactory,
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
        check_integer("vocabulary_size", vocabulary_size, minimum=STOP_ID + 1)
        super().__init__(
            encoder,
            decoder,
            vocabulary_size,
            embedding_size=embedding_size,
            encoder_kernels=encoder_kernels,
            decoder_kernels=decoder_kernels,
            num_layers=num_layers,
            centered=centered,
            attention_heads=attention_heads,
            dropout=dropout,
            backend=backend,
        )
        self.gate = nn.Linear(self.width, 1) if check_boolean("pointer", pointer) else None

    def encode(self, batch: SummaryBatch) -> Encoded:
        """Return the encoded articles."""
        return Encoded(self.read(batch.article, batch.lengths), batch.article_extended, batch.extra)

    def forward(self, batch: SummaryBatch) -> Predictions:
        """Return the log-probabilities of the targets of a batch; the coverage loss is zero.

        Without `pointer`, a target that has an extended number counts as `<unk>`.
        """
        encoded = self.encode(batch)
        found, scores, _ = self.decode(encoded.memory, batch.inputs.T, self.begin(len(batch.inputs)))
        has_target = batch.targets != IGNORED
        target, found = batch.targets[has_target], found.transpose(0, 1)[has_target]
        is_known = target < self.vocabulary_size
        logits = self.logits(found)
        if self.gate is None:
            log_probabilities = -F.cross_entropy(logits, target.where(is_known, UNKNOWN_ID), reduction="none")
        else:
            generated = -F.cross_entropy(
                logits, target.where(is_known, IGNORED), ignore_index=IGNORED, reduction="none"
            )
            generated = generated.masked_fill(~is_known, nothing(generated))
            is_copy = (encoded.words.unsqueeze(1) == batch.targets.unsqueeze(2)) & encoded.memory.mask.unsqueeze(1)
            attention = _mean_attention(scores)[has_target]
            log_probabilities = mix(self.gate(found).squeeze(-1), generated, attention, is_copy[has_target])
        every = log_probabilities.new_zeros(has_target.shape).masked_scatter(has_target, log_probabilities)
        return Predictions(every, torch.zeros_like(every))

    def decode_step(self, encoded: Encoded, state: DecoderState, tokens: Tensor) -> tuple[Tensor, DecoderState]:
        """Run one step of the decoder; see
        `gyral.applications.summarization.models.pointer_generator.PointerGenerator.decode_step`."""
        tokens = tokens.where(tokens < self.vocabulary_size, UNKNOWN_ID)
        found, scores, state = self.decode(encoded.memory, tokens.unsqueeze(0), state)
        found = found.squeeze(0)
        generated = self.logits(found).log_softmax(dim=-1)
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
        found, scores, _ = self.decode(encoded.memory, batch.inputs.T, self.begin(len(batch.inputs)))
        attention = _mean_attention(scores).exp()
        if self.gate is None:
            return Trace(attention, torch.zeros_like(attention[..., 0]))
        pointed = (attention * (encoded.words.unsqueeze(1) == batch.targets.unsqueeze(2))).sum(dim=-1)
        copied = torch.sigmoid(-self.gate(found).squeeze(-1)).T * pointed
        return Trace(attention, copied / self(batch).log_probabilities.exp())


def _mean_attention(scores: Tensor) -> Tensor:
    """Return the logarithm (B, T, S) of the mean over the heads of the attention with scores (B, heads, T, S).

    At padding it is finite: with −∞ in all heads, the gradient would be NaN.
    """
    of_heads = scores.log_softmax(dim=-1)
    of_heads = of_heads.masked_fill(of_heads.isneginf(), nothing(of_heads))
    return of_heads.logsumexp(dim=1) - math.log(scores.shape[1])
