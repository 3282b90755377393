"""Files of conf/table: what a row is, and wrong files."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from gyral.config.groups import choices, load_choice, warn_skipped
from gyral.config.tables import SOURCE, load_table
from gyral.core.errors import UserError
from gyral.reports import catalogue
from tests.helpers.found import at_least
from tests.helpers.running import SMALL_RECALL, compose_config, invoke
from tests.helpers.written import write_run

TABLE: dict[str, Any] = {
    "experiment": "mine/first",
    "report": {"layout": "table", "title": "Mine", "measure": "accuracy", "column": "task.length"},
    "sweep": {"task.length": [4, 6], "seed": [1, 2], "task.data_seed": [None, 3]},
    "protocol": {"task": "recall", "task.length": 4, "optimizer": "adam", "optimizer.lr": 0.1},
    "rows": {
        "_wide": {"model.cell.hidden_size": 64, "optimizer.lr": 0.2},
        "gru": {"name": "A GRU", "model": "gru", "paper": {"accuracy": {4: 50.0}}},
        "wide": {"extends": ["gru", "_wide"], "optimizer.lr": 0.3},
        "reader": {"model": "gated_attention", "cell@model.cell": "mage_gru", "task": "babi_reading"},
        "of_others": {"published_only": True, "paper": {"accuracy": {4: 60.0}}},
    },
}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write the table with other sections, in a folder conf/ of the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "table").mkdir(parents=True)
    catalogue.load.cache_clear()

    def to_file(name: str = "mine", **sections: Any) -> None:
        content = {key: value for key, value in (TABLE | sections).items() if value is not None}
        (tmp_path / "conf" / "table" / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))

    return to_file


def test_a_row_has_the_options_of_the_protocol_and_its_own(write: Any) -> None:
    write()
    assert [name for name in choices("experiment") if name.startswith("mine/")] == [
        "mine/first/gru",
        "mine/first/reader",
        "mine/first/wide",
    ]
    gru, wide = (compose_config(f"experiment=mine/first/{name}") for name in ("gru", "wide"))
    assert gru.model.cell._target_.endswith("GRUCell")
    assert gru.task._target_.endswith("RecallTask")
    assert gru.task.length == 4
    assert gru.optimizer.lr == 0.1
    assert OmegaConf.to_container(gru.paper) == {"row": "A GRU", "accuracy": {"4": 50.0}}
    assert wide.model.cell._target_ == gru.model.cell._target_
    assert wide.model.cell.hidden_size == 64
    assert wide.optimizer.lr == 0.3
    assert OmegaConf.to_container(wide.paper) == {"row": "wide"}
    assert compose_config("experiment=mine/first/gru", "optimizer.lr=0.5").optimizer.lr == 0.5
    reader = compose_config("experiment=mine/first/reader")
    assert reader.model.cell._target_.endswith("MAGEGRUCell")


def test_the_sweep_has_the_rows_that_can_be_trained_and_all_values(write: Any) -> None:
    write()
    params = load_choice("sweep", "mine").hydra.sweeper.params
    assert params == {
        "experiment": "mine/first/gru,mine/first/wide,mine/first/reader",
        "task.length": "4,6",
        "seed": "1,2",
        "task.data_seed": "null,3",
    }
    assert invoke("sweep=mine", "--cfg", "job", "--package", "report").status == 0


def test_a_sweep_takes_the_options_of_the_models_of_its_rows() -> None:
    outcome = invoke("sweep=rum_paper_table4", "model.encoder.hidden_size=8", "--cfg", "job", "--package", "model")
    assert outcome.status == 0, outcome.err
    assert "hidden_size: 8" in outcome.out


@pytest.mark.parametrize("word", ["extends", "like"])  # `like` in earlier tables
def test_a_protocol_may_extend_that_of_another_table(write: Any, word: str) -> None:
    write()
    write("second", experiment="mine/second", protocol={word: "mine", "optimizer.lr": 0.5})
    config = compose_config("experiment=mine/second/gru")
    assert config.task.length == 4
    assert config.optimizer.lr == 0.5


@pytest.mark.parametrize("word", ["extends", "like"])
def test_rows_may_extend_those_of_another_table(write: Any, word: str) -> None:
    write()
    rows = {word: "mine", "wide": {"model.cell.hidden_size": 32}, "rum": {"model": "rum"}}
    write("second", experiment="mine/second", rows=rows)
    table = load_table(Path("conf/table/second.yaml"))
    assert table.experiments == [
        f"mine/second/{name}" for name in ("_protocol", "_wide", "gru", "wide", "reader", "rum")
    ]
    wide = compose_config("experiment=mine/second/wide")
    assert wide.model.cell._target_.endswith("GRUCell")
    assert wide.model.cell.hidden_size == 32
    assert wide.optimizer.lr == 0.3


def test_a_row_has_the_source_of_the_table_or_its_own(write: Any) -> None:
    rows = {"gru": {"model": "gru"}, "lstm": {"model": "lstm", "source": {"place": "page 3", "verified": True}}}
    write(source={"paper": "Mine", "place": "Table 1"}, rows=rows)
    table = load_table(Path("conf/table/mine.yaml"))
    assert table.source("gru") == {"paper": "Mine", "place": "Table 1", "verified": None}
    assert table.source("lstm") == {"paper": "Mine", "place": "page 3", "verified": True}


def test_text_with_signs_of_the_command_line_is_quoted(write: Any) -> None:
    write(sweep={"model.cell.activation": ["tanh", "a, b"], "seed": [1]})
    assert load_choice("sweep", "mine").hydra.sweeper.params["model.cell.activation"] == "tanh,'a, b'"


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"lines": {}},
            "lines: must be one of experiment, report, sweep, columns, choose, protocol, rows, hydra, source",
        ),
        ({"rows": None}, "must have the name `experiment`, the section `report`, and `rows` with options each"),
        ({"rows": {"gru": "model=gru"}}, "must have the name `experiment`"),
        ({"report": None}, "must have the name `experiment`"),
        ({"source": {"page": 3}}, "source: must have the keys paper, place, verified alone"),
        ({"sweep": {"seed": 1}}, "sweep.seed=1: must be a list of values"),
        ({"rows": {"gru": {"extends": "lstm"}}}, "extends=lstm: must be one of gru"),
        ({"rows": {"gru": {"extends": "lstm"}, "lstm": {"extends": "gru"}}}, "extends=gru: extends itself"),
        ({"protocol": {"extends": "nothing"}}, "protocol.extends=nothing: there is no table"),
        ({"rows": {"extends": "nothing"}}, "rows.extends=nothing: there is no table"),
        ({"protocol": {"extends": "mine"}}, "protocol.extends=mine: must not be a circle: mine → mine"),
        ({"report": {"colunm": "task.length"}}, "report.colunm: did you mean column? must be one of title, layout, "),
        ({"rows": {"gru": {"modle": "gru"}}}, "modle: no such option; did you mean model? must begin with one of "),
        ({"rows": {"gru": {"paths_": 1}}}, "paths_: no such option; did you mean paths? must begin with one of "),
        ({"protocol": {"tsk.length": 4}}, "tsk.length: no such option; "),
        ({"protocol": {"lr": 4}}, "lr: no such option; must begin with one of "),
    ],
)
def test_wrong_tables_are_refused_in_one_line(write: Any, sections: dict[str, Any], message: str) -> None:
    write(**sections)
    outcome = invoke("experiment=mine/first/gru", "--cfg", "job")
    assert outcome.status == 1
    assert message in outcome.error
    assert "\n" not in outcome.error.strip()
    with pytest.raises(UserError):
        load_choice("experiment", "mine/first/gru")


def test_tables_that_extend_each_other_are_left_out(write: Any, caplog: pytest.LogCaptureFixture) -> None:
    for name, other in (("mine", "second"), ("second", "third"), ("third", "second")):
        write(name, experiment=f"mine/{name}", rows={"extends": other, "gru": {"model": "gru"}})
    warn_skipped.cache_clear()
    assert not [name for name in choices("experiment") if name.startswith("mine/")]
    faults = [message for message in caplog.messages if "conf/table" in message]
    assert len(faults) == 3
    assert "mine.yaml: rows.extends=second: must not be a circle: mine → second → third → second; this" in faults[0]
    # the rows and the protocol of two tables may each extend those of the other
    write("second", experiment="mine/second", protocol={"extends": "mine"})
    write(rows={"extends": "second"}, protocol={"task": "copy"})
    assert load_table(Path("conf/table/mine.yaml")).options("gru")["task"] == "copy"
    assert load_table(Path("conf/table/second.yaml")).options("gru")["task"] == "copy"


def test_a_file_that_is_no_yaml_is_refused(write: Any) -> None:
    write()
    Path("conf/table/mine.yaml").write_text("rows: [", encoding="utf-8")
    outcome = invoke("sweep=mine", "--cfg", "job")
    assert outcome.status == 1
    assert "mine.yaml:2: did not find expected node content (while parsing a flow node" in outcome.error


def test_a_key_that_is_there_twice_is_refused(write: Any) -> None:
    write()
    with Path("conf/table/mine.yaml").open("a", encoding="utf-8") as file:
        file.write("sweep: {seed: [7]}\n")
    with pytest.raises(UserError, match=r"mine\.yaml:\d+: found duplicate key sweep \(while constructing a mapping"):
        load_choice("experiment", "mine/first/gru")


def published(name: str) -> list[str]:
    """Return the rows of a table with published values."""
    return [row for row, paper in catalogue.load(name).papers.items() if paper.keys() - {"row"}]


def test_every_published_value_has_a_source() -> None:
    for name in at_least(31, [name for name in catalogue.generated_choices("sweep") if published(name)]):
        sources = catalogue.load(name).sources
        for row in published(name):
            source = sources[row]
            missing = [key for key in SOURCE if source[key] in (None, "")]
            assert not missing, f"{name}, {row}: the source of its published values lacks {', '.join(missing)}"
            assert isinstance(source["verified"], bool | str)


BROKEN = {
    "no_yaml": "experiment: no_yaml\nrows: [",
    "no_rows": "experiment: no_rows\nreport: {}\n",
    "unknown_layout": "experiment: unknown_layout\nreport: {layout: tabel}\nrows: {gru: {model: gru}}\n",
    "unknown_measure": "experiment: unknown_measure\nreport: {measure: rogue1}\nrows: {gru: {model: gru}}\n",
}


def test_a_broken_table_costs_one_line_and_no_report(
    write: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write()
    for name, text in {**BROKEN, "not_asked_for": "rows: ["}.items():
        (tmp_path / "conf" / "table" / f"{name}.yaml").write_text(text)
    warn_skipped.cache_clear()
    for experiment in ("mine/first", *BROKEN):
        write_run(tmp_path / "outputs", f"{experiment}/gru", accuracy=0.5)
    outcome = invoke("sweep=outputs", entry="report")
    assert outcome.status == 0, outcome.err
    assert "Mine" in outcome.out  # the other table
    assert "Runs on" in outcome.out  # the runs of the broken one, as those of no table
    assert invoke("sweep=outputs", entry="report").status == 0
    assert len(caplog.messages) == len(BROKEN)  # a process prints each once
    for name in BROKEN:
        (line,) = (line for line in caplog.messages if f"{name}.yaml:" in line)
        assert line.endswith("; this table is left out")
        assert invoke(f"sweep={name}", entry="report").error
    assert invoke("experiment=mine/first/gru", "--cfg", "job").status == 0


def test_the_shortest_table(write: Any, tmp_path: Path) -> None:
    (tmp_path / "conf" / "table" / "short.yaml").write_text(
        "experiment: short\nreport: {}\nprotocol: {task: recall}\nrows: {gru: {model: gru}, lstm: {model: lstm}}\n"
    )
    write_run(tmp_path / "outputs", "short/gru", accuracy=0.284)
    outcome = invoke("sweep=outputs", entry="report")
    assert outcome.status == 0, outcome.err
    assert "28.4" in outcome.out


def test_a_sweep_of_models_needs_no_rows(write: Any, tmp_path: Path) -> None:
    (tmp_path / "conf" / "sweep").mkdir()
    (tmp_path / "conf" / "sweep" / "own.yaml").write_text(
        "# @package _global_\ndefaults: [_base, override /task: recall, _self_]\n"
        "hydra: {sweeper: {params: {model: 'gru,lstm', seed: 1}}}\n"
    )
    options = (*SMALL_RECALL, "trainer.max_steps=2", "task.val_size=4", "task.test_size=4")
    outcome = invoke("sweep=own", *(option for option in options if option != "task=recall"))
    assert outcome.status == 0, outcome.err
    assert "Runs on recall" in outcome.out
    runs = [*(tmp_path / "outputs" / "sweep" / "own").rglob("DONE")]
    assert len(runs) == 2
    assert all("model=" in str(run) for run in runs)
    assert "LSTM" in invoke("sweep=own", entry="report").out
