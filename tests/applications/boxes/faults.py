"""Inputs of boxes and of concepts for the suites of tests/faults."""

import gzip
from pathlib import Path
from random import Random

import pytest

from gyral.applications.boxes.data.hierarchy import load_hierarchy
from gyral.applications.boxes.data.pairs import FOLDER, NAMES, NEGATIVES, POSITIVES
from gyral.applications.boxes.data.splits import FILES, VOCABULARY, WORDNET
from tests.faults.inputs import RUN, Input, Maker, train_on
from tests.helpers.running import SMALL

MODEL = ("model=smoothed_box", "model.dimension=2", *(option for option in RUN if option != "model.backend=reference"))
SIZES = {"batch_size": 4, "eval_batch_size": 8, "negatives": 2, "val_size": 1, "test_size": 1}
SMALL_RUN = (
    *(option for option in SMALL if not option.startswith(("model.", "task."))),
    *("model=smoothed_box", "model.dimension=2", "optimizer=adam"),
)
EXAMPLES = Path(__file__).parent / "tasks"


def hierarchy(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """A list of pairs."""
    path = folder / "pairs.tsv"
    path.write_bytes((EXAMPLES / "tree.tsv").read_bytes())
    return train_on(("task=hypernyms", *MODEL), {"hierarchy": str(path), **SIZES}, [path], ("hierarchy", "val_size"))


def wordnet(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """WordNet's own files, with a chain of synsets."""
    nouns, index = folder / "data.noun", folder / "index.noun"
    words = [f"word{number}" for number in range(12)]
    lines = [f"{n:08} 05 n 01 {word} 0 001 @ {max(n - 1, 0):08} n 0000 | a word" for n, word in enumerate(words)]
    lines[0] = lines[0].replace("001 @ 00000000 n 0000", "000")
    nouns.write_text("  1 A license\n" + "".join(f"{line}\n" for line in lines))
    index.write_text("".join(f"{word} n 1 1 @ 1 0 {n:08}\n" for n, word in enumerate(words)))
    options = {"hierarchy": str(folder), **SIZES}
    files = [nouns, nouns, index]
    return train_on(("task=hypernyms", *MODEL), options, files, ("hierarchy", "val_size"), names_folder=True)


def published_mammals(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """The published pairs of mammals."""
    mammals = load_hierarchy()
    names = [[mammals.names[number] for number in pair] for pair in mammals.closure[:3]]
    (folder / FOLDER).mkdir(parents=True)
    contents = {
        NAMES: [[name, name] for name in mammals.names],
        POSITIVES: names,
        NEGATIVES: [pair[::-1] for pair in names for _ in range(10)],
    }
    paths = [folder / FOLDER / name for name in contents]
    for path, rows in zip(paths, contents.values(), strict=True):
        path.write_text("".join("\t".join(row) + "\n" for row in rows))
    options = {"data_dir": str(folder), "test": "published", **SIZES}
    return train_on(("task=hypernyms", *MODEL), options, paths, ("test",), names_folder=True)


def published_wordnet(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """The published pairs of WordNet."""
    paths = write_wordnet(folder)
    options = {"data_dir": str(folder), "negatives": 1, "batch_size": 4, "eval_batch_size": 8}
    return train_on(("task=hypernyms_wordnet", *MODEL), options, paths, ("data_dir",), names_folder=True)


def write_wordnet(folder: Path) -> list[Path]:
    place = folder / WORDNET
    place.mkdir()
    names = [f"word{number}.n.01" for number in range(12)]
    paths = [place / VOCABULARY, *(place / name for name in FILES.values())]
    paths[0].write_text("".join(f"{name}\n" for name in names))
    for path in paths[1:]:
        pairs = zip(names[1:], names, strict=False)
        path.write_text("".join(f"IsA\t{one}\t{other}\t1\nIsA\t{other}\t{one}\t0\n" for one, other in pairs))
    return paths


def ratings(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """A file of MovieLens."""
    path = folder / "my ratings.csv"
    path.write_bytes((EXAMPLES / "ratings.csv").read_bytes())
    options = {"ratings": str(path), "batch_size": 4, "eval_batch_size": 8}
    named = ("ratings", "liked", "val_size")
    return train_on(("task=ratings", *MODEL), options, [path], named)


def titles(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """The titles of films."""
    ratings, path = EXAMPLES / "ratings.csv", folder / "u.item"
    path.write_text("".join(f"{number}|Film {number} (1995)|01-Jan-1995||\n" for number in range(60)))
    options = {"ratings": str(ratings), "titles": str(path), "batch_size": 4, "eval_batch_size": 8}
    return train_on(("task=ratings", *MODEL), options, [path], ("titles",))


def phrases(option: str, name: str) -> Maker:
    """Return a maker of pairs of phrases, in a file with this name for an option."""

    def make(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
        content, path = (EXAMPLES / "phrases.tsv").read_bytes(), folder / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        options = {"test": str(EXAMPLES / "phrases.tsv"), option: str(path), "batch_size": 4, "eval_batch_size": 8}
        return train_on(("task=phrases", *MODEL), options, [path], (option, "val_size"))

    return make


def lattice(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """A hierarchy whose leaves are equally probable."""
    path = folder / "pairs.tsv"
    path.write_bytes((EXAMPLES / "tree.tsv").read_bytes())
    options = {"hierarchy": str(path), "batch_size": 4, "eval_batch_size": 8}
    return train_on(("task=lattice", *MODEL), options, [path], ("hierarchy",))


def run_on_mammals(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*SMALL_RUN, "task=hypernyms", "task.batch_size=16", "task.negatives=2", "callbacks=boxes")


def run_on_wordnet(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    write_wordnet(folder)
    return (*SMALL_RUN, "task=hypernyms_wordnet", "task.batch_size=4", f"paths.data_dir={folder}")


def run_on_ratings(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*SMALL_RUN, "task=ratings", "task.films=12", "task.batch_size=16")


def run_on_phrases(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*SMALL_RUN, "task=phrases", f"task.test={EXAMPLES / 'phrases.tsv'}", "task.batch_size=16")


def run_on_lattice(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*SMALL_RUN, "task=lattice", "task.batch_size=16")


LOADERS = {
    "hypernyms.hierarchy pairs": hierarchy,
    "hypernyms.hierarchy wordnet": wordnet,
    "hypernyms.data_dir": published_mammals,
    "hypernyms_wordnet.data_dir": published_wordnet,
    "ratings.ratings": ratings,
    "ratings.titles": titles,
    "phrases.test": phrases("test", "phrases.tsv.gz"),
    "phrases.train": phrases("train", "phrases.tsv"),
    "phrases.val": phrases("val", "phrases.tsv"),
    "lattice.hierarchy": lattice,
}
SMALL_RUNS = {
    "hypernyms": run_on_mammals,
    "hypernyms_wordnet": run_on_wordnet,
    "ratings": run_on_ratings,
    "phrases": run_on_phrases,
    "lattice": run_on_lattice,
}
