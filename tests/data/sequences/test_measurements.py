"""Own data as they come: missing values, other separators, time zones, labels of all kinds, and new data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.data.sequences.corpus import load
from gyral.data.sequences.examples import Sequences
from gyral.data.sequences.new import read_new
from gyral.data.sequences.pieces import read_pieces
from gyral.data.sequences.schema import Schema

N = 12
PARTS = ["train"] * 6 + ["val", "test"] * 3
WIDE = [
    "label,x_0,x_1,x_2,y_0,y_1,y_2,split",
    *(f"{'ab'[row % 2]},{row}.5,{row % 3 or 'NA'},,1,0.5,{row % 2 or ''},{PARTS[row]}" for row in range(N)),
]


def write(folder: Path, lines: list[str], name: str = "mine.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def read_whole(data: Any, schema: Schema) -> Sequences:
    """Return the sequences of new data that are read in one piece."""
    [piece] = read_pieces(data, schema)
    return read_new(piece.file, schema)[0]


@pytest.mark.parametrize(("separator", "name"), [(",", "a.csv"), (";", "a.csv"), ("\t", "a.csv"), ("\t", "a.tsv")])
def test_separators_are_found_and_missing_cells_are_nan(tmp_path: Path, separator: str, name: str) -> None:
    path = write(tmp_path, [line.replace(",", separator) for line in WIDE], name)
    found = load(path, inputs=["x", "y"], targets="label", missing="mask")
    assert found.lengths.tolist() == [3 if row % 2 else 2 for row in range(N)]
    inputs = found.batch(np.arange(N)).inputs.numpy()
    np.testing.assert_array_equal(inputs[3], [[3.5, 1], [np.nan, 0.5], [np.nan, 1]])
    with pytest.raises(OptionError, match=r"column x_1, row 0: NA; must be a number, as other rows have"):
        load(path, inputs="x", targets="label")


def test_a_decimal_comma_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, ["label;x_0;x_1", *(f"{row % 2};0,5;{row},25" for row in range(N))])
    with pytest.raises(OptionError, match=r"column x_0, row 0: 0,5; must have .* real numbers with a decimal point$"):
        load(path, targets="label")


def test_whole_numbers_of_which_one_is_missing_are_not_read_as_measurements_unasked(tmp_path: Path) -> None:
    path = write(tmp_path, ["label,x_0,x_1", *(f"{'' if row == 3 else row % 2},0.5,{row}.5" for row in range(N))])
    with pytest.raises(OptionError, match=r"can be classes or measurements; set task\.objective=classification or"):
        load(path, inputs="x", targets="label", missing="mask")
    found = load(path, inputs="x", targets="label", missing="mask", objective="classification")
    assert (found.classes, (found.targets == IGNORED).sum()) == (2, 1)


@pytest.mark.parametrize("values", [["a", "b", None], [False, True, None]])
def test_a_missing_label_of_a_parquet_file_is_a_place_without_a_class(tmp_path: Path, values: list[Any]) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"inputs": [[float(row), 0.5] for row in range(30)], "targets": values * 10}
    parquet.write_table(arrow.table(columns), tmp_path / "mine.parquet")
    found = load(tmp_path / "mine.parquet", missing="mask", objective="classification")
    assert (found.classes, found.targets[:6].tolist()) == (2, [0, 1, IGNORED] * 2)


def test_missing_real_targets_are_in_no_statistic(tmp_path: Path) -> None:
    lines = [f"{'' if row % 3 else row / 4},0.5,{row}.5,{PARTS[row]}" for row in range(N)]
    path = write(tmp_path, ["y,x_0,x_1,split", *lines])
    found = load(path, inputs="x", targets="y", missing="mask")
    assert found.targets_of("train").tolist() == [[0.0], [0.75]]
    lines = [line if "test" not in line else line[line.index(",") :] for line in lines]
    path = write(tmp_path, ["y,x_0,x_1,split", *lines])
    with pytest.raises(OptionError, match="no row of the split test has a target"):
        load(path, inputs="x", targets="y", missing="mask")


@pytest.mark.parametrize("offset", [1.7e9, 1_700_000_000_000])
@pytest.mark.parametrize("column", ["x", "y"])
def test_numbers_that_float32_cannot_tell_apart_are_refused(tmp_path: Path, column: str, offset: float) -> None:
    def load_with(added: float) -> Sequences:
        values = np.arange(2.0 * N).reshape(N, 2) / 8
        arrays = {"x": values + added * (column == "x"), "y": values[:, :1] + added * (column == "y")}
        np.savez(tmp_path / "mine.npz", **arrays)
        return load(tmp_path / "mine.npz", inputs="x", targets="y", standardize=True, objective="regression")

    with pytest.raises(OptionError, match=f"array {column}: float32 has multiples of"):
        load_with(offset)
    assert load_with(100).inputs.shape == (2 * N, 1)


@pytest.mark.parametrize("form", ["jsonl", "parquet", "npz"])
@pytest.mark.parametrize("vectors", [False, True])
def test_missing_values_of_every_kind_of_file(tmp_path: Path, form: str, vectors: bool) -> None:
    rows: list[Any] = [[None, 0.5, float(row)] for row in range(N)]
    if vectors:
        rows = [[[value, 1.0] for value in row] for row in rows]
    path, targets = tmp_path / f"a.{form}", ["a", "b"] * (N // 2)
    if form == "npz":
        np.savez(path, inputs=np.array(rows, dtype=float), targets=targets, split=PARTS)
    elif form == "jsonl":
        records = zip(rows, targets, PARTS, strict=True)
        path.write_text("\n".join(json.dumps({"inputs": i, "targets": t, "split": s}) for i, t, s in records))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"inputs": rows, "targets": targets, "split": PARTS}), path)
    found = load(path, missing="mask")
    first = found.batch(np.arange(2)).inputs[1, :, 0].numpy()
    np.testing.assert_array_equal(first, [np.nan, 0.5, 1])
    mean, deviation = found.statistics()
    assert mean[0] == pytest.approx((0.5 * 6 + sum(range(6))) / 12)
    assert deviation[-1] == (1 if vectors else pytest.approx(deviation[0]))
    with pytest.raises(OptionError):
        load(path)


def test_an_input_that_is_always_missing_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.full((N, 3, 2), [np.nan, 1]), targets=np.arange(N) % 2, split=PARTS)
    found = load(tmp_path / "a.npz", missing="mask")
    with pytest.raises(OptionError, match=r"value 0 of the steps is missing in the whole training split"):
        found.statistics()


@pytest.mark.parametrize("zones", [("Z", "+00:00"), ("+02:00", "+0200"), ("-05:30", "-0530")])
def test_dates_have_time_zones_and_gaps_in_seconds(tmp_path: Path, zones: tuple[str, str]) -> None:
    lines = ["id,time,x,label"]
    lines += [
        f"{row},2024-03-31T0{hour}:30{zones[row % 2]},{hour}.5,{'ab'[row % 2]}"
        for hour in (4, 0, 1)
        for row in range(N)
    ]
    options: dict[str, Any] = {"sequence": "id", "time": "time", "inputs": "x", "targets": "label", "time_gaps": True}
    found = load(write(tmp_path, lines), **options)
    assert found.names == tuple(map(str, range(N)))
    assert found.batch(np.arange(1)).inputs[0].tolist() == [[0.5, 0], [1.5, 3600], [4.5, 3 * 3600]]
    lines[5] = lines[5].replace(zones[0], "")
    with pytest.raises(OptionError, match=r"column time, row 4: 2024-03-31T04:30; must have a time zone, or none, as"):
        load(write(tmp_path, lines), **options)


def test_the_same_moment_in_two_time_zones_is_the_same_time(tmp_path: Path) -> None:
    lines = ["id,time,x,label"]
    lines += [f"{row},2024-03-31T0{4 + hour}:30+0{hour}:00,0.5,{row % 2}" for hour in (0, 2) for row in range(N)]
    with pytest.raises(OptionError, match=r"is also the time of row 0 of the sequence 0"):
        load(write(tmp_path, lines), sequence="id", time="time", inputs="x", targets="label")


@pytest.mark.parametrize(
    ("targets", "labels"),
    [
        (np.arange(N) % 3 + 1, ("1", "2", "3")),
        (np.arange(N) % 2 * 2 - 1, ("-1", "1")),
        (np.array([0, 5, 9])[np.arange(N) % 3], ("0", "5", "9")),
        (np.where(np.arange(N) == 2, IGNORED, np.arange(N) % 2 + 1), ("1", "2")),
        (np.arange(N) % 2, ()),
    ],
)
def test_classes_may_be_any_integers(tmp_path: Path, targets: np.ndarray, labels: tuple[str, ...]) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.ones((N, 3)) / 2, targets=targets, split=PARTS)
    found = load(tmp_path / "a.npz")
    assert found.labels == labels
    names = np.array(found.schema.labels)
    kept = targets != IGNORED
    assert names[found.targets[kept]].tolist() == targets[kept].astype(str).tolist()
    assert (found.targets[~kept] == IGNORED).all()
    steps = np.repeat(targets[:, None], 3, axis=1)
    np.savez(tmp_path / "a.npz", inputs=np.ones((N, 3)) / 2, targets=steps, split=PARTS)
    assert load(tmp_path / "a.npz").labels == labels


def test_many_integers_are_asked_about(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.ones((300, 3)) / 2, targets=np.arange(300) % 150 + 7)
    with pytest.raises(
        OptionError, match=r"has 150 different integers, which can be classes or measurements; set task"
    ):
        load(tmp_path / "a.npz")
    assert load(tmp_path / "a.npz", objective="regression").classes is None


def test_stratified_splits_have_all_classes_in_their_shares(tmp_path: Path) -> None:
    targets = np.array(["ok"] * 180 + ["fault"] * 20)
    np.savez(tmp_path / "a.npz", inputs=np.ones((200, 3)) / 2, targets=targets)
    found = load(tmp_path / "a.npz", stratify=True, val_fraction=0.2)
    counts = {split: np.bincount(found.targets_of(split)).tolist() for split in ("train", "val", "test")}
    assert counts == {"train": [14, 126], "val": [4, 36], "test": [2, 18]}
    assert sorted(np.concatenate(list(found.splits.values()))) == list(range(200))
    other = load(tmp_path / "a.npz", stratify=True, val_fraction=0.2, split_seed=1)
    assert found.splits["val"].tolist() != other.splits["val"].tolist()
    np.savez(tmp_path / "a.npz", inputs=np.ones((200, 3)) / 2, targets=np.where(np.arange(200) < 2, "fault", "ok"))
    with pytest.raises(
        OptionError, match=r"the class fault has 2 sequences; task\.stratify=true needs at least 3 of each"
    ):
        load(tmp_path / "a.npz", stratify=True)


def test_new_data_are_files_arrays_or_frames(tmp_path: Path) -> None:
    path = write(tmp_path, WIDE)
    known = load(path, inputs=["x", "y"], targets="label", missing="mask")
    whole = known.batch(np.arange(N)).inputs.numpy()
    rows = [whole[row, :length] for row, length in enumerate(known.lengths)]
    frame = pytest.importorskip("pandas").read_csv(path).drop(columns=["label", "split"])
    by_name = {name: [row[:, place] for row in rows] for place, name in enumerate("xy")}
    for data in (str(path), path, frame, rows, by_name):
        new = read_whole(data, known.schema)
        np.testing.assert_array_equal(new.inputs, known.inputs)
        assert new.lengths.tolist() == known.lengths.tolist()
        assert new.schema.labels == ("a", "b")
        labelled = isinstance(data, str | Path)
        assert new.targets.tolist() == (known.targets.tolist() if labelled else [IGNORED] * N)
    assert read_whole(whole, known.schema).lengths.tolist() == [3] * N
    with pytest.raises(OptionError, match=r"row 0: has the shape \(3, 1\); must be \(steps, 2\), for x, y"):
        read_whole(whole[..., :1], known.schema)
    with pytest.raises(OptionError, match=r"data=arrays: has no array y, an input of the run; it has x"):
        read_whole({"x": by_name["x"]}, known.schema)


@pytest.mark.parametrize("form", ["csv", "frame", "dictionary"])
def test_new_classes_may_be_missing(tmp_path: Path, form: str) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((N, 2)) / 2, y=np.arange(N) % 2 + 4)
    schema = load(tmp_path / "a.npz", inputs="x", targets="y").schema
    columns = {"x_0": [0.5] * 3, "x_1": [1.5] * 3, "y": [5.0, np.nan, 4.0]}
    data: Any = {"x": np.ones((3, 2)) / 2, "y": np.array(columns["y"])}
    if form == "csv":
        data = write(tmp_path, ["x_0,x_1,y", "0.5,1.5,5", "0.5,1.5,", "0.5,1.5,4"])
    elif form == "frame":
        data = pytest.importorskip("pandas").DataFrame(columns)
    assert read_whole(data, schema).targets.tolist() == [1, IGNORED, 0]
    data = {"x": np.ones((2, 2)) / 2, "y": np.array([5.0, 4.5])}
    with pytest.raises(OptionError, match=r"array y, row 1: 4\.5; not a class of the run, which has 4, 5$"):
        read_whole(data, schema)


def test_new_tokens_must_be_known(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.arange(N * 3).reshape(N, 3) % 5, targets=np.arange(N) % 2)
    schema = load(tmp_path / "a.npz").schema
    assert read_whole(np.array([[0, 4], [1, 2]]), schema).inputs.tolist() == [0, 4, 1, 2]
    with pytest.raises(OptionError, match=r"have the token 5; the model was trained on tokens below 5"):
        read_whole([[5, 4, 1], [1, 2]], schema)
    with pytest.raises(OptionError, match=r"are real numbers; the model was trained on tokens"):
        read_whole(np.ones((2, 3)), schema)
