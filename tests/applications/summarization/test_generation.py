"""Summaries of any articles: the same as in a test, continued files, bad input, and the page."""

import html
import io
import json
import logging
import re
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from gyral.applications.summarization.data.files import Article, Output
from gyral.applications.summarization.data.parsing import Pair
from gyral.applications.summarization.generation import summarize
from gyral.applications.summarization.task import SummaryTask
from gyral.core.errors import OptionError, UserError
from tests.applications.summarization.small import PARTS, SUMMARIES
from tests.helpers.running import Outcome, invoke, train

PAIRS = Path(__file__).with_name("pairs.jsonl")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def generate(directory: Path, *options: str) -> Outcome:
    return invoke(f"run={directory}", *options, entry="generate")


def test_articles_of_a_file_are_summarized_as_in_the_test(summary_run: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "summaries.jsonl", tmp_path / "page.html"
    outcome = generate(summary_run, f"input={PAIRS}[{PARTS['test']}]", f"out={out}", f"html={page}")
    assert outcome.status == 0, outcome.err
    assert outcome.out == ""
    made = lines(out)
    assert [line["number"] for line in made] == list(range(1, 11))
    assert made[0]["place"] == "pairs.jsonl:51"
    kept = lines(summary_run / "summaries_test.jsonl")
    assert [line["summary"] for line in made[:3]] == [line["summary"] for line in kept]
    assert [line["score"] for line in made[:3]] == pytest.approx([line["score"] for line in kept], rel=1e-5)
    assert re.search(r"^10 articles, \S+ a second$", outcome.err, re.MULTILINE)
    assert re.search(r"^of 10 with a summary: ROUGE-1 \S+ \(\S+ to \S+\), ROUGE-2 ", outcome.err, re.MULTILINE)
    assert page.read_text().count("<section") == 10
    error = generate(summary_run, f"input={PAIRS}[:2]", "html=/dev/full").error
    assert error.startswith("/dev/full: is a named pipe or a device, which is not replaced")


def test_summaries_of_another_run_are_beside_these(trained: SummaryTask, tmp_path: Path) -> None:
    page, given = tmp_path / "page.html", f"{PAIRS}[{PARTS['test']}]"
    others = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for other in others:
        assert list(summarize(trained, input=given, out=str(other))) == []
    shorter = {"max_length": 4, "min_length": 1}
    for beside in (str(others[0]), [*map(str, others)]):
        written = list(summarize(trained, input=given, html=str(page), beside=beside, **shorter))
        assert len(written) == 10
        assert all(len(line.split()) <= 4 for line in written)
        text = html.unescape(page.read_text())
        assert [text.count(f"<h3>Summary of {other}</h3>") for other in others] == [10, 10 * isinstance(beside, list)]
        assert lines(others[0])[0]["summary"][0] in text
    with pytest.raises(UserError, match=r"pairs.jsonl: is not a file of summaries, which out= writes"):
        list(summarize(trained, input=given, beside=str(PAIRS)))


def test_a_stopped_run_resumes_and_reports_all_summaries(
    trained: SummaryTask, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def logged(out: Path, **options: Any) -> str:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            assert list(summarize(trained, input=f"{PAIRS}[:20]", out=str(out), **options)) == []
        return caplog.text

    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    scores = re.search("of 20 with a summary: ROUGE.*", logged(whole))
    assert scores is not None
    first = whole.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(first[:11]) + first[11][:20])  # killed within a line
    log = logged(out, batch_size=7)
    assert " 9 articles" in log
    assert scores[0] in log
    # the batches differ, and so does the rounding of the scores
    for made, wanted in zip(lines(out), lines(whole), strict=True):
        assert made.pop("score") == pytest.approx(wanted.pop("score"), rel=1e-5)
        assert made == wanted
    assert " 0 articles" in logged(out)


@pytest.mark.parametrize("form", ["text", "lines"])
def test_standard_input_is_an_article_or_lines(
    form: str, trained: SummaryTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [json.loads(line) for line in PAIRS.read_text().splitlines()[:2]]
    text = f"\n{given[0]['story']}\n" if form == "text" else "".join(json.dumps(pair) + "\n" for pair in given)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
    written = list(summarize(trained, input="-"))
    assert len(written) == (1 if form == "text" else 2)
    assert written == list(summarize(trained, input=f"{PAIRS}[:2]"))[: len(written)]


def test_unusable_articles_are_reported(trained: SummaryTask, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    articles = [
        {"article": "One sentence without any reference."},
        {"article": ""},
        "no object",
        {"article": "word"},
        {"article": "a\u0007b c."},
        {"article": "many words " * 25_001},
    ]
    path = tmp_path / "odd.jsonl"
    path.write_text("".join(json.dumps(article) + "\n" for article in articles) + "{broken\n")
    out = tmp_path / "out.jsonl"
    with caplog.at_level(logging.INFO):
        assert list(summarize(trained, input=str(path), out=str(out))) == []
    assert [line["number"] for line in lines(out)] == [1, 4, 5, 6]
    for told in (
        "left out: 1 with an empty article (first odd.jsonl:2), 1 line that is not a JSON object",
        "1 line that is not JSON (first odd.jsonl:7)",
        "1 with an article of one word (first odd.jsonl:4)",
        "1 with control characters",
        "1 with an article of over 50,000 words (first odd.jsonl:6)",
    ):
        assert told in caplog.text
    assert "ROUGE" not in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input": "nowhere.jsonl"}, "input=nowhere.jsonl: no such file or folder, or the folder is empty"),
        ({"input": "page.pdf"}, "input=page.pdf: must be a .jsonl, .csv or .bin file"),
        ({"batch_size": 0}, "batch_size=0: must be an integer ≥ 1"),
        ({"beam": 0}, "beam=0: must be an integer ≥ 1"),
        ({"min_length": 9}, "min_length=9: must be below max_length, 6"),
        ({"out": "{}"}, "out={}: cannot be written (Is a directory)"),
        ({"input": "/dev/zero"}, "input=/dev/zero: "),
        ({"out": "/dev/full"}, "out=/dev/full: is a device, and must be a file"),
        ({"out": "{}/other.txt"}, "out={}/other.txt: is not a file of summaries; remove it or choose"),
        ({"out": "{}/other.jsonl"}, "out={}/other.jsonl: is the output for another input, "),
    ],
)
def test_bad_input_is_an_error_of_one_line(
    options: dict[str, Any], message: str, trained: SummaryTask, tmp_path: Path
) -> None:
    (tmp_path / "other.txt").write_text("some text\n")
    (tmp_path / "other.jsonl").write_text('{"number": 1, "place": "a:1", "summary": ["b ."], "score": -1.0}\n')
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    given = {name: value.format(tmp_path) if isinstance(value, str) else value for name, value in options.items()}
    with pytest.raises(UserError) as raised:
        list(summarize(trained, **{"input": f"{PAIRS}[:2]", **given}))
    assert str(raised.value).startswith(message.format(tmp_path)), raised.value
    assert "\n" not in str(raised.value)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_is_named_and_the_summaries_so_far_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    article = Article(1, "a:1", Pair(["a"], (), []))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        said = rf"^out={path}: cannot be written \(File too large\)$"
        with Output(path) as out:
            out.add(article, ["b"], 0.0)
            with pytest.raises(OptionError, match=said):
                out.add(article._replace(number=2), ["b"], 0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.stat().st_size == 100
    with Output(path) as out:  # the incomplete line is overwritten
        assert [article.number for article in out.remaining([article, article._replace(number=2)])] == [2]


def test_the_page_shows_attention_and_what_was_copied(trained: SummaryTask, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    list(summarize(trained, input=f"{PAIRS}[:1]", html=str(page)))
    text = page.read_text()
    article = json.loads(PAIRS.read_text().splitlines()[0])["story"].lower().split()[0]
    assert re.search(rf'<span style="--a:[01]\.\d\d">{article}</span>', text)
    assert "<h3>Reference</h3>" in text
    assert "http" not in text


@pytest.mark.slow
def test_a_run_and_its_summaries_of_own_fields_are_the_same(summary_run: Path, tmp_path: Path) -> None:
    own = tmp_path / "pairs.jsonl"
    names = {"story": "document", "summary": "abstract"}
    rows = [{names.get(name, name): value for name, value in line.items()} for line in lines(PAIRS)]
    own.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    words = [word.replace(str(PAIRS), str(own)) for word in SUMMARIES]
    directory = train(tmp_path / "run", *words, "task.corpus.source=document", "task.corpus.target=abstract")
    tests = [json.loads((run / "DONE").read_text())["test/loss"] for run in (directory, summary_run)]
    assert tests[0] == tests[1]
    made = [generate(directory, f"input={path}[:2]").out for path in (own, PAIRS)]
    assert made[0] == made[1] != ""


def test_articles_have_predictions_and_rouge_if_they_have_summaries(summary_run: Path, trained: SummaryTask) -> None:
    frame = trained.predict(f"{PAIRS}[{PARTS['test']}]")
    kept = lines(summary_run / "summaries_test.jsonl")
    assert frame.prediction.tolist()[:3] == [" ".join(line["summary"]) for line in kept]
    assert frame.target.tolist()[:3] == [" ".join(line["reference"]) for line in kept]
    assert set(frame.attrs["metrics"]) == {"rouge1", "rouge2", "rougeL"}
    with pytest.raises(OptionError, match=r"^data=nowhere.jsonl: "):
        trained.predict("nowhere.jsonl")
