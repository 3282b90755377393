"""Windows of a long text for truncated backpropagation through time: each goes on where the one before ended."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED


class Window(NamedTuple):
    """A batch of consecutive tokens, as `gyral.data.batching.Batch`, all (B, T), and whether it goes on with the last.

    A target is the token after its input. `continues` says that each row goes on where the same row of the window
    before ended, so that its state does, too.
    """

    inputs: Tensor
    targets: Tensor
    answers: Tensor
    continues: bool


class Windows:
    """A text of n tokens, cut into rows that are read side by side, window by window, once.

    Every token but the first is predicted exactly once, whatever the sizes are: the last window may be shorter, and
    where a row has ended before it, targets are `IGNORED`. With a warm-up each row but the first begins so many tokens
    early, without loss there: it then has seen what came before, and a loss hardly depends on the number of rows.

    Args:
        tokens: (n,) integers.
        batch_size: rows, at most n − 1.
        window: T, tokens a window.
        warm_up: tokens that a row reads before those it predicts; shortened where there are not so many.

    Raises:
        OptionError: a text with fewer predictions than rows, or than a window has.
    """

    def __init__(self, tokens: np.ndarray, batch_size: int, window: int, warm_up: int = 0) -> None:
        self.tokens = tokens
        self.window = window
        predictions = len(tokens) - 1
        if predictions < batch_size:
            raise OptionError(f"batch_size={batch_size}: must be at most {predictions}, which the text has to predict")
        if predictions < window:
            raise OptionError(f"window={window}: must be at most {predictions}, which the text has to predict")
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
