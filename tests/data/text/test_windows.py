"""Windows of a text: every token is predicted once, rows continue, a stream resumes."""

import itertools

import numpy as np
import pytest
import torch

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED, RepeatedBatches
from gyral.data.text.windows import RandomWindows, Window, Windows

SIZES = [
    (n, rows, window, warm_up)
    for n in (8, 9, 23, 60)
    for rows in (1, 2, 5, 7)
    for window in (1, 4, 7)
    for warm_up in (0, 3, 100)
]


def text(size: int) -> np.ndarray:
    """Return tokens that tell their own place."""
    return np.arange(size, dtype=np.uint16)


@pytest.mark.named("9-5-*", "23-2-*", "60-7-*")
@pytest.mark.parametrize(("size", "rows", "window", "warm_up"), SIZES)
def test_every_token_but_the_first_is_predicted_once_from_the_one_before(
    size: int, rows: int, window: int, warm_up: int
) -> None:
    windows = Windows(text(size), rows, window, warm_up)
    batches = list(windows)
    assert len(batches) == len(windows)
    predicted = []
    for batch in batches:
        assert batch.inputs.shape == batch.targets.shape == batch.answers.shape
        assert batch.inputs.shape[0] == rows
        assert 1 <= batch.inputs.shape[1] <= window
        assert batch.inputs.dtype == batch.targets.dtype == torch.long
        assert torch.equal(batch.answers, batch.targets != IGNORED)
        assert torch.equal(batch.inputs[batch.answers] + 1, batch.targets[batch.answers])
        assert batch.answers.any(), "a window without a target has no loss"
        predicted += batch.targets[batch.answers].tolist()
    assert sorted(predicted) == list(range(1, size))


@pytest.mark.named("9-5-*", "23-2-*", "60-7-*")
@pytest.mark.parametrize(("size", "rows", "window", "warm_up"), SIZES)
def test_rows_continue_in_the_next_window(size: int, rows: int, window: int, warm_up: int) -> None:
    batches = list(Windows(text(size), rows, window, warm_up))
    assert [batch.continues for batch in batches] == [False] + [True] * (len(batches) - 1)
    whole = torch.cat([batch.inputs for batch in batches], dim=1)
    counted = torch.cat([batch.answers for batch in batches], dim=1)
    for row, answers in zip(whole, counted, strict=True):
        if answers.any():  # with many rows the text may have ended before the last
            last = int(answers.nonzero()[-1])
            assert row[: last + 1].tolist() == list(range(int(row[0]), int(row[0]) + last + 1))


def test_warm_up_tokens_have_no_loss() -> None:
    first, second = Windows(text(21), 2, 20, warm_up=4)[0].targets
    assert first.tolist() == list(range(1, 13))
    assert second.tolist() == [IGNORED] * 4 + list(range(13, 21))


def test_inputs_and_targets_of_a_small_text() -> None:
    one, other = Windows(text(8), 2, 3)
    assert one.inputs.tolist() == [[0, 1, 2], [4, 5, 6]]
    assert one.targets.tolist() == [[1, 2, 3], [5, 6, 7]]
    assert other.inputs[0].tolist() == [3]
    assert other.targets.tolist() == [[4], [IGNORED]], "the second row has nothing left to predict"


@pytest.mark.parametrize(("rows", "window", "name"), [(8, 2, "batch_size=8"), (2, 8, "window=8")])
def test_sizes_that_do_not_fit_the_text_are_refused(rows: int, window: int, name: str) -> None:
    with pytest.raises(OptionError, match=f"^{name}: must be at most 7"):
        Windows(text(8), rows, window)


def same(one: Window, other: Window) -> bool:
    return one.continues == other.continues and all(map(torch.equal, one[:3], other[:3]))


@pytest.mark.parametrize("stopped_after", [1, 3, 4, 9])
def test_a_stream_repeats_and_resumes_at_the_next_window(stopped_after: int) -> None:
    windows = Windows(text(30), 3, 3)
    whole = list(RepeatedBatches(windows, 10))
    assert len(whole) == 10
    assert all(same(window, windows[index % len(windows)]) for index, window in enumerate(whole))
    stopped = RepeatedBatches(windows, 10)
    assert all(map(same, itertools.islice(stopped, stopped_after), whole))
    resumed = RepeatedBatches(windows, 10)
    resumed.load_state_dict(stopped.state_dict())
    rest = list(resumed)
    assert len(rest) == 10 - stopped_after
    assert all(map(same, rest, whole[stopped_after:]))


def random_windows(size: int = 5000, seed: int = 1, length: int = 1000, window: int = 20) -> RandomWindows:
    return RandomWindows(Windows(text(size), 4, window), 3.0, seed=seed, length=length)


def test_each_pass_in_random_windows_predicts_every_token_once() -> None:
    stream = random_windows()
    passes = [len(stream.bounds(number)) - 1 for number in range(3)]
    batches = list(itertools.islice(stream, sum(passes)))
    for count in passes:
        one_pass, batches = batches[:count], batches[count:]
        assert [batch.continues for batch in one_pass] == [False] + [True] * (count - 1)
        whole = torch.cat([batch.targets for batch in one_pass], dim=1)
        assert sorted(whole[whole != IGNORED].tolist()) == list(range(1, 5000))
        assert all(torch.equal(batch.inputs[0, 1:], batch.inputs[0, :-1] + 1) for batch in one_pass)
    assert stream.bounds(0) != stream.bounds(1), "every pass cuts the text at the same places"
    assert stream.bounds(1) == random_windows().bounds(1) != random_windows(seed=2).bounds(1)


def test_lengths_of_random_windows_have_the_distribution_of_awd_lstm() -> None:
    stream = RandomWindows(Windows(text(60_000), 1, 70), 5.0, seed=3, length=1)
    lengths = np.concatenate([np.diff(stream.bounds(number))[:-1] for number in range(40)])
    short = lengths < 52
    assert short.mean() == pytest.approx(0.05, abs=0.01)
    for part, mean in ((lengths[~short], 70), (lengths[short], 35)):
        assert part.mean() == pytest.approx(mean - 0.5, abs=0.3)  # half a token less, because lengths are truncated
        assert part.std() == pytest.approx(5, abs=0.3)
    assert np.diff(random_windows(window=5).bounds(0))[:-1].min() == 5


@pytest.mark.parametrize("stopped_after", [0, 3, 62, 63, 64, 150])
def test_random_windows_resume_at_the_next_one(stopped_after: int) -> None:
    whole = list(random_windows(length=160))
    stopped, resumed = random_windows(length=160), random_windows(length=160)
    list(itertools.islice(stopped, stopped_after))
    resumed.load_state_dict(stopped.state_dict())
    rest = list(resumed)
    assert len(rest) == 160 - stopped_after
    assert all(torch.equal(one.inputs, other.inputs) for one, other in zip(rest, whole[stopped_after:], strict=True))
