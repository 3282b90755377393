"""Records of runs, also of broken and unfinished ones."""

import fcntl
import math
import re
from pathlib import Path

import pytest
import yaml

from gyral.runs import records, run_record
from gyral.runs.saved_files import read_yaml
from tests.helpers.running import invoke
from tests.helpers.written import TABLE1, report_of, write_run

DAMAGES = (
    ("DONE", '{"test/accuracy": 0.'),
    ("DONE", '{"test/accuracy": 0.5}'),
    ("DONE", ""),
    ("DONE", "[]"),
    ("config.yaml", ""),
    ("config.yaml", "seed: [1"),
    ("config.yaml", None),
    ("overrides.yaml", "{"),
    ("overrides.yaml", ""),
)


def test_a_damaged_run_directory_is_named_and_hides_no_other(tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    broken = []
    for seed, (name, text) in enumerate(DAMAGES, 2):
        broken.append(write_run(tmp_path, f"{TABLE1}/gru", seed=seed, accuracy=0.75))
        (broken[-1] / name).unlink()
        if text is not None:
            (broken[-1] / name).write_text(text)
    cells, printed = report_of(tmp_path)
    assert cells["GRU"][0] == "25.0"
    assert "1 of 2 seeds, 100,000 steps, at the checkpoints" in printed
    for directory in broken:
        assert re.search(rf"^{re.escape(str(directory))}: cannot be read: \S", printed, re.MULTILINE), directory


@pytest.mark.parametrize("text", ["[", "[]", None])
def test_runs_without_provenance_are_named(tmp_path: Path, text: str | None) -> None:
    written = write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    (written / "provenance.json").unlink()
    if text is not None:
        (written / "provenance.json").write_text(text)
    cells, printed = report_of(tmp_path)
    assert cells["GRU"][0] == "25.0"
    assert "1 of 2 seeds, 100,000 steps, at the checkpoints" in printed
    assert f"{written}: provenance.json cannot be read: no commit or command is known\n" in printed


def test_folders_inside_a_run_directory_are_not_runs(tmp_path: Path) -> None:
    run = write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    files = run / "wandb" / "offline-run-1" / "files"
    files.mkdir(parents=True)
    (files / "config.yaml").write_text("wandb_version: 1\n")
    _, printed = report_of(tmp_path)
    assert "cannot be read" not in printed


def write_failure(directory: Path, row: str, *lines: str) -> Path:
    """Write a run that ended with a traceback of these last lines."""
    failed = write_run(directory, f"{TABLE1}/{row}")
    traceback = ["Traceback (most recent call last):", '  File "src/train.py", line 9, in train', "    raise", *lines]
    (failed / "FAILED").write_text("\n".join(traceback) + "\n")
    return failed


def test_failures_are_listed_with_their_reasons(tmp_path: Path) -> None:
    memory = "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: 720000000000 bytes."
    reasons = {
        "gru": ("gyral.config.instantiation.LocatedError: model.cell.zoneout=7: must be below 1",),
        "lstm": ("gyral.training.callbacks.NonFiniteError: step 2: the loss is nan",),
        "goru": (memory, "Error code 12 (Cannot allocate memory)"),
    }
    failed = {row: write_failure(tmp_path, row, *lines) for row, lines in reasons.items()}
    printed = report_of(tmp_path)[1]
    for row, lines in reasons.items():
        assert f"FAILED: {failed[row]}: {' '.join(lines)}\n" in printed


@pytest.mark.parametrize("text", ["step,train/loss\nx,y\n", "\0\0,\0\n1,2\n"])
def test_a_damaged_log_is_named_where_curves_are_shown(tmp_path: Path, text: str) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    done, stopped = write_run(tmp_path, f"{TABLE1}/gru", seed=2, accuracy=0.75), write_run(tmp_path, f"{TABLE1}/lstm")
    for directory in (done, stopped):
        (directory / "metrics.csv").write_text(text)
    cells, printed = report_of(tmp_path)
    assert cells["GRU"][0] == "50.0 ± 35.4"  # the final metrics are in another file
    assert f"{stopped}: cannot be read: metrics.csv" in printed, "its step is unknown"
    assert f"{done}: cannot be read" not in printed
    printed = invoke(f"sweep={tmp_path}", f"save={tmp_path}/page.html", entry="report").out
    assert f"{done}: cannot be read: metrics.csv: is damaged" in printed
    assert "25.0" in printed


def test_a_locked_run_is_running(tmp_path: Path) -> None:
    written = write_run(tmp_path, f"{TABLE1}/gru")
    with (written / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        running = records.read(tmp_path)[0][0].state
        assert ("resume=" in report_of(tmp_path)[1]) is not Path("/proc/locks").exists(), "it is left alone"
    assert running == ("running at step 40" if Path("/proc/locks").exists() else "unfinished at step 40")
    assert records.read(tmp_path)[0][0].state == "unfinished at step 40"


def test_the_step_of_an_unfinished_run_is_that_of_its_last_row(tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", losses="step,train/loss,val/mae\n4,0.5,\n7,,0.2\n")
    assert records.read(tmp_path)[0][0].state == "unfinished at step 8"


@pytest.mark.parametrize("text", ["step,train/loss\n4,0.5\n9,0.12", "step,train/loss\n4,0.5\n9"])
def test_half_written_metrics_are_read_up_to_the_last_complete_line(tmp_path: Path, text: str) -> None:
    written = write_run(tmp_path, f"{TABLE1}/gru", losses=text)
    [job], told = records.read(tmp_path)
    assert (job.curves["train/loss"].steps, job.curves["train/loss"].values) == ([5], [0.5])
    assert told == [f"{written}: the last line of metrics.csv is cut off and left out"]


def test_a_thinned_curve_keeps_its_extremes_and_ends() -> None:
    values = [math.sin(step) for step in range(1000)]
    values[500], values[700], values[800] = 7.0, -7.0, math.nan
    curve = run_record.thin(list(range(1000)), values, points=100)
    assert len(curve.steps) <= 102
    assert (curve.steps[0], curve.steps[-1]) == (0, 999)
    assert (max(curve.values), min(curve.values)) == (7.0, -7.0)
    assert all(values[step] == value for step, value in zip(curve.steps, curve.values, strict=True))
    assert curve.logged == 1000


def test_configurations_share_no_values(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path, f"{TABLE1}/gru", seed=seed, accuracy=0.5)
    first, second = records.read(tmp_path)[0]
    first.config["task"]["length"] = 7
    assert second.config["task"] == {"length": 30}
    assert records.read(tmp_path)[0][0].config["task"] == {"length": 30}


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb:\n- 2\n- c: 3\nd: |\n  e\n\n  f: 4\n",
        'a: "1\nb: 2"\nc: 3\n',
        "# a\na: 1\n# b\nb: 2\n",
        "{a: 1,\nb: 2}\n",
    ],
)
def test_sections_are_read_as_the_whole_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "file.yaml").write_text(text)
    assert read_yaml(tmp_path / "file.yaml") == yaml.safe_load(text)
