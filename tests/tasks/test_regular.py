"""Regular tasks and modular arithmetic with brackets against plain evaluations of single words."""

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED, Batch
from gyral.tasks.modular_arithmetic_brackets import BracketsData
from gyral.tasks.regular import AUTOMATA, RegularData
from tests.helpers.found import at_least
from tests.helpers.running import build_task


def value(symbols: list[str], modulus: int = 5) -> int:
    """Return the value of an expression, as Python computes it."""
    return eval("".join(symbols)) % modulus


RIGHT: dict[str, Any] = {
    "parity": lambda bits: bits.count("1") % 2,
    "even_pairs": lambda bits: sum(one != other for one, other in itertools.pairwise(bits)) % 2,
    "cycle_navigation": lambda steps: sum(map(int, steps)) % 5,
    "modular_arithmetic": lambda symbols: value(symbols[: len(symbols) - 1 + len(symbols) % 2]),
}
ALPHABETS = {
    "parity": ("0", "1"),
    "even_pairs": ("0", "1"),
    "cycle_navigation": ("-1", "0", "+1"),
    "modular_arithmetic": ("0", "1", "2", "3", "4", "+", "-", "*"),
}


def data(name: str, **options: Any) -> RegularData:
    sizes = {"batch_size": 3000, "val_batches": 1, "test_batches": 1, "data_seed": 3}
    return RegularData(name=name, **{**sizes, **options})


def brackets(**options: Any) -> BracketsData:
    sizes = {"batch_size": 3000, "val_batches": 1, "test_batches": 1, "data_seed": 3}
    return BracketsData(**{**sizes, **options})


def words(made: Any, split: str = "test") -> list[tuple[list[str], list[int]]]:
    """Return the symbols and the labels of all words of a split."""
    found = []
    for batch in made.loader(split):
        rows, width = batch.inputs.shape
        lengths = [width] * rows if batch.lengths is None else batch.lengths.tolist()
        for tokens, targets, steps in zip(batch.inputs.tolist(), batch.targets.tolist(), lengths, strict=True):
            symbols = [made.inputs[token] for token in tokens[:steps]]
            assert symbols[0] == "^"
            assert all(target == IGNORED for target in targets[steps:])
            found.append((symbols[1:], [target for target in targets if target != IGNORED]))
    return found


def labels_of(made: Any) -> np.ndarray[Any, Any]:
    """Return the labels of all words of the test, each word of which has as many."""
    (batch,) = made.loader("test")
    labels: np.ndarray[Any, Any] = batch.targets[batch.targets != IGNORED].view(len(batch.targets), -1).numpy()
    return labels


@pytest.mark.parametrize("name", at_least(4, AUTOMATA))
def test_every_label_equals_that_of_the_word_so_far(name: str) -> None:
    made = data(name, length=12, test_factors=[1, 2, 4], batch_size=1200)
    found = words(made)
    assert len(found) == 3600
    lengths = [11, 23, 47] if name == "modular_arithmetic" else [12, 24, 48]
    assert Counter(len(symbols) for symbols, _ in found) == dict.fromkeys(lengths, 1200)
    assert made.inputs == (*ALPHABETS[name], "^")
    assert {symbol for symbols, _ in found for symbol in symbols} == set(ALPHABETS[name])
    for symbols, labels in found[::7]:
        assert [int(made.classes[label]) for label in labels] == [
            RIGHT[name](symbols[: step + 1]) for step in range(len(symbols))
        ]
    for symbols, labels in found:
        assert int(made.classes[labels[-1]]) == RIGHT[name](symbols)


@pytest.mark.parametrize("name", AUTOMATA)
def test_one_label_as_published(name: str) -> None:
    made = data(name, length=20, shortest=1, test_factors=[1], test_range=[41, 60], labels="end", batch_size=1000)
    found = words(made)
    expected = {length - (length + 1) % 2 if name == "modular_arithmetic" else length for length in range(1, 61)}
    assert {len(symbols) - 1 for symbols, _ in found} == {each for each in expected if each <= 20 or each >= 41}
    for symbols, labels in found:
        assert symbols[-1] == "="
        assert [int(made.classes[label]) for label in labels] == [RIGHT[name](symbols[:-1])]


def test_symbols_are_uniform() -> None:
    symbols = [row for row, _ in words(data("modular_arithmetic", batch_size=12_000, test_factors=[1]))]
    for place, kind in ((0, "01234"), (1, "+-*"), (10, "01234"), (21, "+-*")):
        counts = Counter(row[place] for row in symbols)
        assert set(counts) == set(kind)
        expected, degrees = 12_000 / len(kind), len(kind) - 1
        assert sum((count - expected) ** 2 / expected for count in counts.values()) < degrees + 5 * (2 * degrees) ** 0.5


@pytest.mark.parametrize("name", AUTOMATA)
@pytest.mark.parametrize("labels", ["every", "end"])
def test_chances_and_baseline_are_the_frequencies_in_many_words(name: str, labels: str) -> None:
    made = data(name, length=9, test_factors=[1], labels=labels, batch_size=20_000)
    found = labels_of(made)
    counts = np.stack([np.bincount(column, minlength=len(made.classes)) for column in found.T]) / len(found)
    entropy = -(counts * np.log(counts, where=counts > 0, out=np.zeros_like(counts))).sum(axis=1).mean()
    assert made.baseline == pytest.approx(entropy, abs=0.009)
    assert made.chances["last_accuracy"][0] == pytest.approx(counts[-1].max(), abs=0.017)
    assert made.chances["accuracy"][0] == pytest.approx(counts.max(axis=1).mean(), abs=0.017)


def test_chances_of_two_classes_and_of_the_cycle() -> None:
    assert data("parity").chances["last_accuracy"] == [0.5] * 5
    assert data("even_pairs").chances["last_accuracy"] == [0.5] * 5
    assert data("cycle_navigation").chances["last_accuracy"][1:] == pytest.approx([0.2] * 4, abs=1e-3)
    assert 0.2 < data("modular_arithmetic").chances["last_accuracy"][4] < 0.25


def test_states_are_as_many_as_documented() -> None:
    assert len(AUTOMATA["modular_arithmetic"]().table) == 25 + 25 + 10


@pytest.mark.named("7-True")
@pytest.mark.parametrize(("modulus", "multiplication"), [(5, False), (5, True), (7, True)])
def test_values_of_expressions_with_brackets(modulus: int, multiplication: bool) -> None:
    made = brackets(
        modulus=modulus,
        multiplication=multiplication,
        length=24,
        shortest=1,
        test_factors=[1, 2, 4, 8],
        test_range=[5, 30],
        batch_size=1000,
    )
    found = words(made)
    assert len(found) == 5000
    assert {96, 192} | set(range(1, 31)) <= {len(symbols) - 1 for symbols, _ in found}
    for symbols, labels in found:
        assert symbols[-1] == "="
        assert [int(made.classes[label]) for label in labels] == [value(symbols[:-1], modulus)]
    signs = {symbol for symbols, _ in found for symbol in symbols} - set(made.classes)
    assert signs == {"+", "-", "(", ")", "="} | ({"*"} if multiplication else set())


def test_lengths_and_operators_of_brackets_are_uniform() -> None:
    made = brackets(length=9, test_factors=[1], batch_size=20_000, multiplication=True)
    split, signs = Counter(), Counter()
    for symbols, _ in words(made):
        depth, place = 0, 0
        for index, symbol in enumerate(symbols[1:-2], 1):
            depth += (symbol == "(") - (symbol == ")")
            # The operator of the whole expression follows a complete one.
            if depth == 0 and index > 1 and symbol in "+-*" and symbols[index - 1] not in "(+-*":
                place = index
                break
        split[place - 1] += 1
        signs[symbols[place]] += 1
    assert {length: split[length] / 20_000 for length in range(1, 6)} == pytest.approx(
        dict.fromkeys(range(1, 6), 0.2), abs=0.02
    )
    assert {sign: count / 20_000 for sign, count in signs.items()} == pytest.approx(
        dict.fromkeys("+-*", 1 / 3), abs=0.02
    )


def test_chances_and_baselines_of_brackets() -> None:
    plain = brackets()
    assert plain.chances["last_accuracy"] == pytest.approx([0.2] * 5)
    assert plain.baseline == pytest.approx(math.log(5))
    made = brackets(multiplication=True, length=17, test_factors=[1], batch_size=60_000)
    counts = np.bincount(labels_of(made)[:, 0], minlength=5) / 60_000
    assert made.chances["last_accuracy"][0] == made.chances["accuracy"][0] == pytest.approx(counts.max(), abs=0.01)
    assert made.baseline == pytest.approx(-(counts * np.log(counts)).sum(), abs=0.005)


def test_examples_of_the_modules_are_rendered() -> None:
    for overrides, source, labels in (
        (("task=regular", "task.name=modular_arithmetic"), "^ 3 - 2 * 4 + 1", "3 3 1 1 0 0 1"),
        (("task=modular_arithmetic_brackets",), "^ ( - 3 + ( 4 - ( 1 ) ) ) =", "0"),
    ):
        task = build_task(*overrides, "model=gru", "model.cell.hidden_size=4")
        tokens = [task.data.inputs.index(symbol) for symbol in source.split()]
        classes = [task.data.classes.index(label) for label in labels.split()]
        batch = Batch(torch.tensor([tokens]), torch.tensor([[IGNORED] * (len(tokens) - len(classes)) + classes]))
        read, target, prediction = task.render(batch, batch.targets).splitlines()
        assert read == f"input       {source}"
        assert target == f"target      {labels.rjust(len(source))}"
        assert prediction == f"prediction  {labels.rjust(len(source))}"


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (data, {"name": "sort"}, "name=sort: must be one of parity, even_pairs, cycle_navigation, modular_arithmetic"),
        (
            data,
            {"name": "even_pairs", "length": 1},
            "length=1: all words of a test have the same label, so there is nothing to learn",
        ),
        (brackets, {"modulus": 1}, "modulus=1: must be an integer from 2 to 100"),
        (brackets, {"multiplication": "yes"}, "multiplication=yes: must be true or false"),
    ],
)
def test_options_out_of_bounds_are_refused(make: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        make(**options)
    assert str(raised.value) == said
