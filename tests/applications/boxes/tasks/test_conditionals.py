"""Conditional probabilities: splits of a given size, titles of films, and files of phrases."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from gyral.applications.boxes.data.pairs import LabelledPairs
from gyral.applications.boxes.data.ratings import read_titles
from gyral.applications.boxes.tasks.conditionals import draw_splits
from gyral.core.errors import OptionError
from tests.helpers.running import build_task

FOLDER = Path(__file__).parent
PAIRS = LabelledPairs(np.arange(200).reshape(100, 2), np.linspace(0, 1, 100))


def test_splits_have_different_pairs_and_the_given_sizes() -> None:
    splits = draw_splits(PAIRS, {"val": 7, "test": None}, 1, sampled_pairs=50)
    assert {name: len(own.pairs) for name, own in splits.items()} == {"val": 7, "test": 5, "train": 38}
    firsts = np.concatenate([own.pairs[:, 0] for own in splits.values()])
    assert len(set(firsts.tolist())) == 50
    assert np.array_equal(splits["val"].targets, PAIRS.targets[splits["val"].pairs[:, 0] // 2])
    assert not np.array_equal(draw_splits(PAIRS, {"val": 7}, 2)["val"].pairs, splits["val"].pairs)


@pytest.mark.parametrize(
    ("sizes", "sampled", "reason"),
    [
        ({"val": 60, "test": 40}, None, "val_size=60: 100 pairs are too few for val, test and train"),
        ({"val": None, "test": None}, 5, "val_size=None: 5 pairs are too few"),
        ({"val": 1, "test": 1}, 101, "sampled_pairs=101: must be at most 100"),
        ({"val": 0, "test": 1}, None, "val_size=0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: dict[str, int | None], sampled: int | None, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        draw_splits(PAIRS, sizes, 1, sampled)


@pytest.mark.parametrize(
    "content",
    [
        "1|Caf\xe9, The (1995)|01-Jan-1995||".encode("latin-1"),
        "1::Caf\xe9, The (1995)::Drama\n".encode(),
        '\ufeff1,"Caf\xe9, The (1995)",Drama\r\n'.encode(),
    ],
)
def test_titles_of_films(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "titles").write_bytes(content)
    assert read_titles(tmp_path / "titles") == {"1": "Caf\xe9, The (1995)"}
    (tmp_path / "titles").write_bytes(content + b"\n2\n")
    with pytest.raises(OptionError, match="line 2: must be a film and its title"):
        read_titles(tmp_path / "titles")


def test_films_have_their_titles(tmp_path: Path) -> None:
    (tmp_path / "u.data").write_text("".join(f"{user}\t{film}\t5\t0\n" for user in range(9) for film in (3, 7, 8, 9)))
    (tmp_path / "u.item").write_text("7|Toy Story (1995)|01-Jan-1995||\n")
    files = {"ratings": str(tmp_path / "u.data"), "titles": str(tmp_path / "u.item")}
    task = build_task("task=ratings", "model=poe", val_size=2, test_size=2, **files)
    assert task.names == ["3", "Toy Story (1995)", "8", "9"]


def test_files_of_phrases(tmp_path: Path) -> None:
    options = {"test": str(FOLDER / "phrases.tsv"), "val_size": 10, "test_size": 10}
    drawn = build_task("task=phrases", "model=poe", **options)
    assert {name: len(own.pairs) for name, own in drawn.data.splits.items()} == {"val": 10, "test": 10, "train": 86}
    assert drawn.data_metrics()["substitute"] == 1
    packed = tmp_path / "train.tsv.gz"
    packed.write_bytes(gzip.compress((FOLDER / "more_phrases.tsv").read_bytes()))
    trained = build_task("task=phrases", "model=poe", train=[str(packed), str(FOLDER / "phrases.tsv")], **options)
    assert {name: len(own.pairs) for name, own in trained.data.splits.items()} == {"val": 10, "train": 178, "test": 106}
    assert trained.data_metrics()["substitute"] == 0
    files = {"train": str(tmp_path / "train.tsv"), "val": str(FOLDER / "phrases.tsv")}  # in its place: train.tsv.gz
    given = build_task("task=phrases", "model=poe", **options, **files)
    assert {name: len(own.pairs) for name, own in given.data.splits.items()} == {"train": 82, "val": 106, "test": 106}
    first = (FOLDER / "phrases.tsv").read_text().splitlines()[0].split("\t")
    assert given.name_pair(next(iter(given.data.loader("test"))), 0) == (first[0], first[2])


@pytest.mark.parametrize("line", ["a\t0.1\tb\t0.1\t0.1", "a\t0.1\tb\t0.1\t0.1\tnan", "a\t0.1\tb\t0.1\t0.1\t1.5"])
def test_lines_that_are_no_pair_of_phrases_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "pairs.tsv").write_text(f"a\t0.1\tb\t0.1\t0.1\t1\n{line}\n")
    with pytest.raises(OptionError, match=r"task.test=.*line 2: must be a phrase x, P\(x\)"):
        build_task("task=phrases", "model=poe", test=str(tmp_path / "pairs.tsv"))
