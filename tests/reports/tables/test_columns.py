"""The choice of columns."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from gyral.core.errors import OptionError
from gyral.reports.sweep_report import collect
from gyral.reports.tables.columns import choose_columns, read_names
from gyral.reports.tables.sections import Section
from gyral.reports.tables.table import Column, Entry, Table
from tests.helpers.written import write_run

HEADS = ("row", "accuracy\nin %\ndelay = 10", "accuracy\nin %\ndelay = 20", "loss /\nbaseline", "parameters", "seeds")


def section_of(*heads: str) -> Section:
    columns = [Column(head, [Entry(str(index))]) for index, head in enumerate(heads[1:], 1)]
    columns[-1] = replace(columns[-1], is_detail=True)
    return Section("t", [], tables=[Table("t", ["a"], columns, heads[0], "c")])


@pytest.mark.parametrize(
    ("heads", "names", "shown"),
    [
        (HEADS, ["parameters", "Accuracy"], "124"),
        (HEADS, ["delay=20", "seeds"], "25"),
        (HEADS, ["accuracy in % delay = 10", "baseline"], "13"),
        (("row", "length=30", "paper", "length=50", "paper", "parameters", "paper"), ["length=50", "paper"], "34"),
        (("row", "length=30", "paper", "length=50", "paper", "parameters", "paper"), ["paper"], "246"),
        (("row", "average", "paper", "parameters"), ["paper", "parameters"], "23"),
    ],
)
def test_columns_are_chosen_by_their_heads(heads: tuple[str, ...], names: list[str], shown: str) -> None:
    [section] = choose_columns([section_of(*heads), section_of("row", "other")], names)
    [table] = section.tables
    assert table.heads == ["row", *(heads[int(index)] for index in shown)]
    assert [entry.text for entry in table.rows[0][1]] == [*shown]
    assert not any(column.is_detail for column in table.columns)


def test_an_unknown_column_lists_the_columns() -> None:
    with pytest.raises(OptionError, match="columns=loss: must be among accuracy in %, seeds, other"):
        choose_columns([section_of("row", "accuracy\nin %", "seeds"), section_of("row", "other")], ["seeds", "loss"])


def test_names_are_read_without_the_grammar_of_hydra() -> None:
    assert read_names("columns", "[length=30,paper]") == ["length=30", "paper"]
    assert read_names("columns", 'mean squared error, "delay = 1, k = 2"') == ["mean squared error", "delay = 1, k = 2"]
    assert read_names("columns", None) == read_names("columns", "null") == []


@pytest.mark.parametrize("names", ["", "[]", "[a,,b]", " "])
def test_empty_names_are_refused(names: Any) -> None:
    with pytest.raises(OptionError, match=r"^columns=.*: must be heads of columns"):
        read_names("columns", names)
    with pytest.raises(OptionError, match=r"^only=.*: must be options"):
        read_names("only", names)


def test_any_option_is_a_column(tmp_path: Path) -> None:
    for rate, seed in ((0.001, 1), (0.001, 2), (0.01, 1)):
        words = [f"optimizer.lr={rate}", "model=gru"]
        run = write_run(tmp_path, "none", *words, seed=seed, accuracy=rate)
        (run / "overrides.yaml").write_text(OmegaConf.to_yaml([*words, f"seed={seed}"]))
        config = {"seed": seed, "task": {"_target_": "T"}, "optimizer": {"lr": rate, "betas": [0.9, 0.99]}}
        (run / "config.yaml").write_text(OmegaConf.to_yaml(config))
    [section], _, _ = collect(str(tmp_path))
    [table] = choose_columns([section], ["accuracy", "optimizer.lr", "optimizer.betas", "seed"])[0].tables
    assert table.heads == ["row", "optimizer.lr", "optimizer.betas", "seed", "accuracy\nin %"]
    assert [[entry.text for entry in entries[:3]] for _, entries in table.rows] == [
        ["0.001", "[0.9, 0.99]", "1, 2"],
        ["0.01", "[0.9, 0.99]", "1"],
    ]
    assert table.rows[0][1][0].values == [0.001, 0.001]  # for tables in CSV
    with pytest.raises(OptionError, match=r"columns=optimizer\.eps: must be among .*or an option of the runs"):
        choose_columns([section], ["optimizer.eps"])
