"""One table says what identifies a run: directories, sweeps, rows, records and the decision whether a run resumes."""

from pathlib import Path

import pytest

from gyral.config.roles import MACHINE, PROCESS, SELECTION, SETTING, role_of, settings_of
from gyral.runs import records
from gyral.runs.record_files import write_record
from tests.helpers.running import SMALL_COPY, compose_config, invoke
from tests.helpers.written import TABLE1, write_run


@pytest.mark.parametrize(
    ("override", "role"),
    [
        ("experiment=rum_paper/table1/gru", SELECTION),
        ("seed=2", SELECTION),
        ("seeds=2", SETTING),
        ("task=copy", SETTING),
        ("task.delay=5", SETTING),
        ("cell@model.cell=gru", SETTING),
        ("~scheduler.patience", SETTING),
        ("callbacks.early_stopping.patience=3", SETTING),
        ("trainer.max_steps=10", SETTING),
        ("threads=1", SELECTION),
        ("+trainer.num_nodes=2", MACHINE),
        ("~callbacks.progress_bar", PROCESS),
        ("callbacks.progress_bar.seconds=2", PROCESS),
        ("logger.wandb.project=other", PROCESS),
        ("hydra/launcher=null", PROCESS),
        ("hydra.sweep.dir=outputs/x", PROCESS),
        ("task.corpus.data_dir=/data", PROCESS),
        ("trust=my_cells", PROCESS),
    ],
)
def test_the_role_of_an_option(override: str, role: str) -> None:
    assert role_of(override) == role


def test_settings_distinguish_rows() -> None:
    words = ("seed=1", "threads=2", "logger=none", "task.delay=5", "~callbacks.progress_bar", "weights=outputs/x")
    overrides = {word.lstrip("~").partition("=")[0]: word for word in words}
    assert settings_of(overrides) == {"task.delay": "task.delay=5", "weights": "weights=outputs/x"}


@pytest.mark.parametrize("sweep", ["null", "rum_paper_table1"])
def test_the_directory_of_a_job_shows_neither_process_options_nor_what_its_folders_show(sweep: str) -> None:
    words = ["task=recall", "model=gru", "logger=wandb", "launcher=joblib", "trust=mine", "paths.data_dir=/data"]
    words += ["logger.wandb.tags=[a]", "seed=2", "threads=1", "trainer.max_steps=5"]
    if sweep == "null":
        config = compose_config(*words, hydra_too=True)
        shown = ""
    else:
        config = compose_config(f"sweep={sweep}", "experiment=rum_paper/table1/gru", *words, hydra_too=True)
        shown = "model=gru,"
    ending = ",task=recall" if shown else ""
    expected = f"{shown}seed=2{ending},threads=1,trainer.max_steps=5"
    assert config.hydra.job.override_dirname == expected


def test_a_run_is_the_same_in_another_process_but_not_with_other_threads(tmp_path: Path) -> None:
    words = [*SMALL_COPY, "trainer.max_steps=2", f"hydra.run.dir={tmp_path / 'run'}"]
    assert invoke(*words).status == 0
    others = [word for word in words if word not in ("~callbacks.progress_bar", "logger=none")]
    outcome = invoke(*others, "logger=tensorboard", "paths.data_dir=elsewhere")
    assert outcome.status == 0, outcome.err
    assert "is DONE" in outcome.out + outcome.err
    for changed, expected in (("seed=2", "seed is 1 there"), ("threads=2", "threads is 1 there")):
        assert f"holds a run of another configuration ({expected}" in invoke(*words, changed).err


def test_a_record_has_settings_and_threads_but_no_process_options(tmp_path: Path) -> None:
    words = ("threads=2", "launcher=slurm", "trust=mine", "task.symbols=4")
    run = records.read_run(write_run(tmp_path, f"{TABLE1}/gru", *words, accuracy=0.5))
    record = write_record(run, tmp_path / "records")
    assert record.name == "task.symbols=4,seed=1.run.json"
    text = record.read_text()
    assert "gyral train experiment=rum_paper/table1/gru seed=1 threads=2 task.symbols=4" in text
    assert not any(word in text for word in ("slurm", "trust", "progress_bar", "logger"))


def test_records_of_runs_on_other_machines_do_not_replace_each_other(tmp_path: Path) -> None:
    machines = ("trainer.devices=1", "trainer.devices=2", "trainer.num_nodes=2", "task.ngrams=[3]")
    runs = [write_run(tmp_path / str(n), f"{TABLE1}/gru", word, accuracy=0.5) for n, word in enumerate(machines)]
    names = {write_record(records.read_run(run), tmp_path / "records").name for run in runs}
    assert names == {f"{word},seed=1.run.json" for word in machines}
