"""Small runs and inputs of translation for the suites of tests/faults."""

import functools
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gyral.applications.translation.data.corpus import load
from tests.applications.translation.small import PAIRS, TRANSLATIONS
from tests.faults.inputs import RUN, Input, train_on

LINES = [line.split("\t") for line in PAIRS.read_text().splitlines()]
MODEL = (
    *("model=transformer", "model.embedding_size=4", "model.encoder.hidden_size=4", "model.decoder.hidden_size=4"),
    *("model.num_layers=1", *RUN),
)
SIZES = {"batch_size": 2, "decoded": 1, "corpus.size": 60, "decoding.beam": 1, "decoding.max_length": 3}


def run_on_pairs(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    parts = {"train": LINES[:60], "val": LINES[60:70], "test": LINES[70:]}
    options = [
        option for option in TRANSLATIONS if not option.startswith(tuple(f"task.corpus.{part}=" for part in parts))
    ]
    for split, lines in parts.items():
        (folder / f"{split}.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
        options.append(f"task.corpus.{split}={folder}/{split}.tsv")
    return (*options, f"paths.data_dir={folder}")


def pairs(folder: Path, form: str) -> tuple[Any, list[Path], dict[str, Any]]:
    """Write pairs in a form; return the value of the option, the files, and the options of their fields."""
    path = folder / f"pairs.{form}"
    if form == "tsv":
        path.write_text(PAIRS.read_text())
        return str(path), [path], {}
    if form == "jsonl":
        nested = [{"translation": {"en": source, "de": target}} for source, target in LINES]
        path.write_text("".join(json.dumps(line) + "\n" for line in nested))
        return str(path), [path], {"corpus.source": "en", "corpus.target": "de"}
    paths = [folder / f"pairs.en.{form}", folder / f"pairs.de.{form}"]
    for side, written in enumerate(paths):
        marked = [f'<seg id="1">{line[side]}</seg>' if form == "sgm" else line[side] for line in LINES]
        written.write_text("".join(f"{line}\n" for line in marked))
    return [str(written) for written in paths], paths, {}


def own_pairs(folder: Path, random: Random, patch: pytest.MonkeyPatch, split: str) -> Input:
    value, files, fields = pairs(folder, random.choice(("tsv", "jsonl", "txt", "sgm")))
    others = pairs(folder, "jsonl" if fields else "tsv")[0] + "[:60]"
    options = {f"corpus.{name}": others for name in ("train", "val", "test")} | {f"corpus.{split}": value} | fields
    if Path(others.partition("[")[0]) in files:  # what is damaged is read once
        other = Path(others.partition("[")[0]).rename(folder / f"others{files[0].suffix}")
        options |= {f"corpus.{name}": str(other) for name in ("train", "val", "test") if name != split}
        files[0].write_text(other.read_text())
    more = {"corpus.data_dir": str(folder), **SIZES}
    return train_on(("task=translation", *MODEL), options | more, files, (f"corpus.{split}", "corpus.size"))


def cached_pairs(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """The cache of a corpus of pairs."""
    patch.setenv("GYRAL_CACHE", str(folder / "user"))

    def read(data_dir: Path = folder) -> list[Any]:
        found = load(data_dir, train=str(PAIRS), val=str(PAIRS), test=str(PAIRS), size=60)
        bounds = {split: numbers.tolist() for split, numbers in found.bounds.items()}
        return [found.pieces, {split: tokens.tolist() for split, tokens in found.tokens.items()}, bounds, found.texts]

    (folder / "other").mkdir()
    expected = read(folder / "other")
    read()
    return Input(sorted((folder / ".cache").glob("*/*")), (), read, expected=expected)


SMALL_RUNS = {"translation": run_on_pairs}
LOADERS = {
    **{f"translation.corpus.{split}": functools.partial(own_pairs, split=split) for split in ("train", "val", "test")},
    "translation.corpus.data_dir": cached_pairs,
}
COMMAND_LINES = (TRANSLATIONS,)
