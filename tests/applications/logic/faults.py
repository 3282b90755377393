"""Inputs of logical inference for the suites of tests/faults."""

from pathlib import Path
from random import Random

import pytest

from gyral.applications.logic.data.generated import generate
from tests.faults.inputs import MODEL, Input, train_on
from tests.helpers.running import SMALL

SIZES = {"batch_size": 4, "eval_batch_size": 8, "train_operators": 2}
SMALL_RUN = (
    *(option for option in SMALL if not option.startswith("task.")),
    *("model=gru", "model.embedding_size=4", "optimizer=adam"),
)


def write_files(folder: Path) -> list[Path]:
    folder.mkdir(parents=True)
    paths = []
    for split in ("train", "test"):
        for number in range(13):
            paths.append(folder / f"{split}{number}")
            rows = generate(number, 6, split)
            paths[-1].write_text("".join("\t".join(row) + "\n" for row in rows))
    return [path for path in paths if path.name in ("train0", "train1", "train2") or path.name.startswith("test")]


def own_folder(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    options = {"path": str(folder / "pairs"), **SIZES}
    files = write_files(folder / "pairs")
    return train_on(("task=logical_inference", *MODEL), options, files, ("path",))


def data_folder(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    files = write_files(folder / "logical_inference")
    options = {"data_dir": str(folder), **SIZES}
    return train_on(("task=logical_inference", *MODEL), options, files, ("data_dir",))


def small_run(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    write_files(folder / "logical_inference")
    sizes = (f"task.{name}={value}" for name, value in SIZES.items())
    return (*SMALL_RUN, *sizes, "task=logical_inference", f"paths.data_dir={folder}")


LOADERS = {"logical_inference.path": own_folder, "logical_inference.data_dir": data_folder}
SMALL_RUNS = {"logical_inference": small_run}
