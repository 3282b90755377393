"""Predictions of a sequence model for a given sequence, and sampling of new sequences."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


@torch.inference_mode()
def read(model: nn.Module, tokens: Tensor, window: int) -> Iterator[tuple[Tensor, Any]]:
    """Read a sequence in windows, so that the memory does not grow with the length of the sequence.

    Args:
        model: called like `gyral.models.sequence.SequenceModel`.
        tokens: (n,) integers, n ≥ 1.
        window: tokens per window.

    Yields:
        the logits after each token of a window, (≤ window, classes), and the state after the last token.
    """
    state = None
    for piece in tokens.split(window):
        logits, state = model(piece.unsqueeze(0), state)
        yield logits.squeeze(0), state


def distribution(logits: Tensor, temperature: float, top_p: float, top_k: int | None = None) -> Tensor:
    """Return the probabilities from which a token is drawn.

    Args:
        logits: (classes,).
        temperature: divisor of the logits; 0: the most likely class has probability 1, the first one of a tie.
        top_p: only the smallest set of most likely classes whose probabilities sum to at least this value is kept
            (nucleus sampling, Holtzman et al. 2020).
        top_k: only this number of most likely classes is kept (Fan et al. 2018), before `top_p`; the first ones of a
            tie. None: all classes.

    Returns:
        (classes,) in float64, with sum 1.
    """
    logits = logits.double()
    if temperature == 0:
        return torch.zeros_like(logits).index_fill(0, logits.argmax(), 1.0)
    # The largest logit becomes 0, so that no temperature overflows.
    probabilities = torch.softmax((logits - logits.max()) / temperature, dim=0)
    if top_p == 1 and top_k is None:  # the cumulative sum may round to 1 before the last class
        return probabilities
    ordered, order = probabilities.sort(descending=True, stable=True)
    if top_k is not None:
        probabilities[order[top_k:]] = 0.0
        probabilities /= probabilities.sum()
        if top_p == 1:
            return probabilities
        ordered = probabilities[order]
    before = ordered.cumsum(0) - ordered  # probability of all classes that are more likely
    probabilities[order[before >= top_p]] = 0.0
    return probabilities / probabilities.sum()


@torch.inference_mode()
def sample(
    model: nn.Module,
    prompt: Tensor,
    *,
    window: int,
    temperature: float,
    top_p: float,
    seed: int,
    top_k: int | None = None,
) -> Iterator[int]:
    """Continue a sequence without end: draw a token, let the model read it, draw the next token.

    Args:
        model: called like `gyral.models.sequence.SequenceModel`.
        prompt: (n,) integers, n ≥ 1, the beginning of the sequence.
        window: tokens of the prompt per window.
        temperature, top_p, top_k: see `distribution`.
        seed: seed of the draws, which are made on the CPU, so that they do not depend on the device of the model.
    """
    generator = torch.Generator().manual_seed(seed)
    for logits, state in read(model, prompt, window):
        last = logits[-1], state
    logits, state = last
    while True:
        probabilities = distribution(logits.cpu(), temperature, top_p, top_k)
        token = torch.multinomial(probabilities, 1, generator=generator)
        yield int(token)
        logits, state = model(token.to(prompt.device).unsqueeze(0), state)
        logits = logits[0, -1]
