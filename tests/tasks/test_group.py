"""Word problems against permutations as dictionaries, automata against a walk through their file, and chances."""

import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gyral.core.errors import OptionError
from gyral.data.automata import read_automaton
from gyral.data.batching import IGNORED, Batch
from gyral.data.groups import make_group
from gyral.tasks.group import GroupData, GroupTask, group_automaton
from tests.helpers.running import build_task

FILE = str(Path(__file__).with_name("automaton.json"))
ALTERNATIVES = {"group": ["Z5", "A4xZ2"], "automaton": [FILE]}  # for the contract of tasks
ORDERS = {
    "Z2": 2,
    "Z5": 5,
    "Z60": 60,
    "S3": 6,
    "S4": 24,
    "S5": 120,
    "A4": 12,
    "A5": 60,
    "A6": 360,
    "A4xZ5": 60,
    "S3xZ2xZ3": 36,
}


def data(**options: Any) -> GroupData:
    return GroupData(**{"data_seed": 3, "val_batches": 2, "test_batches": 2, **options})


def built(**options: Any) -> GroupTask:
    return build_task("task=group", "model=gru", "model.cell.hidden_size=4", **options)


def times(name: str, one: str, other: str) -> str:
    """Return the product of two elements by their names."""
    parts = []
    for factor, left, right in zip(name.split("x"), one.split(","), other.split(","), strict=True):
        if factor[0] == "Z":
            parts.append(str((int(left) + int(right)) % int(factor[1:])))
        else:
            first, second = ({i: int(image) for i, image in enumerate(part, 1)} for part in (left, right))
            parts.append("".join(str(first[second[i]]) for i in sorted(first)))
    return ",".join(parts)


@pytest.mark.parametrize("name", ORDERS)
def test_groups_have_the_axioms_and_their_generators(name: str) -> None:
    group = make_group(name)
    count = len(group.elements)
    assert count == len(set(group.elements)) == ORDERS[name]
    assert group.table[0].tolist() == group.table[:, 0].tolist() == list(range(count))
    for lines in (group.table, group.table.T):
        assert (np.sort(lines, axis=1) == np.arange(count)).all(), "no Latin square"
    some = np.random.default_rng(0).integers(0, count, (3, 2000))
    first, second, third = some
    assert (group.table[group.table[first, second], third] == group.table[first, group.table[second, third]]).all()
    for one, other in zip(first[:300].tolist(), second[:300].tolist(), strict=True):
        product = times(name, group.elements[one], group.elements[other])
        assert group.elements[group.table[one, other]] == product
    reached = {0}
    while new := {int(group.table[state, each]) for state in reached for each in group.generators} - reached:
        reached |= new
    assert len(reached) == count


def test_a_product_commutes_only_if_its_factors_do() -> None:
    for name, commutes in (("Z60", True), ("S3", False), ("A4xZ5", False), ("Z4xZ3", True)):
        table = make_group(name).table
        assert (table == table.T).all() == commutes


def test_alphabets() -> None:
    assert group_automaton("A5", 2).letters == ("23145", "23451")
    assert group_automaton("S5", 2).letters == ("21345", "23451")
    assert group_automaton("S3", 4).letters == ("213", "231", "123", "132")
    assert group_automaton("A4", 2).letters == ("2314", "1342")
    assert group_automaton("Z5", 2).letters == ("1", "0")
    assert group_automaton("A4xZ5", 3).letters == ("2314,0", "1342,0", "1234,1")
    assert group_automaton("S3").letters == ("123", "132", "213", "231", "312", "321")


@pytest.mark.parametrize(
    ("name", "generators"),
    [("Z60", None), ("S3", 2), ("A4xZ5", 3), ("A5", None), ("S5", 2)],
)
def test_labels_are_the_products_so_far(name: str, generators: int | None) -> None:
    made = data(group=name, generators=generators, batch_size=500, test_batches=1)
    batches = list(made.loader("test"))
    assert [batch.inputs.shape for batch in batches] == [(500, 25), (500, 49), (500, 97), (500, 193)]
    assert sum(map(len, (batch.inputs for batch in [*batches, *made.loader("val")]))) > 2_400
    known: dict[tuple[str, str], str] = {}
    for batch in [*batches, *made.loader("val")]:
        assert (batch.inputs[:, 0] == len(made.inputs) - 1).all()
        assert (batch.targets[:, 0] == IGNORED).all()
        assert batch.lengths is None
        for tokens, targets in zip(batch.inputs[:, 1:].tolist(), batch.targets[:, 1:].tolist(), strict=True):
            product = made.classes[0]
            for token, target in zip(tokens, targets, strict=True):
                pair = product, made.inputs[token]
                if pair not in known:
                    known[pair] = times(name, *pair)
                product = known[pair]
                assert made.classes[target] == product


def test_letters_are_uniform() -> None:
    made = data(group="A5", batch_size=12_000, test_factors=[1])
    letters = next(iter(made.loader("val"))).inputs[:, 1:]
    for column in (letters[:, 0], letters[:, -1]):
        counts = torch.bincount(column, minlength=60)
        assert ((counts - 200) ** 2 / 200).sum() < 59 + 5 * (2 * 59) ** 0.5


def test_words_of_an_automaton_are_walks() -> None:
    written = json.loads(Path(FILE).read_text(encoding="utf-8"))
    made = data(automaton=FILE, batch_size=2500, test_batches=1, test_factors=[1, 2, 4])
    seen: Counter[tuple[str, str]] = Counter()
    for batch in [*made.loader("test"), *made.loader("val")]:
        for tokens, targets in zip(batch.inputs[:, 1:].tolist(), batch.targets[:, 1:].tolist(), strict=True):
            state = written["start"]
            for token, target in zip(tokens, targets, strict=True):
                letter = made.inputs[token]
                seen[state, letter] += 1
                state = written["transitions"][state][letter]
                assert made.classes[target] == written["labels"][state]
    for state, row in written["transitions"].items():
        shares = [seen[state, letter] / sum(seen[state, each] for each in row) for letter in row]
        assert shares == pytest.approx([1 / len(row)] * len(row), abs=0.01)


@pytest.mark.parametrize("bos", [True, False])
def test_one_label_is_at_the_end_symbol(bos: bool) -> None:
    every, end = (data(labels=labels, bos=bos, shortest=2, length=9, batch_size=500) for labels in ("every", "end"))
    assert end.inputs == (*every.inputs, "=")
    for split in ("val", "test"):
        for one, other in zip(every.loader(split), end.loader(split), strict=True):
            total = other.inputs.shape[1] if other.lengths is None else other.lengths
            assert (one.inputs.shape[1] if one.lengths is None else one.lengths) == pytest.approx(total - 1)
            rows = torch.arange(500)
            last = torch.as_tensor(total).expand(500) - 1
            assert (other.inputs[rows, last] == len(end.inputs) - 1).all()
            assert (other.targets[rows, last] == one.targets[rows, last - 1]).all()
            assert ((other.targets != IGNORED).sum(dim=1) == 1).all()
            assert ((one.targets != IGNORED).sum(dim=1) == last - int(bos)).all()


def test_lengths_of_the_tests() -> None:
    made = data(length=10, shortest=3, test_factors=[1, 3], test_range=[40, 60], batch_size=400, test_batches=1)
    assert made.categories == ["1x", "3x", "range"]
    found = [batch.lengths for batch in made.loader("test")]
    assert found[1] is None
    assert (found[0].min(), found[0].max(), found[2].min(), found[2].max()) == (4, 11, 41, 61)
    memory: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gyral.tasks.base.SequenceTask.reserve", lambda task, writes: memory.append(writes))
        built(length=10, test_factors=[1, 3])
        built(length=10, test_factors=[1], labels="end", bos=False)
    assert memory == [31, 11]


def words_of(automaton: Any, length: int) -> dict[tuple[int, ...], float]:
    """Return the probabilities of the sequences of labels of all words of a length."""
    found: Counter[tuple[int, ...]] = Counter()
    stack = [(automaton.start, (), 1.0)]
    while stack:
        state, labels, weight = stack.pop()
        if len(labels) == length:
            found[labels] += weight
            continue
        following = [int(each) for each in automaton.table[state] if each >= 0]
        stack += [(each, (*labels, int(automaton.labels[each])), weight / len(following)) for each in following]
    return found


@pytest.mark.parametrize("labels", ["every", "end"])
@pytest.mark.parametrize("options", [{"automaton": FILE}, {"group": "S3", "generators": 2}, {"group": "Z3"}])
def test_chances_and_baseline_from_all_words(options: dict[str, Any], labels: str) -> None:
    made = data(length=6, shortest=5, test_factors=[1], test_range=[2, 4], labels=labels, **options)
    for place, lengths in ((0, (5, 6)), (1, (5, 6)), (2, (2, 3, 4))):
        last = whole = each = entropy = total = 0.0
        for length in lengths:
            words = words_of(made.machine, length)
            columns = [Counter() for _ in range(length)]
            for word, weight in words.items():
                for column, label in zip(columns, word, strict=True):
                    column[label] += weight
            # The first of equally frequent labels, up to rounding errors.
            best = [max(sorted(column), key=lambda label, column=column: round(column[label], 9)) for column in columns]
            right = [column[label] for column, label in zip(columns, best, strict=True)]
            entropies = [-sum(p * math.log(p) for p in column.values()) for column in columns]
            counted = slice(None) if labels == "every" else slice(-1, None)
            last += right[-1] / len(lengths)
            whole += sum(w for word, w in words.items() if list(word[counted]) == best[counted]) / len(lengths)
            each, entropy = each + sum(right[counted]), entropy + sum(entropies[counted])
            total += len(right[counted])
        found = {name: values[place] for name, values in made.chances.items()}
        assert found == pytest.approx({"last_accuracy": last, "sequence_accuracy": whole, "accuracy": each / total})
        if place == 0:
            assert made.baseline == pytest.approx(entropy / total)


def test_chance_of_groups_is_one_of_their_elements() -> None:
    for name, size in ORDERS.items():
        made = data(group=name, length=3, test_factors=[1, 2])
        assert made.chances["last_accuracy"] == pytest.approx([1 / size] * 3)
        assert made.chances["sequence_accuracy"] == pytest.approx([size**-3.0, size**-3.0, size**-6.0])
        assert made.baseline == pytest.approx(math.log(size))
    assert data(group="A5", generators=2).chances["last_accuracy"][1:] == pytest.approx([1 / 60] * 4, abs=0.003)


def test_metrics_of_each_length() -> None:
    task = built(group="S3", length=2, test_factors=[1, 2], test_batches=1, batch_size=4)

    def outputs(batch: Batch, wrong: list[tuple[int, int]]) -> torch.Tensor:
        found = 50.0 * torch.nn.functional.one_hot(batch.targets.clamp(min=0), 6)
        for row, step in wrong:
            found[row, step] = found[row, step].roll(1)
        return found

    first, second = task.data.loader("test")
    for batch, wrong in ((first, [(0, 1), (0, 2), (1, 1)]), (second, [(3, 4)])):
        given = outputs(batch, wrong)
        task.metrics.update(given, batch, task.loss(given, batch))
    results = task.test_results()
    shares = {"last_accuracy": 0.75, "sequence_accuracy": 0.5, "accuracy": 5 / 8}
    further = {"last_accuracy": 0.75, "sequence_accuracy": 0.75, "accuracy": 15 / 16}
    chances = {"last_accuracy": 1 / 6, "sequence_accuracy": 1 / 36, "accuracy": 1 / 6}
    for name, share in shares.items():
        scaled = (share - chances[name]) / (1 - chances[name])
        assert results[name] == results[f"{name}_1x"] == pytest.approx(share)
        assert results[f"scaled_{name}"] == results[f"scaled_{name}_1x"] == pytest.approx(scaled)
        assert results[f"{name}_2x"] == pytest.approx(further[name])
    assert results["scaled_sequence_accuracy_2x"] == pytest.approx((0.75 - 6**-4) / (1 - 6**-4))
    assert results["chance"] == pytest.approx(1 / 6)
    assert results["baseline"] == pytest.approx(math.log(6))


def test_the_example_of_the_module_is_rendered() -> None:
    task = built(group="S3", generators=2, length=4)
    letters = [task.data.inputs.index(word) for word in ("^", "213", "231", "231", "213")]
    products = [task.data.classes.index(word) for word in ("213", "132", "321", "231")]
    batch = Batch(torch.tensor([letters]), torch.tensor([[IGNORED, *products]]))
    assert task.render(batch, batch.targets).splitlines() == [
        "input       ^ 213 231 231 213",
        "target        213 132 321 231",
        "prediction    213 132 321 231",
    ]
    task = built(length=9, shortest=2)
    padded = next(iter(task.data.loader("val")))
    row = int(padded.lengths.argmin())
    lines = task.render(padded, padded.targets, row).splitlines()
    assert [len(line.split()) for line in lines] == [1 + int(padded.lengths[row])] + [int(padded.lengths[row])] * 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"group": "S9"}, "group=S9: must be one of Z2 … Z120, S3 … S6, A4 … A6, or a product such as A4xZ5"),
        ({"group": "A5x"}, "group=A5x: must be one of Z2 … Z120, S3 … S6, A4 … A6, or a product such as A4xZ5"),
        ({"group": "S6xZ2"}, "group=S6xZ2: has 1440 elements; at most 720 are allowed"),
        ({"group": "A5", "generators": 1}, "generators=1: must be an integer from 2 to 60"),
        ({"group": "A4xZ5", "generators": 2}, "generators=2: must be an integer from 3 to 60"),
        (
            {"automaton": FILE, "generators": 2},
            "generators=2: must be null for an automaton, whose file has the alphabet",
        ),
        ({"labels": "each"}, "labels=each: must be one of every, end"),
        ({"length": 0}, "length=0: must be an integer from 1 to 10000"),
        ({"shortest": 25}, "shortest=25: must be an integer from 1 to 24"),
        ({"test_factors": [2, 4]}, "test_factors=[2, 4]: must begin with 1, the lengths of training"),
        ({"test_factors": [1, 500]}, "test_factors=[1, 500]: a word has at most 10,000 symbols"),
        ({"test_range": [9]}, "test_range=[9]: must be 2 integers in increasing order ≥ 1, such as [2, 4]"),
        ({"bos": 1}, "bos=1: must be true or false"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**options)
    assert str(raised.value) == said


PARITY = {
    "states": ["even", "odd"],
    "alphabet": ["0", "1"],
    "start": "even",
    "transitions": {"even": {"0": "even", "1": "odd"}, "odd": {"0": "odd", "1": "even"}},
}


def written(folder: Path, content: Any) -> str:
    path = folder / "own.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_parity_from_a_file_is_the_word_problem_of_z2(tmp_path: Path) -> None:
    own, group = data(automaton=written(tmp_path, PARITY)), data(group="Z2")
    assert own.classes == ("even", "odd")
    for one, other in zip(own.loader("test"), group.loader("test"), strict=True):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.targets, other.targets)
    assert read_automaton(written(tmp_path, {**PARITY, "start": "odd"})).start == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not a JSON file (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
        ("[" * 100_000, "is not a JSON file (maximum recursion depth exceeded"),
        ('{"states": [], "states": []}', "is not a JSON file (an object has two entries with the same key)"),
        ([], "must be an object with alphabet, start, states, transitions and, if wanted, labels"),
        ({**PARITY, "final": []}, "must be an object with alphabet, start, states, transitions and, if wanted, labels"),
        ({**PARITY, "states": "ab"}, "states: must be a list of at most 1000 different names without spaces"),
        ({**PARITY, "alphabet": ["0", "0"]}, "alphabet: must be a list of at most 1000 different names without spaces"),
        (
            {**PARITY, "alphabet": ["0", "a b"]},
            "alphabet: must be a list of at most 1000 different names without spaces",
        ),
        ({**PARITY, "alphabet": [0, 1]}, "alphabet: must be a list of at most 1000 different names without spaces"),
        ({**PARITY, "start": "odds"}, "start: must be one of the states"),
        ({**PARITY, "start": ["odd"]}, "start: must be one of the states"),
        (
            {**PARITY, "transitions": {"even": {"0": "odd"}}},
            "transitions: must be an object with an entry for each state",
        ),
        *(
            (
                {**PARITY, "transitions": {"even": row, "odd": {"0": "even"}}},
                "transitions of even: must be an object from at least one letter of the alphabet to states",
            )
            for row in ({}, [], {"2": "odd"}, {"0": "three"}, {"0": None}, {"0": ["odd"]})
        ),
        ({**PARITY, "labels": {"even": "a"}}, "labels: must be an object with an entry for each state"),
        ({**PARITY, "labels": {"even": "a", "odd": 3}}, "labels: must be names without spaces"),
    ],
)
def test_files_that_are_no_automata_are_refused(tmp_path: Path, content: Any, said: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(OptionError) as raised:
        read_automaton(path)
    assert str(raised.value).startswith(f"automaton={path}: {said}")
    assert "\n" not in str(raised.value)


def test_files_that_cannot_be_read_or_have_one_label_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="automaton=/no/such/file: "):
        data(automaton="/no/such/file")
    one = {**PARITY, "labels": {"even": "a", "odd": "a"}}
    with pytest.raises(OptionError, match="all words of a test have the same label, so there is nothing to learn"):
        data(automaton=written(tmp_path, one))


def test_all_pairs_of_elements_occur() -> None:
    made = data(group="A4", length=2, test_factors=[1], batch_size=5000)
    pairs = {tuple(row[1:]) for row in next(iter(made.loader("val"))).inputs.tolist()}
    assert pairs == set(itertools.product(range(12), repeat=2))
