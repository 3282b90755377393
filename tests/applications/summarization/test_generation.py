"""Summaries of any articles: the same as in a test, continued files, bad input, and the page."""

import html
import io
import json
import re
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from gyral.applications.summarization.data.files import Article, Output
from gyral.applications.summarization.data.parsing import Pair
from gyral.core.errors import OptionError
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

    own = ("input=" + f"{PAIRS}[{PARTS['test']}]", f"html={page}", "max_length=4", "min_length=1")
    assert generate(summary_run, *own, f"beside=[{out}]").status == 0
    assert page.read_text().count(f"<h3>Summary of {out}</h3>") == 10
    assert " ".join(made[0]["summary"][:1]) in html.unescape(page.read_text())
    outcome = generate(summary_run, *own, f"beside={PAIRS}")
    assert "pairs.jsonl: is not a file of summaries, which out= writes" in outcome.err


def test_a_stopped_run_resumes_and_reports_all_summaries(summary_run: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    log = generate(summary_run, f"input={PAIRS}", f"out={whole}").err.splitlines()
    scores = next(line for line in log if "ROUGE" in line)
    first = whole.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(first[:37]) + first[37][:20])  # killed within a line
    outcome = generate(summary_run, f"input={PAIRS}", f"out={out}", "batch_size=7")
    assert "23 articles" in outcome.err
    assert scores in outcome.err
    # the batches differ, and so does the rounding of the scores
    for made, wanted in zip(lines(out), lines(whole), strict=True):
        assert made.pop("score") == pytest.approx(wanted.pop("score"), rel=1e-5)
        assert made == wanted
    assert "0 articles" in generate(summary_run, f"input={PAIRS}", f"out={out}").err


@pytest.mark.parametrize("form", ["text", "lines"])
def test_standard_input_is_an_article_or_lines(
    form: str, summary_run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = [json.loads(line) for line in PAIRS.read_text().splitlines()[:2]]
    text = f"\n{given[0]['story']}\n" if form == "text" else "".join(json.dumps(pair) + "\n" for pair in given)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
    outcome = generate(summary_run, "input=-")
    assert outcome.status == 0, outcome.err
    written = outcome.out.splitlines()
    assert len(written) == (1 if form == "text" else 2)
    generate(summary_run, f"input={PAIRS}[:2]", f"out={tmp_path / 'out.jsonl'}")
    assert written == [" ".join(line["summary"]) for line in lines(tmp_path / "out.jsonl")][: len(written)]


def test_unusable_articles_are_reported(summary_run: Path, tmp_path: Path) -> None:
    articles = [
        {"article": "One sentence without any reference."},
        {"article": ""},
        "no object",
        {"article": "word"},
        {"article": "a\u0007b c."},
        {"article": "many words " * 50_000},
    ]
    path = tmp_path / "odd.jsonl"
    path.write_text("".join(json.dumps(article) + "\n" for article in articles) + "{broken\n")
    out = tmp_path / "out.jsonl"
    outcome = generate(summary_run, f"input={path}", f"out={out}")
    assert outcome.status == 0, outcome.err
    assert [line["number"] for line in lines(out)] == [1, 4, 5, 6]
    for told in (
        "left out: 1 with an empty article (first odd.jsonl:2), 1 line that is not a JSON object",
        "1 line that is not JSON (first odd.jsonl:7)",
        "1 with an article of one word (first odd.jsonl:4)",
        "1 with control characters",
        "1 with an article of over 50,000 words (first odd.jsonl:6)",
    ):
        assert told in outcome.err
    assert "ROUGE" not in outcome.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("input=nowhere.jsonl",), "input=nowhere.jsonl: no such file or folder, or the folder is empty"),
        (("input=page.pdf",), "input=page.pdf: must be a .jsonl, .csv or .bin file"),
        ((f"input={PAIRS}", "batch_size=0"), "batch_size=0: must be an integer ≥ 1"),
        ((f"input={PAIRS}", "beam=0"), "beam=0: must be an integer ≥ 1"),
        ((f"input={PAIRS}", "min_length=9"), "min_length=9: must be below max_length, 6"),
        ((f"input={PAIRS}", "out={}"), "out={}: cannot be written (Is a directory)"),
        (("input=/dev/zero",), "input=/dev/zero: "),
        ((f"input={PAIRS}", "out=/dev/full"), "out=/dev/full: is a device, and must be a file"),
        ((f"input={PAIRS}[:2]", "html=/dev/full"), "/dev/full: is a named pipe or a device, which is not replaced"),
        ((f"input={PAIRS}", "out={}/other.txt"), "out={}/other.txt: is not a file of summaries; remove it or choose"),
        (
            (f"input={PAIRS}", "out={}/other.jsonl"),
            "out={}/other.jsonl: is the output for another input, ",
        ),
    ],
)
def test_bad_input_is_an_error_of_one_line(
    options: tuple[str, ...], message: str, summary_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.txt").write_text("some text\n")
    (tmp_path / "other.jsonl").write_text('{"number": 1, "place": "a:1", "summary": ["b ."], "score": -1.0}\n')
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    error = generate(summary_run, *(option.format(tmp_path) for option in options)).error
    assert error.startswith(message.format(tmp_path)), error
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


def test_the_page_shows_attention_and_what_was_copied(summary_run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    generate(summary_run, f"input={PAIRS}[:1]", f"html={page}")
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
