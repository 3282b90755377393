"""Transductions against plain computations on single words, and their chances against all words of a length."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED, Batch
from gyral.data.transductions import TRANSDUCTIONS
from gyral.tasks.chomsky import ChomskyData, ChomskyTask
from tests.helpers.found import at_least
from tests.helpers.running import build_task

# for the contract of tasks
OPTIONS = {"name": "stack_manipulation", "shortest": 5}


def number(bits: list[str]) -> int:
    """Return the value of bits, the least significant one first."""
    return sum(2**place for place, bit in enumerate(bits) if bit == "1")


def bits_of(value: int) -> list[str]:
    """Return the bits of a value, the least significant one first, without zeros at the end."""
    return [*str(value % 2), *bits_of(value // 2)] if value else []


def result(word: list[str], operator: str) -> list[str]:
    place = word.index(operator)
    first, second = number(word[:place]), number(word[place + 1 :])
    assert first > 0 < second
    return [*bits_of(first + second if operator == "+" else first * second), "$"]


def stack(word: list[str]) -> list[str]:
    found: list[str] = []
    for place, symbol in enumerate(word):
        if symbol == "pop":
            found = found[:-1]
        else:
            found.append(symbol[-1])
            assert not (symbol in "01" and place and word[place - 1].startswith("p")), "a bit after an action"
    return [*reversed(found), "$"]


def missing(word: list[str]) -> list[str]:
    assert (word[-1] == ".") == len(word) % 2
    word = word[: len(word) // 2 * 2]
    assert word.count("_") == 1
    place = word.index("_")
    answer = word[(place + len(word) // 2) % len(word)]
    word[place] = answer
    assert word[: len(word) // 2] == word[len(word) // 2 :]
    return [answer]


def unknown(word: list[str]) -> list[str]:
    assert word.count("x") == word.count("=") == 1
    assert word[-2] == "="
    solutions = [x for x in range(5) if eval("".join(word[:-2]), {"x": x}) % 5 == int(word[-1])]
    assert len(solutions) == 1
    return [str(solutions[0])]


def root(word: list[str]) -> list[str]:
    value, found = number(word[::-1]), 0
    assert value > 0
    for place in reversed(range((len(word) + 1) // 2)):
        if (found + 2**place) ** 2 <= value:
            found += 2**place
    bits = bits_of(found)
    return (["0"] * (len(word) + 1))[: (len(word) + 1) // 2 - len(bits)] + bits[::-1]


RIGHT: dict[str, Any] = {
    "stack_manipulation": stack,
    "reverse_string": lambda word: list(reversed(word)),
    "solve_equation": unknown,
    "duplicate_string": lambda word: word + word,
    "missing_duplicate_string": missing,
    "odds_first": lambda word: (
        [each for i, each in enumerate(word) if i % 2] + [word[i] for i in range(0, len(word), 2)]
    ),
    "binary_addition": lambda word: result(word, "+"),
    "binary_multiplication": lambda word: result(word, "*"),
    "compute_sqrt": root,
    "bucket_sort": lambda word: [each for each in "01234" for _ in range(word.count(each))],
}
EXTRA = {"stack_manipulation": 1, "binary_addition": 1, "binary_multiplication": 0}  # symbols beyond those of the word


def data(name: str, **options: Any) -> ChomskyData:
    sizes = {"batch_size": 2600, "val_batches": 1, "test_batches": 1, "data_seed": 3, "length": 9, "shortest": 4}
    return ChomskyData(name=name, **{**sizes, **options})


def symbols(made: ChomskyData, batch: Batch, row: int) -> tuple[list[str], list[str], list[str]]:
    """Return the word of a row, its whole answer, and the part that counts."""
    targets = batch.targets[row].tolist()
    length = targets.count(IGNORED)
    assert all(target == IGNORED for target in targets[:length])
    word = [made.inputs[token] for token in batch.inputs[row].tolist()]
    assert word[length:] == ["·"] * (len(word) - length)
    answer = [made.classes[target] for target in targets[length:]]
    if batch.answers is None:
        return word[:length], answer, answer
    assert not batch.answers[row, :length].any()
    counted = batch.answers[row, length:].tolist()
    assert counted == sorted(counted, reverse=True), "symbols count up to the end"
    return word[:length], answer, answer[: sum(counted)]


@pytest.mark.parametrize("name", at_least(10, TRANSDUCTIONS))
def test_answers_equal_those_of_a_plain_computation(name: str) -> None:
    made = data(name, test_factors=[1, 2, 4], test_range=[5, 12], batch_size=300)
    batches = [*made.loader("test")]
    seen: Counter[str] = Counter()
    for batch in batches:
        assert batch.lengths is None
        for row in range(300):
            word, answer, counted = symbols(made, batch, row)
            seen.update(word)
            expected = RIGHT[name](word)
            assert counted == expected
            if name in EXTRA:
                assert answer == expected + ["0"] * (len(word) + EXTRA[name] - len(expected))
            else:
                assert answer == expected
    assert set(seen) == set(made.inputs[:-1])
    lengths = [int((batch.targets[0] == IGNORED).sum()) for batch in batches]
    assert lengths[1:3] == [18, 36]
    assert 4 <= lengths[0] <= 9
    assert 5 <= lengths[3] <= 12


def words_of(name: str, length: int) -> Iterator[tuple[list[str], Fraction]]:
    """Yield all words of a length with their probabilities."""
    if name == "stack_manipulation":
        for bits in range(1, max(length, 2)):
            alphabets = [["0", "1"]] * bits + [["pop", "push0", "push1"]] * (length - bits)
            share = Fraction(1, max(length - 1, 1) * 2**bits * 3 ** (length - bits))
            yield from ((list(word), share) for word in itertools.product(*alphabets))
    elif name == "binary_addition":
        for first in range(1, length - 1):
            second = length - 1 - first
            share = Fraction(1, (length - 2) * (2**first - 1) * (2**second - 1))
            for word in itertools.product(*["01"] * first, "+", *["01"] * second):
                if "1" in word[:first] and "1" in word[first:]:
                    yield list(word), share
    else:
        alphabet = "01234" if name == "bucket_sort" else "01"
        words = [list(word) for word in itertools.product(alphabet, repeat=length)]
        words = [word for word in words if name != "compute_sqrt" or "1" in word]
        yield from ((word, Fraction(1, len(words))) for word in words)


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        ("stack_manipulation", range(1, 7)),
        ("reverse_string", range(1, 6)),
        ("duplicate_string", range(1, 6)),
        ("odds_first", range(1, 6)),
        ("binary_addition", range(3, 9)),
        ("compute_sqrt", range(1, 10)),
        ("bucket_sort", range(1, 5)),
    ],
)
def test_frequencies_equal_those_of_all_words(name: str, lengths: range) -> None:
    transduction = TRANSDUCTIONS[name]()
    outputs = transduction.outputs
    for length in lengths:
        places = transduction.answer_length(length)
        answers = [dict.fromkeys(outputs, Fraction(0)) for _ in range(places)]
        counted = [dict.fromkeys(outputs, Fraction(0)) for _ in range(places)]
        words = [(RIGHT[name](word), share) for word, share in words_of(name, length)]
        for answer, share in words:
            for place in range(places):
                symbol = answer[place] if place < len(answer) else "0"
                answers[place][symbol] += share
                if place < len(answer):
                    counted[place][symbol] += share
        best = [max(outputs, key=each.__getitem__) for each in counted]
        found = transduction.frequencies(length)
        assert found.answers.tolist() == [
            pytest.approx([float(each[x]) for x in outputs], abs=1e-12) for each in answers
        ]
        assert found.hits == pytest.approx(float(sum(max(each.values()) for each in counted)))
        assert found.counted == pytest.approx(float(sum(sum(each.values()) for each in counted)))
        whole = float(sum(share for answer, share in words if answer == best[: len(answer)]))
        assert found.whole == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize("name", TRANSDUCTIONS)
def test_frequencies_equal_those_of_many_drawn_words(name: str) -> None:
    made = data(name, length=21, shortest=None, test_factors=[1], batch_size=20_000)
    (batch,) = made.loader("test")
    targets = batch.targets[:, 21:]
    counted = torch.ones_like(targets, dtype=torch.bool) if batch.answers is None else batch.answers[:, 21:]
    classes = torch.arange(len(made.classes))
    shares = (targets[:, :, None] == classes).double().mean(dim=0)
    found = made.transduction.frequencies(21)
    assert found.answers == pytest.approx(shares.numpy(), abs=0.02 if made.transduction.exact else 0.06)
    own = ((targets[:, :, None] == classes) & counted[:, :, None]).double().sum(dim=0)
    accuracy = (own.max(dim=1).values.sum() / counted.sum()).item()
    assert made.chances["accuracy"] == made.chances["length_accuracy"]
    assert made.chances["accuracy"] == pytest.approx([accuracy] * 2, abs=0.01)
    entropy = -(shares * shares.clamp(min=1e-30).log()).sum(dim=1).mean().item()
    assert made.baseline == pytest.approx(entropy, abs=0.005)


def test_frequencies_of_long_words_are_frequencies() -> None:
    for name in ("stack_manipulation", "binary_addition", "compute_sqrt", "bucket_sort"):
        transduction = TRANSDUCTIONS[name]()
        for length in (499, 1000):
            found = transduction.frequencies(length)
            assert found.answers.min() >= 0
            assert found.answers.sum(axis=1) == pytest.approx(1)
            assert 0 < found.hits < found.counted <= len(found.answers)


def test_chances_and_baselines_with_closed_forms() -> None:
    made = data("reverse_string", length=3, shortest=2, test_factors=[1, 2])
    assert made.baseline == pytest.approx(math.log(2))
    assert made.chances["accuracy"] == made.chances["length_accuracy"] == pytest.approx([0.5] * 3)
    assert made.chances["sequence_accuracy"] == pytest.approx([3 / 16, 3 / 16, 1 / 64])
    made = data("solve_equation")
    assert made.baseline == pytest.approx(math.log(5))
    assert made.chances["sequence_accuracy"] == made.chances["accuracy"] == pytest.approx([0.2] * 5)
    # The first sorted symbol of n is 0 with the probability 1 − (4/5)^n.
    assert TRANSDUCTIONS["bucket_sort"]().frequencies(10).answers[0, 0] == pytest.approx(1 - 0.8**10)


def test_a_predictor_without_memory_sorts_long_words() -> None:
    made = data("bucket_sort", length=40, shortest=1, test_factors=[1], test_range=[41, 500])
    assert made.chances["length_accuracy"][-1] == pytest.approx(0.9, abs=0.005)
    _, answers, _ = made.transduction.draw(np.random.default_rng(0), 300, 2000)
    predicted = made.transduction.frequencies(300).answers.argmax(axis=1)
    accuracy = data("bucket_sort", length=300, shortest=None, test_factors=[1]).chances["accuracy"][0]
    assert (answers == predicted).mean() == pytest.approx(accuracy, abs=0.005)


def test_lengths_are_drawn_in_training_and_spread_in_evaluations() -> None:
    made = data(
        "reverse_string", length=10, shortest=1, batch_size=2, val_batches=10, test_batches=5, test_range=[20, 24]
    )

    def lengths(split: str) -> list[int]:
        return [batch.inputs.shape[1] // 2 for batch in made.loader(split)]

    assert lengths("val") == list(range(1, 11))
    assert lengths("test") == [2, 4, 6, 8, 10, *[20] * 5, *[40] * 5, *[80] * 5, *range(20, 25)]
    assert lengths("train") != lengths("val")
    assert set(data("binary_addition", length=6, shortest=1).lengths[0].tolist()) == {3, 4, 5, 6}
    assert made.most_steps == 160
    assert data("stack_manipulation", test_factors=[1], test_range=[8, 12]).most_steps == 25
    assert data("duplicate_string", test_factors=[1]).most_steps == 27


def test_the_score_is_the_mean_over_lengths() -> None:
    task = build_task(
        *("task=chomsky", "task.name=duplicate_string", "model=gru", "model.cell.hidden_size=4"),
        length=3,
        shortest=2,
        test_factors=[1],
        batch_size=2,
        test_batches=2,
    )
    for batch, wrong in zip(task.data.loader("test"), ([(0, -1), (0, -2)], [(1, -1)]), strict=True):
        outputs = 50.0 * torch.nn.functional.one_hot(batch.targets.clamp(min=0), 2)
        for row, step in wrong:
            outputs[row, step] = outputs[row, step].roll(1)
        task.metrics.update(outputs, batch, task.loss(outputs, batch))
    results = task.test_results()
    assert results["accuracy"] == results["accuracy_1x"] == pytest.approx(17 / 20)
    assert results["length_accuracy"] == pytest.approx((6 / 8 + 11 / 12) / 2)
    assert results["sequence_accuracy"] == pytest.approx(1 / 2)
    assert results["scaled_length_accuracy"] == pytest.approx(2 * (6 / 8 + 11 / 12) / 2 - 1)
    assert results["scaled_sequence_accuracy"] == pytest.approx((1 / 2 - 3 / 16) / (1 - 3 / 16))
    assert "last_accuracy" not in results
    assert results["chance"] == 0.5


@pytest.mark.parametrize(
    ("name", "word", "answer"),
    [
        ("reverse_string", "0 1 1 0 1 0", "0 1 0 1 1 0"),
        ("stack_manipulation", "1 1 0 pop push1 pop", "1 1 $ 0 0 0 0"),
        ("solve_equation", "( x + 4 ) = 1", "2"),
        ("duplicate_string", "1 0 1", "1 0 1 1 0 1"),
        ("missing_duplicate_string", "0 1 1 0 _ 1 1 0", "0"),
        ("odds_first", "0 0 1 1 0 1 0 1", "0 1 1 1 0 1 0 0"),
        ("binary_addition", "0 1 + 1 1", "1 0 1 $ 0 0"),
        ("binary_multiplication", "0 1 * 1 1", "0 1 1 $ 0"),
        ("compute_sqrt", "1 0 0 1 0 1", "1 1 0"),
        ("bucket_sort", "1 0 2 0 4", "0 0 1 2 4"),
    ],
)
def test_examples_of_the_module_are_right_and_rendered(name: str, word: str, answer: str) -> None:
    expected = RIGHT[name](word.split())
    assert answer.split()[: len(expected)] == expected
    made = data(name, length=4, test_factors=[1])
    read, places = word.split(), answer.split()
    assert len(places) == made.transduction.answer_length(len(read))
    inputs = [made.inputs.index(symbol) for symbol in [*read, *["·"] * len(places)]]
    targets = [IGNORED] * len(read) + [made.classes.index(symbol) for symbol in places]
    batch = Batch(torch.tensor([inputs]), torch.tensor([targets]))
    task: Any = SimpleNamespace(data=made)
    source, target, prediction = ChomskyTask.render(task, batch, batch.targets).splitlines()
    assert source == f"input       {word} {'· ' * len(places)}".rstrip()
    assert target == f"target      {' ' * len(word)} {answer}"
    assert prediction == f"prediction  {' ' * len(word)} {answer}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "sort"}, f"name=sort: must be one of {', '.join(TRANSDUCTIONS)}"),
        ({"name": "solve_equation", "length": 2, "shortest": 1}, "length=2: must be an integer ≥ 3"),
        (
            {"name": "binary_addition", "length": 3, "shortest": 1},
            "length=3: all words of a test have the same answer, so there is nothing to learn",
        ),
        ({"name": "bucket_sort", "test_factors": [1, 200]}, "test_factors=[1, 200]: a word has at most 1,000 symbols"),
        ({"name": "binary_addition", "test_range": [1, 2]}, "test_range=[1, 2]: a word has at least 3 symbols"),
        ({"name": "bucket_sort", "test_factors": [2]}, "test_factors=[2]: must begin with 1, the lengths of training"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**options)
    assert str(raised.value) == said
