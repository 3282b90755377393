"""Hierarchies, WordNet's files, false pairs, held-out pairs, published lists and ratings."""

import os
from pathlib import Path

import numpy as np
import pytest

from gyral.applications.boxes.data import ratings
from gyral.applications.boxes.data.hierarchy import Hierarchy, load_hierarchy
from gyral.applications.boxes.data.pairs import FalsePairs, published_mammals
from gyral.applications.boxes.data.splits import held_out_splits, published_wordnet
from gyral.core.errors import OptionError, UserError

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[4] / "data"))
TREE = Path(__file__).parents[1] / "tasks" / "tree.tsv"
FILMS = Path(__file__).parents[1] / "tasks" / "ratings.csv"
# A file of WordNet in small: mammal, dog and puppy, a second sense of dog, and Fido, an instance of a dog.
LICENSE = "  1 This software and database is being provided to you  \n"
NOUNS = """\
00000001 05 n 01 mammal 0 001 ~ 00000002 n 0000 | warm-blooded
00000002 05 n 02 dog 0 Canis_familiaris 0 003 @ 00000001 n 0000 ~ 00000003 n 0000 ~i 00000005 n 0000 | man's best friend
00000003 05 n 01 puppy 0 001 @ 00000002 n 0000 | a young dog
00000004 05 n 01 dog 0 000 | a dull person
00000005 18 n 01 Fido 0 001 @i 00000002 n 0000 | a dog | with a bar
"""
INDEX = """\
mammal n 1 1 ~ 1 0 00000001
dog n 2 3 @ ~ ~i 2 1 00000002 00000004
canis_familiaris n 1 1 @ 1 0 00000002
puppy n 1 1 @ 1 0 00000003
fido n 1 1 @i 1 0 00000005
"""


def names(hierarchy: Hierarchy, pairs: np.ndarray) -> set[tuple[str, str]]:
    return {(hierarchy.names[general], hierarchy.names[specific]) for general, specific in pairs}


def test_reduction_and_closure_of_a_small_hierarchy() -> None:
    hierarchy = Hierarchy([("a", "b"), ("b", "c"), ("a", "c"), ("b", "d")])
    assert names(hierarchy, hierarchy.reduction) == {("a", "b"), ("b", "c"), ("b", "d")}
    assert names(hierarchy, hierarchy.implied) == {("a", "c"), ("a", "d")}
    assert len(hierarchy.closure) == 5
    assert hierarchy.below("a").names == ["b", "c", "d"]


def test_a_circle_is_refused() -> None:
    with pytest.raises(UserError, match="more general than itself: a → b"):
        Hierarchy([("a", "b"), ("b", "a")])


def test_the_mammals_equal_the_paper() -> None:
    mammals = load_hierarchy()
    assert (len(mammals), len(mammals.reduction), len(mammals.closure)) == (1179, 1176, 5361)
    assert ("even-toed_ungulate.n.01", "ruminant.n.01") in names(mammals, mammals.reduction)
    assert ("placental.n.01", "dog.n.01") in names(mammals, mammals.implied)


def test_wordnets_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text(LICENSE + NOUNS)
    (tmp_path / "index.noun").write_text(LICENSE + INDEX)
    hierarchy = load_hierarchy(tmp_path)
    expected = {("mammal.n.01", "dog.n.01"), ("dog.n.01", "puppy.n.01"), ("dog.n.01", "fido.n.01")}
    assert names(hierarchy, hierarchy.reduction) == expected
    below = load_hierarchy(tmp_path, "mammal.n.01")
    assert names(below, below.closure) == {("dog.n.01", "puppy.n.01"), ("dog.n.01", "fido.n.01")}


@pytest.mark.parametrize(
    ("text", "root", "reason"),
    [
        ("a\tb\na b\n", None, "line 2: must be a general concept, a tab and a specific concept"),
        ("# nothing\n", None, "must have at least one pair"),
        ("animal\tdog\n", "anmal", "did you mean animal?"),
        ("animal\tdog\n", "animal", "must have hyponyms that have hyponyms"),
    ],
)
def test_lists_that_are_not_a_hierarchy_are_refused(tmp_path: Path, text: str, root: str | None, reason: str) -> None:
    (tmp_path / "pairs.tsv").write_text(text)
    with pytest.raises(OptionError) as raised:
        load_hierarchy(tmp_path / "pairs.tsv", root)
    assert reason in str(raised.value)


def test_a_folder_without_wordnet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"hierarchy=.*index.noun"):
        load_hierarchy(tmp_path)


def test_false_pairs_are_false_and_of_both_kinds() -> None:
    mammals = load_hierarchy()
    true = mammals.reduction
    false = FalsePairs(len(mammals), mammals.closure)
    drawn = false.draw(true, 10, np.random.default_rng(0)).reshape(len(true), 10, 2)
    closure = set(map(tuple, mammals.closure.tolist()))
    assert not any(tuple(pair) in closure or pair[0] == pair[1] for pair in drawn.reshape(-1, 2).tolist())
    keeps_general = (drawn[..., 0] == true[:, None, 0]).mean(axis=0)
    assert (keeps_general[:5] > 0.95).all()
    assert (keeps_general[5:] < 0.05).all()
    one = false.draw(true, 1, np.random.default_rng(0))
    assert 0.4 < (one[:, 0] == true[:, 0]).mean() < 0.6


def test_false_pairs_that_do_not_exist_are_refused() -> None:
    chain = Hierarchy([("a", "b")])
    with pytest.raises(UserError, match="too few concepts"):
        FalsePairs(2, chain.closure).draw(chain.closure, 1, np.random.default_rng(0))


def test_validation_and_test_have_different_pairs_that_training_implies() -> None:
    tree = load_hierarchy(TREE)
    splits = held_out_splits(tree, negatives=3, val_size=20, test_size=30, seed=1)
    assert np.array_equal(splits.train, tree.reduction)
    val, test = (tree.keys(own.pairs[own.targets]) for own in (splits.val, splits.test))
    implied = set(tree.keys(tree.implied).tolist())
    assert (len(val), len(test), len(splits.test.pairs)) == (20, 30, 120)
    assert not set(val.tolist()) & set(test.tolist())
    assert {*val.tolist(), *test.tolist()} <= implied
    assert splits.false.is_false(splits.test.pairs[~splits.test.targets]).all()
    with pytest.raises(OptionError, match="val_size=20: must be at most"):
        held_out_splits(tree, negatives=3, val_size=20, test_size=1000, seed=1)


def test_the_published_pairs_are_of_the_closure() -> None:
    mammals = load_hierarchy()
    if not (DATA / "wordnet" / "pytorch_box").is_dir():
        pytest.skip(f"no wordnet/pytorch_box in {DATA} (set DATA_DIR)")
    names = (DATA / "wordnet" / "pytorch_box" / "mammal_closure_vocab.tsv").read_text().split()[1::2]
    assert sorted(names) == mammals.names
    published = published_mammals(DATA, mammals, 10)
    assert (published.targets.sum(), len(published.pairs)) == (209, 2299)
    implied = set(mammals.keys(mammals.implied).tolist())
    true = mammals.keys(published.pairs[published.targets]).tolist()
    assert set(true) <= implied
    assert FalsePairs(len(mammals), mammals.closure).is_false(published.pairs[~published.targets]).all()
    two = published_mammals(DATA, mammals, 2)
    general, specific = (two.pairs[209:].reshape(209, 2, 2) == two.pairs[:209, None]).transpose(2, 0, 1)
    assert general[:, 0].all()
    assert specific[:, 1].all()
    splits = held_out_splits(mammals, negatives=2, val_size=209, test_size=1, seed=0, published=two)
    assert not set(mammals.keys(splits.val.pairs[splits.val.targets]).tolist()) & set(true)


def test_published_lists_of_all_nouns(tmp_path: Path) -> None:
    folder = tmp_path / "wordnet"
    folder.mkdir()
    (folder / "hypernym_vocab.txt").write_text("animal.n.01\ndog.n.01\ncat.n.01\n")
    for name in ("train", "dev", "test"):
        (folder / f"wordnet_{name}.txt").write_text("IsA\tdog.n.01\tanimal.n.01\t1\nIsA\tdog.n.01\tcat.n.01\t0\n")
    splits = published_wordnet(tmp_path)
    assert splits.train.tolist() == [[0, 1]]
    assert splits.test.pairs.tolist() == [[0, 1], [2, 1]]
    assert splits.test.targets.tolist() == [True, False]
    (folder / "wordnet_dev.txt").write_text("IsA\tdog.n.01\tfish.n.01\t1\n")
    with pytest.raises(UserError, match=r"wordnet_dev.txt, line 1: names a concept"):
        published_wordnet(tmp_path)
    (folder / "wordnet_train.txt").unlink()
    with pytest.raises(OptionError, match=r"data_dir=.*wordnet/wordnet_train.txt: no such file"):
        published_wordnet(tmp_path)


@pytest.mark.parametrize("separator", [",", "::", "\t"])
def test_conditional_probabilities_of_ratings(tmp_path: Path, separator: str) -> None:
    rows = ["1 a 5", "1 b 4", "2 a 4.5", "2 b 1", "3 b 5", "3 a 2", "3 c 1", "4 a 4"]
    path = tmp_path / "ratings"
    path.write_text("".join(row.replace(" ", separator) + f"{separator}0\n" for row in rows))
    found = ratings.load_conditionals(path, films=10, liked=4, seed=0)
    assert found.names == ["a", "b"]
    assert found.labelled.pairs.tolist() == [[0, 1], [1, 0]]
    assert found.labelled.targets.tolist() == pytest.approx([1 / 2, 1 / 3])


def test_generated_ratings_depend_on_the_seed_and_are_in_the_same_form() -> None:
    first, same, other = (ratings.load_conditionals(None, films=20, liked=4, seed=seed) for seed in (1, 1, 2))
    assert first.generated
    assert np.array_equal(first.labelled.targets, same.labelled.targets)
    assert not np.array_equal(first.labelled.targets, other.labelled.targets)
    assert first.labelled.targets.shape == (20 * 19,)
    assert first.labelled.targets.std() > 0.03
    assert len(ratings.load_conditionals(FILMS, films=10, liked=4, seed=0).names) == 10


def test_generated_ratings_have_half_of_the_pairs_and_popular_films() -> None:
    users, films, given, names = ratings.generate_ratings(0)
    assert set(given) == {1, 2, 3, 4, 5}
    assert len(given) / (ratings.USERS * len(names)) == pytest.approx(0.5, abs=0.01)
    assert given.mean() == pytest.approx(3, abs=0.1)
    means = np.bincount(films, given) / np.bincount(films)
    assert means.std() == pytest.approx(0.7, abs=0.06), "the popularity of a film has deviation 1 before clipping"
    tastes = np.bincount(users, given) / np.bincount(users)
    assert tastes.std() < 0.2, "users differ in taste, not in how much they like"


def test_files_that_are_not_ratings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text("userId,movieId,rating\n1,2,3\n1,2\n")
    with pytest.raises(UserError, match="line 3: must be a user, a film and a rating"):
        ratings.load_conditionals(path, films=10, liked=4, seed=0)
