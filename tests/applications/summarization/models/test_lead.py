"""LEAD-3: the first three sentences of each article, with their ROUGE, without training."""

import json
import re
from pathlib import Path

import pytest

from gyral.applications.summarization import rouge
from gyral.applications.summarization.generation import summarize
from gyral.applications.summarization.models.lead import Lead
from gyral.core.errors import OptionError
from gyral.data.text.penn import tokenize
from tests.applications.summarization.small import SUMMARIES
from tests.helpers.running import build_task, invoke

PAIRS = Path(__file__).parents[1] / "pairs.jsonl"
REPLACED = ("model", "task.decoded", "task.article_length")
OPTIONS = [option for option in SUMMARIES if not option.startswith(REPLACED)]


def first_sentences(count: int) -> list[list[str]]:
    """Return the first sentences of the articles of the test; a line of a story is a sentence."""
    stories = [json.loads(line)["story"] for line in PAIRS.read_text().splitlines()[50:]]
    return [[" ".join(tokenize(line)) for line in story.split("\n")[:count]] for story in stories]


def test_a_run_has_the_rouge_of_the_first_sentences(tmp_path: Path) -> None:
    outcome = invoke(*OPTIONS, "model=lead3", "task.article_length=400", f"hydra.run.dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    summaries = [json.loads(line)["summary"] for line in PAIRS.read_text().splitlines()[50:]]
    candidates = first_sentences(3)
    references = [[" ".join(tokenize(line)) for line in summary.split("\n")] for summary in summaries]
    saved = [json.loads(line) for line in (tmp_path / "summaries_test.jsonl").read_text().splitlines()]
    assert [line["summary"] for line in saved] == candidates
    results = json.loads((tmp_path / "DONE").read_text())
    for name, score in rouge.score(references, candidates).items():
        assert results[f"test/{name}"] == pytest.approx(score.f1, rel=1e-5)
        assert f"{score.f1:.2f}" in outcome.out
    assert results["test/loss"] is None  # infinite, which JSON does not have
    assert (results["parameters"], results["steps"], results["state_size"]) == (0, 0, 0)
    printed = invoke(f"run={tmp_path}", entry="evaluate").out
    (score,) = re.findall(r"test ROUGE-1 +│ +([\d.]+)", printed)
    assert float(score) == pytest.approx(results["test/rouge1"], abs=0.051)


@pytest.mark.parametrize("sentences", [3, 1])
def test_the_first_sentences_of_any_articles_are_on_the_page(sentences: int, tmp_path: Path) -> None:
    task = build_task(*OPTIONS, "model=lead3", f"model.sentences={sentences}", "task.article_length=400")
    page = tmp_path / "page.html"
    written = list(summarize(task, input=f"{PAIRS}[50:]", html=str(page)))
    assert written == [f"{' '.join(summary)}\n" for summary in first_sentences(sentences)]
    assert page.read_text().count("<section") == 10


def test_sentences_must_be_positive() -> None:
    with pytest.raises(OptionError, match=r"^sentences=0: must be an integer ≥ 1$"):
        Lead(9, sentences=0)
