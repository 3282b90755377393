"""The algorithmic tasks against plain constructions of single sequences."""

from typing import Any

import numpy as np
import pytest
import torch

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED, Batch
from gyral.tasks.algorithm import PROTOCOLS, AlgorithmData, AlgorithmTask
from tests.helpers.running import build_task

# for the contract of tasks
OPTIONS = {"name": "double"}  # whose options are those of all algorithms
RUN = ("model=lantm",)  # of small_runs.py in tests/faults

ANSWERS: dict[str, Any] = {
    "copy": lambda symbols: symbols,
    "reverse": lambda symbols: symbols[::-1],
    "bigram_flip": lambda symbols: [
        symbol for i in range(0, len(symbols), 2) for symbol in (symbols[i + 1], symbols[i])
    ],
    "double": lambda symbols: digits_of(2 * number(symbols), len(symbols) + 1),
    "addition": lambda symbols: digits_of(number(symbols[::2]) + number(symbols[1::2]), len(symbols) // 2 + 1),
}


def number(digits: list[int]) -> int:
    """Return the number with these digits, the least significant first."""
    return int("".join(map(str, reversed(digits))))


def digits_of(value: int, count: int) -> list[int]:
    """Return the digits of a number, the least significant first, padded with zeros."""
    return [int(digit) for digit in reversed(str(value).zfill(count))]


def data(name: str, **options: Any) -> AlgorithmData:
    sizes = {"batch_size": 30, "val_batches": 2, "test_batches": 2, "data_seed": 3}
    protocol = {"train_lengths": None, "test_factors": None, "vocabulary_size": None}
    return AlgorithmData(name=name, **{**protocol, **sizes, **options})


def built(name: str, **options: Any) -> AlgorithmTask:
    return build_task("task=algorithm", "model=gru", "model.cell.hidden_size=4", name=name, **options)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_layout_and_answers(name: str) -> None:
    made = data(name)
    start, end_of_input, end_of_output = (made.symbols - 3, made.symbols - 2, made.symbols - 1)
    batch = next(iter(made.loader("train")))
    assert len(set(batch.lengths.tolist())) > 5, "the lengths are not mixed"
    for row in range(30):
        length, written = int(batch.lengths[row]), int(batch.write[row].sum())
        tokens, targets = batch.inputs[row].tolist(), batch.targets[row].tolist()
        symbols = tokens[1:written]
        assert tokens[0] == start
        assert tokens[written:length] == [end_of_input] * (length - written)
        assert max(symbols) < (10 if name in ("double", "addition") else start)
        assert batch.write[row].tolist() == [step < written for step in range(len(tokens))]
        answer = [*ANSWERS[name](symbols), end_of_output]
        assert targets == [IGNORED] * written + answer + [IGNORED] * (len(tokens) - length)
        assert len(answer) == length - written


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        ("copy", {1: (2, 64), 2: (65, 128), 4: (129, 256), 5: (257, 320)}),
        ("reverse", {1: (2, 64), 2: (65, 128), 4: (129, 256), 5: (257, 320)}),
        ("bigram_flip", {1: (2, 32), 2: (33, 64), 4: (65, 128), 8: (129, 256)}),
        ("double", {1: (2, 40), 2: (41, 80), 4: (81, 160), 8: (161, 320)}),
        ("addition", {1: (2, 16), 2: (17, 32), 4: (33, 64)}),
    ],
)
def test_each_test_has_its_published_lengths(name: str, lengths: dict[int, tuple[int, int]]) -> None:
    made = data(name, batch_size=400, test_batches=1)
    assert made.factors == list(lengths)
    width = 2 if name in ("bigram_flip", "addition") else 1
    for test, (batch, (shortest, longest)) in enumerate(zip(made.loader("test"), lengths.values(), strict=True)):
        found = (batch.write.sum(dim=1) - 1) / width
        assert (found.min(), found.max()) == pytest.approx((shortest, longest), abs=8)
        assert shortest <= found.min() <= found.max() <= longest
        assert made.lengths(test) == (shortest, longest)
        assert batch.categories.nonzero()[:, 1].unique().tolist() == [*([0] if test == 0 else []), 1 + test]


def test_numbers_have_all_their_digits_and_symbols_are_uniform() -> None:
    batch = next(iter(data("double", batch_size=5000, train_lengths=[3, 3]).loader("train")))
    digits = batch.inputs[:, 1:4]
    assert digits[:, 2].unique().tolist() == list(range(1, 10))
    for place, count in ((0, 10), (1, 10), (2, 9)):
        frequencies = torch.bincount(digits[:, place], minlength=10).float() / 5000
        assert frequencies[-count:].numpy() == pytest.approx(np.full(count, 1 / count), abs=0.03)


def test_vocabulary_and_memory() -> None:
    assert built("copy").model.vocabulary_size == built("copy").model.head.out_features == 128
    assert built("addition").model.vocabulary_size == 14
    reserved: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gyral.tasks.base.SequenceTask.reserve", lambda task, writes: reserved.append(writes))
        built("copy", test_factors=[1, 2])
        built("bigram_flip")
    assert reserved == [1 + 128, 1 + 2 * 256]


def test_a_test_reports_each_length_and_a_validation_the_lengths_of_training() -> None:
    task = built("copy", train_lengths=[2, 4], test_factors=[1, 2], test_batches=1, batch_size=4)

    def logits(batch: Batch, right: list[bool]) -> torch.Tensor:
        """Return the correct answers, without their ends in wrong rows."""
        found = 50.0 * torch.nn.functional.one_hot(batch.targets.clamp(min=0), 128)
        for row, (is_right, length) in enumerate(zip(right, batch.lengths.tolist(), strict=True)):
            if not is_right:
                found[row, length - 1] = found[row, length - 1].roll(1)
        return found

    batches = list(task.data.loader("test"))
    for batch, right in zip(batches, ([True, True, True, False], [True, False, False, False]), strict=True):
        outputs = logits(batch, right)
        task.metrics.update(outputs, batch, task.loss(outputs, batch))
    symbols = [int((batch.targets != IGNORED).sum()) for batch in batches]
    results = task.test_results()
    shares = {"coarse": 0.75, "coarse_1x": 0.75, "coarse_2x": 0.25, "fine": 1 - 1 / symbols[0]}
    assert {name: results[name] for name in shares} == pytest.approx(shares)
    assert results["fine_2x"] == pytest.approx(1 - 3 / symbols[1])
    assert results["fine_1x"] == results["fine"]
    assert results["loss"] == pytest.approx(50 / symbols[0], rel=1e-4)
    assert "fine_2x" not in task.metrics.names


def test_draws_depend_only_on_seed_split_and_index() -> None:
    whole = list(data("copy").loader("test"))
    loader = data("copy", val_batches=9).loader("test")
    assert torch.equal(loader[3].inputs, whole[3].inputs)
    others = [data("copy", data_seed=4).loader("test")[0], loader[1], data("copy").loader("train")[0]]
    shortest = min(batch.inputs.shape[1] for batch in (whole[0], *others))
    firsts = [batch.inputs[:, :shortest].tolist() for batch in (whole[0], *others)]
    assert all(one != other for i, one in enumerate(firsts) for other in firsts[:i])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "sort"}, "name=sort: must be one of copy, reverse, bigram_flip, double, addition"),
        ({"train_lengths": [5, 2]}, "train_lengths=[5, 2]: must be 2 integers in increasing order ≥ 1, such as [2, 4]"),
        ({"train_lengths": [0, 2]}, "train_lengths=[0, 2]: must be 2 integers in increasing order ≥ 1, such as [2, 4]"),
        ({"train_lengths": 7}, "train_lengths=7: must be 2 integers in increasing order ≥ 1, such as [2, 4]"),
        ({"test_factors": [2, 4]}, "test_factors=[2, 4]: must begin with 1, the lengths of training"),
        ({"test_factors": [1, 2, 2]}, "test_factors=[1, 2, 2]: must be increasing integers ≥ 1, such as [2, 4]"),
        ({"vocabulary_size": 4}, "vocabulary_size=4: must be an integer from 5 to 1000000"),
        ({"name": "double", "vocabulary_size": 12}, "vocabulary_size=12: must be an integer from 13 to 1000000"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**{"name": "copy", **options})
    assert str(raised.value) == said


@pytest.mark.parametrize(
    ("name", "text", "read", "right"),
    [
        ("copy", "17 4 99", [17, 4, 99], "17 4 99"),
        ("reverse", " 17 4  99 ", [17, 4, 99], "99 4 17"),
        ("bigram_flip", "1 2 3 4", [1, 2, 3, 4], "2 1 4 3"),
        ("double", "713", [3, 1, 7], "1426"),
        ("double", "12", [2, 1], "24"),
        ("double", "0", [0], "0"),
        ("addition", "13+95", [3, 5, 1, 9], "108"),
        ("addition", "7 + 95", [7, 5, 0, 9], "102"),
    ],
)
def test_a_written_sequence_becomes_a_batch(name: str, text: str, read: list[int], right: str) -> None:
    task = built(name)
    batch = task.encode(text)
    assert batch.inputs[0][batch.write[0]].tolist()[1:] == read
    answer = batch.targets[0][batch.targets[0] != IGNORED].tolist()
    assert task.decode(answer) == right
    assert "…" in task.decode(answer[:-1])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("copy", "3 b", "'b' is not a symbol; the symbols are the numbers from 0 to 124"),
        ("copy", "3 125", "'125' is not a symbol; the symbols are the numbers from 0 to 124"),
        ("copy", " ", "must be symbols with spaces between them, such as 17 4 99 12"),
        ("bigram_flip", "1 2 3", "must be pairs of symbols with spaces between them, such as 17 4 99 12"),
        ("double", "-3", "must be a number, such as 713"),
        ("double", "7²", "must be a number, such as 713"),
        ("addition", "13", "must be two numbers, such as 13+95"),
        ("addition", "13+", "must be two numbers, such as 13+95"),
    ],
)
def test_invalid_sequences_are_refused(name: str, text: str, said: str) -> None:
    with pytest.raises(OptionError) as raised:
        built(name).encode(text)
    assert str(raised.value) == f"sequence={text}: {said}"


@pytest.mark.parametrize("name", ["double", "addition"])
def test_zero_padded_numbers_may_begin_with_zeros(name: str) -> None:
    for padded in (False, True):
        data = AlgorithmData(name=name, train_lengths=[3, 3], test_factors=[1], batch_size=200, zero_padded=padded)
        batch = data.draw(np.random.default_rng(0), "train", 0)
        first_digits = batch.inputs[:, 1 + 2 * data.width : 1 + 3 * data.width]
        assert bool((first_digits == 0).any()) == padded
