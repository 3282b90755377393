"""Missing runs, and the commands that run them."""

import itertools
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from gyral.reports import catalogue
from tests.helpers.written import TABLE1, report_of, write_run


def test_unfinished_runs_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    failed = write_run(tmp_path, f"{TABLE1}/gru", seed=2)
    (failed / "FAILED").write_text("Traceback …\n  …\nNonFiniteError: step 8\n")
    stopped = write_run(tmp_path, f"{TABLE1}/lstm")
    early = write_run(tmp_path, f"{TABLE1}/lstm", length=50, seed=2)
    (early / "metrics.csv").unlink()
    entries, printed = report_of(tmp_path)
    assert entries["GRU"][0] == "25.0 seed 2 FAILED"  # the caption has the seed and the steps of the only number
    assert entries["LSTM"][0] == "seed 1 unfinished at step 40 seed 2 missing"
    assert entries["LSTM"][2] == "seed 2 unfinished at step 0 seed 1 missing"
    for line in (
        f"FAILED: {failed}: NonFiniteError: step 8",
        f"unfinished at step 40: {stopped}",
        f"unfinished at step 0: {early}",
    ):
        assert f"{line}\n" in printed
    assert "64 runs not started, 3 runs not done." in printed


def test_a_complete_sweep_needs_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = catalogue.load("rum_paper_table1")
    for experiment, length, seed in itertools.product(*sweep.axes.values()):
        write_run(catalogue.DIRECTORY / sweep.name, experiment, length=int(length), seed=int(seed), accuracy=0.5)
    entries, printed = report_of(Path("rum_paper_table1"))
    assert all(entries[name][0] == "50.0 ± 0.0" for name in entries)
    assert "mean ± standard deviation over seeds 1, 2, 100,000 steps each, at the" in " ".join(printed.split())
    assert "gyral.train" not in printed


def test_only_rows_with_unusual_seeds_show_their_seeds(tmp_path: Path) -> None:
    for cell, seeds in {"gru": (1, 2), "lstm": (1, 2), "goru": (1,)}.items():
        for seed in seeds:
            write_run(tmp_path, f"{TABLE1}/{cell}", seed=seed, accuracy=0.5)
    entries, printed = report_of(tmp_path)
    assert [entries[name][0] for name in ("GRU", "LSTM")] == ["50.0 ± 0.0"] * 2
    assert entries["GORU"][0] == "50.0 1 of 2 seeds"
    assert "over seeds, 100,000 steps each (seeds 1, 2 unless noted), at the" in " ".join(printed.split())


def test_without_a_majority_every_row_shows_its_seeds(tmp_path: Path) -> None:
    for cell, seeds in {"gru": (1, 2), "lstm": (1,)}.items():
        for seed in seeds:
            write_run(tmp_path, f"{TABLE1}/{cell}", seed=seed, accuracy=0.5)
    entries, printed = report_of(tmp_path)
    assert entries["GRU"][0] == "50.0 ± 0.0 seeds 1, 2"
    assert entries["LSTM"][0] == "50.0 1 of 2 seeds"
    assert "over seeds, 100,000 steps each, at the" in " ".join(printed.split())


def test_the_command_of_a_sweep_runs_only_missing_jobs(tmp_path: Path) -> None:
    sweep = catalogue.load("rum_paper_table1")
    for experiment, length, seed in itertools.product(*sweep.axes.values()):
        if experiment != f"{TABLE1}/gru" or (length, seed) == ("30", "1"):
            write_run(tmp_path, experiment, length=int(length), seed=int(seed), accuracy=0.5)
    (tmp_path / "own" / "gru").mkdir(parents=True)
    stopped = write_run(tmp_path, f"{TABLE1}/gru", length=50, seed=2)
    stopped.rename(tmp_path / "own" / "gru" / "seed=2,task.length=50")  # as the sweep names it in its folder, own
    printed = report_of(tmp_path)[1]
    given = f"experiment={TABLE1}/gru logger=none '~callbacks.progress_bar' hydra.sweep.dir={tmp_path}/own"
    expected = f"2 runs not started, 1 run not done. To run them: python -m src.train sweep=rum_paper_table1 {given}\n"
    assert expected in printed
    assert "resume=" not in printed


def test_missing_jobs_of_a_multirun_are_listed_with_their_command(tmp_path: Path) -> None:
    given = ["model=gru,lstm", "optimizer.lr=0.1,1e-3", "task.delay=3", "~callbacks.progress_bar"]
    written = write_run(tmp_path, "none", accuracy=0.5)
    job = ["model=gru", "optimizer.lr=0.1", "task.delay=3", "~callbacks.progress_bar=null"]
    (written / "overrides.yaml").write_text(OmegaConf.to_yaml(job))
    sweeper = {"_target_": "hydra._internal.core_plugins.basic_sweeper.BasicSweeper", "params": None}
    overrides = {"task": given, "hydra": [f"hydra.sweep.dir={tmp_path}", "hydra.mode=MULTIRUN"]}
    multirun = {"hydra": {"overrides": overrides, "sweeper": sweeper}}
    (tmp_path / "multirun.yaml").write_text(OmegaConf.to_yaml(multirun))
    command = f"model=gru,lstm optimizer.lr=0.1,1e-3 task.delay=3 '~callbacks.progress_bar' hydra.sweep.dir={tmp_path}"
    expected = f"3 runs not started. To run them: python -m src.train -m {command}\n"
    assert expected in report_of(tmp_path)[1]
