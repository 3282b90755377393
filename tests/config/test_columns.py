"""Tables whose columns are choices of `column`: each row composes in each column, and each column trains."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from gyral.config.groups import load_choice
from gyral.reports import catalogue
from gyral.reports.measures import task_measures
from gyral.reports.rows import Row
from gyral.training import build
from tests.helpers.found import at_least
from tests.helpers.running import compose_config, keep_small
from tests.helpers.slices import small_options

TABLES = {sweep.name: sweep for sweep in catalogue.named() if sweep.column == "column"}
COLUMNS = at_least(
    67,
    [
        pytest.param(sweep, column, id=f"{sweep.name}-{sweep.head(column)}")
        for sweep in TABLES.values()
        for column in sweep.axes["column"]
    ],
)


def shrink(config: DictConfig) -> DictConfig:
    """Return the configuration of a row in a column with small data and a small model."""
    if config.task._target_.startswith("gyral.applications."):
        keep_small(config, **small_options(OmegaConf.to_container(config.task)))
    keep_small(config, batch_size=2, val_batches=1, test_batches=1, train_size=8, val_size=4, test_size=4)
    for part in {"cell", "encoder", "decoder"} & set(config.model):
        config.model[part].hidden_size = 16
    if config.model.embedding_size is not None:
        config.model.embedding_size = 16
    return config


@pytest.mark.named(
    "atlas_memory_small-compression",
    "deletang_paper_table2-parity",
    "deletang_paper_transductions-odds_first",
    "grazzi_paper_table3-brackets",
    "mad_paper_tasks-selective_copying",
    "zoology_paper_mqar-128_8",
)
@pytest.mark.parametrize(("sweep", "column"), COLUMNS)
def test_every_column_takes_three_steps_and_is_tested(sweep: Any, column: str, tmp_path: Path) -> None:
    rows = sweep.axes["experiment"]
    row = rows[sweep.axes["column"].index(column) % len(rows)]
    config = shrink(compose_config(f"experiment={row}", f"column={column}", "logger=none"))
    config.callbacks = {}
    config.trainer.update(accelerator="cpu", max_steps=3, val_check_interval=3)
    built = build.build_task(config)
    trainer = build.build_trainer(config, tmp_path)
    trainer.fit(built, datamodule=built.data)
    assert trainer.global_step == 3
    (results,) = trainer.test(built, datamodule=built.data, verbose=False)
    assert {f"test/{name}" for name in (sweep.measure, *sweep.also)} <= results.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("sweep", "column"), COLUMNS)
def test_every_row_builds_in_every_column(sweep: Any, column: str) -> None:
    wanted = load_choice("column", column)
    wanted.pop("defaults")
    for experiment in sweep.axes["experiment"]:
        config = compose_config(f"experiment={experiment}", f"column={column}")
        assert OmegaConf.merge(config, wanted) == config, f"{experiment} has other options than its column"
        assert build.build_task(shrink(config)).baseline > 0


@pytest.mark.parametrize("name", TABLES)
def test_published_values_belong_to_columns_and_measures(name: str) -> None:
    sweep = TABLES[name]
    columns = {sweep.head(column): column for column in sweep.axes["column"]}
    known = {measure.name for measure in task_measures(sweep.axes["experiment"][0]) if not measure.at_end}
    assert {sweep.measure, *sweep.also} <= known
    for experiment, paper in sweep.papers.items():
        row = Row(experiment, (), paper, [])
        for measure, values in paper.items():
            if isinstance(values, dict):
                assert measure in (sweep.measure, *sweep.also)
                assert values.keys() <= columns.keys()
                assert {name: row.published(measure, columns[name]) for name in values} == values
