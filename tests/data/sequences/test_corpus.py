"""Files of sequences: supported content, and errors with the column and the row."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gyral.core.errors import OptionError, UserError
from gyral.core.measures import SPLITS
from gyral.data.batching import IGNORED
from gyral.data.sequences.columns import Column
from gyral.data.sequences.corpus import Sequences, load
from gyral.data.sequences.pieces import read_pieces
from gyral.data.sequences.splitting import draw_splits, draw_stratified_splits

N, T = 10, 4
TOKENS = np.arange(N * T).reshape(N, T) % 5
REALS = TOKENS / 3
LISTS = TOKENS.tolist()
PARTS = ["train"] * 6 + ["val"] * 2 + ["test"] * 2


def write(folder: Path, **arrays: Any) -> Path:
    """Write a .npz file with these arrays, by default of a classification of each sequence of tokens."""
    path = folder / "mine.npz"
    given = {"inputs": TOKENS, "targets": np.arange(N) % 2, **arrays}
    np.savez(path, **{name: np.asarray(array) for name, array in given.items() if array is not None})
    return path


def write_parquet(folder: Path, **columns: Any) -> Path:
    """Write a .parquet file with these columns, by default as `write`."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = folder / "mine.parquet"
    given = {"inputs": TOKENS.tolist(), "targets": [row % 2 for row in range(N)], **columns}
    parquet.write_table(pyarrow.table({name: column for name, column in given.items() if column is not None}), path)
    return path


def whole(sequences: Sequences) -> Any:
    return sequences.batch(np.arange(len(sequences.lengths)))


@pytest.mark.parametrize(
    ("inputs", "vocabulary_size", "input_size", "shape"),
    [
        (TOKENS, 5, None, (N, T)),
        (TOKENS.astype(np.uint8), 5, None, (N, T)),
        (TOKENS > 2, 2, None, (N, T)),
        (np.stack([TOKENS, TOKENS], axis=-1), 5, None, (N, T, 2)),
        (REALS, None, 1, (N, T, 1)),
        (REALS.astype(np.float16), None, 1, (N, T, 1)),
        (np.stack([REALS] * 3, axis=-1), None, 3, (N, T, 3)),
    ],
)
def test_the_type_of_the_inputs_selects_tokens_or_real_values(
    tmp_path: Path, inputs: np.ndarray, vocabulary_size: int | None, input_size: int | None, shape: tuple[int, ...]
) -> None:
    found = load(write(tmp_path, inputs=inputs))
    assert (found.vocabulary_size, found.input_size) == (vocabulary_size, input_size)
    batch = whole(found)
    assert batch.inputs.shape == shape
    assert batch.inputs.dtype == (torch.long if input_size is None else torch.float32)
    assert batch.lengths is None
    np.testing.assert_allclose(batch.inputs.numpy().reshape(inputs.shape), inputs, rtol=1e-6)


@pytest.mark.parametrize(
    ("targets", "options", "classes", "per_step", "shape"),
    [
        (np.arange(N) % 3, {}, 3, False, (N,)),
        (np.where(np.arange(N) == 3, IGNORED, np.arange(N) % 3), {}, 3, False, (N,)),
        (TOKENS, {}, 5, True, (N, T)),
        (np.arange(N) / 7, {}, None, False, (N, 1)),
        (np.ones((N, 3)), {}, None, False, (N, 3)),
        (REALS, {}, None, True, (N, T, 1)),
        (REALS, {"per_step": False}, None, False, (N, T)),
        (np.stack([REALS] * 2, axis=-1), {}, None, True, (N, T, 2)),
    ],
)
def test_the_type_and_shape_of_the_targets_select_the_objective(
    tmp_path: Path,
    targets: np.ndarray,
    options: dict[str, Any],
    classes: int | None,
    per_step: bool,
    shape: tuple[int, ...],
) -> None:
    found = load(write(tmp_path, targets=targets, split=PARTS), **options)
    assert (found.classes, found.per_step) == (classes, per_step)
    batch = whole(found)
    assert batch.targets.shape == shape
    np.testing.assert_allclose(batch.targets.numpy().reshape(targets.shape), targets, rtol=1e-6)


def test_several_arrays_are_the_dimensions_of_vectors(tmp_path: Path) -> None:
    path = write(tmp_path, a=REALS, b=TOKENS, y=np.arange(N), z=np.arange(N) / 2)
    found = load(path, inputs=["a", "b"], targets=["z", "y"])
    batch = whole(found)
    assert torch.equal(batch.inputs, torch.tensor(np.stack([REALS, TOKENS], axis=-1), dtype=torch.float32))
    assert torch.equal(batch.targets, torch.stack([torch.arange(N) / 2, torch.arange(N)], dim=1))


@pytest.mark.parametrize("padding", [math.nan, math.inf, 99.0])
def test_padding_is_never_read(tmp_path: Path, padding: float) -> None:
    lengths = np.arange(N) % T + 1
    inside = np.arange(T) < lengths[:, None]
    inputs, targets = np.where(inside, REALS, padding), np.where(inside, -REALS, padding)
    batch = whole(load(write(tmp_path, inputs=inputs, targets=targets, lengths=lengths)))
    assert batch.lengths.tolist() == lengths.tolist()
    assert torch.equal(batch.inputs[..., 0], torch.tensor(np.where(inside, REALS, 0), dtype=torch.float32))
    assert torch.equal(batch.targets[..., 0].isnan(), torch.tensor(~inside))
    short = load(tmp_path / "mine.npz").batch(np.array([1, 0]))
    assert short.inputs.shape == (2, 2, 1)
    assert torch.equal(short.inputs[0], torch.tensor(REALS[1, :2, None], dtype=torch.float32))

    tokens = np.where(inside, TOKENS, -7)
    classes = np.where(inside, TOKENS, 77)
    found = load(write(tmp_path, inputs=tokens, targets=classes, lengths=lengths))
    assert (found.vocabulary_size, found.classes) == (5, 5)
    assert torch.equal(whole(found).targets == IGNORED, torch.tensor(~inside))


def test_labels_are_classes_in_the_order_of_the_training_split(tmp_path: Path) -> None:
    labels = ["no", "yes", "maybe", "no", "", "yes", "no", "yes", "maybe", ""]
    for targets in (labels, np.array(labels, "S"), np.array(labels, "U9")):
        found = load(write(tmp_path, targets=[*targets[:9], targets[0]], split=PARTS))
        assert found.labels == ("maybe", "no", "yes")
        assert whole(found).targets.tolist() == [1, 2, 0, 1, IGNORED, 2, 1, 2, 0, 1]
    lengths = np.arange(N) % T + 1
    tags = np.where(np.arange(T) < lengths[:, None], np.array(["b", "a"])[TOKENS % 2], "padding")
    found = load(write(tmp_path, targets=tags, lengths=lengths, split=PARTS))
    assert (found.labels, found.per_step) == (("a", "b"), True)
    assert set(whole(found).targets.flatten().tolist()) == {0, 1, IGNORED}


def test_whole_real_numbers_need_the_objective(tmp_path: Path) -> None:
    path = write(tmp_path, targets=np.arange(N) % 2 * 1.0, split=PARTS)
    with pytest.raises(
        OptionError, match=r"array targets: has whole numbers .* set task\.objective=classification or task"
    ):
        load(path)
    assert load(path, objective="classification").classes == 2
    assert load(path, objective="regression").classes is None
    integers = load(write(tmp_path, split=PARTS), objective="regression")
    assert (integers.classes, whole(integers).targets.dtype) == (None, torch.float32)
    missing = np.where(np.arange(N) == 2, np.nan, np.arange(N) % 2)
    assert whole(load(write(tmp_path, targets=missing, split=PARTS), objective="classification")).targets[2] == IGNORED


def records(**columns: Any) -> list[dict[str, Any]]:
    given = {"inputs": LISTS, "targets": ["b", "a"] * 5, "part": PARTS, **columns}
    return [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz", "a.json.gz"])
@pytest.mark.parametrize("is_array", [False, True])
def test_json_lines_and_arrays_give_the_same_arrays(tmp_path: Path, name: str, is_array: bool) -> None:
    ragged = [row[: number % T + 1] for number, row in enumerate(LISTS)]
    rows = records(inputs=ragged, vectors=[[[0.5, 1] for _ in row] for row in ragged])
    text = json.dumps(rows, indent=1) if is_array else "\n".join(map(json.dumps, rows))
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    found = load(tmp_path / name, split="part")
    assert found.lengths.tolist() == [len(row) for row in ragged]
    assert found.labels == ("a", "b")
    assert whole(found).inputs[9].tolist() == [*ragged[9], *[0] * (T - len(ragged[9]))]
    assert load(tmp_path / name, inputs="vectors", split="part").input_size == 2


JSON: list[tuple[str, str]] = [
    ("", "has no records"),
    ('{"inputs": [1], "targets": 1}\n{"inputs": [1]', "a.jsonl:2: must be an object of JSON, such as {"),
    ('{"inputs": [1], "targets": 1}\n\n7', "a.jsonl:3: must be an object of JSON"),
    ('[{"inputs": [1], "targets": 1},\n\n{"inputs" [1]}]', "a.jsonl, line 3: is not JSON: Expecting ':' delimiter"),
    ('[{"inputs": [1], "targets": 1}, 7]', "a.jsonl:record 2: must be an object of JSON"),
    ('{"inputs": [1], "targets": 1}\n{"inputs": null, "targets": 1}', "field inputs, row 1: must be a list of numbers"),
    ('{"inputs": [1], "targets": 1}\n{"inputs": [], "targets": 1}', "field inputs, row 1: must be a list of numbers"),
    ('{"inputs": [1], "targets": 1}\n{"inputs": [1, "a"], "targets": 1}', "field inputs, row 1: must be a list"),
    ('{"inputs": [[1], [1, 2]], "targets": 1}', "field inputs, row 0: must be a list of numbers"),
    ('{"inputs": [1], "targets": 1}\n{"inputs": [1], "targets": "a"}', "field targets, row 1: must be a number or a"),
    ('{"inputs": [1], "targets": {}}', "field targets, row 0: must be a number or a text"),
]


@pytest.mark.parametrize(("content", "said"), JSON)
def test_records_that_cannot_be_used_are_refused_in_one_line(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(UserError) as raised:
        load(tmp_path / "a.jsonl")
    assert said in str(raised.value)
    assert str(tmp_path / "a.jsonl") in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_of_parquet_files_is_one_file(tmp_path: Path) -> None:
    one = load(write_parquet(tmp_path, split=PARTS))
    folder = tmp_path / "parts"
    folder.mkdir()
    from pyarrow import parquet

    table = parquet.read_table(tmp_path / "mine.parquet")
    for number, (start, size) in enumerate(((0, 3), (3, 7))):
        parquet.write_table(table.slice(start, size), folder / f"{number}.parquet")
    both = load(folder)
    assert torch.equal(whole(one).inputs, whole(both).inputs)
    assert both.splits["test"].tolist() == [8, 9]
    place = table.column_names.index("targets")
    parquet.write_table(table.set_column(place, "targets", table.column("targets").cast("int32")), folder / "2.parquet")
    (piece,) = read_pieces(folder, both.schema)
    assert piece.file.read("targets").values.tolist() == [row % 2 for row in [*range(N), *range(N)]]
    parquet.write_table(table.set_column(place, "targets", table.column("split")), folder / "2.parquet")
    with pytest.raises(OptionError, match=r"parts: cannot be read: "):
        list(read_pieces(folder, both.schema))
    parquet.write_table(table.drop(["targets"]), folder / "2.parquet")
    with pytest.raises(OptionError, match=r"parts: 2\.parquet: has no column targets$"):
        load(folder)
    (folder / "2.parquet").write_text("no table")
    with pytest.raises(OptionError, match=r"parts: 2\.parquet: cannot be read as \.parquet: "):
        load(folder)


def test_splits_come_from_the_file_or_are_random_but_fixed(tmp_path: Path) -> None:
    given = load(write(tmp_path, split=PARTS))
    assert [given.splits[name].tolist() for name in SPLITS] == [[0, 1, 2, 3, 4, 5], [6, 7], [8, 9]]
    assert given.targets_of("val").tolist() == [0, 1]
    drawn = load(tmp_path / "mine.npz", split=None, val_fraction=0.3)
    assert [len(drawn.splits[name]) for name in SPLITS] == [6, 3, 1]
    assert sorted(np.concatenate([*drawn.splits.values()]).tolist()) == list(range(N))
    again, other = (load(tmp_path / "mine.npz", split=None, val_fraction=0.3, split_seed=seed) for seed in (0, 1))
    for name in SPLITS:
        assert np.array_equal(drawn.splits[name], again.splits[name])
    assert not all(np.array_equal(drawn.splits[name], other.splits[name]) for name in SPLITS)


@pytest.mark.parametrize("stratify", [False, True])
def test_no_drawn_split_of_few_sequences_is_empty(tmp_path: Path, stratify: bool) -> None:
    for count, fractions, sizes in (
        (3, (0.8, 0.1), [1, 1, 1]),
        (4, (0.8, 0.1), [1, 2, 1]),
        (5, (0.9, 0.05), [1, 3, 1]),
        (5, (0.1, 0.85), [1, 1, 3]),
    ):
        column, path = Column.of_scalars("targets", np.zeros(count, dtype=int)), tmp_path / "mine.npz"
        drawn = (
            draw_stratified_splits(path, column, *fractions, 0) if stratify else draw_splits(path, count, *fractions, 0)
        )
        assert [len(drawn[name]) for name in SPLITS] == sizes
        assert sorted(np.concatenate([*drawn.values()]).tolist()) == list(range(count))


def test_targets_of_a_split_exclude_padding(tmp_path: Path) -> None:
    lengths = np.arange(N) % T + 1
    found = load(write(tmp_path, targets=REALS, lengths=lengths, split=PARTS))
    wanted = np.concatenate([REALS[row, : lengths[row]] for row in (8, 9)])
    np.testing.assert_allclose(found.targets_of("test")[:, 0], wanted, rtol=1e-6)


def test_parquet_gives_the_same_arrays(tmp_path: Path) -> None:
    lengths = np.arange(N) % T + 1
    rows = [TOKENS[row, :length].tolist() for row, length in enumerate(lengths)]
    vectors = [[[0.5, float(token)] for token in row] for row in rows]
    steps = [[token / 4 for token in row] for row in rows]
    path = write_parquet(tmp_path, inputs=rows, vectors=vectors, steps=steps, y=np.arange(N) / 2, split=PARTS)
    tokens = load(path)
    inside = torch.arange(T) < torch.tensor(lengths)[:, None]
    assert torch.equal(whole(tokens).inputs, torch.tensor(TOKENS).where(inside, 0))
    assert tokens.splits["test"].tolist() == [8, 9]
    real = load(path, inputs="vectors", targets="steps")
    assert (real.input_size, real.per_step) == (2, True)
    assert torch.equal(whole(real).inputs[..., 1], torch.tensor(TOKENS).where(inside, 0).float())
    assert whole(real).targets.nansum() == sum(map(sum, steps))
    assert load(path, inputs=["inputs", "steps"], targets="y").target_size == 1


ARRAYS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"inputs": "x"}, "inputs=x: {} has no array x; it has inputs, targets"),
    ({}, {"targets": ["targets", "y"]}, "targets=['targets', 'y']: {} has no array y; it has inputs, targets"),
    ({}, {"lengths": "steps"}, "lengths=steps: {} has no array steps"),
    ({}, {"split": "part"}, "split=part: {} has no array part"),
    ({}, {"inputs": []}, "inputs=[]: must be the name of an array or a column, or a list of names"),
    ({}, {"per_step": True}, "data={}: array targets: has one value per row; must have one for each step"),
    ({}, {"val_fraction": 0.5, "test_fraction": 0.5}, "test_fraction=0.5: must be a finite number > 0 and < 0.5"),
    ({"inputs": 3}, {}, "array inputs: is a single value"),
    ({"inputs": np.arange(N)}, {}, "array inputs: has one value per row; must have one for each step"),
    ({"inputs": np.zeros((N, 0))}, {}, "array inputs: has no values"),
    ({"inputs": np.zeros((N, T, 1, 1))}, {}, "array inputs: has 4 dimensions; must have (N, T) or (N, T, X)"),
    ({"inputs": TOKENS.astype(str)}, {}, "array inputs, row 0, step 0: 0; must have integers (tokens) or real"),
    ({"inputs": TOKENS - 3}, {}, "array inputs, row 0, step 0: -3; tokens must be ≥ 0"),
    ({"inputs": TOKENS + 10**6}, {}, "array inputs, row 0, step 0: 1000000; tokens must be below 1,000,000; write"),
    ({"inputs": np.where(TOKENS == 3, np.nan, 1)}, {}, "array inputs, row 0, step 3: nan; must be a finite number"),
    ({"inputs": np.full((N, T, 2), 1e300)}, {}, "array inputs, row 0, step 0: 1e+300; must be a finite number"),
    ({"targets": np.where(np.arange(N) == 7, np.inf, 1)}, {}, "array targets, row 7: inf; must be a finite number"),
    ({"targets": np.where(TOKENS == 4, np.nan, 1)}, {}, "array targets, row 1, step 0: nan; must be a finite number"),
    ({"targets": np.arange(N - 1)}, {}, "array targets: has 9 rows; the inputs have 10"),
    ({"targets": np.zeros((N, T + 1), int)}, {}, "array targets: has 5 integers in row 0; classes must be one per row"),
    ({"targets": np.zeros((N, T + 1, 2))}, {}, "array targets, row 0: has 5 steps; its input has 4 steps"),
    (
        {"targets": np.where(np.arange(N) == 9, 7, np.arange(N) % 2 + 1), "split": PARTS},
        {},
        "array targets, row 9: 7; not a label of the training split, which has 1, 2",
    ),
    ({"targets": np.zeros(N, int)}, {}, "array targets: has a single class"),
    (
        {"targets": ["a", "b"] * 4 + ["a", "c"], "split": PARTS},
        {},
        "array targets, row 9: c; not a label of the training split, which has a, b",
    ),
    ({"targets": ["a", "b"] * 5}, {"objective": "regression"}, "array targets: has texts, which are classes"),
    ({"targets": np.arange(N) / 3}, {"objective": "classification"}, "array targets: must have whole numbers or texts"),
    ({}, {"objective": "x"}, "objective=x: must be "),
    ({"targets": np.full(N, "dog")}, {}, "array targets: has a single class, dog; must have at least two"),
    ({"lengths": np.arange(N)}, {}, "array lengths, row 0: 0; must be from 1 to 4"),
    ({"lengths": np.full(N, 1.0)}, {}, "array lengths: must have one integer per row"),
    ({"split": ["train"] * (N - 1) + ["dev"]}, {}, "array split, row 9: dev; must be one of train, val, test"),
    ({"split": ["train"] * (N - 1) + ["val"]}, {}, "array split: no row is test"),
    ({"split": np.arange(N)}, {}, "array split: must have one text per row: train, val, test"),
    ({"inputs": TOKENS[:2], "targets": [0, 1]}, {}, "data={}: has 2 sequences; must have at least 3"),
    ({"targets": [IGNORED] * 6 + [0, 1] * 2, "split": PARTS}, {}, "no row of the split train has a target"),
]


@pytest.mark.parametrize(("arrays", "options", "said"), ARRAYS)
def test_arrays_that_cannot_be_used_are_refused_in_one_line(
    tmp_path: Path, arrays: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    path = write(tmp_path, **arrays)
    with pytest.raises(OptionError) as raised:
        load(path, **options)
    assert said.format(path) in str(raised.value)
    assert "\n" not in str(raised.value)


COLUMNS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"targets": "label"}, "targets=label: {} has no column label; it has inputs, targets"),
    ({"inputs": [*LISTS[:3], None, *LISTS[4:]]}, {}, "column inputs, row 3: is empty (null)"),
    ({"inputs": [*LISTS[:3], [1, None], *LISTS[4:]]}, {}, "column inputs, row 3, step 1: is empty (null)"),
    ({"inputs": [*LISTS[:3], [], *LISTS[4:]]}, {}, "column inputs, row 3: has no steps"),
    (
        {"inputs": [*[[[1.0, 2.0]]] * 9, [[1.0]]]},
        {},
        "column inputs, row 9, step 0: has 1 values; the first step has 2",
    ),
    ({"targets": [*[0.5] * 9, None]}, {}, "column targets, row 9: is empty (null)"),
    ({"steps": [*LISTS[:8], [1], [2]]}, {"targets": "steps"}, "column steps, row 8: has 1 step; its input has 4"),
    ({"b": [*LISTS[:9], [1]]}, {"inputs": ["inputs", "b"]}, "column b, row 9: has 1 step; column inputs has 4 steps"),
    ({"targets": ["dog"] * N}, {}, "column targets: has a single class, dog"),
]


@pytest.mark.parametrize(("columns", "options", "said"), COLUMNS)
def test_columns_that_cannot_be_used_are_refused_in_one_line(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    path = write_parquet(tmp_path, **columns)
    with pytest.raises(OptionError) as raised:
        load(path, **options)
    assert said.format(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_files_that_cannot_be_read_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 no archive")
    (tmp_path / "text.npz").write_text("a,b\n1,2\n")
    np.save(tmp_path / "single.npy", TOKENS)
    (tmp_path / "single.npy").rename(tmp_path / "single.npz")
    (tmp_path / "folder.npz").mkdir()
    complete = write(tmp_path).read_bytes()
    (tmp_path / "cut.npz").write_bytes(complete[: len(complete) // 2])
    np.savez(tmp_path / "objects.npz", inputs=np.array([[1], [1, 2]], dtype=object), targets=np.arange(2))
    for data, said in (
        (None, "data=null: must be a .csv, .tsv, .npz, .parquet, .jsonl or .json file"),
        ("absent.npz", "cannot be read (No such file or directory)"),
        ("absent.csv", "cannot be read (No such file or directory)"),
        ("absent.txt", "must be a .csv, .tsv, .npz, .parquet, .jsonl or .json file"),
        ("folder.npz", "is a folder without a .parquet file"),
        ("broken.npz", "cannot be read as .npz: "),
        ("text.npz", "cannot be read as .npz: "),
        ("cut.npz", "cannot be read as .npz: "),
        ("single.npz", "contains a single array without a name; write it with numpy.savez"),
        (
            "objects.npz",
            "array inputs: contains Python objects; pad the rows to equal lengths and add an array lengths",
        ),
    ):
        with pytest.raises(OptionError) as raised:
            load(data and tmp_path / data)
        assert said in str(raised.value), data
        assert "\n" not in str(raised.value)


def test_parquet_files_that_cannot_be_read_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "broken.parquet"
    path.write_text("no columns")
    with pytest.raises(OptionError, match=r"cannot be read as \.parquet: ") as raised:
        load(path)
    assert "\n" not in str(raised.value)
    path = write_parquet(tmp_path)
    schema = load(path).schema
    empty = write_parquet(tmp_path, inputs=[], targets=[])
    with pytest.raises(OptionError, match=r"mine\.parquet: has no rows$"):
        list(read_pieces(empty, schema))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"^task\.data=\S+: needs the package pyarrow: pip install 'gyral\[parquet\]'$"):
        load(path)
