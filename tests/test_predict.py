"""`gyral predict`, `gyral evaluate data=…` and `task.predict`: new sequences of a user's own, and what is written."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

import gyral
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.data.sequences import pieces
from gyral.data.sequences.corpus import load
from gyral.data.sequences.files import open_columns
from gyral.data.sequences.new import read_new
from gyral.data.sequences.pieces import read_pieces
from gyral.data.sequences.schema import Schema
from gyral.generation import own_sequences
from gyral.generation.tables import SUFFIXES, write_tables
from tests.helpers.running import build_task, invoke
from tests.helpers.sequences import sequences_file

LABELS = ["=rest", "run", "walk"]
RUN = (
    *("task=sequences", "task.sequence=person", "task.time=second", "task.inputs=[x,y]", "task.targets=movement"),
    *("model=gru", "model.cell.hidden_size=4", "trainer=cpu", "trainer.max_steps=6", "trainer.val_check_interval=6"),
    *("logger=none", "threads=1", "~callbacks.progress_bar", "task.batch_size=16"),
)


class Trained(NamedTuple):
    """A run of a few steps on sequences of two sensors, whose training file is gone, and what it has said.

    Attributes:
        directory: the run directory.
        frame: the rows of the training file.
        said: the standard output of the training.
        metrics: the metrics of `gyral evaluate` on the test split.
        outputs: the probabilities of the sequences of the test split, by the names of these sequences.
    """

    directory: Path
    frame: pd.DataFrame
    said: str
    metrics: dict[str, float]
    outputs: dict[str, np.ndarray]

    @property
    def new(self) -> pd.DataFrame:
        """The inputs of the test split, without the targets."""
        return self.frame[self.frame.split == "test"][["person", "second", "x", "y"]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("sequences")
    generator = np.random.default_rng(0)
    parts = []
    for person in range(30):
        steps = int(generator.integers(20, 60))
        x, y = generator.normal(size=(2, steps)).round(3) + person % 3
        split = ["train", "train", "train", "val", "test"][person // 3 % 5]
        names = {"person": f"p{person}", "movement": LABELS[person % 3], "split": split}
        parts.append(pd.DataFrame({**names, "second": np.arange(steps), "x": x, "y": y}))
    frame = pd.concat(parts, ignore_index=True)
    file, directory = folder / "train.csv", folder / "run"
    frame.to_csv(file, index=False)
    outcome = invoke(*RUN, f"task.data={file}", f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    assert invoke(f"run={directory}", f"save={folder / 'test.json'}", entry="evaluate").status == 0
    metrics = json.loads((folder / "test.json").read_text())["numbers"]
    task = gyral.load(directory)
    people = [f"p{person}" for person in range(30) if person // 3 % 5 == 4]
    loader: Any = task.data.loader("test")
    with torch.no_grad():
        probabilities = torch.cat([task(batch).softmax(dim=-1) for batch in loader]).numpy()
    outputs = dict(zip(people, probabilities[np.argsort(loader.order)], strict=True))
    file.unlink()
    return Trained(directory, frame, outcome.out, metrics, outputs)


def predict(trained: Trained, data: Path, save: Path) -> list[dict[str, str]]:
    outcome = invoke(f"run={trained.directory}", f"data={data}", f"save={save}", entry="predict")
    assert outcome.status == 0, outcome.err
    with save.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_predictions_equal_the_outputs_of_the_test_without_targets_and_training_data(
    trained: Trained, tmp_path: Path
) -> None:
    trained.new.to_csv(tmp_path / "new.csv", index=False)
    rows = predict(trained, tmp_path / "new.csv", tmp_path / "out.csv")
    assert list(rows[0]) == ["person", "prediction", *(f"probability_{label}" for label in LABELS)]
    assert [row["person"] for row in rows] == list(trained.outputs)
    for row in rows:
        expected = trained.outputs[row["person"]]
        found = [float(row[f"probability_{label}"]) for label in LABELS]
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert row["prediction"].lstrip("'") == LABELS[int(expected.argmax())]
    on_terminal = invoke(f"run={trained.directory}", f"data={tmp_path / 'new.csv'}", entry="predict")
    assert on_terminal.out == (tmp_path / "out.csv").read_text()
    assert "6 predictions" in on_terminal.err


def test_a_file_with_targets_has_the_metrics_of_the_test(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled = trained.frame[trained.frame.split == "test"].drop(columns="split")
    labelled.to_csv(tmp_path / "labelled.csv", index=False)
    rows = predict(trained, tmp_path / "labelled.csv", tmp_path / "out.csv")
    assert [row["target"].lstrip("'") for row in rows] == labelled.groupby(
        "person", sort=False
    ).movement.first().tolist()
    for option in ("data", "task.data"):
        words = (f"{option}={tmp_path / 'labelled.csv'}", f"save={tmp_path / 'metrics.json'}")
        outcome = invoke(f"run={trained.directory}", *words, entry="evaluate")
        assert outcome.status == 0, outcome.err
        numbers = json.loads((tmp_path / "metrics.json").read_text())["numbers"]
        assert {"test/loss", "test/accuracy", "test/auroc"} <= set(numbers)
        assert numbers == pytest.approx({name: trained.metrics[name] for name in numbers}, abs=1e-6)
        rows_of_metrics = [line for line in outcome.out.splitlines() if " test " in line]
        assert len(rows_of_metrics) == len(numbers)
    for words in ((), (f"save={tmp_path / 'out.csv'}",)):
        outcome = invoke(f"run={trained.directory}", f"data={tmp_path / 'labelled.csv'}", *words, entry="predict")
        assert set(rows_of_metrics) <= set((outcome.out if words else outcome.err).splitlines())
    frame = gyral.load(trained.directory).predict(labelled)
    assert {f"test/{name}": value for name, value in frame.attrs["metrics"].items()} == pytest.approx(numbers)
    task = gyral.load(trained.directory)
    with monkeypatch.context() as context:
        context.setattr(own_sequences, "MOST_SCORES", 3)  # a large file
        assert "auroc" not in task.predict(labelled).attrs["metrics"]
    next(iter(task.predictions(labelled.head(60))))  # which nobody reads to the end
    assert task.predict(labelled).attrs["metrics"] == pytest.approx(frame.attrs["metrics"])


def test_all_pieces_of_a_file_have_targets_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = build_task("task=sequences", "model=gru", data=str(sequences_file()), targets="classes")
    rows: list[dict[str, Any]] = [{"inputs": [[0.5, row]] * 3, "classes": row % 3} for row in range(60)]
    for row in rows[30:]:
        del row["classes"]
    (tmp_path / "part.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.setattr(pieces, "CELLS", 60)
    monkeypatch.setattr(pieces, "BLOCK", 10)
    with pytest.raises(OptionError, match=r"the rows from row 30 lack the targets that earlier ones have; all rows"):
        task.predict(tmp_path / "part.jsonl")


def sources(trained: Trained, folder: Path) -> dict[str, Any]:
    """Return the new sequences of a run in every form that is read."""
    new, columns = trained.new, ["x", "y"]
    groups = [group[columns].to_numpy() for _, group in new.groupby("person", sort=False)]
    longest = max(map(len, groups))
    padded = np.zeros((len(groups), longest, 2))
    for row, group in enumerate(groups):
        padded[row, : len(group)] = group
    new.sort_values("second", kind="stable").to_csv(folder / "mixed.csv", index=False)
    new.to_csv(folder / "new.csv.gz", index=False)
    new.to_parquet(folder / "new.parquet", row_group_size=50)
    new.to_json(folder / "new.jsonl", orient="records", lines=True)
    np.savez(folder / "new.npz", **{name: new[name].to_numpy(str if name == "person" else float) for name in new})
    files = {name: folder / name for name in ("mixed.csv", "new.csv.gz", "new.parquet", "new.jsonl", "new.npz")}
    return {**files, "frame": new, "list": groups, "tensors": [torch.tensor(group) for group in groups]}


def test_files_frames_arrays_and_tensors_have_the_same_predictions(trained: Trained, tmp_path: Path) -> None:
    task = gyral.load(trained.directory)
    for name, data in sources(trained, tmp_path).items():
        frame = task.predict(data)
        found = frame[[f"probability_{label}" for label in LABELS]].to_numpy()
        np.testing.assert_allclose(found, list(trained.outputs.values()), atol=1e-6, err_msg=name)
        assert "metrics" not in frame.attrs


def test_large_files_are_read_in_pieces_of_whole_sequences(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, task = sources(trained, tmp_path), gyral.load(trained.directory)
    monkeypatch.setattr(pieces, "CELLS", 300)
    monkeypatch.setattr(pieces, "BLOCK", 30)
    trained.new.to_csv(tmp_path / "new.csv", index=False)
    for name in ("new.csv", "new.csv.gz", "new.parquet", "new.jsonl", "frame"):
        tables = list(task.predictions(files.get(name, tmp_path / name)))
        assert len(tables) > 2, name
        found = np.concatenate([table["probability_walk"] for table in tables])
        np.testing.assert_allclose(found, [each[2] for each in trained.outputs.values()], atol=1e-6, err_msg=name)
    with pytest.raises(OptionError, match=r"mixed\.csv: the rows of the sequence p\d+ are not next to each other"):
        task.predict(tmp_path / "mixed.csv")
    wrong = trained.new.reset_index(drop=True).astype({"x": str})
    wrong.loc[len(wrong) - 1, "x"] = "much"
    with pytest.raises(OptionError, match=r"column x, row \d+: much; must be .* counted from row \d+ of the file\)"):
        task.predict(wrong)


def test_predictions_are_written_in_every_form_completely_or_not_at_all(trained: Trained, tmp_path: Path) -> None:
    new = tmp_path / "new.csv"
    trained.new.to_csv(new, index=False)
    rows = predict(trained, new, tmp_path / "out.csv")
    for suffix in (".json", ".jsonl", ".parquet"):
        words = (f"data={new}", f"save={tmp_path}/out{suffix}")
        assert invoke(f"run={trained.directory}", *words, entry="predict").status == 0
    for found in (pd.read_json(tmp_path / "out.json"), pd.read_json(tmp_path / "out.jsonl", lines=True)):
        assert found.person.tolist() == [row["person"] for row in rows]
    frame = pd.read_parquet(tmp_path / "out.parquet")
    assert frame.prediction.tolist() == [row["prediction"].removeprefix("'") for row in rows]
    before = (tmp_path / "out.csv").read_bytes()
    new.write_text(new.read_text() + "p99,0,1.5,much\n")
    outcome = invoke(f"run={trained.directory}", f"data={new}", f"save={tmp_path}/out.csv", entry="predict")
    assert "much; must be a number" in outcome.error
    assert (tmp_path / "out.csv").read_bytes() == before
    assert not list(tmp_path.glob("*.tmp"))


def test_a_column_of_parquet_keeps_its_first_type_or_nothing_is_written(tmp_path: Path) -> None:
    integers, halves = {"time": np.array([1, 2])}, {"time": np.array([2.5])}
    path = tmp_path / "out.parquet"
    write_tables([halves, integers], path)
    assert pd.read_parquet(path).time.tolist() == [2.5, 1, 2]
    before = path.read_bytes()
    with pytest.raises(OptionError, match=r"column time begins as int64 and continues as double; save it as .csv or "):
        write_tables([integers, halves], path)
    assert path.read_bytes() == before


def test_a_spreadsheet_takes_no_cell_for_a_formula(trained: Trained, tmp_path: Path) -> None:
    named = trained.new.replace({"person": {name: f"=cmd|{name}" for name in trained.outputs}})
    named.to_csv(tmp_path / "new.csv", index=False)
    outcome = invoke(f"run={trained.directory}", f"data={tmp_path}/new.csv", entry="predict")
    rows = list(csv.reader(outcome.out.splitlines()))
    assert len(rows) == 1 + len(trained.outputs)
    assert all(row[0].startswith("'=cmd") for row in rows[1:])
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "@"))]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("", "is empty; must have the names of the columns in its first line"),
        ("person,second,x,y\n", "has no rows below the names of the columns"),
        ("person,second,x,z\np1,0,1.5,2.5\n", "has no column y, an input of the run; it has person, second, x, z"),
        ("second,x,y\n0,1.5,2.5\n", "has no column person, the sequence of the run; it has second, x, y"),
        ("person,second,x,y\np1,0,1.5,\np1,1,1.5,2.5\n", "column y, row 0: is empty; must have a number"),
        (
            "person,second,x,y,movement\np1,0,1.5,2.5,fly\n",
            "column movement, row 0: fly; not a class of the run, which has =rest, run, walk",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_of_one_line(
    trained: Trained, tmp_path: Path, content: str | None, said: str
) -> None:
    data = tmp_path / "new.csv"
    if content is not None:
        data.write_text(content)
    outcome = invoke(f"run={trained.directory}", f"data={data}", f"save={tmp_path}/out.csv", entry="predict")
    assert outcome.error.startswith(f"data={data}: {said}")
    assert not (tmp_path / "out.csv").exists()


def test_options_that_cannot_be_used_are_errors_of_one_line(trained: Trained, tmp_path: Path) -> None:
    data = tmp_path / "new.csv"
    trained.new.to_csv(data, index=False)
    bare = tmp_path / "bare"
    shutil.copytree(trained.directory, bare, ignore=shutil.ignore_patterns("checkpoints"))
    run, given = f"run={trained.directory}", f"data={data}"
    for words, said in (
        ((given,), "run=<nothing>: must be a run directory"),
        ((run,), "data=<nothing>: must be a file with inputs"),
        ((f"run={bare}", given), "has no checkpoint; it was stopped before its first one"),
        ((run, given, f"save={data}"), "is the file with the inputs; choose another one"),
        ((run, given, "save=out.txt"), f"save=out.txt: must end in one of {', '.join(SUFFIXES)}"),
        ((run, given, "svae=out.csv"), "svae=out.csv: no such option; allowed: run, data, save, checkpoint, trust"),
    ):
        assert said in invoke(*words, entry="predict").error
    assert "has no targets, without which there are no metrics" in invoke(run, given, entry="evaluate").error


def test_help_and_the_end_of_training_tell_how_to_predict(trained: Trained) -> None:
    assert f"predict run={trained.directory} data=new.csv" in trained.said
    help_text = invoke(f"run={trained.directory}", "--help", entry="predict").out
    assert "Sequences: a .csv, .tsv, .npz, .parquet, .jsonl or .json file" in help_text


OF_CLASSES = ["row", "prediction", *(f"probability_{number}" for number in range(3))]


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"targets": "a"}, ["row", "step", "prediction"]),
        ({"targets": ["a", "b"]}, ["row", "step", "prediction_a", "prediction_b"]),
        (
            {"targets": "classes", "sampling": "balanced"},
            OF_CLASSES,
        ),
        ({"inputs": "tokens", "targets": "classes"}, OF_CLASSES),
    ],
)
def test_steps_real_values_and_tokens_are_predicted(options: dict[str, Any], columns: list[str]) -> None:
    words = ("task=sequences", "model=gru", "model.cell.hidden_size=4")
    task = build_task(*words, data=str(sequences_file()), **options)
    with np.load(sequences_file()) as content:
        file = dict(content)
    arrays = {name: file[name] for name in ("inputs", "lengths", "tokens")}
    frame = task.predict(arrays)
    assert list(frame) == columns
    sequences = task.data.sequences
    batch = sequences.batch(np.arange(len(sequences.lengths)))
    with torch.no_grad():
        outputs = task.eval()(batch)
    expected = outputs.softmax(dim=-1) if sequences.classes else outputs[torch.arange(6) < batch.lengths[:, None]]
    found = frame[[name for name in columns if name.startswith("prob" if sequences.classes else "pred")]].to_numpy()
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)
    labelled = task.predict({**arrays, **{name: file[name] for name in ("a", "b", "classes")}})
    assert labelled.attrs["metrics"]["loss"] == pytest.approx(float(task.loss(outputs, batch)), rel=1e-5)
    assert len(labelled) == (int(batch.lengths.sum()) if sequences.per_step else len(batch.inputs))
    without = build_task(*words, schema=task.data.sequences.schema.plain(), **options).eval()
    without.load_state_dict(task.state_dict())
    pd.testing.assert_frame_equal(without.predict(arrays), frame)
    assert torch.equal(task.predict(batch), task.objective.predict(task(batch)))


def test_numbered_columns_of_a_file_must_have_the_names_of_those_of_the_run(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(12, 4)), columns=[f"t{step}" for step in range(4)])
    frame.assign(sum=frame.sum(axis=1)).to_csv(tmp_path / "wide.csv", index=False)
    task = build_task("task=sequences", "model=gru", data=str(tmp_path / "wide.csv"), targets="sum")
    assert list(task.predict(frame)) == ["row", "prediction"]
    assert len(task.predict(frame[["t0", "t1"]])) == 12
    with pytest.raises(
        OptionError, match=r"^data=frame: has no column t, an input of the run; it has q, inputs, q0, q1"
    ):
        task.predict(frame.rename(columns=lambda name: name.replace("t", "q")))


@pytest.mark.parametrize("labels", [("None", "other"), ("1", "?"), ("1.0", "x"), ("01", "NA")])
def test_a_class_may_have_the_name_of_a_missing_value_or_of_a_number(tmp_path: Path, labels: tuple[str, str]) -> None:
    rows = [f"{row}.5,0.5,{labels[row // 2 % 2]}" for row in range(40)]
    (tmp_path / "all.csv").write_text("\n".join(["t0,t1,y", *rows]))
    schema = load(tmp_path / "all.csv", targets="y", objective="classification").schema
    for label in labels:
        path = tmp_path / "new.csv"
        path.write_text("\n".join(["t0,t1,y", *(row for row in rows if row.endswith(f",{label}")), "0.5,0.5,"]))
        new = read_new(open_columns(path, ["y"]), schema)
        assert new.sequences.targets.tolist() == [schema.labels.index(label)] * 20 + [IGNORED]


def test_steps_have_their_times(tmp_path: Path) -> None:
    rows = [
        (f"p{person}", f"2024-05-31T10:{minute:02d}", person + minute / 7) for minute in range(9) for person in range(9)
    ]
    frame = pd.DataFrame(rows, columns=["person", "time", "x"]).assign(y=lambda frame: frame.x / 3)
    frame.to_csv(tmp_path / "long.csv", index=False)
    options = {"sequence": "person", "time": "time", "inputs": "x", "targets": "y"}
    task = build_task("task=sequences", "model=gru", data=str(tmp_path / "long.csv"), **options)
    found = task.predict(frame.sample(frac=1, random_state=0))
    assert list(found) == ["person", "step", "time", "prediction", "target"]
    assert found.sort_values(["time", "person"]).target.to_numpy() == pytest.approx(frame.y.to_numpy(), abs=1e-6)
    assert found.time[:9].tolist() == [f"2024-05-31T10:{minute:02d}" for minute in range(9)]


@pytest.mark.parametrize(
    ("sequence", "time", "heads"),
    [
        ("person", "step", ["person", "step", "time"]),
        ("step", "minute", ["sequence", "step", "minute"]),
        ("time", "step", ["time", "step", "time_2"]),
        ("prediction", "target", ["sequence", "step", "time"]),
        ("target", "sequence", ["sequence", "step", "time"]),
    ],
)
def test_a_column_with_the_name_of_another_one_is_not_lost(sequence: str, time: str, heads: list[str]) -> None:
    schema = Schema(
        inputs=("x",), targets=("y",), lengths=None, sequence=sequence, time=time, missing="refuse", time_gaps=False,
        per_step=True, vocabulary_size=None, input_size=1, labels=(), counts=(), target_size=1, longest=2,
    )  # fmt: skip
    frame = pd.DataFrame({sequence: ["p", "p"], time: [5, 15], "x": [0.5, 1.5], "y": [1.0, 2.0]})
    [piece] = read_pieces(frame, schema)
    table = own_sequences._table(read_new(piece.file, schema), torch.zeros(2, 1), 0)
    assert list(table) == [*heads, "prediction", "target"]
    assert [list(table[name]) for name in heads] == [["p", "p"], [0, 1], [5, 15]]
