"""Tables of conf/table and the rows that runs belong to."""

from pathlib import Path
from typing import Any

import pytest

from gyral.config.groups import find_generated_choice
from gyral.core.errors import OptionError
from gyral.reports import catalogue
from gyral.reports.catalogue import Plan
from gyral.reports.measures import task_measures, with_measures
from gyral.reports.rows import rows_of_tasks
from gyral.runs import records
from gyral.runs.measures import write_measures
from gyral.tasks.adding import AddingTask
from gyral.tasks.recall import RecallTask
from gyral.tasks.text import TextTask
from tests.helpers.calls import calls_of
from tests.helpers.running import invoke
from tests.helpers.written import FIG4, TABLE1, write_run
from tests.reports.plots.test_lines import write_own

REPORTS = Path(catalogue.__file__).parent


@pytest.mark.parametrize("name", [sweep.name for sweep in catalogue.named()])
def test_every_sweep_has_a_layout(name: str) -> None:
    sweep = catalogue.load(name)
    assert sweep.title
    assert {"experiment", "seed"} <= set(sweep.axes)
    assert sweep.column is None or sweep.column in sweep.axes
    assert all(paper["row"] for paper in sweep.papers.values())


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the sweeps that are read from now on, and of the experiments that are composed."""
    names: list[str] = []
    load = catalogue.load

    def note(name: str) -> catalogue.Sweep:
        names.append(name)
        return load(name)

    def compose(words: Any) -> None:
        raise AssertionError(f"{words} is composed")

    monkeypatch.setattr(catalogue, "load", note)
    monkeypatch.setattr("gyral.reports.measures.compose_with_hydra", compose)
    return names


def test_a_report_of_runs_reads_their_own_sweeps_alone(loaded: list[str], tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.25)
    write_run(tmp_path, f"{FIG4}/lstm", accuracy=0.125)
    assert invoke(f"sweep={tmp_path}", entry="report").status == 0
    assert set(loaded) == {"rum_paper_table1", "rum_paper_fig4"}


def test_every_experiment_is_found_in_its_sweeps() -> None:
    expected: dict[str, set[str]] = {}
    for sweep in catalogue.named():
        for experiment in sweep.axes["experiment"]:
            expected.setdefault(experiment, set()).add(sweep.name)
    files = {experiment: find_generated_choice("experiment", experiment) for experiment in expected}
    assert {experiment: {file.stem} for experiment, file in files.items() if file} == expected
    for experiment in (f"{TABLE1}/gru", f"{FIG4}/lstm"):
        assert {sweep.name for sweep in catalogue.containing([None, experiment])} == expected[experiment]


def test_a_report_of_one_run_takes_few_calls_and_reads_no_sweep(loaded: list[str], tmp_path: Path) -> None:
    write_own(tmp_path, "gru", {}, seed=1, accuracy=0.5)
    invoke(f"sweep={tmp_path}", entry="report")  # what a process does once
    printed = []
    files = calls_of(lambda: printed.append(invoke(f"sweep={tmp_path}", entry="report").out), name="co_filename")
    assert "Runs on recall" in printed[0]
    assert len(files) <= 345  # hundreds, where a sweep takes thousands
    assert sum(Path(file).is_relative_to(REPORTS) for file in {*files}) <= 12
    assert not loaded


def test_a_sweep_without_runs_has_the_measures_of_its_task() -> None:
    sweep = with_measures(catalogue.load("ntm_paper_copy"), [])
    assert sweep.main.title == "wrong bits in %"
    assert not sweep.main.higher_is_better


def test_the_measures_of_a_row_equal_those_of_the_class_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "conf" / "table"
    folder.mkdir(parents=True)
    (folder / "own.yaml").write_text(
        "experiment: own\nreport: {layout: table, title: Own}\nprotocol: {task: recall}\nrows:\n"
        "  protocol: {model: gru}\n  base: {task: ptb_word}\n"
        "  own: {task: copy, task._target_: gyral.tasks.adding.AddingTask}\n"
    )
    monkeypatch.chdir(tmp_path)
    for row, task in (("protocol", RecallTask), ("base", TextTask), ("own", AddingTask)):
        assert task_measures(f"own/{row}") == task.measures
    assert len({RecallTask.measures, TextTask.measures, AddingTask.measures}) == 3
    monkeypatch.setattr("gyral.reports.measures.compose_with_hydra", None)  # the files of these tasks say it
    assert task_measures("own/base") == TextTask.measures
    assert task_measures("own/protocol") == RecallTask.measures


def test_an_unknown_measure_of_a_sweep_is_refused_with_those_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "conf" / "table"
    folder.mkdir(parents=True)
    (folder / "own.yaml").write_text(
        "experiment: own\nreport: {layout: table, title: Own, measure: rogue1}\n"
        "sweep: {seed: [1]}\nprotocol: {task: recall}\nrows: {gru: {model: gru}}\n"
    )
    monkeypatch.chdir(tmp_path)
    directory = write_run(tmp_path / "outputs" / "sweep" / "own", "own/gru", accuracy=0.5)
    error = invoke("sweep=own", entry="report").error
    assert error.startswith("report.measure=rogue1: must be one of")
    assert "accuracy" in error
    write_measures(directory, (), ())
    with pytest.raises(OptionError, match=r"report\.measure=rogue1: must be one of .*accuracy"):
        with_measures(catalogue.load("own"), [])
    catalogue.load.cache_clear()


def test_a_directory_that_does_not_exist_is_named_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs" / "sweep").mkdir(parents=True)
    for where, said in {
        "outputs/swep": "sweep=outputs/swep: there is no such directory; did you mean outputs/sweep?",
        "output/sweep": "sweep=output/sweep: there is no such directory; did you mean outputs/sweep?",
        "outputs/other": "sweep=outputs/other: there is no such directory",
    }.items():
        with pytest.raises(OptionError) as raised:
            catalogue.find(where)
        assert str(raised.value) == said
    with pytest.raises(OptionError, match=r"did you mean rum_paper_table1\?$"):
        catalogue.find("rum_paper_tabel1")
    with pytest.raises(OptionError, match=r"must be one of adding, .* or a directory that contains runs"):
        catalogue.find("xyz")


def test_a_value_that_is_written_otherwise_is_the_same_row(tmp_path: Path) -> None:
    for seed, word in enumerate(("0.01", "1e-2", "0.010"), start=1):
        write_own(tmp_path, "gru", {"optimizer.lr": 0.01}, seed=seed, accuracy=0.5)
        overrides = next(path for path in tmp_path.rglob("overrides.yaml") if f"seed={seed}" in path.read_text())
        overrides.write_text(overrides.read_text().replace("optimizer.lr=0.01", f"optimizer.lr={word}"))
    [row] = rows_of_tasks(records.read(tmp_path)[0], Plan())["recall"]
    assert [record.seed for record in row.records] == ["1", "2", "3"]
