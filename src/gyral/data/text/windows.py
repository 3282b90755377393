"""Consecutive windows of a long text, for truncated backpropagation through time."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED


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
    """One pass over a text of n tokens, which is split into parallel rows and read window by window.

    Every token except the first is predicted exactly once for all sizes: the last window may be shorter, and targets
    after the end of a row are `IGNORED`. With a warm-up, each row except the first starts that many tokens earlier and
    ignores their targets. The row then has context, and the loss hardly depends on the number of rows.

    Args:
        tokens: (n,) integers.
        batch_size: number of rows, at most n − 1.
        window: T, tokens per window.
        warm_up: tokens that a row reads before those it predicts; fewer if the text is too short.

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
        columns = np.arange(index * self.window, min((index + 1) * self.window, self.columns))
        places = self.starts[:, None] + columns
        known = places < len(self.tokens) - 1
        places = np.where(known, places, 0)
        warming = (columns < self.warm_up) & (self.starts[:, None] > 0)
        inputs = torch.from_numpy(self.tokens[places].astype(np.int64))
        targets = torch.from_numpy(self.tokens[places + 1].astype(np.int64))
        targets[torch.from_numpy(~known | warming)] = IGNORED
        return Window(inputs, targets, targets != IGNORED, continues=index > 0)

    def __iter__(self) -> Iterator[Window]:
        return (self[index] for index in range(len(self)))
