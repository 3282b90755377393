"""`gyral evaluate` with parse= and pairs=: tables, files, pages, errors."""

import json
import re
from pathlib import Path

import pytest

from gyral.applications import offers
from gyral.applications.probes.command import probe_pairs, probe_trees
from gyral.cells.lstm import LSTMCell
from gyral.core.errors import OptionError
from gyral.runs.evaluation_report import Request
from gyral.tasks.copy import CopyTask
from gyral.tasks.text import TextTask
from tests.applications.probes.data.test_pairs import write_blimp
from tests.applications.probes.models import language_model
from tests.helpers.pages import read_page
from tests.helpers.running import SMALL_TEXT, invoke

BRACKETS = "(S (NP (DT the) (NN author)) (VP (VB laughs) (ADVP (RB very) (RB often))))\n(S (UH no))\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "text.txt").write_text("who laughs often\nthe author laughs\n<unk> writers n't\n" * 60)
    (folder / "trees.mrg").write_text(BRACKETS)
    write_blimp(folder)
    return folder


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    """A finished run of a model of words."""
    directory = data / "run"
    options = ("task.corpus.level=word", f"task.corpus.path={data / 'text.txt'}", f"paths.data_dir={data}")
    model = ("model=on_lstm", "model.cell.chunk_size=2", "model.num_layers=2", "trainer.max_steps=3")
    outcome = invoke(*SMALL_TEXT, *options, *model, "trainer.val_check_interval=3", f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    return directory


def test_parsing_is_printed_and_saved(run: Path, data: Path) -> None:
    outcome = invoke(f"run={run}", f"parse={data / 'trees.mrg'}", f"save={data / 'a.md'}", entry="evaluate")
    assert outcome.status == 0, outcome.err
    assert outcome.out.endswith(f"{data / 'a.md'}\n")
    printed = {line.split("│")[1].strip(): line for line in outcome.out.splitlines() if line.startswith("│")}
    assert {"layer 1", "layer 2", "right branching", "ON-LSTM, layer 2, published"} <= set(printed)
    table = (data / "a.md").read_text()
    right_branching = re.escape("| right branching | 83.3 | 83.3 |")  # of the first sentence 2/3
    assert re.search(right_branching, table)
    assert re.search(r"^## Parsing without supervision: ON-LSTM\S*.*step 3 on \S+trees.mrg$", table, re.MULTILINE)


def test_a_page_has_a_picture_for_the_treebank_and_each_layer(run: Path, data: Path) -> None:
    outcome = invoke(f"run={run}", f"parse={data / 'trees.mrg'}", f"save={data / 'a.html'}", entry="evaluate")
    assert outcome.status == 0, outcome.err
    page = read_page(data / "a.html")
    captions = [figure.all("figcaption")[0].text for figure in page.all("figure")]
    assert [caption.split(",")[0] for caption in captions] == ["treebank", "layer 1", "layer 2"]
    treebank, *layers = page.all("figure")
    assert [label.text for label in treebank.all("text", "label")] == ["NP", "ADVP", "VP", "S"]
    for figure in layers:
        assert [word.text for word in figure.all("text")] == ["the", "author", "laughs", "very", "often"]
        bars = [float(bar.attributes["height"] or "") for bar in figure.all("rect")]
        assert (min(bars), max(bars)) == (0, 26), "the smallest and the largest distance"
        assert all(bar.tooltip.startswith("distance ") for bar in figure.all("rect"))
        kinds = {path.attributes["class"] for path in figure.all("path")}
        assert kinds <= {"right", "wrong"}
        assert "right" in kinds, "the whole sentence"


def test_pairs_are_printed_and_saved(run: Path, data: Path) -> None:
    outcome = invoke(f"run={run}", "pairs=blimp", f"save={data / 'a.json'}", entry="evaluate")
    assert outcome.status == 0, outcome.err
    saved = json.loads((data / "a.json").read_text())
    assert saved["title"].startswith("BLiMP: ON-LSTM")
    assert saved["numbers"]["overall/pairs"] == 1
    assert saved["numbers"]["overall/known"] == 0  # laugh is not in the text


def test_options_of_two_evaluations_are_an_error_of_one_line(run: Path) -> None:
    expected = "parse, pairs: belong to several evaluations; evaluate them one after the other"
    assert invoke(f"run={run}", "parse=a", "pairs=blimp", entry="evaluate").error == expected


def test_files_that_cannot_be_read_or_written_are_refused() -> None:
    task = language_model(LSTMCell)
    with pytest.raises(OptionError, match=r"^save=a.html: must end in one of .md, .json$"):
        probe_pairs(task, Request("model", "a.html", "data"), pairs="blimp")
    with pytest.raises(OptionError, match=r"^save=a.tex: must end in one of .md, .json, .html$"):
        probe_trees(task, Request("model", "a.tex", "data"), parse="a")
    with pytest.raises(OptionError, match=r"^parse=nowhere: cannot be read \(No such file or directory\)"):
        probe_trees(task, Request("model", None, "data"), parse="nowhere")


def test_only_language_models_are_probed() -> None:
    assert not set(offers("evaluations", CopyTask)) & {"parse", "pairs"}
    assert set(offers("evaluations", TextTask)) >= {"parse", "pairs"}
