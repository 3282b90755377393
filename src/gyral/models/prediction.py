"""What a model of sequences predicts: along a given one, and a new one from its own predictions."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


@torch.inference_mode()
def read(model: nn.Module, tokens: Tensor, window: int) -> Iterator[tuple[Tensor, Any]]:
    """Read a sequence in windows, so that memory does not grow with its length.

    Args:
        model: is called as `gyral.models.sequence.SequenceModel` is.
        tokens: (n,) integers, n ≥ 1.
        window: tokens at a time.

    Yields:
        the logits after each token of a window, (≤ window, classes), and the state after its last.
    """
    state = None
    for piece in tokens.split(window):
        logits, state = model(piece.unsqueeze(0), state)
        yield logits.squeeze(0), state


def distribution(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    """Return the probabilities that a token is drawn by.

    Args:
        logits: (classes,).
        temperature: what logits are divided by; 0: all on the likeliest, of equally likely ones the first.
        top_p: only the likeliest classes, as few as together have this probability, are left (nucleus sampling,
            Holtzman et al. 2020).

    Returns:
        (classes,) float64, of sum 1.
    """
    logits = logits.double()
    if temperature == 0:
        return torch.zeros_like(logits).index_fill(0, logits.argmax(), 1.0)
    # the largest becomes 0, so that no temperature, however small, makes an infinity of it
    probabilities = torch.softmax((logits - logits.max()) / temperature, dim=0)
    if top_p == 1:  # the sum below may reach 1 by rounding before the last class
        return probabilities
    ordered, order = probabilities.sort(descending=True, stable=True)
    before = ordered.cumsum(0) - ordered  # of all that are likelier
    probabilities[order[before >= top_p]] = 0.0
    return probabilities / probabilities.sum()


@torch.inference_mode()
def sample(
    model: nn.Module, prompt: Tensor, *, window: int, temperature: float, top_p: float, seed: int
) -> Iterator[int]:
    """Go on with a sequence without end: draw a token, have the model read it, draw the next.

    Args:
        model: is called as `gyral.models.sequence.SequenceModel` is.
        prompt: (n,) integers, n ≥ 1: what is read first, in windows.
        window: tokens of the prompt at a time.
        temperature, top_p: of `distribution`.
        seed: of the draws, which are made on the processor: the same ones wherever the model lies.
    """
    generator = torch.Generator().manual_seed(seed)
    for logits, state in read(model, prompt, window):
        last = logits[-1], state
    logits, state = last
    while True:
        probabilities = distribution(logits.cpu(), temperature, top_p)
        token = torch.multinomial(probabilities, 1, generator=generator)
        yield int(token)
        logits, state = model(token.to(prompt.device).unsqueeze(0), state)
        logits = logits[0, -1]
