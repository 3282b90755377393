"""CSV files of sequences, with a sequence or a step in each row, and the same forms of other files."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gyral.core.errors import UserError
from gyral.data.batching import IGNORED
from gyral.data.sequences.corpus import Sequences, load

PARTS = ["train"] * 4 + ["val", "test"] * 2
N = len(PARTS)
WIDE = ["label,x_0,x_1,x_2,split", *(f"{'ab'[row % 2]},{row}.5,0.5,{row % 3 or ''},{PARTS[row]}" for row in range(N))]
LONG = ["id,t,x,y,tag,label,split"] + [
    f"p{row},{step},{row}.5,{step},{'uv'[step % 2]},{'ab'[row % 2]},{PARTS[row]}"
    for step in (2, 0, 1)  # neither sorted by sequence nor by time
    for row in range(N)
    if step <= row % 3
]


def write(folder: Path, lines: list[str], name: str = "mine.csv") -> Path:
    path = folder / name
    content = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def whole(sequences: Sequences) -> Any:
    return sequences.batch(np.arange(len(sequences.lengths)))


@pytest.mark.parametrize("name", ["mine.csv", "mine.csv.gz", "MINE.CSV"])
@pytest.mark.parametrize("inputs", ["inputs", "x"])
def test_numbered_columns_are_the_steps_of_a_row(tmp_path: Path, name: str, inputs: str) -> None:
    found = load(write(tmp_path, WIDE, name), inputs=inputs, targets="label")
    assert (found.labels, found.input_size, found.per_step) == (("a", "b"), 1, False)
    assert found.lengths.tolist() == [2 if row % 3 == 0 else 3 for row in range(N)]
    assert found.splits["test"].tolist() == [5, 7]
    assert whole(found).inputs[5, :, 0].tolist() == [5.5, 0.5, 2]
    assert whole(found).targets.tolist() == [row % 2 for row in range(N)]


def test_several_series_are_vectors_and_targets_may_be_a_series(tmp_path: Path) -> None:
    lines = ["a1,a2,b1,b2,y1,y2", *(f"{row},1,{row}.5,2,0.5,{row}" for row in range(N))]
    found = load(write(tmp_path, lines), inputs=["a", "b"], targets="y")
    assert (found.input_size, found.per_step, found.target_size) == (2, True, 1)
    assert whole(found).inputs[3].tolist() == [[3, 3.5], [1, 2]]
    assert load(tmp_path / "mine.csv", inputs="b", targets="y", per_step=False).target_size == 2
    with pytest.raises(UserError, match=r"mine\.csv has no column inputs; it has a, b, y, a1, a2"):
        load(tmp_path / "mine.csv", targets="y")


def test_columns_that_are_numbers_alone_are_the_inputs(tmp_path: Path) -> None:
    lines = ["0,1,2", *(f"{row % 3},{row % 2},{row % 2}" for row in range(N))]
    found = load(write(tmp_path, lines), targets="2")  # as pandas writes an array
    assert (found.vocabulary_size, found.lengths.tolist()) == (3, [2] * N)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "npz"])
def test_rows_are_steps_in_every_kind_of_file(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, LONG)
    if form != "csv":
        head, *rows = (line.split(",") for line in LONG)
        kinds = {"t": int, "y": int, "x": float}
        columns = {name: [kinds.get(name, str)(row[place]) for row in rows] for place, name in enumerate(head)}
        path = tmp_path / f"mine.{form}"
        if form == "npz":
            np.savez(path, **columns)
        elif form == "jsonl":
            records = [dict(zip(head, row, strict=True)) for row in zip(*columns.values(), strict=True)]
            path.write_text("\n".join(map(json.dumps, records)))
        else:
            pyarrow = pytest.importorskip("pyarrow")
            from pyarrow import parquet

            parquet.write_table(pyarrow.table(columns), path)
    found = load(path, sequence="id", time="t", inputs=["x", "y"], targets="label")
    first = [row for row in range(N) if row % 3 == 2]  # have the step 2, which comes first
    order = [*first, *(row for row in range(N) if row not in first)]
    assert found.lengths.tolist() == [row % 3 + 1 for row in order]
    assert (found.per_step, found.labels, found.input_size) == (False, ("a", "b"), 2)
    batch = whole(found)
    assert batch.inputs[0].tolist() == [[2.5, 0], [2.5, 1], [2.5, 2]]
    assert batch.targets.tolist() == [row % 2 for row in order]
    assert [PARTS[order[row]] for row in found.splits["val"]] == ["val"] * 2
    steps = load(path, sequence="id", time="t", inputs="x", targets="tag")
    assert (steps.per_step, steps.labels) == (True, ("u", "v"))
    assert whole(steps).targets[0].tolist() == [0, 1, 0]
    unsorted = load(path, sequence="id", inputs="x", targets="tag")
    assert whole(unsorted).targets[0].tolist() == [0, 0, 1]
    assert load(path, sequence="id", inputs="x", targets="label", per_step=True).per_step


def test_times_may_be_dates_and_steps_vectors_or_without_a_class(tmp_path: Path) -> None:
    lines = ["id,day,v0,v1,tag"]
    lines += [f"{row},2024-0{month}-01,{month}.5,{row}," + "ab"[month == 1] for month in (3, 1) for row in range(N)]
    lines += [f"{row},2024-02-01 10:30,2.5,{row}," for row in range(N)]
    found = load(write(tmp_path, lines), sequence="id", time="day", inputs="v", targets="tag")
    assert whole(found).inputs[1].tolist() == [[1.5, 1], [2.5, 1], [3.5, 1]]
    assert whole(found).targets[1].tolist() == [1, IGNORED, 0]


def test_numbers_as_labels_and_whole_real_numbers_are_asked_for(tmp_path: Path) -> None:
    lines = ["x0,x1,a,b,c"] + [f"0.5,{row},{row % 2},{row % 2}.0,{'7' if row % 2 else 'B'}" for row in range(N)]
    path = write(tmp_path, lines)
    assert load(path, targets="a").classes == 2
    with pytest.raises(UserError, match=r"column b: has whole numbers .* set task\.objective=classification or"):
        load(path, targets="b")
    assert load(path, targets="b", objective="classification").classes == 2
    with pytest.raises(
        UserError, match=r"column c, row 0: B; must be a number, .*; task\.objective=classification reads all"
    ):
        load(path, targets="c")
    assert load(path, targets="c", objective="classification", split_seed=1).labels == ("7", "B")


@pytest.mark.parametrize("cells", [("7", "007"), ("12345678901234567890", "12345678901234567891"), ("1e1", "10")])
def test_sequences_have_the_names_of_the_file(tmp_path: Path, cells: tuple[str, str]) -> None:
    lines = ["id,x,y"] + [f"{(*cells, *'123456')[row]},{step}.5,{row % 2}" for step in (0, 1) for row in range(N)]
    found = load(write(tmp_path, lines), sequence="id", inputs="x", targets="y")
    assert found.names == (*cells, *"123456")
    lines[1] = "nan,0.5,0"
    with pytest.raises(UserError, match="column id, row 0: nan; is empty"):
        load(write(tmp_path, lines), sequence="id", inputs="x")


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_classes_and_sequences_of_large_integers_are_texts(tmp_path: Path, form: str) -> None:
    """Real numbers, as which NumPy joins integers of several types or with missing ones, round them."""
    large, small = 2**63, 2**63 - 1
    ids = [large if row == 5 else small if row == 6 else row for row in range(2 * N)]
    classes = [None if row in (0, N) else small - row % 2 for row in range(2 * N)]
    records = [{"id": each, "x": 0.5, "y": label} for each, label in zip(ids, classes, strict=True)]
    path = tmp_path / f"mine.{form}"
    if form == "json":
        path.write_text(json.dumps(records))
    elif form == "csv":
        write(
            tmp_path,
            ["id,x,y", *(",".join("" if each is None else str(each) for each in row.values()) for row in records)],
        )
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"id": pyarrow.array(ids, "uint64"), "x": [0.5] * 2 * N, "y": classes}), path)
    found = load(path, sequence="id", inputs="x", targets="y", missing="mask", per_step=False)
    assert (len(found.names), found.names[5:7]) == (2 * N, (str(large), str(small)))
    assert found.labels == (str(small - 1), str(small))
    assert (whole(found).targets[:3]).tolist() == [IGNORED, 0, 1]


@pytest.mark.parametrize("labels", [("007", "7"), ("01", "10"), ("12345678901234567890", "12345678901234567891")])
@pytest.mark.parametrize("objective", [None, "classification"])
def test_integers_that_numbers_do_not_tell_apart_are_labels(
    tmp_path: Path, labels: tuple[str, str], objective: str | None
) -> None:
    path = write(tmp_path, ["t0,t1,y"] + [f"0.5,{row},{labels[row // 2 % 2]}" for row in range(40)])
    assert load(path, targets="y", objective=objective).labels == labels
    if labels[0] == "01":
        assert load(path, targets="y", objective="regression").target_size == 1


def changed(lines: list[str], row: int, old: str, new: str) -> list[str]:
    """Return lines with a change in a row, counted from 0 after the first line."""
    assert old in lines[row + 1]
    return [line.replace(old, new, 1) if number == row + 1 else line for number, line in enumerate(lines)]


OF_LONG = {"sequence": "id", "time": "t", "inputs": "x", "targets": "label"}
REFUSED: list[tuple[list[str], dict[str, Any], str]] = [
    ([], {}, "data={}: is empty; must have the names of the columns in its first line"),
    (WIDE[:1], {}, "data={}: has no rows below the names"),
    ([line.replace(",", "|") for line in WIDE], {}, "separated by commas, semicolons or tabs; its first line is 'lab"),
    (WIDE[1:], {}, "must have the names of the columns in its first line, which has 0.5"),
    (["x,x", "1,2"], {}, "two columns have the name 'x'"),
    (changed(WIDE, 3, "b,", "b,1,"), {}, "data={}: row 3: has 6 values; the first line has 5 names"),
    (changed(WIDE, 3, "3.5", '"3'), {}, "cannot be read as .csv: "),
    (changed(WIDE, 3, "3.5", "3_5"), {}, "data={}: column x_0, row 3: 3_5; must be a number, as other rows have"),
    (
        changed(WIDE, 4, "0.5", "NA"),
        {},
        "data={}: column x_1, row 4: NA; must be a number, as other rows have; a run with task.missing=mask reads",
    ),
    (changed(WIDE, 4, "4.5,", ","), {}, "data={}: column x_0, row 4: is empty; must have a number, as other rows have"),
    (changed(WIDE, 4, "0.5", "nan"), {}, "data={}: column x_1, row 4: nan; must be a finite number"),
    (changed(WIDE, 3, "3.5,0.5", ","), {}, "columns x_0 to x_2, row 3: has no steps"),
    (
        [WIDE[0].replace("x_1", "x_7"), *WIDE[1:]],
        {},
        "columns x_0 to x_7: x_0 is followed by x_2; the numbers must be consecutive",
    ),
    ([line.replace("x_", "x0") for line in WIDE], {"inputs": "split"}, "column split: has one value per row; must"),
    (WIDE, {"inputs": "y"}, "inputs=y: {} has no column y; it has x, inputs, label, x_0, x_1, x_2, split"),
    (LONG, {"inputs": "x"}, "or sequence must name the column that says which sequence a row belongs to"),
    (LONG, {**OF_LONG, "sequence": None}, "time=t: must be null without sequence"),
    (LONG, {**OF_LONG, "sequence": "who"}, "sequence=who: {} has no column who; it has id, t, x"),
    (LONG, {**OF_LONG, "time": "x"}, "column x, row 4: 2.5 is also the time of row 0 of the sequence p2"),
    (LONG, {**OF_LONG, "time": "tag"}, "column tag, row 0: u; must be a number, or a date and time of ISO 8601"),
    (changed(LONG, 4, ",0,", ",,"), OF_LONG, "column t, row 4: must be a number"),
    (changed(LONG, 4, ",0,", ",nan,"), OF_LONG, "column t, row 4: nan; is not a number or date"),
    (changed(LONG, 4, "p2", ""), OF_LONG, "column id, row 4: is empty"),
    (changed(LONG, 4, "2.5", ""), OF_LONG, "column x, row 4: is empty; must have a number, as other rows have"),
    (changed(LONG, 4, "2.5", "2,5"), OF_LONG, "row 4: has 8 values; the first line has 7 names"),
    (
        changed(LONG, 4, "train", "val"),
        OF_LONG,
        "column split, row 11: train; row 4 of the same sequence has val; must",
    ),
    (
        LONG,
        {**OF_LONG, "targets": "tag", "per_step": False},
        "column tag, row 11: v; row 4 of the same sequence has u; must be",
    ),
]


@pytest.mark.parametrize(("lines", "options", "said"), REFUSED)
def test_what_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, lines: list[str], options: dict[str, Any], said: str
) -> None:
    path = write(tmp_path, lines)
    with pytest.raises(UserError) as raised:
        load(path, **{"targets": "label", **options})
    message = str(raised.value)
    assert said.format(path) in message
    assert "data=" not in message or str(path) in message
    assert "\n" not in message


def test_bytes_that_are_no_text_and_other_suffixes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_bytes("a,b\n1,é".encode("latin-1"))
    with pytest.raises(UserError, match=r"mine\.csv: is not UTF-8: byte 0xe9"):
        load(tmp_path / "mine.csv")
    with pytest.raises(UserError, match=r"mine\.txt: must be a \.csv, \.tsv, \.npz, \.parquet, \.jsonl or \.json file"):
        load(write(tmp_path, WIDE, "mine.txt"))


def test_a_field_that_is_not_used_may_be_long(tmp_path: Path) -> None:
    """The limit of Python's csv module is 131,072 characters."""
    lines = [f"{line},{'text' if not row else 'a' * 200_000}" for row, line in enumerate(WIDE)]
    assert len(load(write(tmp_path, lines), inputs="x", targets="label").lengths) == N
