"""Sequences of .csv and .tsv files: a line for each sequence or step, types of cells, and errors with their line."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.data.sequences.corpus import Sequences, load

WIDE = "id,x0,x1,x2,label,split\n" + "".join(
    f"{row},{row / 4},{0.5 if row else ''},{'' if row < 3 else 1.5},{'sun' if row % 2 else 'rain'},{split}\n"
    for row, split in enumerate(["train"] * 4 + ["val"] * 2 + ["test"] * 2)
)
LONG = "id,time,a,b,label\n" + "".join(
    f"{name},{step},{step / 4 + 0.1},{index},{'sun' if index % 2 else 'rain'}\n"
    for step in range(3)
    for index, name in enumerate("abcdefgh")
    if step < 2 or index > 3
)


def read(folder: Path, content: str, name: str = "own.csv", **options: Any) -> Sequences:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return load(path, **options)


def test_a_line_for_each_sequence(tmp_path: Path) -> None:
    found = read(tmp_path, WIDE, targets="label")
    assert found.lengths.tolist() == [1, 2, 2, 3, 3, 3, 3, 3]
    assert found.inputs[:5, 0].tolist() == [0, 0.25, 0.5, 0.5, 0.5]
    assert (found.labels, found.targets.tolist()) == (("rain", "sun"), [0, 1] * 4)
    assert {name: rows.tolist() for name, rows in found.splits.items()} == {
        "train": [0, 1, 2, 3],
        "val": [4, 5],
        "test": [6, 7],
    }
    named = read(tmp_path, WIDE.replace(",", "\t"), "own.tsv", inputs="x", targets="label")
    assert np.array_equal(named.inputs, found.inputs)
    with gzip.open(tmp_path / "own.csv.gz", "wt", encoding="utf-8-sig") as file:
        file.write(WIDE)
    assert np.array_equal(load(tmp_path / "own.csv.gz", targets="label").inputs, found.inputs)


@pytest.mark.parametrize(
    "heads", ["0,1,2", "x_0,x_1,x_2", "x[1],x[2],x[3]", "step 7,step 8,step 9", "inputs0,inputs1,inputs2"]
)
def test_names_of_steps(tmp_path: Path, heads: str) -> None:
    found = read(tmp_path, f"{heads},targets\n" + "1,2,3,0\n4,0,1,1\n" * 4)
    assert (found.vocabulary_size, found.lengths.tolist(), found.classes) == (5, [3] * 8, 2)


def test_several_measurements_a_step_and_a_target_for_each_step(tmp_path: Path) -> None:
    heads = [f"{name}{step}" for step in range(3) for name in ("temperature", "pressure", "rain")]
    rows = [[f"{(row + column) / 4}" for column in range(9)] for row in range(5)]
    content = "\n".join(",".join(row) for row in [heads, *rows])
    found = read(tmp_path, content, inputs=["temperature", "pressure"], targets="rain")
    assert (found.input_size, found.per_step, found.target_size) == (2, True, 1)
    assert found.inputs[:3].tolist() == [[0, 0.25], [0.75, 1], [1.5, 1.75]]
    with pytest.raises(OptionError, match=r"own.csv has no column inputs; it has temperature, pressure, rain, "):
        read(tmp_path, content, targets="rain")


def test_a_line_for_each_step(tmp_path: Path) -> None:
    found = read(tmp_path, LONG, sequence_id="id", inputs=["a", "b"], targets="label")
    assert found.lengths.tolist() == [2] * 4 + [3] * 4
    assert np.allclose(found.inputs[:4], [[0.1, 0], [0.35, 0], [0.1, 1], [0.35, 1]])
    assert (found.labels, found.targets.tolist(), found.per_step) == (("rain", "sun"), [0, 1] * 4, False)
    steps = read(tmp_path, LONG, sequence_id="id", inputs="a", targets="label", per_step=True)
    assert (steps.per_step, steps.targets[:4].tolist()) == (True, [0, 0, 1, 1])
    differing = read(tmp_path, LONG, sequence_id="id", inputs="a", targets="time")
    assert (differing.per_step, differing.classes) == (True, 3)


@pytest.mark.parametrize(
    ("cells", "options", "expected"),
    [
        (
            "1.0,2.0",
            {},
            "column label: has whole numbers of a real type, such as 1.0, which can be classes or measurements",
        ),
        ("0.0,1.0", {"objective": "classification"}, [0, 1]),
        ("1.0,2.5", {}, [1, 2.5]),
        ("1.0,2.0", {"objective": "regression"}, [1, 2]),
        ("1,2", {}, "column label, row 1: 2; the 2 classes of the file must be 0 to 1"),
        ("0,1", {}, [0, 1]),
        ("1.0,rain", {}, [0, 1]),
        ("yes,no", {}, [1, 0]),
        ("yes,yes", {}, "column label: has a single class, yes; must have at least two"),
    ],
)
def test_types_of_labels(tmp_path: Path, cells: str, options: dict[str, str], expected: Any) -> None:
    one, other = cells.split(",")
    parts = ["train", "train", "val", "val", "test", "test"]
    content = "x0,x1,label,split\n" + "".join(
        f"0.5,1,{one if row % 2 == 0 else other},{part}\n" for row, part in enumerate(parts)
    )
    if isinstance(expected, str):
        with pytest.raises(OptionError) as caught:
            read(tmp_path, content, targets="label", **options)
        assert expected in str(caught.value)
    else:
        assert read(tmp_path, content, targets="label", **options).targets.ravel().tolist() == expected * 3


def test_an_empty_cell_is_a_row_without_a_target(tmp_path: Path) -> None:
    rows = [f"{row}.5,1,{'' if row == 4 else row % 2}\n" for row in range(9)]
    found = read(tmp_path, "x0,x1,targets\n" + "".join(rows), objective="classification", test_fraction=0.3)
    assert found.targets[3:6].tolist() == [1, IGNORED, 1]


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("", {}, "has no lines below the first one"),
        ("x0,x1,targets\n", {}, "has no lines below the first one"),
        ("x0,x1,targets\n1,2\n", {}, "line 2: has 2 cells; the first line has 3 names"),
        ("x0,x0,targets\n1,2,0\n", {}, "must have a name for each column, each of them once; it has x0, x0, targets"),
        ("0.5,1.5,2.5\n1,2,0\n", {}, "the first line has numbers; it must have the names of the columns"),
        ("x0,x2,targets\n1,2,0\n", {}, "columns x0, x2: their numbers must rise by one"),
        ("x0,x1,x2,targets\n1,,2,0\n1,2,3,1\n", {}, "column inputs, row 0, step 1: is empty"),
        ('x0,x1,targets\n1,"2,0\n', {}, "line 3: unexpected end of data"),
        (
            "x0,x1,targets\n1,b,0\n" * 1,
            {},
            "column inputs: has the type <U1; must have integers (tokens) or real numbers",
        ),
        ("x0,x1,targets\n1,2,0\n", {"sequence_id": "id"}, "sequence_id=id: "),
        ("x0;x1;targets\n1;2;0\n", {}, "has no column inputs; it has x0;x1;targets"),
    ],
)
def test_tables_that_cannot_be_used_are_refused_in_one_line(
    tmp_path: Path, content: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(OptionError) as caught:
        read(tmp_path, content, **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files_have_no_line_for_each_step(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", inputs=np.zeros((4, 2)), targets=np.arange(4) % 2)
    with pytest.raises(
        OptionError, match=r"^sequence_id=id: must be null for \S+own.npz, which is no .csv or .tsv file$"
    ):
        load(tmp_path / "own.npz", sequence_id="id")
    (tmp_path / "own.csv").write_bytes("x0,x1,targets\n1,2,é\n".encode("latin-1"))
    with pytest.raises(OptionError, match=r"own.csv: line \d: is not UTF-8$"):
        load(tmp_path / "own.csv")
