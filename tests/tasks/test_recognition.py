"""Languages against plain decisions on single words, and random words against the distributions of the publication."""

import itertools
import math
import random
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gyral.core.errors import OptionError
from gyral.data import languages
from gyral.data.batching import IGNORED, Batch
from gyral.data.flare import LANGUAGES, Dyck
from gyral.data.languages import Language, draw_outside
from gyral.tasks.recognition import RecognitionData, RecognitionTask

# for the contract of tasks
OPTIONS = {"language": "dyck"}  # whose options are those of all languages
ALTERNATIVES = {"shortest": [3]}


def dyck(word: str, depth: int = 3) -> bool:
    open_ones = [sum((letter in "([") - (letter in ")]") for letter in word[:end]) for end in range(len(word) + 1)]
    while "()" in word or "[]" in word:
        word = word.replace("()", "").replace("[]", "")
    return word == "" and max(open_ones) <= depth


def cycle(word: str) -> bool:
    return bool(re.fullmatch("[<>=]*[0-4]", word)) and (word.count(">") - word.count("<") - int(word[-1])) % 5 == 0


def modular(word: str) -> bool:
    if not re.fullmatch("[0-4]([-+*][0-4])*=[0-4]", word):
        return False
    value = word[0]
    for place in range(1, len(word) - 2, 2):
        value = str(eval(value + word[place : place + 2]))
    return int(value) % 5 == int(word[-1])


def manipulation(word: str) -> bool:
    parts = re.fullmatch(r"([01]*)((?:\+[01]|-)*)#([01]*)", word)
    if parts is None:
        return False
    stack = parts[1]
    for action in re.findall(r"\+[01]|-", parts[2]):
        if action == "-" and not stack:
            return False
        stack = stack[:-1] if action == "-" else stack + action[1]
    return parts[3] == stack[::-1]


def parts_of(word: str, pattern: str) -> list[Any]:
    found = re.fullmatch(pattern, word)
    return [] if found is None else list(found.groups())


def value(bits: str) -> int:
    return sum(2**place for place, bit in enumerate(bits) if bit == "1")


def arithmetic(word: str, operator: str) -> bool:
    numbers = [value(part) for part in parts_of(word, rf"([01]+)\{operator}([01]+)=([01]+)")]
    return bool(numbers) and eval(f"{numbers[0]} {operator} {numbers[1]}") == numbers[2]


def root(word: str) -> bool:
    numbers = [value(part) for part in parts_of(word, "([01]+)=([01]+)")]
    return bool(numbers) and numbers[1] ** 2 <= numbers[0] < (numbers[1] + 1) ** 2


def halves(word: str, order: Any) -> bool:
    """Return whether # separates a word and its letters in another order of places."""
    parts = word.split("#")
    if len(parts) != 2 or len(parts[0]) != len(parts[1]):
        return False
    return all(parts[0][place] == letter for place, letter in zip(order(len(parts[0])), parts[1], strict=True))


def missing(word: str) -> bool:
    half = len(word) // 2
    pairs = Counter(zip(word[:half], word[half:], strict=False))
    wrong = +Counter({pair: count for pair, count in pairs.items() if pair[0] != pair[1]})
    return len(word) % 2 == 0 and word.count("_") == 1 and set(wrong) <= {("1", "_"), ("_", "1")}


RIGHT: dict[str, Any] = {
    "even_pairs": lambda word: sum(one != other for one, other in itertools.pairwise(word)) % 2 == 0,
    "repeat_01": lambda word: bool(re.fullmatch("(01)*", word)),
    "parity": lambda word: word.count("1") % 2 == 1,
    "first": lambda word: word.startswith("1"),
    "cycle_navigation": cycle,
    "modular_arithmetic_simple": modular,
    "majority": lambda word: word.count("1") > word.count("0"),
    "stack_manipulation": manipulation,
    "marked_reversal": lambda word: halves(word, lambda count: range(count - 1, -1, -1)),
    "unmarked_reversal": lambda word: (
        len(word) % 2 == 0 and all(a == b for a, b in zip(word, reversed(word), strict=True))
    ),
    "marked_copy": lambda word: halves(word, range),
    "missing_duplicate": missing,
    "odds_first": lambda word: halves(word, lambda count: [*range(0, count, 2), *range(1, count, 2)]),
    "binary_addition": lambda word: arithmetic(word, "+"),
    "binary_multiplication": lambda word: arithmetic(word, "*"),
    "compute_sqrt": root,
    "bucket_sort": lambda word: word.count("#") == 1 and sorted(word.split("#")[0]) == list(word.split("#")[1]),
    "dyck": dyck,
}
NUMBERS = ("binary_addition", "binary_multiplication", "compute_sqrt")
MAKE = {**LANGUAGES, "dyck": lambda: Dyck(2, 3)}


def data(language: str, **options: Any) -> RecognitionData:
    sizes = {"batch_size": 1000, "val_batches": 1, "test_batches": 1, "data_seed": 3, "length": 12}
    return RecognitionData(language=language, **{**sizes, **options})


def words(made: RecognitionData) -> list[list[tuple[str, bool]]]:
    """Return the words of each test, and whether their label is 1."""
    found = []
    for batch in made.loader("test"):
        steps = [batch.inputs.shape[1]] * len(batch.inputs) if batch.lengths is None else batch.lengths.tolist()
        rows = zip(batch.inputs.tolist(), batch.targets.tolist(), steps, strict=True)
        test = []
        for tokens, targets, length in rows:
            symbols = [made.inputs[token] for token in tokens[:length]]
            assert (symbols[0], symbols[-1]) == ("^", "?")
            assert targets == [IGNORED] * (length - 1) + [targets[length - 1]] + [IGNORED] * (len(targets) - length)
            test.append(("".join(symbols[1:-1]), made.classes[targets[length - 1]] == "1"))
        found.append(test)
    return found


@pytest.mark.parametrize("name", MAKE)
def test_labels_equal_those_of_a_plain_decision(name: str) -> None:
    made = data(name, test_factors=[1, 3], test_range=[20, 30])
    found = words(made)
    for lengths, test in zip(made.lengths, found, strict=True):
        assert {len(word) for word, _ in test} == set(lengths.tolist())
        assert sum(label for _, label in test) / 1000 == pytest.approx(0.5, abs=0.05)
        for word, label in test:
            assert RIGHT[name](word) == label, word
    assert sum(map(len, found)) > 2_000
    assert {letter for word, _ in itertools.chain(*found) for letter in word} == set(MAKE[name]().letters)


@pytest.mark.parametrize("name", MAKE)
def test_all_short_words(name: str) -> None:
    language = MAKE[name]()
    for length in range(1, 9):
        if len(language.letters) ** length > 6000:
            break
        every = ["".join(word) for word in itertools.product(language.letters, repeat=length)]
        inside = {word for word in every if language.contains(word)}
        assert inside == {word for word in every if RIGHT[name](word)}
        # stack_manipulation has one word with one letter, which is left out.
        there_are_both = 0 < len(inside) < len(every) and (name, length) != ("stack_manipulation", 1)
        assert language.has_length(length) == there_are_both
        if there_are_both and len(inside) < 30:
            source = random.Random(length)
            drawn = {language.draw(source, length) for _ in range(40 * len(inside))}
            # The lengths of numbers in binary are rounded down, which excludes some of the shortest words.
            assert drawn <= inside
            assert drawn == inside or name in NUMBERS


def walks(language: Any, length: int) -> dict[str, float]:
    """Return the probabilities of the words of an automaton, each the product of 1 / the number of choices."""
    found = {}
    for letters in itertools.product(language.letters, repeat=length):
        state, weight = 0, 1.0
        for letter in letters:
            weight /= len(language.table[state]) + (state in language.accepting)
            state = language.table[state].get(letter)
            if state is None:
                break
        if state in language.accepting:
            found["".join(letters)] = weight
    return {word: weight / sum(found.values()) for word, weight in found.items()}


@pytest.mark.parametrize("name", ["parity", "even_pairs", "cycle_navigation", "first"])
def test_words_of_automata_are_random_walks(name: str) -> None:
    language, source = MAKE[name](), random.Random(0)
    expected = walks(language, 4)
    found = Counter(language.draw(source, 4) for _ in range(6000))
    assert {word: found[word] / 6000 for word in expected} == pytest.approx(expected, abs=0.025)


def test_brackets_are_random_walks() -> None:
    language, source = Dyck(2, 2), random.Random(0)
    expected: Counter[str] = Counter()
    for word in map("".join, itertools.product("()[]", repeat=6)):
        if dyck(word, depth=2):
            depths = [sum((letter in "([") - (letter in ")]") for letter in word[:end]) for end in range(6)]
            expected[word] = math.prod(1 / {0: 3, 1: 3, 2: 1}[depth] for depth in depths)
    total = sum(expected.values())
    found = Counter(language.draw(source, 6) for _ in range(8000))
    assert set(found) == set(expected)
    assert {word: found[word] / 8000 for word in expected} == pytest.approx(
        {word: weight / total for word, weight in expected.items()}, abs=0.02
    )


def test_threads_may_draw_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    language = MAKE["cycle_navigation"]()
    plain = languages.accumulate

    def interrupted(values: Any) -> Any:
        """Draw a longer word in the middle of the preparation of another draw."""
        monkeypatch.setattr(languages, "accumulate", plain)
        language.draw(random.Random(0), 12)
        return plain(values)

    monkeypatch.setattr(languages, "accumulate", interrupted)
    drawn = [language.draw(random.Random(seed), length) for length in (6, 12, 14) for seed in range(5)]
    other = MAKE["cycle_navigation"]()
    assert drawn == [other.draw(random.Random(seed), length) for length in (6, 12, 14) for seed in range(5)]


def test_ones_of_majority_are_uniform() -> None:
    language, source = MAKE["majority"](), random.Random(0)
    counts = Counter(language.draw(source, 9).count("1") for _ in range(6000))
    assert {ones: counts[ones] / 6000 for ones in range(5, 10)} == pytest.approx(
        dict.fromkeys(range(5, 10), 0.2), abs=0.02
    )


def distance(one: str, other: str) -> int:
    """Return the edit distance of two words."""
    row = list(range(len(other) + 1))
    for place, letter in enumerate(one, 1):
        diagonal, row[0] = row[0], place
        for index, each in enumerate(other, 1):
            diagonal, row[index] = row[index], min(row[index] + 1, row[index - 1] + 1, diagonal + (letter != each))
    return row[-1]


def test_half_of_the_words_outside_are_edited_ones() -> None:
    language, source = MAKE["repeat_01"](), random.Random(0)
    outside = [draw_outside(language, source, 30) for _ in range(1000)]
    near = [distance(word, "01" * 15) for word in outside]
    # The distance of a uniform word from the only word inside is about 9.
    assert sum(each <= 4 for each in near) / 1000 == pytest.approx(0.5, abs=0.06)
    assert sum(each == 1 for each in near) > sum(each == 2 for each in near) > 0


def test_lengths_equal_those_of_words_inside_and_outside() -> None:
    made = data("marked_reversal", length=6, shortest=2, test_factors=[1, 2], test_range=[8, 12])
    assert [each.tolist() for each in made.lengths] == [[3, 5], [11], [9, 11]]
    made = data("binary_addition", length=8, test_factors=[1], test_range=[1, 6])
    assert [each.tolist() for each in made.lengths] == [[5, 6, 7, 8], [5, 6]]
    assert made.baseline == pytest.approx(math.log(2))
    assert all(chance == [0.5] * 3 for chance in made.chances.values())


EXAMPLES = {
    "dyck": ("( [ ] ( ) ) [ ]", "( [ ) ]"),
    "even_pairs": ("0 1 1 0", "0 1"),
    "repeat_01": ("0 1 0 1", "0 1 1 0"),
    "parity": ("0 1 1 1", "0 1 1 0"),
    "first": ("1 0 0 1", "0 1"),
    "cycle_navigation": ("> > < = 1", "> 2"),
    "modular_arithmetic_simple": ("1 + 2 * 3 = 4", "1 + 2 * 3 = 2"),
    "majority": ("0 1 1 0 1", "0 1 1 0"),
    "stack_manipulation": ("0 1 + 1 - - # 0", "0 # 1"),
    "marked_reversal": ("0 1 1 # 1 1 0", "0 1 1 # 0 1 1"),
    "unmarked_reversal": ("0 1 1 1 1 0", "0 1 1 0 1 1"),
    "marked_copy": ("0 1 1 # 0 1 1", "0 1 1 # 1 1 0"),
    "missing_duplicate": ("0 1 1 0 _ 1", "_ 1 1 0 1 1"),
    "odds_first": ("0 1 1 0 # 0 1 1 0", "0 1 1 0 # 1 0 0 1"),
    "binary_addition": ("0 1 + 1 1 = 1 0 1", "0 1 + 1 1 = 1 1 1"),
    "binary_multiplication": ("0 1 * 1 1 = 0 1 1", "0 1 * 1 1 = 1 1 1"),
    "compute_sqrt": ("1 0 1 = 0 1", "1 0 1 = 1 1"),
    "bucket_sort": ("3 1 5 1 # 1 1 3 5", "3 1 5 1 # 1 3 5"),
}


@pytest.mark.parametrize("name", MAKE)
def test_examples_are_right_and_rendered(name: str) -> None:
    made = data(name, test_factors=[1])
    language: Language = made.grammar
    task: Any = SimpleNamespace(data=made)
    for word, label in zip(EXAMPLES[name], ("1", "0"), strict=True):
        assert language.contains(word.replace(" ", "")) == (label == "1")
        inputs = [made.inputs.index(symbol) for symbol in ["^", *word.split(), "?"]]
        targets = [IGNORED] * (len(inputs) - 1) + [made.classes.index(label)]
        batch = Batch(torch.tensor([inputs]), torch.tensor([targets]))
        lines = RecognitionTask.render(task, batch, batch.targets).splitlines()
        assert [line.split() for line in lines] == [
            ["input", "^", *word.split(), "?"],
            ["target", label],
            ["prediction", label],
        ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"language": "english"}, f"language=english: must be one of {', '.join(MAKE)}"),
        ({"language": "dyck", "brackets": 11}, "brackets=11: must be an integer from 1 to 10"),
        ({"language": "dyck", "depth": 0}, "depth=0: must be an integer from 1 to 100"),
        ({"language": "binary_addition", "length": 4}, "length=4: must be an integer ≥ 5"),
        ({"language": "binary_addition", "test_range": [1, 4]}, "test_range=[1, 4]: a word has at least 5 symbols"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**options)
    assert str(raised.value) == said
