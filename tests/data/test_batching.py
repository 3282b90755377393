"""Batches: every row once, an order that the seed alone decides, and a stream that resumes at the next batch."""

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gyral.core.errors import OptionError
from gyral.data.batching import BLOCK, Batch, Batches, PrefetchedBatches, ShuffledBatches, mix_seed


def assemble(rows: Tensor) -> Batch:
    """Make a batch whose inputs are the rows themselves."""
    return Batch(rows, rows, torch.ones_like(rows, dtype=torch.bool))


def stream(*, rows: int = 20, batch_size: int = 4, seed: int = 0, length: int = 15) -> ShuffledBatches:
    return ShuffledBatches(torch.arange(rows).unsqueeze(1), batch_size, assemble, seed=seed, length=length)


def served(batches: ShuffledBatches | Batches, count: int | None = None) -> list[list[int]]:
    return [batch.inputs.flatten().tolist() for batch in itertools.islice(batches, count)]


def flat(batches: Iterable[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(batches))


def test_each_pass_contains_every_row_once() -> None:
    batches = served(stream())
    for start in (0, 5, 10):
        one_pass = flat(batches[start : start + 5])
        assert sorted(one_pass) == list(range(20))


def test_each_pass_has_another_order() -> None:
    batches = served(stream())
    passes = [flat(batches[start : start + 5]) for start in (0, 5, 10)]
    assert len({tuple(one_pass) for one_pass in passes}) == 3
    assert all(one_pass != sorted(one_pass) for one_pass in passes)


def test_all_batches_are_full_and_the_remainder_of_a_pass_is_dropped() -> None:
    batches = served(stream(rows=22, batch_size=4, length=10))
    assert all(len(batch) == 4 for batch in batches)
    for start in (0, 5):
        one_pass = flat(batches[start : start + 5])
        assert len(set(one_pass)) == 20
    # other rows are left out in another pass, so that none is left out for ever
    assert set(flat(batches[:5])) != set(flat(batches[5:]))


def test_order_depends_only_on_the_seed() -> None:
    expected = served(stream(seed=3))
    torch.manual_seed(12345)
    torch.rand(7)
    assert served(stream(seed=3)) == expected
    assert served(stream(seed=4)) != expected


def test_reading_batches_does_not_change_the_global_generator() -> None:
    before = torch.get_rng_state()
    served(stream())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("stopped_after", [0, 1, 4, 5, 6, 14, 15])
def test_saved_position_resumes_at_the_next_batch(stopped_after: int) -> None:
    whole = served(stream())
    first = stream()
    assert served(first, stopped_after) == whole[:stopped_after]
    second = stream()
    second.load_state_dict(first.state_dict())
    assert served(second) == whole[stopped_after:]


def test_saved_position_is_a_plain_dictionary() -> None:
    batches = stream()
    served(batches, 3)
    assert batches.state_dict() == {"position": 3}


def test_several_batches_are_assembled_at_a_time() -> None:
    calls = []

    def counted(rows: Tensor) -> Batch:
        calls.append(len(rows))
        return Batch(rows, rows + 100, rows > 7)

    batches = ShuffledBatches(torch.arange(44).unsqueeze(1), 4, counted, seed=0, length=14)
    assert served(batches) == served(stream(rows=44, length=14))
    assert calls == [4 * BLOCK, 4 * 3, 4 * 3]  # to the end of a pass, and of the stream
    batches.load_state_dict({"position": 0})
    for batch in batches:
        assert batch.lengths is None
        assert all(tensor.shape == (4, 1) and tensor.is_contiguous() for tensor in batch[:3])
        assert torch.equal(batch.targets, batch.inputs + 100)
        assert torch.equal(batch.answers, batch.inputs > 7)


def test_position_outlives_iterators() -> None:
    whole = served(stream())
    batches = stream()
    assert served(batches, 7) + served(batches, 2) + served(batches) == whole
    assert served(batches) == []


def test_length_is_the_number_of_batches() -> None:
    assert len(stream(length=15)) == 15
    assert len(served(stream(length=3))) == 3
    assert len(served(stream(length=17))) == 17


def test_a_batch_size_above_the_number_of_rows_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^batch_size=21: must be at most .* 20$"):
        stream(rows=20, batch_size=21)
    assert len(served(stream(rows=20, batch_size=20))[0]) == 20


@pytest.mark.parametrize(("rows", "sizes"), [(6, [3, 3]), (7, [3, 3, 1]), (2, [2])])
def test_batches_are_the_rows_in_order(rows: int, sizes: list[int]) -> None:
    batches = Batches(torch.arange(rows).unsqueeze(1), 3, assemble)
    assert [len(batch) for batch in served(batches)] == sizes
    assert len(batches) == len(sizes)
    assert flat(served(batches)) == list(range(rows))
    assert served(batches) == served(batches)


def test_mixed_seeds_differ_by_seed_and_purpose_and_are_stable() -> None:
    seeds = {mix_seed(seed, purpose) for seed in range(50) for purpose in ("train", "val", "test", "order")}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)
    # seed 1 with purpose "1 x" must not equal seed 11 with another purpose
    assert mix_seed(1, "1 train") != mix_seed(11, "train")
    # fixed for ever: data of old runs can be drawn again
    assert mix_seed(1, "train") == 46003964728708180


def prefetched(ahead: int = 3, **options: int) -> PrefetchedBatches[Batch]:
    return PrefetchedBatches(stream(**options), ahead)


def prefetch_threads() -> int:
    return sum(thread.name == "prefetch" for thread in threading.enumerate())


@pytest.mark.parametrize("ahead", [1, 3, 100])
def test_a_thread_draws_the_same_batches(ahead: int) -> None:
    assert served(prefetched(ahead)) == served(stream())
    assert prefetch_threads() == 0


@pytest.mark.parametrize("ahead", [1, 3, 100])
def test_batches_that_were_drawn_ahead_are_drawn_again_after_a_resume(ahead: int) -> None:
    expected = served(stream())
    first = prefetched(ahead)
    batches = iter(first)
    used = [next(batches).inputs.flatten().tolist() for _ in range(4)]
    state = first.state_dict()
    assert state == {"position": 4}
    for resumed in (prefetched(ahead), stream(), first):  # a run may resume with or without the thread
        resumed.load_state_dict(state)
        assert used + served(resumed) == expected


def test_no_more_batches_are_drawn_ahead_than_asked() -> None:
    drawn = threading.Semaphore(0)

    def count(rows: Tensor) -> Batch:
        drawn.release()
        return assemble(rows)

    source = ShuffledBatches(torch.arange(20).unsqueeze(1), 20, count, seed=0, length=10)
    batches = iter(PrefetchedBatches(source, 2))
    next(batches)
    for _ in range(3):  # one was used
        assert drawn.acquire(timeout=60)
    assert not drawn.acquire(timeout=0.2)


def test_an_exception_in_the_thread_is_raised_where_its_batch_is_used() -> None:
    def fail_at_8(rows: Tensor) -> Batch:
        if (rows == 8).any():
            raise ValueError("row 8")
        return assemble(rows)

    source = ShuffledBatches(torch.arange(20).unsqueeze(1), 20, fail_at_8, seed=0, length=10)
    with pytest.raises(ValueError, match="row 8") as caught:
        next(iter(PrefetchedBatches(source, 2)))
    assert "fail_at_8" in [entry.name for entry in caught.traceback]
    assert prefetch_threads() == 0


def test_the_thread_ends_with_an_iterator_that_is_left() -> None:
    batches = iter(prefetched())
    next(batches)
    assert prefetch_threads() == 1
    del batches
    assert prefetch_threads() == 0


ROOT = Path(__file__).resolve().parents[2]  # not imported from the helpers, which would import Lightning and Hydra
PROGRAM = """
import os, sys
from unittest.mock import MagicMock

sys.modules["torch"] = MagicMock()  # importing it takes seconds; these batches are numbers
from gyral.data.batching import PrefetchedBatches, RepeatedBatches

for ending in ("pass", "raise KeyboardInterrupt", "os.fork() or os._exit(0); os.wait()"):
    child = os.fork()
    if child == 0:
        batches = iter(PrefetchedBatches(RepeatedBatches(range(5), 10**9), 2))
        next(batches)
        exec(ending)
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_the_thread_does_not_keep_the_process_alive() -> None:
    """Each ending is that of a fork, which finishes as the program itself does."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.stdout.split() == ["0", str(-signal.SIGINT), "0"], ended.stderr
    assert ended.returncode == 0, ended.stderr
