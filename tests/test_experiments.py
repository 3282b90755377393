"""Rows of the RUM paper: each builds with the paper's settings, is in its sweep, and carries what the paper says."""

from collections.abc import Callable
from typing import Any

import pytest

from src import build, sweeps
from src.callbacks import Solved, count_parameters
from tests.running import choices, compose_config

TABLE1, FIG4 = "rum_paper/table1", "rum_paper/fig4"

# Parameters of each cell by input size X and hidden size N, from the papers' equations; outputs of complex cells are 2N
# wide, and a complex number counts as two.
CELLS: dict[str, Callable[[int, int], int]] = {
    "lstm": lambda x, n: 4 * n * (x + n + 2),
    "gru": lambda x, n: 3 * n * (x + n + 2),
    "rnn": lambda x, n: n * (x + n + 2),
    "urnn": lambda x, n: 2 * n * x + n + 3 * n + 2 * 2 * n,  # input, bias, three diagonals, two reflections
    "full_urnn": lambda x, n: 2 * n * x + n + n * n,  # input, bias, a unitary matrix
    "eurnn": lambda x, n: 2 * n * x + n + n + 2 * (n - 1),  # input, bias, a diagonal, two angles a rotation
    "goru": lambda x, n: 3 * n * (x + 1) + 2 * n * n + n - 1,  # three input kernels, two gates', angles
    "rum": lambda x, n: 3 * n * (x + 1) + 2 * n * n,
    "fast_weights": lambda x, n: n * (x + n + 1) + 2 * n,  # two kernels and a bias, a normalization
    "weinet": lambda x, n: 7 * n * (x + 1) + 4 * n * n + 2 * n,
    "on_lstm": lambda x, n: (4 * n + 2 * n // 10) * (x + n + 1),  # an LSTM with one bias, two gates of chunks of ten
}
COMPLEX = ("urnn", "full_urnn", "eurnn")

# Table 1: parameters in thousands, accuracy in % at T = 30 and at T = 50.
PUBLISHED = {
    "gru": (14, 21.5, 17.6),
    "goru": (13, 21.8, 18.9),
    "eurnn": (4, 24.5, 18.5),
    "lstm": (17, 25.6, 20.5),
    "fast_weights": (9, 100, 20.8),
    "weinet": (22, 100, 100),
    "rum_lambda0": (13, 25.0, 18.5),
    "rum_lambda1_eta1": (13, 100, 83.7),
    "rum_lambda1": (13, 100, 100),
}


def rows(group: str) -> list[str]:
    """Return the rows that have a file in a group of experiments."""
    names = [name.removeprefix(f"{group}/") for name in choices("experiment") if name.startswith(group)]
    assert names
    return names


def cell_of(row: str) -> str:
    """Return which of `CELLS` a row has."""
    return max((cell for cell in CELLS if row.startswith(cell)), key=len)


def expected_parameters(row: str, inputs: int, hidden: int, outputs: int) -> int:
    cell = cell_of(row)
    width = 2 * hidden if cell in COMPLEX else hidden
    return CELLS[cell](inputs, hidden) + width * outputs + outputs


@pytest.mark.parametrize("row", rows(TABLE1))
def test_rows_of_table_1_have_the_papers_settings(row: str) -> None:
    config = compose_config(f"experiment={TABLE1}/{row}")
    for length, inputs in ((30, 26), (50, 36)):
        config.task.length = length
        task = build.build_task(config)
        assert count_parameters(task) == expected_parameters(row, inputs, 50, 10)
    assert (config.task.length, config.task.batch_size, config.trainer.max_steps) == (50, 128, 100_000)
    assert (config.task.train_size, config.task.val_size, config.task.test_size) == (100_000, 10_000, 20_000)
    assert (task.monitor, task.mode, config.callbacks.solved.at) == ("val/accuracy", "max", 0.999)
    assert_rmsprop(task, 0.001)


@pytest.mark.parametrize("row", rows(FIG4))
def test_rows_of_figure_4_have_the_papers_settings(row: str) -> None:
    config = compose_config(f"experiment={FIG4}/{row}")
    task = build.build_task(config)
    hidden = 256 if row == "gru_256" else 100
    expected = expected_parameters(row, 10, hidden, 9)
    if row == "rum_no_gate":
        expected -= hidden * (10 + hidden + 1)
    assert count_parameters(task) == expected
    assert (config.task.delay, config.task.batch_size) == (500, 128)
    assert (config.task.train_size, config.task.test_size) == (50_000, 500)
    assert config.callbacks.solved.at is None
    assert_rmsprop(task, 0.0001 if row == "eurnn" else 0.001)


def assert_rmsprop(task: Any, rate: float) -> None:
    optimizer = task.configure_optimizers()
    assert type(optimizer).__name__ == "RMSprop"
    assert (optimizer.defaults["lr"], optimizer.defaults["alpha"]) == (rate, 0.9)


@pytest.mark.parametrize(("name", "group"), [("rum_paper_table1", TABLE1), ("rum_paper_fig4", FIG4)])
def test_every_row_is_in_the_papers_sweep_once(name: str, group: str) -> None:
    experiments = sweeps.load(name).axes["experiment"]
    assert sorted(experiments) == sorted(f"{group}/{row}" for row in rows(group))


def test_the_rows_carry_what_the_paper_says() -> None:
    papers = sweeps.load("rum_paper_table1").papers
    for row, (thousands, *accuracy) in PUBLISHED.items():
        paper = papers[f"{TABLE1}/{row}"]
        assert paper["parameters"] == 1000 * thousands
        assert [paper["accuracy"][length] for length in ("30", "50")] == accuracy
    assert [name for name, paper in papers.items() if "accuracy" not in paper] == [
        name for name, paper in papers.items() if "not in the paper" in paper["row"]
    ]


@pytest.mark.parametrize("name", ["rum_paper_table1", "rum_paper_fig4"])
def test_no_two_rows_have_the_same_name(name: str) -> None:
    labels = [paper["row"] for paper in sweeps.load(name).papers.values()]
    assert len(set(labels)) == len(labels)


def test_a_row_ends_when_solved_without_the_other_callbacks_too() -> None:
    config = compose_config(f"experiment={TABLE1}/gru", "callbacks=none")
    (callback,) = (build.make(config, f"callbacks.{name}") for name in config.callbacks)
    assert isinstance(callback, Solved)
    assert callback.at == 0.999
