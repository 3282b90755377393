"""The training list of all nouns is made from WordNet's own files."""

import gzip
import os
from pathlib import Path

import pytest

from gyral.applications.boxes.data.splits import published_wordnet
from gyral.applications.boxes.make_wordnet import main, make_training_list
from gyral.core.errors import OptionError
from tests.applications.boxes.data.test_concepts import DATA, INDEX, LICENSE, NOUNS

NAMES = ("mammal.n.01", "dog.n.01", "puppy.n.01", "fido.n.01")


def write(folder: Path, held_out: str) -> tuple[Path, Path]:
    """Write WordNet's files, packed, and the published ones; return both folders."""
    dictionary, data = folder / "dict", folder / "data"
    dictionary.mkdir()
    (data / "wordnet").mkdir(parents=True)
    (dictionary / "data.noun.gz").write_bytes(gzip.compress((LICENSE + NOUNS).encode()))
    (dictionary / "index.noun").write_text(LICENSE + INDEX)
    (data / "wordnet" / "hypernym_vocab.txt").write_text("".join(f"{name}\n" for name in NAMES))
    for name in ("dev", "test"):
        (data / "wordnet" / f"wordnet_{name}.txt").write_text(held_out)
    return dictionary, data


def test_the_list_has_the_closure_without_the_held_out_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dictionary, data = write(tmp_path, "IsA\tpuppy.n.01\tmammal.n.01\t1\nIsA\tmammal.n.01\tdog.n.01\t0\n")
    with pytest.raises(OptionError, match=r"wordnet_train.txt: no such file; python -m \S+make_wordnet makes it"):
        published_wordnet(data)
    monkeypatch.setattr("sys.argv", ["make_wordnet", str(dictionary), "--data-dir", str(data)])
    main()
    printed = capsys.readouterr().out
    assert printed.startswith("4 nouns; 5 pairs in the transitive closure, 5 if each pair counts once")
    assert printed.endswith("follows from these pairs: 100.00 %\n"), "a puppy is a dog, and so a mammal"
    assert (data / "wordnet" / "wordnet_train.txt").read_text().splitlines() == [
        *("IsA\tdog.n.01\tmammal.n.01\t1", "IsA\tfido.n.01\tdog.n.01\t1", "IsA\tfido.n.01\tmammal.n.01\t1"),
        "IsA\tpuppy.n.01\tdog.n.01\t1",
    ]
    assert published_wordnet(data).train.tolist() == [[0, 1], [1, 3], [0, 3], [1, 2]]


def test_another_version_of_wordnet_is_refused(tmp_path: Path) -> None:
    dictionary, data = write(tmp_path, "IsA\tdog.n.01\tpuppy.n.01\t1\n")
    with pytest.raises(OptionError, match=r"must be WordNet 3.0: 1 of the 1 true pairs of validation and test do not"):
        make_training_list(dictionary, data)
    (dictionary / "data.noun.gz").write_bytes((dictionary / "data.noun.gz").read_bytes()[:-20])
    with pytest.raises(OptionError, match=r"data.noun.gz: is not a complete gzip file"):
        make_training_list(dictionary, data)


@pytest.mark.slow
def test_the_closure_of_wordnet_has_the_published_size_if_each_path_counts(tmp_path: Path) -> None:
    if not (DATA / "wordnet" / "dict").is_dir():
        pytest.skip(f"no wordnet/dict in {DATA} (set DATA_DIR)")
    (tmp_path / "wordnet").mkdir()
    for name in ("wordnet_dev.txt", "wordnet_test.txt"):
        os.symlink((DATA / "wordnet" / name).absolute(), tmp_path / "wordnet" / name)
    found = make_training_list(DATA / "wordnet" / "dict", tmp_path)
    assert found.startswith("82,115 nouns; 743,241 pairs in the transitive closure, 837,888 if each pair counts once")
    assert "668,916 pairs, without the 74,325 true pairs" in found
    assert found.endswith("accuracy on test of what follows from these pairs: 93.07 %")
