"""Record files of finished and diverged runs."""

import json
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from gyral.core.errors import UserError
from gyral.core.measures import ACCURACY
from gyral.runs import records
from gyral.runs.measures import to_plain
from gyral.runs.record_files import SUFFIX, portable, portable_override, read_probe, read_record, write_record
from tests.helpers.running import invoke
from tests.helpers.written import TABLE1, report_of, write_run


def recorded(directory: Path, folder: Path) -> list[Path]:
    return [write_record(run, folder) for run in records.read(directory)[0] if run.results]


def test_a_report_of_record_files_equals_that_of_the_runs(tmp_path: Path) -> None:
    runs, folder = tmp_path / "runs", tmp_path / "records"
    write_run(runs, f"{TABLE1}/gru", accuracy=0.25)
    write_run(runs, f"{TABLE1}/gru", seed=2, accuracy=0.75)
    write_run(runs, f"{TABLE1}/lstm", "optimizer.lr=0.1", accuracy=0.5)
    expected = report_of(runs)[0]
    write_run(runs, f"{TABLE1}/goru")  # not finished
    written = recorded(runs, folder)
    assert [path.relative_to(folder).as_posix() for path in written] == [
        f"{TABLE1}/gru/seed=1.run.json",
        f"{TABLE1}/gru/seed=2.run.json",
        f"{TABLE1}/lstm/optimizer.lr=0.1,seed=1.run.json",
    ]
    cells, printed = report_of(folder)
    assert cells == expected
    assert "cannot be read" not in printed


def test_a_record_has_results_curves_and_origin(tmp_path: Path) -> None:
    directory = write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    started = json.loads((directory / "provenance.json").read_text())
    (directory / "provenance.json").write_text(json.dumps({**started, "resumed_with": ["0123456789ab"]}))
    run = records.read_run(directory)
    record = read_record(write_record(run, tmp_path / "records"))
    assert record.provenance.code == run.provenance.code == f"{started['git_commit'][:10]} then 0123456789"
    assert (record.results, record.steps, record.seed) == (run.results, run.steps, run.seed)
    assert record.curves["train/loss"].steps == run.curves["train/loss"].steps
    assert record.curves["train/loss"].values == pytest.approx(run.curves["train/loss"].values, rel=1e-4)
    assert record.baseline == run.baseline
    assert record.provenance.commit == run.provenance.commit
    assert record.provenance.command.endswith(f"train experiment={TABLE1}/gru seed=1")
    assert not record.transcribed


def test_a_run_that_diverged_has_a_record_and_one_that_failed_has_none(tmp_path: Path) -> None:
    runs, folder = tmp_path / "runs", tmp_path / "records"
    reasons = {1: "NonFiniteError: step 370: the loss is nan", 2: "OSError: No space left on device"}
    for seed, reason in reasons.items():
        (write_run(runs, f"{TABLE1}/gru", seed=seed) / "FAILED").write_text(reason)
    assert invoke(f"sweep={runs}", f"records={folder}", entry="report").status == 0
    [record], _ = records.read(folder)
    assert (record.seed, record.reason, record.results) == ("1", reasons[1], None)
    assert record.diverged
    assert record.curves.keys() == records.read(runs)[0][0].curves.keys() != set()
    assert f"FAILED: {record.place}: {record.reason}" in report_of(folder)[1]


def test_results_of_a_probe_are_beside_the_record(tmp_path: Path) -> None:
    run = records.read_run(write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25))
    record = read_record(write_record(run, tmp_path / "records"))
    assert read_probe(record, "treebank") == {}
    beside = Path(record.place.replace(SUFFIX, ".treebank.json"))
    beside.write_text(json.dumps({"numbers": {"layer 1/f1": 41.5, "layer 1/recall/INTJ": None}}), encoding="utf-8")
    assert read_probe(record, "treebank") == {"layer 1/f1": 41.5}
    assert read_probe(run, "treebank") == {}  # a run directory


def test_a_record_has_no_paths_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path, f"{TABLE1}/gru", "hydra.run.dir=/home/me/run", "weights=/home/me/other", accuracy=0.25)
    config = {
        "seed": 1,
        "paths": {"data_dir": "/corpora"},
        "task": {"data_dir": "/corpora", "path": "/corpora/ptb/train.txt", "length": 30},
        "weights": str(tmp_path / "outputs" / "first"),
    }
    (run / "config.yaml").write_text(OmegaConf.to_yaml(config))
    path = write_record(records.read_run(run), tmp_path / "records")
    content = json.loads(path.read_text())
    assert content["config"]["task"] == {"data_dir": "data", "path": "data/ptb/train.txt", "length": 30}
    assert content["config"]["weights"] == "outputs/first"
    assert content["overrides"] == [f"experiment={TABLE1}/gru", "seed=1", "weights=other"]
    assert str(tmp_path) not in path.read_text()
    assert "laptop" not in path.read_text()


def test_overrides_have_no_paths_of_the_machine() -> None:
    for word, expected in {
        "weights=/home/me/a=b": "weights='a=b'",
        "weights='/home/me/my,run'": "weights='my,run'",
        "task.corpus.train=[/home/me/a.txt,/corpora/b.txt]": "task.corpus.train=[a.txt,data/b.txt]",
    }.items():
        assert portable_override(word, "/corpora") == expected
    for word in ("experiment=a/b", "optimizer.lr=1e-3", "model.layer_sizes=[4, 2]", "model.cell.eta=null"):
        assert portable_override(word, "/corpora") == word


def test_runs_on_files_of_one_name_have_two_records(tmp_path: Path) -> None:
    written = set()
    for digest in ("0123456789", "9876543210"):
        run = write_run(tmp_path / digest, f"{TABLE1}/gru", f"task.data=/{digest}/d.npz", accuracy=0.25)
        origin = json.loads((run / "provenance.json").read_text())
        (run / "provenance.json").write_text(json.dumps({**origin, "data": {"task.data": digest}}))
        written.add(write_record(records.read_run(run), tmp_path / "records"))
    assert sorted(path.name for path in written) == [
        f"task.data=d.npz~01234567,seed=1{SUFFIX}",
        f"task.data=d.npz~98765432,seed=1{SUFFIX}",
    ]


def test_values_that_are_not_paths_stay(tmp_path: Path) -> None:
    for value in (1, None, 0.5, "val/loss", "experiment=a/b", "a=b=c", [1, {"x": "y"}]):
        assert portable(value, "/corpora") == value


def test_long_names_are_shortened_and_stay_distinct(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(n), f"{TABLE1}/gru", accuracy=0.5) for n in range(2)]
    for number, run in enumerate(runs):
        options = [f"task.option_{n}=1" for n in range(29 + number)]
        (run / "overrides.yaml").write_text(OmegaConf.to_yaml([f"experiment={TABLE1}/gru", "seed=1", *options]))
    first, second = (write_record(records.read_run(run), tmp_path / "records") for run in runs)
    assert first != second
    assert max(len(path.name.encode()) for path in (first, second)) <= 255
    assert first.name.endswith(f",seed=1{SUFFIX}")


def test_damaged_records_are_named_and_hide_no_other(tmp_path: Path) -> None:
    runs, folder = tmp_path / "runs", tmp_path / "records"
    write_run(runs, f"{TABLE1}/gru", accuracy=0.25)
    recorded(runs, folder)
    broken = []
    for text in ("", "{", "[]", "{}", '{"config": {"seed": 1}, "overrides": [], "results": {}}'):
        broken.append(folder / f"broken{len(broken)}{SUFFIX}")
        broken[-1].write_text(text)
        with pytest.raises(UserError, match="broken"):
            read_record(broken[-1])
    cells, printed = report_of(folder)
    assert cells["GRU"][0].startswith("25.0")
    for path in broken:
        assert f"{path}: cannot be read: " in printed


def test_transcribed_numbers_are_marked(tmp_path: Path) -> None:
    content = {
        "transcribed": True,
        "config": {"seed": 1, "task": {"length": 30}},
        "overrides": [f"experiment={TABLE1}/gru", "seed=1"],
        "results": {"test/accuracy": 0.25},
        **to_plain([ACCURACY], []),
    }
    (tmp_path / f"old{SUFFIX}").write_text(json.dumps(content))
    cells, printed = report_of(tmp_path)
    assert cells["GRU"][0] == "25.0‡"
    assert "1 of 2 seeds, unknown steps, at the checkpoints" in printed
    assert "‡ transcribed from an earlier table" in printed


def test_of_a_run_its_record_and_its_copies_one_counts(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "runs", f"{TABLE1}/gru", accuracy=0.25)
    write_run(tmp_path / "runs", f"{TABLE1}/gru", seed=2, accuracy=0.25)
    record = write_record(records.read_run(directory), tmp_path / "a_record")
    shutil.copytree(directory, tmp_path / "runs" / "copied")
    found, notes = records.read(tmp_path)
    assert [run.seed for run in found] == ["1", "2"]
    assert not any(run.place.endswith(SUFFIX) for run in found)
    assert len(notes) == 2
    assert all("is a copy of" in note for note in notes)
    assert any(note.startswith(f"{record}: ") for note in notes)
