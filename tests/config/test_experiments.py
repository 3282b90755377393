"""Experiments of the core have the sizes of the papers' equations, and each sweep has all rows of its groups."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hydra.core.hydra_config import HydraConfig

from gyral.config.instantiation import make
from gyral.reports import catalogue as sweeps
from gyral.tasks.algorithm import PROTOCOLS
from gyral.training import build
from gyral.training.callbacks.early_stopping import EarlyStopping
from gyral.training.callbacks.statistics import count_parameters
from tests.helpers.found import at_least
from tests.helpers.parameters import expected_parameters, rows
from tests.helpers.running import build_or_skip, choices, compose_config

TABLE1, FIG4, TABLE3 = "rum_paper/table1", "rum_paper/fig4", "rum_paper/table3"

# Parameters in millions as Table 3 of the RUM paper prints them. Those of the rows in brackets do not come out with the
# sizes that the paper gives: what they come to here.
PUBLISHED3 = {
    "rum_1400_no_gate": 2.4,
    "rum_1000": 2.4,
    "rum_1000_tanh": 2.4,
    "lstm_1000": 4.5,
    "rum_1400": 4.5,
    "rum_2000": 8.9,
    "rum_2x1500": 16.4,
    "fs_eurnn_2": 18.3,  # (14.3)
    "fs_goru_2": 9.5,  # (17.0)
    "fs_lstm_4": 6.5,
    "fs_lstm_2": 7.2,
    "fs_rum_2": 11.2,
}
# Parameters of LANTM with InvNorm here; the paper's are 0.5 to 5 % more. SoftMax has one more output, the temperature.
ALGORITHMS = {"copy": 25_015, "reverse": 25_015, "bigram_flip": 68_965, "double": 18_403, "addition": 19_901}
# On word-level Penn Treebank. Those of ON-LSTM are published with two biases per layer, of 11,340 entries each.
WORDS = {"awd_lstm": 24_221_600, "on_lstm": 25_232_180 - 11_340}


@pytest.mark.named("eurnn", "goru", "gru", "urnn", "weinet")
@pytest.mark.parametrize("row", rows(TABLE1))
def test_rows_of_table_1_have_the_parameters_of_the_equations(row: str) -> None:
    config = compose_config(f"experiment={TABLE1}/{row}")
    for length, inputs in ((30, 26), (50, 36)):
        config.task.update(length=length, train_size=128, val_size=8, test_size=8)
        expected = expected_parameters(row, inputs, 50, 10)
        if row == "rum_lambda1_no_gate":
            expected -= 50 * (inputs + 50 + 1)
        assert count_parameters(build.build_task(config)) == expected


@pytest.mark.named("goru", "gru_100", "rum_lambda0_eta1", "rum_no_gate", "urnn")
@pytest.mark.parametrize("row", rows(FIG4))
def test_rows_of_figure_4_have_the_parameters_of_the_equations(row: str) -> None:
    config = compose_config(f"experiment={FIG4}/{row}")
    config.task.update(train_size=128, val_size=8, test_size=8)
    hidden = 256 if row.endswith("_256") else 100
    expected = expected_parameters(row, 10, hidden, 9)
    if row == "rum_no_gate":
        expected -= hidden * (10 + hidden + 1)
    assert count_parameters(build.build_task(config)) == expected


@pytest.fixture(scope="module")
def fifty_characters(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return what stands in for the corpus of the Penn Treebank: another text with as many characters."""
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("".join(map(chr, range(48, 98))) * 100)

    def build_with(config: Any) -> Any:
        config.task.corpus = {
            "_target_": "gyral.data.text.corpora.load_file",
            "path": str(path),
            "data_dir": str(path.parent),
        }
        config.task.update(batch_size=2, window=10)
        with torch.device("meta"):  # sizes alone: of 18 million parameters none needs a value
            return build.build_task(config)

    return build_with


@pytest.mark.named("fs_eurnn_2", "gru_1000")
@pytest.mark.parametrize("row", rows(TABLE3))
def test_rows_of_table_3_have_the_papers_size_and_schedule(row: str, fifty_characters: Callable[..., Any]) -> None:
    task = fifty_characters(compose_config(f"experiment={TABLE3}/{row}"))
    assert task.model.vocabulary_size == 50
    if row in PUBLISHED3:
        # the paper cuts some off and rounds others
        assert PUBLISHED3[row] - 0.01 < count_parameters(task) / 1e6 < PUBLISHED3[row] + 0.1
    made = task.configure_optimizers()
    if row.startswith("fs"):
        scheduler = made["lr_scheduler"]["scheduler"]
        rates = [0.002 * scheduler.lr_lambdas[0](262 * number) for number in (0, 179, 180, 239, 240, 359)]
        assert rates == pytest.approx([2e-3, 2e-3, 1e-4, 1e-4, 1e-5, 1e-5])


@pytest.mark.parametrize("row", rows("rum_paper/table3_small"))
def test_small_rows_of_table_3_have_at_most_a_million_parameters(
    row: str, fifty_characters: Callable[..., Any]
) -> None:
    config = compose_config(f"experiment=rum_paper/table3_small/{row}")
    assert 90_000 < count_parameters(fifty_characters(config)) < 1_000_000


@pytest.mark.named("*-inv_norm", "bigram_flip-softmax")
@pytest.mark.parametrize("row", ["inv_norm", "softmax"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_rows_of_lantm_have_the_parameters_of_its_equations(name: str, row: str) -> None:
    config = compose_config(f"experiment=lantm_paper/{name}/{row}")
    hidden = 100 if name == "bigram_flip" else 50
    further = 0
    if row == "softmax":  # further entries of the embedding of each symbol, which the controller reads
        plain = compose_config(f"experiment=lantm_paper/{name}/inv_norm")
        entries = config.model.embedding_size - plain.model.embedding_size
        further = hidden + 1 + entries * (PROTOCOLS[name].vocabulary_size + 4 * hidden)
    assert count_parameters(build.build_task(config)) == ALGORITHMS[name] + further


@pytest.mark.slow  # builds models of 24 million parameters
@pytest.mark.parametrize("row", WORDS)
def test_language_models_of_words_have_the_parameters_of_awd_lstm(row: str) -> None:
    task = build_or_skip(compose_config(f"experiment=on_lstm_paper/lm/{row}"))
    assert count_parameters(task) == WORDS[row]
    assert task.model.head.weight is task.model.embedding.weight


SWEEPS = at_least(51, [name for name in choices("sweep") if name != "tune"])  # a search has no rows


def test_a_sweep_has_every_row_of_its_groups_once_with_its_own_name() -> None:
    for name in SWEEPS:
        sweep = sweeps.load(name)
        experiments = sweep.axes.get("experiment", [])
        groups = {experiment.rpartition("/")[0] for experiment in experiments}
        assert sorted(experiments) == sorted(f"{group}/{row}" for group in groups for row in rows(group)), name
        labels = [paper["row"] for paper in sweep.papers.values()]
        assert len(set(labels)) == len(labels), name


@pytest.mark.named("adding", "lantm_paper_*", "on_lstm_paper_lm", "rum_paper_table3")
@pytest.mark.parametrize("name", SWEEPS)
def test_rows_with_the_same_last_name_have_different_directories(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)
    by_end: dict[str, list[str]] = {}
    for experiment in sweeps.load(name).axes.get("experiment", []):
        by_end.setdefault(experiment.rpartition("/")[2], []).append(experiment)
    experiments = max(by_end.values(), key=len, default=[])
    folders = set()
    for experiment in experiments:
        config = compose_config(f"sweep={name}", f"experiment={experiment}", hydra_too=True)
        HydraConfig.instance().set_config(config)
        folders.add(config.hydra.sweep.subdir)
    assert len(folders) == len(experiments)


def test_a_row_stops_when_solved_without_other_callbacks() -> None:
    config = compose_config(f"experiment={TABLE1}/gru", "callbacks=none")
    (callback,) = (make(config, f"callbacks.{name}") for name in config.callbacks)
    assert isinstance(callback, EarlyStopping)
    assert callback.threshold == 0.999
