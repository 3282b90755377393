"""The supervised tasks of POPGym against games that are played card by card."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.tasks.popgym import PopgymData
from tests.helpers.running import build_task


def data(**options: Any) -> PopgymData:
    sizes = {"batch_size": 2500, "val_batches": 4, "test_batches": 1, "data_seed": 3}
    return PopgymData(**{**sizes, **options})


def play(name: str, tokens: list[int], k: int) -> list[int]:
    """Return the rewarded actions of a game with these observations, `IGNORED` where any action may be taken."""
    hand: list[int] = []
    actions = []
    for token in tokens:
        if name != "autoencode":
            hand.append(token)
            rewarded = hand[0] if name == "repeat_first" else (hand[-k] if len(hand) >= k else IGNORED)
        elif token < 4:  # the phase of watching
            hand.append(token)
            rewarded = IGNORED
        else:
            if IGNORED in actions[-1:]:  # the last card
                hand.append(token - 4)
            rewarded = hand.pop()
        actions.append(rewarded)
    return actions


@pytest.mark.parametrize(
    ("name", "decks", "k"),
    [
        ("repeat_previous", 1, 4),
        ("repeat_previous", 2, 32),
        ("repeat_previous", 1, 1),
        ("repeat_first", 1, 4),
        ("repeat_first", 8, 4),
        ("autoencode", 1, 4),
        ("autoencode", 3, 4),
    ],
)
def test_targets_are_the_rewarded_actions(name: str, decks: int, k: int) -> None:
    made = data(name=name, decks=decks, k=k, batch_size=2500 if decks == 1 else 500, val_batches=1)
    cards, seen = 52 * decks, 0
    for batch in made.loader("val"):
        for tokens, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
            assert targets == play(name, tokens, k)
            if name == "autoencode":
                assert len(tokens) == 2 * cards - 1
                dealt = [*tokens[: cards - 1], tokens[cards - 1] - 4]
                assert Counter(dealt) == dict.fromkeys(range(4), cards // 4)
                assert targets[cards - 1 :] == dealt[::-1]
                assert tokens[cards:] == [4] * (cards - 1)
            else:
                assert len(tokens) == cards - 1
                counts = sorted(Counter(tokens).values())
                assert counts == [cards // 4 - 1, *[cards // 4] * 3], "all cards but the last one"
            seen += 1
    assert seen == (2500 if decks == 1 else 500)


def test_decks_are_shuffled() -> None:
    batch = next(iter(data(name="repeat_first", batch_size=10_000).loader("val")))
    for step in (0, 1, 30, 50):
        shares = np.bincount(batch.inputs[:, step].numpy()) / 10_000
        assert shares == pytest.approx(np.full(4, 0.25), abs=0.02)
    together = np.bincount((4 * batch.inputs[:, 7] + batch.inputs[:, 30]).numpy()) / 10_000
    # two of 52 cards: the same suit 12/51, another one 13/51
    assert together.reshape(4, 4) == pytest.approx((13 - np.eye(4)) / 51 / 4, abs=0.012)


def test_numbers_of_decks_and_sizes() -> None:
    made = data(name="autoencode", test_decks=[2, 3], batch_size=8)
    assert [batch.inputs.shape for batch in made.loader("test")] == [(8, 103), (8, 207), (8, 311)]
    assert made.categories == ["2_decks", "3_decks"]
    for name, tokens in (("repeat_previous", 4), ("autoencode", 8)):
        task = build_task("task=popgym", "model=gru", "model.cell.hidden_size=4", name=name)
        assert (task.model.vocabulary_size, task.model.head.out_features) == (tokens, 4)
        assert task.baseline == pytest.approx(np.log(4))


def test_rendering_of_the_reversal() -> None:
    task = build_task("task=popgym", "model=gru", name="autoencode")
    batch = next(iter(task.data.loader("val")))
    source, target, prediction = (line[12:] for line in task.render(batch, batch.targets).splitlines())
    assert target == prediction
    assert source.split()[-3:] == ["-", "-", "-"]
    assert target.split()[::-1][:3] == source.split()[:3]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "count_recall"}, "name=count_recall: must be one of repeat_previous, repeat_first, autoencode"),
        ({"decks": 0}, "decks=0: must be an integer from 1 to 10000"),
        ({"k": 52}, "k=52: must be an integer from 1 to 51"),
        ({"decks": 2, "k": 64, "test_decks": [1]}, "k=64: must be an integer from 1 to 51"),
        ({"test_decks": [3, 2]}, "test_decks=[3, 2]: must be increasing integers ≥ 1, such as [2, 4]"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**options)
    assert str(raised.value) == said
