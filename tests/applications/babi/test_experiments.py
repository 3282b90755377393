"""Rows of Table 2 of the RUM paper have the parameters of the cells' equations."""

import pytest

from gyral.training import build
from gyral.training.callbacks.statistics import count_parameters
from tests.helpers.found import at_least
from tests.helpers.parameters import CELLS, COMPLEX, cell_of, rows
from tests.helpers.running import compose_config

TABLE2 = "rum_paper/table2"


@pytest.mark.named("gru_attention", "word_urnn")
@pytest.mark.parametrize("row", at_least(20, rows(TABLE2)))
def test_rows_of_table_2_have_the_parameters_of_the_equations(row: str) -> None:
    config = compose_config(f"experiment={TABLE2}/{row}")
    config.task.update(generated=True, size="1k")
    task = build.build_task(config)
    hidden = {"eurnn": 512, "eurnn_attention": 512, "rum_150_no_gate": 150}.get(row, 100)
    cell = "rum" if row == "rum_tanh" else cell_of(row.removeprefix("word_"))
    attention, rotational = row.endswith("_attention"), row.endswith("_rotational")
    width = 2 * hidden if cell in COMPLEX else hidden
    embedding = len(task.data.babi.vocabulary) * 64
    expected = embedding + CELLS[cell](64, hidden) + (2 if attention or rotational else 1) * width * 6 + 6
    assert count_parameters(task) == expected + (64 * 100 + 100 if rotational else 0)
