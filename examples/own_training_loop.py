"""A Gyral layer in plain PyTorch: a training loop of your own, without Hydra or Lightning.

The task is associative recall in a stream. An episode shows pairs of a key and a value, then one of its keys again, and
the network must name the value. Episodes of different lengths follow each other without padding, and windows cut the
stream anywhere:

    tokens     d 7 a 2 d   b 1 c 4 a 9 a   a 3 a      keys a, b, …; values 0, 1, …
    targets    - - - - 7   - - - - - - 9   - - 3
    starts     1 0 0 0 0   1 0 0 0 0 0 0   1 0 0
    windows    └───────────────┘ └───────────────┘

`starts` marks the first step of each episode: the state begins anew there, so that an episode never disturbs the next
one. The state at the end of a window is passed to the next window, so that an answer can depend on both; it is
detached, so that gradients stay within a window.

    python examples/own_training_loop.py                  # 400 steps: about 99 % of the answers are right
    python examples/own_training_loop.py --ignore-starts  # about 60 %: earlier episodes are in the way
"""

import argparse
import random
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral import RUM

KEYS = VALUES = 8
BATCH, WINDOW, HIDDEN = 64, 24, 40
NO_ANSWER = -100  # the target that `cross_entropy` ignores

State = tuple[Tensor, ...]


def episodes(generator: random.Random) -> Iterator[tuple[int, bool, int]]:
    """Yield token, start and target of each step of a stream of episodes that never ends."""
    while True:
        pairs = generator.randint(1, 4)
        keys = generator.sample(range(KEYS), pairs)
        values = [generator.randrange(VALUES) for _ in keys]
        asked = generator.randrange(pairs)
        for pair in range(pairs):
            yield keys[pair], pair == 0, NO_ANSWER
            yield KEYS + values[pair], False, NO_ANSWER
        yield keys[asked], False, values[asked]


def windows() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield tokens, starts and targets (T, B) of the consecutive windows of B streams."""
    streams = [episodes(random.Random(row)) for row in range(BATCH)]
    while True:
        steps = torch.tensor([[next(stream) for stream in streams] for _ in range(WINDOW)])
        yield steps[..., 0], steps[..., 1].bool(), steps[..., 2]


class Reader(nn.Module):
    """An embedding, a recurrent layer, and a linear classifier at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(KEYS + VALUES, HIDDEN)
        self.recurrent = RUM(HIDDEN, HIDDEN, lambd=1.0)
        self.classifier = nn.Linear(HIDDEN, VALUES)

    def forward(self, tokens: Tensor, state: State | None, starts: Tensor | None) -> tuple[Tensor, State]:
        outputs, state = self.recurrent(self.embedding(tokens), state, starts=starts)
        return self.classifier(outputs), state


def train(steps: int, ignore_starts: bool = False) -> float:
    """Train a reader, print its accuracy as it rises, and return the last one."""
    torch.manual_seed(1)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    state: State | None = None
    right, asked, began = 0, 0, time.perf_counter()
    for step, (tokens, starts, targets) in zip(range(1, steps + 1), windows(), strict=False):
        logits, state = model(tokens, state, None if ignore_starts else starts)
        state = tuple(tensor.detach() for tensor in state)  # RUM with λ = 1: the hidden vector and a matrix
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

        right += int((logits.argmax(-1) == targets).sum())
        asked += int((targets != NO_ANSWER).sum())
        if step % max(steps // 5, 1) == 0:
            accuracy, right, asked = right / asked, 0, 0
            seconds = time.perf_counter() - began
            print(
                f"step {step:4}: {100 * accuracy:5.1f} % of the answers right, loss {loss.item():.3f}, {seconds:.1f} s"
            )
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train RUM on associative recall in a stream of episodes.")
    parser.add_argument("--steps", type=int, default=400, help="number of optimizer steps (default: 400)")
    parser.add_argument("--ignore-starts", action="store_true", help="do not begin anew at the start of an episode")
    options = parser.parse_args()
    train(options.steps, options.ignore_starts)
