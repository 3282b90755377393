"""The printed report of a directory."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from gyral.reports import catalogue
from gyral.runs.names import model_name
from gyral.runs.run_record import cell_of
from tests.helpers.running import invoke
from tests.helpers.written import FIG4, TABLE1, drawn, write_run


def test_a_directory_with_rows_of_several_sweeps_gives_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, f"{FIG4}/lstm")
    write_run(tmp_path, f"{TABLE1}/lstm")
    drawn(monkeypatch)
    out = invoke(f"sweep={tmp_path}", entry="report").out
    for name in ("rum_paper_fig4", "rum_paper_table1"):
        assert catalogue.load(name).title in out


def test_runs_are_listed_on_demand_and_a_commit_that_is_not_the_code_is_marked(tmp_path: Path) -> None:
    clean = write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    changed = write_run(tmp_path, f"{TABLE1}/gru", seed=2, accuracy=0.25)
    (changed / "git.diff").write_text("+")
    outcome = invoke(f"sweep={tmp_path}", "runs=true", entry="report")
    assert f"GRU: seed 1, DONE, {clean}, commit ac466c4a76, W&B 0f22b828c43a, 2026-11-21" in outcome.out
    assert f"GRU: seed 2, DONE, {changed}, commit ac466c4a76 + uncommitted changes, W&B" in outcome.out
    assert outcome.out.count("    python -m src.train -m seed=1,2 '~callbacks.progress_bar'\n") == 2
    assert str(clean) not in invoke(f"sweep={tmp_path}", entry="report").out


def test_runs_can_be_selected_by_options(tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", "trainer.max_steps=600", accuracy=0.25)
    write_run(tmp_path, f"{TABLE1}/lstm", length=30, accuracy=0.5)
    write_run(tmp_path, f"{TABLE1}/lstm", length=50, accuracy=0.75)

    def shown(only: str) -> list[str]:
        outcome = invoke(f"sweep={tmp_path}", f"only={only}", "runs=true", entry="report")
        assert outcome.status == 0, outcome.err
        return re.findall(r", DONE, (\S+), commit", outcome.out)

    gru, lstm_30, lstm_50 = sorted(str(path.parent) for path in tmp_path.rglob("DONE"))
    assert shown("[trainer.max_steps=600]") == [gru]
    assert sorted(shown("[~trainer.max_steps]")) == [lstm_30, lstm_50]
    assert sorted(shown("task.length=30")) == sorted(shown("task.length=3e1")) == [gru, lstm_30]  # by default, too
    assert shown("[~trainer.max_steps,task.length=50]") == [lstm_50]
    for option in ("task.length=51", "~seed", "nonsense=1"):
        only = f"only=[task.length=30,{option}]"
        outcome = invoke(f"sweep={tmp_path}", only, entry="report")
        assert (outcome.status, outcome.err) == (1, f"error: {only}: matches no run in {tmp_path}\n")
    for others in ([], ["figure=derivatives", f"sweep={tmp_path}"]):
        outcome = invoke("only=[a=1]", *others, entry="report")
        reason = "chooses runs of sweep=<name or directory>, not figures"
        assert (outcome.status, outcome.err) == (1, f"error: only=[a=1]: {reason}\n")


def test_an_option_hides_rows_columns_and_seeds_without_runs(tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", length=30, accuracy=0.25)
    whole = invoke(f"sweep={tmp_path}", entry="report").out
    assert all(text in whole for text in ("1 of 2 seeds", "LSTM", "length=50", "not started."))
    part = invoke(f"sweep={tmp_path}", "missing=false", entry="report").out
    assert all(text in part for text in ("GRU", "length=30", "25.0"))
    assert not any(text in part for text in ("1 of 2 seeds", "not started", "LSTM", "length=50"))


def test_a_table_that_is_narrowed_to_rows_shows_these_and_those_with_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "outputs" / "sweep" / "rum_paper_table1"
    write_run(home, f"{TABLE1}/gru", length=30, accuracy=0.25)
    only = invoke("sweep=rum_paper_table1", f"only=[experiment={TABLE1}/gru]", entry="report").out
    assert "GRU" in only
    assert "LSTM" not in only
    overrides = {"task": ["sweep=rum_paper_table1", f"experiment={TABLE1}/lstm"], "hydra": []}
    hydra = {"overrides": overrides, "sweeper": {"_target_": "x.Grid", "params": {"seed": "1,2"}}}
    (home / "multirun.yaml").write_text(OmegaConf.to_yaml({"hydra": hydra}))
    narrowed = invoke("sweep=rum_paper_table1", entry="report").out
    assert all(name in narrowed for name in ("GRU", "LSTM"))
    assert "EURNN" not in narrowed
    assert f"sweep=rum_paper_table1 experiment={TABLE1}/gru,{TABLE1}/lstm" in " ".join(narrowed.split())
    assert "EURNN" in invoke("sweep=rum_paper_table1", "all=true", entry="report").out


def test_a_table_in_a_pipe_that_is_too_wide_goes_on_below(tmp_path: Path) -> None:
    for length in range(31, 41):
        write_run(tmp_path, f"{TABLE1}/gru", length=length, accuracy=length / 100)
    out = invoke(f"sweep={tmp_path}", "missing=false", entry="report").out
    tables = [line for line in out.splitlines() if line.startswith(" ")]
    assert max(map(len, tables)) <= 100
    assert all(f"length={length}" in out and f"{length}.0" in out for length in range(31, 41))
    assert len(re.findall("^ GRU ", out, re.MULTILINE)) > 1


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ({"_target_": "gyral.cells.mamba2.Mamba2Cell"}, "Mamba-2"),
        ({"_target_": "gyral.cells.external.ExternalCell", "cell": "leaky.LeakyCell"}, "Leaky"),
        ({"_target_": "gyral.cells.external.ExternalCell", "cell": "torch.nn.GRUCell"}, "torch.nn.GRU"),
        ({"_target_": "gyral.cells.fs_rnn.FSRNNCell", "fast": "lstm", "slow": {"_target_": "a.SLSTMCell"}},
         "FSRNN(lstm, sLSTM)"),
    ],
)  # fmt: skip
def test_a_cell_has_one_name(cell: dict[str, Any], name: str) -> None:
    config = {"seed": 1, "model": {"cell": cell}}
    assert cell_of(config) == name
    assert model_name(config).startswith(name)


def test_parameters_are_a_column_of_curves_if_rows_differ(tmp_path: Path) -> None:
    for row in ("gru_100", "lstm"):
        run = write_run(tmp_path, f"{FIG4}/{row}", accuracy=0.5)
    assert "parameters" not in invoke(f"sweep={tmp_path}", "missing=false", entry="report").out
    done = json.loads((run / "DONE").read_text())
    (run / "DONE").write_text(json.dumps({**done, "parameters": 13_300}))
    assert "13,300" in invoke(f"sweep={tmp_path}", "missing=false", entry="report").out


@pytest.mark.named("rum_paper_table3", "rum_paper_fig4", "mage_paper_babi", "on_lstm_paper_logical_inference")
@pytest.mark.parametrize("name", sorted(catalogue.generated_choices("sweep")))
def test_a_table_without_runs_shows_what_is_published_and_the_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = invoke(f"sweep={name}", entry="report")
    assert outcome.status == 0, outcome.err
    assert f"To run them: python -m src.train sweep={name}" in " ".join(outcome.out.split())
    assert not list(tmp_path.iterdir())


def test_published_values_that_nobody_has_read_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = invoke("sweep=mamba_paper_selective_copying", entry="report").out
    assert re.search(r"\b18\.3\?", out)
    assert "2023, results of its synthetic tasks; ? marks values that nobody has compared with it." in " ".join(
        out.split()
    )
    out = invoke("sweep=rum_paper_table3", entry="report").out
    assert re.search(r"NASCell +– +1\.214 +– +16\.3M ", out)
    assert "Published values: Dangovski et al., Rotational Unit of Memory, TACL 2019, Table 3." in " ".join(out.split())
