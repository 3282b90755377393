"""Run directories of commit 947ec39 resume, evaluate, generate and report."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import get_object
from omegaconf import OmegaConf

from gyral.runs import legacy, records
from gyral.runs.directory import load_run
from tests.helpers.running import ROOT, invoke, load_last, read_rows

OLD_RUNS = ROOT / "tests" / "old_runs"
CELLS = {
    "copy_rum": "RUM",
    "text_lstm": "LSTM",
    "babi_goru": "GORU",
    "copy_fs_rum": "FSRNN(LSTM, RUM)",
    "summaries_lead": "PointerGenerator(LSTM, LSTM)",
}
# every `_target_` in conf/ of 947ec39 that is not of another package
TARGETS = [
    "hydra_plugins.gyre.Grid",
    "hydra_plugins.gyre.Joblib",
    "hydra_plugins.gyre.Local",
    "hydra_plugins.gyre.Ray",
    "hydra_plugins.gyre.Slurm",
    "hydra_plugins.gyre.Tune",
    "src.callbacks.Averaging",
    "src.callbacks.Checkpoints",
    "src.callbacks.Cosines",
    "src.callbacks.EarlyStopping",
    "src.callbacks.Examples",
    "src.callbacks.FiniteGuard",
    "src.callbacks.Norms",
    "src.callbacks.Positions",
    "src.callbacks.ProgressBar",
    "src.callbacks.Pruning",
    "src.callbacks.Solved",
    "src.callbacks.Statistics",
    "src.cells.eurnn.EURNNCell",
    "src.cells.external.ExternalCell",
    "src.cells.fast_weights.FastWeightsCell",
    "src.cells.fs_rnn.FSRNNCell",
    "src.cells.full_urnn.FullURNNCell",
    "src.cells.goru.GORUCell",
    "src.cells.gru.GRUCell",
    "src.cells.lstm.LSTMCell",
    "src.cells.on_lstm.ONLSTMCell",
    "src.cells.rnn.RNNCell",
    "src.cells.rum.RUMCell",
    "src.cells.urnn.URNNCell",
    "src.cells.weinet.WeiNetCell",
    "src.data.corpora.load",
    "src.data.corpora.load_file",
    "src.data.summaries.load",
    "src.data.summaries.load_cnn_dailymail",
    "src.loggers.tensorboard_logger",
    "src.loggers.wandb_logger",
    "src.models.beam.BeamSearch",
    "src.models.pointer_generator.PointerGenerator",
    "src.models.sequence.SequenceModel",
    "src.schedules.piecewise",
    "src.tasks.babi.BabiTask",
    "src.tasks.copy.CopyTask",
    "src.tasks.recall.RecallTask",
    "src.tasks.summarization.SummaryTask",
    "src.tasks.text.TextTask",
]


def copy_of(name: str, directory: Path) -> Path:
    """Return a copy of an old run, with its checkpoint also as the best one."""
    run = directory / name
    shutil.copytree(OLD_RUNS / name, run)
    (run / "checkpoints").mkdir()
    packed = run / "last.ckpt.gz"
    for checkpoint in ("last", "best"):
        (run / "checkpoints" / f"{checkpoint}.ckpt").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    return run


@pytest.mark.parametrize("name", CELLS)
def test_resumes_evaluates_generates_and_reports(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    run = copy_of(name, tmp_path)
    outcome = invoke(f"resume={run}")
    assert outcome.status == 0, outcome.err
    assert f"Resuming from {run}/checkpoints/last.ckpt (started with commit 947ec39" in outcome.err
    last = load_last(run)
    assert last["global_step"] == 24
    assert {"Solved", "at"}.isdisjoint(last["callbacks"])
    weights = torch.load(OLD_RUNS / "expected_weights.pt", weights_only=True)[name]
    expected = (run / "expected_metrics.csv").read_text().splitlines()
    # close, not equal: processors round differently, and so do the kernels of different versions
    assert set(last["state_dict"]) == set(weights)
    for key, value in weights.items():
        torch.testing.assert_close(last["state_dict"][key], value, rtol=0, atol=1e-5)
    rows = read_rows(run)
    updates = [row for row in rows if row.get("train/gradient_norm")]  # which earlier versions did not log
    assert len(rows) - len(updates) == len(expected) - 1
    results, old = (json.loads((run / file).read_text()) for file in ("DONE", "expected_DONE"))
    assert set(old) <= set(results)
    for key in set(old) - {"seconds_a_step", "peak_memory_mb"}:
        assert results[key] == pytest.approx(old[key], abs=1e-4), key

    overrides = [str(override) for override in OmegaConf.load(run / "overrides.yaml")]
    outcome = invoke(*overrides, "paths.data_dir=data", f"hydra.run.dir={run}")
    assert outcome.status == 0, outcome.err
    assert "is DONE and is not trained again" in outcome.err, "the old command finds its run"

    outcome = invoke(f"run={run}", "split=test", entry="evaluate")
    assert outcome.status == 0, outcome.err
    assert "test/loss" in outcome.out
    assert_generates(name, run)

    records_, notes = records.read(run)
    assert notes == []
    (record,) = records_
    assert (record.state, record.steps, record.provenance.host) == ("DONE", 24, "laptop")
    assert record.provenance.commit.startswith("947ec39")
    assert record.cell == CELLS[name]


def assert_generates(name: str, run: Path) -> None:
    """Check that `generate` writes something for an old run of a task that generates."""
    story = run / "story.txt"
    story.write_text("Mary moved to the bathroom.\nWhere is Mary?\n")
    options = {
        "text_lstm": ["prompt=the", "length=20"],
        "babi_goru": [f"story={story}"],
        "summaries_lead": [f"input={ROOT}/tests/applications/summarization/pairs.jsonl[:2]"],
    }
    if name in options:
        outcome = invoke(f"run={run}", *options[name], entry="generate")
        assert outcome.status == 0, outcome.err
        assert outcome.out.strip()


def sweep(directory: Path, name: str, *options: str) -> Any:
    return invoke(f"sweep={name}", *options, "threads=1", "logger=none", f"hydra.sweep.dir={directory}")


def test_a_finished_sweep_counts_as_done(tmp_path: Path) -> None:
    directory = tmp_path / "sweep"
    shutil.copytree(OLD_RUNS / "sweep_table1", directory)
    lengths = ("trainer.max_steps=4", "trainer.val_check_interval=2", "trainer.log_every_n_steps=1")
    sizes = ("task.train_size=128", "task.val_size=16", "task.test_size=16", "task.length=30")
    rows = "experiment=rum_paper/table1/gru,rum_paper/table1/rum_lambda1"
    outcome = sweep(directory, "rum_paper_table1", rows, "seed=1,2", *lengths, *sizes)
    assert outcome.status == 0, outcome.err
    assert outcome.out.count("was DONE") == 4
    assert len(list(directory.rglob("config.yaml"))) == 4, "no new run directory"

    outcome = invoke(f"sweep={directory}", entry="report")
    assert outcome.status == 0, outcome.err
    assert "GRU" in outcome.out


def test_a_renamed_row_counts_as_done(tmp_path: Path) -> None:
    directory = tmp_path / "sweep"
    shutil.copytree(OLD_RUNS / "sweep_table4", directory)
    row = "experiment=rum_paper/table4_overfit/pointer_generator"
    options = ("trainer.max_steps=2", "task.decoded=2", "paths.data_dir=/home/user/data")
    outcome = sweep(directory, "rum_paper_table4_overfit", row, *options)
    assert outcome.status == 0, outcome.err
    assert "was DONE" in outcome.out
    assert len(list(directory.rglob("config.yaml"))) == 1, "no new run directory"

    (record,) = records.read(directory)[0]
    assert record.results is not None
    assert record.experiment == "rum_paper/table4_overfit/pointer_generator"
    assert "experiment=rum_paper/table4_overfit/pointer_generator" in record.provenance.command
    printed = invoke(f"sweep={directory}", entry="report").out
    assert f"{record.results['test/rouge1']:.2f}" in printed


@pytest.mark.parametrize("target", TARGETS)
def test_every_old_target_has_a_current_name(target: str) -> None:
    current = legacy.translate_target(target)
    assert current.startswith(("gyral.", "hydra_plugins.gyral."))
    assert callable(get_object(current))


def test_a_new_option_with_its_default_is_no_difference() -> None:
    wanted = OmegaConf.to_container(load_run(OLD_RUNS / "copy_rum").config)
    assert isinstance(wanted, dict)
    saved = json.loads(json.dumps(wanted))
    del saved["model"]["cell"]["layer_norm"], saved["model"]["num_layers"]
    assert legacy.add_defaults(saved, wanted) == wanted
    wanted["model"]["num_layers"] = 2
    assert "num_layers" not in legacy.add_defaults(saved, wanted)["model"]


def test_states_of_old_callbacks_are_translated() -> None:
    random = {"best_score": 0.5}
    for solved, stopped, reason in ((False, False, 0), (True, False, 1), (False, True, 3)):
        states = {
            "Solved": {"solved": solved},
            "EarlyStopping": {"best": 0.25, "waited": 2, "stopped": stopped},
            "Checkpoints": random,
        }
        state = legacy.translate_checkpoint({"callbacks": states})["callbacks"]
        assert set(state) == {"EarlyStopping", "Checkpoints"}
        assert state["EarlyStopping"]["stopping_reason"] == reason
        assert (state["EarlyStopping"]["wait_count"], state["EarlyStopping"]["best_score"].item()) == (2, 0.25)
    without = legacy.translate_checkpoint({"callbacks": {"Solved": {"solved": False}}})["callbacks"]
    assert "best_score" not in without["EarlyStopping"]
