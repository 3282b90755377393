"""The translator: an encoder and a decoder of residual blocks."""

from functools import partial

import torch
from torch import Tensor

from gyral.applications.translation.data.batches import TranslationBatch
from gyral.applications.translation.data.corpus import START_ID, STOP_ID
from gyral.data.batching import IGNORED
from gyral.generation.beam import BeamSearch, Hypotheses
from gyral.models.encoder_decoder import DecoderState, EncoderDecoder, Memory


class Translator(EncoderDecoder):
    """A `gyral.models.encoder_decoder.EncoderDecoder` for translation."""

    def forward(self, batch: TranslationBatch) -> Tensor:
        """Return the logits (n, V) of the n targets of a batch that are not `IGNORED`, row by row."""
        memory = self.read(batch.source, batch.lengths)
        found, _, _ = self.decode(memory, batch.inputs.T, self.begin(len(batch.inputs)))
        return self.logits(found.transpose(0, 1)[batch.targets != IGNORED])

    def decode_step(self, memory: Memory, state: DecoderState, tokens: Tensor) -> tuple[Tensor, DecoderState]:
        """Return the log-probabilities (R, V) of the tokens after `tokens` (R,), and the new state."""
        found, _, state = self.decode(memory, tokens.unsqueeze(0), state)
        return self.logits(found.squeeze(0)).log_softmax(dim=-1), state

    @torch.inference_mode()
    def translate(self, batch: TranslationBatch, search: BeamSearch) -> Hypotheses:
        """Return the translations that a search finds for all sources of a batch at once."""
        step = partial(self.decode_step, self.read(batch.source, batch.lengths))
        return search(step, self.begin(len(batch.lengths)), start=START_ID, stop=STOP_ID)
