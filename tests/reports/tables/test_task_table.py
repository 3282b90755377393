"""The table of runs that belong to no named sweep."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from gyral.reports.sweep_report import collect
from gyral.reports.tables.table import Entry, Table, mark_best
from gyral.runs.run_record import RunRecord
from tests.helpers.running import compose_config, invoke
from tests.helpers.written import MEASURES, RESULTS, write_run


def write_job(directory: Path, *overrides: str, **results: float) -> Path:
    """Write a run of the current version with these overrides; it is DONE if it has results."""
    run = write_run(directory, "none", *overrides)
    (run / "overrides.yaml").write_text(OmegaConf.to_yaml(list(overrides)))
    groups = [word for word in overrides if "." not in word and not word.startswith("seed=")]
    config = compose_config(*groups)  # composed once for all options
    for word in set(overrides) - set(groups):
        OmegaConf.update(config, word.partition("=")[0], yaml.safe_load(word.partition("=")[2]))
    (run / "config.yaml").write_text(OmegaConf.to_yaml(config))
    if results:
        named = {f"test/{name}": value for name, value in results.items()}
        (run / "DONE").write_text(json.dumps({**RESULTS, **named, "steps": 40}))
    return run


def write_plan(directory: Path, *overrides: str) -> None:
    hydra = {"overrides": {"task": list(overrides), "hydra": []}, "sweeper": {"_target_": "x.Grid", "params": {}}}
    (directory / "multirun.yaml").write_text(OmegaConf.to_yaml({"hydra": hydra}))


def tables_of(directory: Path, **options: Any) -> list[Table]:
    return [table for section in collect(str(directory), **options)[0] for table in section.tables]


def texts(table: Table, column: int) -> dict[str, str]:
    return {name: entries[column].text for name, entries in table.rows}


def test_a_sweep_has_a_row_for_each_model_with_the_best_marked_and_other_runs_apart(tmp_path: Path) -> None:
    shared = ("task=recall", "logger=none")
    for model, scores in (("lstm", (0.5, 0.7)), ("rum_associative", (0.9, 1.0)), ("gru", (0.2,))):
        for seed, accuracy in enumerate(scores, 1):
            write_job(
                tmp_path, f"model={model}", f"seed={seed}", *shared, accuracy=accuracy, loss=1 - accuracy, baseline=2
            )
    failed = write_job(tmp_path, "model=gru", "seed=2", *shared)
    (failed / "FAILED").write_text("NonFiniteError: step 8\n")
    write_job(tmp_path, "model=rnn", "seed=1", *shared, accuracy=1.0)
    write_plan(tmp_path, "model=lstm,rum_associative,gru", "seed=1,2", *shared[:1], "logger=wandb")
    [table] = tables_of(tmp_path)
    # the deviation of two values is their distance over √2
    assert texts(table, 0) == {"LSTM": "60.0 ± 14.1", "RUM λ = 1": "95.0 ± 7.1", "GRU": "20.0"}
    assert table.heads == ["row", "accuracy\nin %", "test loss\n(nats)", "loss /\nbaseline", "parameters", "seeds"]
    best = {name: [entry.best for entry in entries] for name, entries in table.rows}
    assert best["RUM λ = 1"] == [True, True, True, False, False]
    assert not any(best["LSTM"] + best["GRU"])
    assert texts(table, 4) == {"LSTM": "2", "RUM λ = 1": "2", "GRU": "1 of 2"}
    assert table.rows[2][1][0].missing == ("seed 2 FAILED",)
    printed = invoke(f"sweep={tmp_path}", entry="report").out
    assert f"1 run of another sweep is in {tmp_path}, too; all=true shows all runs." in printed
    assert f"FAILED: {failed}: NonFiniteError: step 8" in printed
    assert set(texts(tables_of(tmp_path, everything=True)[0], 0)) == {"LSTM", "RUM λ = 1", "GRU", "RNN"}


def test_values_of_a_tasks_option_are_columns_and_are_not_compared(tmp_path: Path) -> None:
    for model, rate, scores in (("gru", 0.1, (0.3, 0.9)), ("gru", 0.2, (0.4, 0.6)), ("lstm", 0.1, (0.1, 0.1))):
        for delay, accuracy in zip((3, 12), scores, strict=True):
            given = (f"model={model}", f"task.delay={delay}", f"optimizer.lr={rate}", "seed=1", "trainer.max_steps=40")
            write_job(tmp_path, *given, accuracy=accuracy)
    [section] = collect(str(tmp_path))[0]
    [table] = section.tables
    assert table.heads == ["row", "accuracy\nin %\ndelay = 3", "accuracy\nin %\ndelay = 12", "parameters"]
    names = ["GRU, learning rate = 0.1", "GRU, learning rate = 0.2", "LSTM, learning rate = 0.1"]
    assert [name for name, _ in table.rows] == names
    assert [[entry.best for entry in entries] for _, entries in table.rows] == [
        [False, True, False],
        [True, False, False],
        [False, False, False],
    ]
    caption = "seed 1, 40 steps, at the checkpoints with the best validation score; all with trainer.max_steps=40"
    assert table.caption == caption
    assert len(section.rows) == 6, "figures have a curve for each"


def test_rows_with_other_steps_or_seeds_show_them(tmp_path: Path) -> None:
    write_job(tmp_path, "task=copy", "model=gru", "seed=1", accuracy=0.5)
    write_job(tmp_path, "task=copy", "model=lstm", "seed=2", accuracy=0.5)
    [table] = tables_of(tmp_path)
    assert [entries[-1].notes for _, entries in table.rows] == [("seed 1",), ("seed 2",)]
    assert "over seeds, 40 steps each, at the" in table.caption
    assert [entries[0].best for _, entries in table.rows] == [True, True], "ties are all marked"


def test_the_loss_of_each_run_is_in_the_column_of_its_unit(tmp_path: Path) -> None:
    write_job(tmp_path, "model=gru", "seed=1", "task=recall", accuracy=0.5, loss=0.25)
    write_job(tmp_path, "model=lstm", "seed=1", "task=recall", mse=0.125, loss=0.125)
    [table] = tables_of(tmp_path)
    losses = table.heads.index("test loss\n(nats)") - 1
    assert texts(table, losses) == {"GRU": "0.2500", "LSTM": "–"}


def test_a_run_whose_baseline_is_zero_has_no_ratio(tmp_path: Path) -> None:
    write_job(tmp_path, "model=gru", "seed=1", "task=recall", loss=0.25, baseline=0.0)  # all targets are the same
    write_job(tmp_path, "model=lstm", "seed=1", "task=recall", loss=0.25, baseline=0.5)
    [table] = tables_of(tmp_path)
    assert texts(table, table.heads.index("loss /\nbaseline") - 1) == {"GRU": "–", "LSTM": "0.5000"}


@pytest.mark.parametrize(
    ("results", "is_best"),
    [
        ({"test/loss": 0.5, "test/baseline": 0.6}, True),
        ({"test/loss": 0.61, "test/baseline": 0.6}, False),
        ({"test/accuracy": 0.4, "test/majority": 0.3}, True),
        ({"test/accuracy": 0.4, "test/majority": 0.45}, False),
        ({"test/loss": 0.5, "test/baseline": 0.6, "test/accuracy": 0.4, "test/majority": 0.45}, False),
        ({}, True),
    ],
)
def test_the_best_row_is_marked_if_it_beats_the_references(results: dict[str, float], is_best: bool) -> None:
    def entry(mean: float, text: str) -> Entry:
        config = {"seed": 1}
        record = RunRecord("nowhere", config, {}, results, measures=MEASURES)
        return Entry(text, runs=((record, mean),), mean=mean)

    marked = mark_best([entry(40.0, "40.0"), entry(30.0, "30.0")], higher_is_better=True)
    assert [each.best for each in marked] == [is_best, False]
    printed = mark_best([entry(40.0, "40.0‡ ± 0.1"), entry(39.99, "40.0"), entry(39.9, "39.9")], higher_is_better=True)
    assert [each.best for each in printed] == [is_best, is_best, False], "marks are not compared"
    assert not mark_best([entry(40.0, "40.0")], higher_is_better=True)[0].best, "a single row"
