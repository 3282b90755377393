"""Pairs of formulas: the published files, and generated pairs without files."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gyral.applications.logic.data import corpus
from gyral.applications.logic.data.corpus import CLASSES, OPERATORS, SYMBOLS, LogicCorpus, encode, load
from gyral.applications.logic.data.formulas import RELATIONS
from gyral.core.errors import OptionError, UserError

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[4] / "data"))
LINES = (">\t( a ( or b ) )\ta", "#\tc\t( not d )", "^\t( not e )\te")


def write_files(folder: Path, lines: tuple[str, ...] = LINES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        for number in OPERATORS:
            (folder / f"{split}{number}").write_text("".join(f"{line}\n" for line in lines))
    return folder


def published() -> LogicCorpus:
    found = load(DATA)
    if found.substitute:
        pytest.skip(f"no logical_inference in {DATA} (set DATA_DIR)")
    return found


def test_lines_are_read_and_written_back() -> None:
    pairs = encode("\n".join(LINES), 1, "file")
    assert ["\t".join(pairs.lines(index)) for index in range(3)] == [*LINES]
    assert [*pairs.lengths] == [7, 4, 4]
    batch = pairs.batch(np.array([2, 0]))
    assert batch.inputs.shape == (2, 7, 2)
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [4, 7]
    words = [" ".join(SYMBOLS[token] for token in tokens) for tokens in batch.inputs.transpose(1, 2).flatten(0, 1)]
    assert words == ["( not e ) <pad> <pad> <pad>", "e" + 6 * " <pad>", "( a ( or b ) )", "a" + 6 * " <pad>"]
    assert [CLASSES[each] for each in batch.targets] == ["^", ">"]


def test_every_tenth_pair_up_to_a_number_of_operators_is_for_validation(tmp_path: Path) -> None:
    write_files(tmp_path / "logical_inference")
    found = load(tmp_path, train_operators=4)
    assert {name: len(pairs) for name, pairs in found.splits.items()} == {"train": 14, "val": 1, "test": 39}
    assert found.splits["val"].lines(0) == tuple(LINES[0].split("\t"))  # the tenth line is the first one of train3
    assert [*found.splits["val"].operators] == [3]
    assert [*np.unique(found.splits["test"].operators)] == [*OPERATORS]
    assert not found.substitute


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a\tb", "must be one of = < > ^ | v #, a tab, a formula, a tab and a formula"),
        ("?\ta\tb", "must be one of = < > ^ | v #, a tab, a formula, a tab and a formula"),
        ("#\ta\t", "must be one of = < > ^ | v #, a tab, a formula, a tab and a formula"),
        ("#\t( not a\ta", "the brackets of a formula do not match"),
        ("#\ta )\t( b", "the brackets of a formula do not match"),
        ("#\ta\tg", "the tokens of a formula must be among ( ) a b c d e f not and or"),
    ],
)
def test_a_line_that_is_not_a_pair_is_refused_with_its_place(tmp_path: Path, line: str, reason: str) -> None:
    folder = write_files(tmp_path)
    (folder / "train3").write_text("\n".join((*LINES, line)))
    with pytest.raises(UserError, match=f": {re.escape(f'{folder}/train3, line 4: {reason}')}$"):
        load(tmp_path / "none", path=folder)
    (folder / "train3").unlink()
    with pytest.raises(UserError, match=f": {folder}/train3: no such file; published"):
        load(tmp_path / "none", path=folder)
    with pytest.raises(OptionError, match=r"^train_operators=13: must be an integer from 1 to 12$"):
        load(tmp_path, path=folder, train_operators=13)


@pytest.fixture
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fewer generated pairs, which no other test finds in the cache."""
    corpus._generate.cache_clear()
    monkeypatch.setattr(corpus, "GENERATED_SIZES", {"train": 100, "test": 20})
    yield
    corpus._generate.cache_clear()


@pytest.mark.usefixtures("few_pairs")
def test_without_files_pairs_are_generated_and_agree_with_truth_tables(tmp_path: Path) -> None:
    found = load(tmp_path, seed=3)
    assert found.substitute.startswith(f"{tmp_path}/logical_inference is missing, published at https://")
    assert load(tmp_path, generated=True).substitute.startswith("generated=true; using GENERATED pairs")
    for pairs in found.splits.values():
        corpus.check(pairs.select(np.arange(0, len(pairs), 5)))
    test = found.splits["test"]
    for index in range(len(test)):
        _, *formulas = test.lines(index)
        counts = [sum(token in ("not", "and", "or") for token in formula.split()) for formula in formulas]
        assert max(counts) == test.operators[index]
    assert {*found.splits["train"].relations} == {*range(len(RELATIONS))}
    same, other = load(tmp_path, seed=3).splits["val"], load(tmp_path, seed=4).splits["val"]
    assert same.lines(5) == found.splits["val"].lines(5) != other.lines(5)


def test_a_wrong_relation_or_formula_is_found() -> None:
    with pytest.raises(UserError, match=r"^line 2: c and \( not d \) have the relation #, not =$"):
        corpus.check(encode(f"{LINES[0]}\n=\tc\t( not d )\n", 1, "file"), "line")
    with pytest.raises(UserError, match=r"^pair 1: \( a \) has '\)' where '\(' must be$"):
        corpus.check(encode("=\t( a )\ta", 1, "file"))


@pytest.mark.slow
def test_the_published_pairs_have_the_published_counts_and_agree_with_truth_tables() -> None:
    found = published()
    assert {name: len(pairs) for name, pairs in found.splits.items()} == {"train": 121977, "val": 13552, "test": 37367}
    counts = np.bincount(found.splits["test"].operators)
    assert [*counts[7:]] == [4707, 3347, 2230, 1444, 864, 853]
    for pairs in load(DATA, train_operators=12).splits.values():
        corpus.check(pairs)
