"""Consecutive windows of a long text, for truncated backpropagation through time."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED, Stream, mix_seed

MINIMUM_WINDOW = 5  # smallest random length
LONG_WINDOWS = 0.95  # probability that the mean of a random length is the full window rather than half of it


class Window(NamedTuple):
    """A batch of consecutive tokens, all (B, T), with the fields of `gyral.data.batching.Batch`.

    Each target is the token after its input. `continues` is True if each row continues the same row of the previous
    window, so that the recurrent state carries over.
    """

    inputs: Tensor
    targets: Tensor
    answers: Tensor
    continues: bool


class Windows:
    """One pass over a text of n tokens, in parallel rows and window by window.

    Every token except the first is predicted exactly once for all sizes: the last window may be shorter, and targets
    after the end of a row are `IGNORED`. With a warm-up, each row except the first starts that many tokens earlier and
    ignores their targets. The row then has context, and the loss hardly depends on the number of rows.

    Args:
        tokens: (n,) integers.
        batch_size: number of rows, at most n − 1.
        window: T, tokens per window.
        warm_up: tokens that a row reads before its first prediction; fewer if the text is too short.

    Raises:
        OptionError: the text has fewer predictions than rows, or than a window has steps.
    """

    def __init__(self, tokens: np.ndarray, batch_size: int, window: int, warm_up: int = 0) -> None:
        self.tokens = tokens
        self.window = window
        predictions = len(tokens) - 1
        if predictions < batch_size:
            raise OptionError(
                "batch_size", batch_size, f"must be at most {predictions}, the number of predicted tokens"
            )
        if predictions < window:
            raise OptionError("window", window, f"must be at most {predictions}, the number of predicted tokens")
        self.warm_up = min(warm_up, predictions - batch_size)
        each = -(-(predictions - self.warm_up) // batch_size)
        self.starts = each * np.arange(batch_size)
        self.columns = each + self.warm_up

    def __len__(self) -> int:
        return -(-self.columns // self.window)

    def __getitem__(self, index: int) -> Window:
        return self.read(index * self.window, (index + 1) * self.window)

    def read(self, start: int, end: int) -> Window:
        """Return the window of the columns from `start` to `end`, exclusive, or to the last column."""
        columns = np.arange(start, min(end, self.columns))
        places = self.starts[:, None] + columns
        known = places < len(self.tokens) - 1
        places = np.where(known, places, 0)
        warming = (columns < self.warm_up) & (self.starts[:, None] > 0)
        inputs = torch.from_numpy(self.tokens[places].astype(np.int64))
        targets = torch.from_numpy(self.tokens[places + 1].astype(np.int64))
        targets[torch.from_numpy(~known | warming)] = IGNORED
        return Window(inputs, targets, targets != IGNORED, continues=start > 0)

    def __iter__(self) -> Iterator[Window]:
        return (self[index] for index in range(len(self)))


class RandomWindows(Stream[Window]):
    """Repeated passes over a text in windows of random length, so that passes cut the text at different positions.

    The length of a window is drawn from a normal distribution with the given deviation, whose mean is `windows.window`
    with probability 0.95 and else half of it; it is truncated to an integer of at least 5 (AWD-LSTM: Merity et al.,
    "Regularizing and optimizing LSTM language models", ICLR 2018, section 5). The lengths of a pass depend only on the
    seed and the number of the pass.

    Args:
        windows: the text in rows; its window is the mean of the longer windows.
        deviation: standard deviation of the lengths, in tokens.
        seed: seed of the lengths.
        length: number of windows in the stream.
    """

    def __init__(self, windows: Windows, deviation: float, *, seed: int, length: int) -> None:
        super().__init__(length)
        self.windows = windows
        self.deviation = deviation
        self.seed = seed

    def __iter__(self) -> Iterator[Window]:
        first, number = 0, 0  # position of the first window of a pass, and number of the pass
        while self.position < self.length:
            bounds = self.bounds(number)
            while self.position < min(first + len(bounds) - 1, self.length):
                index = self.position - first
                self.position += 1
                yield self.windows.read(bounds[index], bounds[index + 1])
            first, number = first + len(bounds) - 1, number + 1

    def bounds(self, number: int) -> list[int]:
        """Return the columns at which the windows of a pass begin, and the number of columns."""
        generator = np.random.default_rng(mix_seed(self.seed, f"windows of pass {number}"))
        columns, window = self.windows.columns, self.windows.window
        most = columns // MINIMUM_WINDOW + 1
        means = np.where(generator.random(most) < LONG_WINDOWS, window, window / 2)
        lengths = generator.normal(means, self.deviation).astype(int).clip(min=MINIMUM_WINDOW)
        ends = lengths.cumsum()
        return [0, *ends[ends < columns].tolist(), columns]
