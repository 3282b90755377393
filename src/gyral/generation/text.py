"""Continuation of a prompt by a language model."""

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
import torch

from gyral.core.checks import check_integer, check_real
from gyral.core.errors import OptionError
from gyral.data.text.corpora import Corpus
from gyral.data.vocabulary import END_OF_LINE, Decoder, Symbols
from gyral.models.prediction import sample
from gyral.tasks.text import TextTask


def continue_text(
    task: TextTask,
    *,
    prompt: str = "",
    length: int = 500,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 1,
) -> Iterator[str]:
    """Yield a prompt and its continuation, symbol by symbol.

    Without a prompt, the model first reads the symbol that `start_token` returns; it is not part of the text.

    Args:
        task: a trained task.
        prompt: beginning of the text.
        length: number of symbols after the prompt.
        temperature, top_k, top_p: see `gyral.models.prediction.distribution`.
        seed: seed of the random draws.

    Raises:
        UserError: an option is out of bounds, or the prompt has a symbol that is not in the vocabulary.
    """
    check_integer("length", length)
    check_real("temperature", temperature, minimum=0)
    if top_k is not None:
        check_integer("top_k", top_k)
    check_real("top_p", top_p, above=0, maximum=1)
    for name, value in (("top_k", top_k), ("top_p", top_p)):
        if temperature == 0 and value not in (None, 1.0):
            raise OptionError(name, value, "must be left out with temperature=0, which takes the likeliest symbol")
    check_integer("seed", seed, minimum=0, maximum=2**32 - 1)
    vocabulary = task.data.corpus.vocabulary
    symbols = vocabulary.segment(prompt)
    tokens = vocabulary.encode(symbols, "prompt") if symbols else np.array([start_token(task.data.corpus)])
    decoder = Decoder(vocabulary.level)
    yield "".join(map(decoder.add, symbol_names(symbols)))
    drawn = sample(
        task.model,
        torch.from_numpy(tokens.astype(np.int64)).to(task.device),
        window=task.data.window,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    for token in islice(drawn, length):
        yield decoder.add(vocabulary.symbols[token])
    yield decoder.end()


def start_token(corpus: Corpus) -> int:
    """Return the first input of the model without a prompt.

    The token is the end of a line, or a space if the vocabulary has no line end, or else the most frequent symbol of
    the training split.
    """
    for symbol in (END_OF_LINE, "\n", " "):
        if symbol in corpus.vocabulary.index:
            return corpus.vocabulary.index[symbol]
    return int(np.bincount(corpus.splits["train"]).argmax())


def symbol_names(symbols: Symbols) -> Iterable[str]:
    """Return the vocabulary's names of symbols: bytes are the characters of the same code points."""
    return symbols.decode("latin-1") if isinstance(symbols, bytes) else symbols
