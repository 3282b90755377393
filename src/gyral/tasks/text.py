"""Language modelling: predict the next character or word of a text, reading it from end to end.

Three rows of a corpus side by side, in windows of eight characters:

    row 0   the cat_| sat on _|the mat.
    row 1    A dog b|arks at i|t, and t
    row 2   he cat r|uns.  ...

Each row goes on where it ended, window after window, and so does the network's state.
"""

import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from torchmetrics import Metric

from gyral.core.checks import check_choice, check_integer, check_real
from gyral.core.collectives import count, gather, rank, rows_of
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED, RepeatedBatches
from gyral.data.text.corpora import Corpus
from gyral.data.text.windows import Window, Windows
from gyral.data.vocabulary import END_OF_LINE, Decoder, Symbols, Vocabulary
from gyral.generation.surprisal import Reading, print_readings, write_page
from gyral.models.prediction import read, sample
from gyral.nn.recurrent import detach
from gyral.tasks.base import SPLITS, Metrics, ModelFactory, SequenceTask, SplitData

log = logging.getLogger(__name__)
SHOWN = 60  # columns of an example
LIKELIEST = 3  # symbols that are shown beside one that was read
SIGNS = {" ": "_", "\n": "⏎", "\t": "⇥"}  # of characters that cannot be seen; others are told as \x1b


class PositionLoss(Metric):
    """Mean loss at each position of a window, (T,) nats; not a number where there was no target."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.total: Tensor
        self.count: Tensor
        self.add_state("total", torch.zeros(window, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros(window, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, targets: Tensor) -> None:
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")
        length = targets.shape[1]
        self.total[:length] += losses.view_as(targets).sum(dim=0)
        self.count[:length] += (targets != IGNORED).sum(dim=0)

    def compute(self) -> Tensor:
        return self.total / self.count


class TextMetrics(Metrics):
    """Loss and accuracy over all targets; bits per symbol and perplexity, which follow from the loss.

    Attributes:
        position_loss: loss at each position of a window, for who asks before `compute`.
    """

    names = (*Metrics.names, "bits", "perplexity")

    def __init__(self, classes: int, window: int) -> None:
        super().__init__(classes)
        self.position_loss = PositionLoss(window)

    def update(self, logits: Tensor, batch: Window, loss: Tensor) -> None:
        super().update(logits, batch, loss)
        self.position_loss.update(logits, batch.targets)

    def compute(self) -> dict[str, Tensor]:
        values = super().compute()
        loss = values["loss"]
        values.update(bits=loss / math.log(2), perplexity=loss.exp())
        return {name: values[name] for name in self.names}


class TextData(SplitData):
    """Windows of a corpus: the training split over and over, the others once.

    Args:
        corpus: what is read.
        batch_size, window: rows side by side, and tokens a window, in training.
        eval_batch_size: rows side by side in evaluation.
        warm_up: tokens that a row reads in evaluation before those it predicts.

    Raises:
        OptionError: a size below 1 (warm_up: 0) or of another type, or more than the training split allows.
    """

    def __init__(self, corpus: Corpus, *, batch_size: int, window: int, eval_batch_size: int, warm_up: int) -> None:
        super().__init__()
        self.corpus = corpus
        self.window = check_integer("window", window)
        self.eval_batch_size = check_integer("eval_batch_size", eval_batch_size)
        self.warm_up = check_integer("warm_up", warm_up, minimum=0)
        self.train = Windows(corpus.splits["train"], check_integer("batch_size", batch_size), window)

    def loader(self, split: str) -> Windows:
        tokens = self.corpus.splits[check_choice("split", split, SPLITS)]
        predictions = len(tokens) - 1
        rows, window = min(self.eval_batch_size, predictions), min(self.window, predictions)
        return Windows(tokens, rows, window, self.warm_up)

    def stream(self) -> RepeatedBatches[Window]:
        log.info("%s: %d steps are one pass over the training text", self.corpus.name, len(self.train))
        return RepeatedBatches(self.train, self.steps())


class TextTask(SequenceTask[TextData]):
    """Predict each symbol of a text from all before it (truncated backpropagation through time).

    The state is carried from window to window, cut from the graph, and starts afresh at the beginning of the text and
    of every evaluation. A predictor without memory knows how frequent each symbol is in training: its loss on the test
    split is the baseline.

    Args:
        model: makes the model from the task's sizes.
        corpus: what is read.
        batch_size, window, eval_batch_size, warm_up: of `TextData`.
        **options: of `gyral.tasks.base.SequenceTask`: optimizer, scheduler, monitor, mode, overfit.

    Raises:
        OptionError: an option out of its bounds, or more than the corpus allows.
    """

    causal = True

    def __init__(
        self,
        model: ModelFactory,
        corpus: Corpus,
        *,
        batch_size: int,
        window: int,
        eval_batch_size: int,
        warm_up: int,
        **options: Any,
    ) -> None:
        data = TextData(corpus, batch_size=batch_size, window=window, eval_batch_size=eval_batch_size, warm_up=warm_up)
        size = len(corpus.vocabulary)
        super().__init__(
            model,
            data,
            vocabulary_size=size,
            output_size=size,
            baseline=unigram_loss(corpus),
            metrics=TextMetrics(size, window),
            **options,
        )
        self._states: dict[bool, Any] = {}  # after the last window of training (True) and of evaluation

    def forward(self, batch: Window) -> Tensor:
        """Return the logits (B, T, symbols); the state goes on from the last window, or starts afresh."""
        state = self._states.get(self.training) if batch.continues else None
        logits, state = self.model(batch.inputs, state)
        self._states[self.training] = detach(state)
        return logits

    def generators(self) -> list[Callable[..., Iterator[str]]]:
        return [self.continue_text, self.show_surprisal]

    def continue_text(
        self, *, prompt: str = "", length: int = 500, temperature: float = 1.0, top_p: float = 1.0, seed: int = 1
    ) -> Iterator[str]:
        """Yield a prompt and what the model goes on with, symbol by symbol.

        Without a prompt the model first reads the end of a line, or a space where the vocabulary has none, or else the
        symbol that is most frequent in training; it is not written out.

        Args:
            prompt: what the text begins with.
            length: symbols after the prompt.
            temperature, top_p: of `gyral.models.prediction.distribution`.
            seed: of the draws.

        Raises:
            OptionError: an option out of its bounds, or a prompt with a symbol that the vocabulary lacks.
        """
        check_integer("length", length)
        check_real("temperature", temperature, minimum=0)
        check_real("top_p", top_p, above=0, maximum=1)
        check_integer("seed", seed, minimum=0, maximum=2**32 - 1)
        vocabulary = self.data.corpus.vocabulary
        symbols = vocabulary.segment(prompt)
        first = self._to_tokens(vocabulary.encode(symbols, "prompt")) if symbols else torch.tensor([self._start()])
        decoder = Decoder(vocabulary.level)
        yield "".join(map(decoder.add, named(symbols)))
        tokens = sample(
            self.model,
            first.to(self.device),
            window=self.data.window,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
        )
        for token in islice(tokens, length):
            yield decoder.add(vocabulary.symbols[token])
        yield decoder.end()

    def show_surprisal(self, *, surprisal: str, html: str | None = None) -> Iterator[str]:
        """Yield a text with each symbol coloured by its surprisal, or write that as a page.

        Args:
            surprisal: a file in UTF-8 (of any kind where symbols are bytes), or "-" for standard input.
            html: the page to write.

        Raises:
            OptionError: a text that cannot be read, of less than two symbols, or with one that the vocabulary lacks.
        """
        level = self.data.corpus.level
        readings = self.readings(read_text(surprisal, self.data.corpus.vocabulary), f"surprisal={surprisal}")
        if html is None:
            yield from print_readings(readings, level)
        else:
            title = "standard input" if surprisal == "-" else Path(surprisal).name
            yield write_page(Path(html), readings, level, title)

    def readings(self, symbols: Symbols, place: str = "text") -> Iterator[Reading]:
        """Yield how likely the model held each symbol of a text, given all before it.

        The mean of −ln p is the loss that evaluation finds of this text in one row, where the first is not predicted.

        Args:
            symbols: of the text.
            place: what the text is, for errors.

        Raises:
            OptionError: less than two symbols, or one that the vocabulary lacks.
        """
        vocabulary = self.data.corpus.vocabulary
        if len(symbols) < 2:
            raise OptionError(f"{place}: has {len(symbols)} {vocabulary.level}s, and must have at least 2")
        tokens = self._to_tokens(vocabulary.encode(symbols, place))
        texts = zip(named(symbols), (vocabulary.symbols[token] for token in tokens.tolist()), strict=True)
        yield Reading(*next(texts), None, ())
        targets = tokens[1:].split(self.data.window)
        windows = read(self.model, tokens[:-1].to(self.device), self.data.window)
        for (logits, _), target in zip(windows, targets, strict=True):
            losses = F.cross_entropy(logits, target.to(self.device), reduction="none")
            highest = logits.softmax(dim=-1).topk(min(LIKELIEST, len(vocabulary)))
            alternatives = zip(highest.values.tolist(), highest.indices.tolist(), strict=True)
            for loss, (values, indices) in zip(losses.tolist(), alternatives, strict=True):
                likeliest = tuple((vocabulary.symbols[i], value) for i, value in zip(indices, values, strict=True))
                yield Reading(*next(texts), loss / math.log(2), likeliest)

    def _to_tokens(self, numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers.astype(np.int64))

    def _start(self) -> int:
        """Return what is read where there is no prompt."""
        corpus = self.data.corpus
        for symbol in (END_OF_LINE, "\n", " "):
            if symbol in corpus.vocabulary.index:
                return corpus.vocabulary.index[symbol]
        return int(np.bincount(corpus.splits["train"]).argmax())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        state = self._states.get(True)
        leaves = [] if state is None else tree_leaves(state)  # None would be a leaf
        of_all = gather([leaf.cpu() for leaf in leaves])
        checkpoint["carried"] = [torch.cat(rows) for rows in zip(*of_all, strict=True)]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        if checkpoint["carried"]:
            _, structure = tree_flatten(self.model.recurrent.init_state(1))
            own = rows_of(checkpoint["carried"], rank(), count())
            leaves = [leaf.to(self.device) for leaf in own]
            self._states[True] = tree_unflatten(leaves, structure)

    def render(self, batch: Window, predicted: Tensor, row: int = 0) -> str:
        shown = {"input": batch.inputs[row], "target": batch.targets[row], "prediction": predicted[row]}
        words = {name: [self._sign(token) for token in tokens.tolist()] for name, tokens in shown.items()}
        widths = [max(map(len, column)) for column in zip(*words.values(), strict=True)]
        gap = 0 if max(widths) == 1 else 1
        ends = np.cumsum(widths) + gap * np.arange(len(widths))
        count = max(1, int((ends <= SHOWN).sum()))
        return "\n".join(
            f"{name:<11} " + (" " * gap).join(w.ljust(width) for w, width in zip(line, widths[:count], strict=False))
            for name, line in words.items()
        )

    def _sign(self, token: int) -> str:
        if token == IGNORED:
            return "·"
        symbol = self.data.corpus.vocabulary.symbols[token]
        return "".join(SIGNS.get(c) or (c if c.isprintable() else repr(c)[1:-1]) for c in symbol)


def read_text(name: str, vocabulary: Vocabulary) -> Symbols:
    """Return the symbols of a file, "-" for standard input.

    A line end at the end, which most files have, is left out where the vocabulary has none.

    Raises:
        OptionError: it cannot be read, is empty or, unless symbols are bytes, not in UTF-8.
    """
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        text = content if vocabulary.level == "byte" else content.decode()
    except OSError as error:
        raise OptionError(f"surprisal={name}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise OptionError(
            f"surprisal={name}: is not UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}"
        ) from None
    if not content:
        raise OptionError(f"surprisal={name}: is empty")
    if isinstance(text, bytes):
        return text
    line_end = END_OF_LINE if vocabulary.level == "word" else "\n"
    return vocabulary.segment(text if line_end in vocabulary.index else text.removesuffix("\n"))


def named(symbols: Symbols) -> Iterable[str]:
    """Return symbols as a vocabulary calls them: bytes by the characters of the same code points."""
    return symbols.decode("latin-1") if isinstance(symbols, bytes) else symbols


def unigram_loss(corpus: Corpus) -> float:
    """Return the cross-entropy, in nats a symbol, of the test split under the frequencies of the training split.

    A symbol counts once more than it occurs, so that none is impossible.
    """
    size = len(corpus.vocabulary)
    counts = np.bincount(corpus.splits["train"], minlength=size) + 1
    return float(-np.log(counts / counts.sum())[corpus.splits["test"][1:]].mean())
