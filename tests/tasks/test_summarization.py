"""Summarization beyond the contract of tasks: loss, baseline, ROUGE of a test, summaries of any articles, starting from
the weights of another run."""

import io
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from gyral import runs
from gyral.data.batching import IGNORED
from gyral.data.summaries.batches import STOP_ID
from gyral.models.pointer_generator import Predictions
from gyral.tasks import rouge
from gyral.tasks.summarization import SummaryTask, frequency_loss
from gyral.training import build
from tests.helpers.running import PARTS, SUMMARIES, Outcome, build_task, invoke, load_last

PAIRS = Path(__file__).with_name("pairs.jsonl")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("runs") / "run"
    outcome = invoke(*SUMMARIES, f"hydra.run.dir={where}")
    assert outcome.status == 0, outcome.err
    assert "ROUGE-1" in outcome.out
    return where


@pytest.fixture
def task(directory: Path) -> SummaryTask:
    return build.build_trained(runs.load(directory), "best")[0]


def generate(directory: Path, *options: str) -> Outcome:
    return invoke(f"run={directory}", *options, entry="generate")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- training


def test_each_summary_counts_once_and_coverage_by_its_weight() -> None:
    built = build_task(*SUMMARIES, "model.coverage=true", "task.coverage_weight=0.5")
    batch = next(iter(built.data.loader("val")))
    batch = batch._replace(targets=torch.tensor([[5, STOP_ID, IGNORED], [5, 6, STOP_ID]]))
    predictions = Predictions(
        torch.tensor([[-1.0, -3.0, 0.0], [-1.0, -2.0, -6.0]]), torch.tensor([[0.2, 0.4, 0.0], [0.0, 0.3, 0.6]])
    )
    assert built.loss(predictions, batch).item() == pytest.approx((2 + 3) / 2 + 0.5 * (0.3 + 0.3) / 2)
    without = build_task(*SUMMARIES)
    assert without.loss(predictions, batch).item() == pytest.approx(2.5)


def test_the_baseline_is_the_loss_of_who_counts_words() -> None:
    built = build_task(*SUMMARIES)
    size = len(built.data.corpus.vocabulary)
    counts = np.ones(size)

    def targets(split: str) -> list[list[int]]:
        batches = built.data.loader(split)
        return [
            [word if word < size else 1 for word in row if word != IGNORED]  # 1 is <unk>
            for batch in batches
            for row in batch.targets.tolist()
        ]

    for row in targets("train"):
        for word in row:
            counts[word] += 1
    losses = [np.mean([-math.log(counts[word] / counts.sum()) for word in row]) for row in targets("test")]
    assert frequency_loss(built.data) == pytest.approx(np.mean(losses), rel=1e-12)


def test_tokens_are_those_of_articles_and_summaries() -> None:
    built = build_task(*SUMMARIES)
    batch = next(iter(built.data.loader("val")))
    assert built.tokens(batch) == batch.article.numel() + batch.inputs.numel()


def test_a_model_of_sequences_is_refused_and_so_is_this_one_elsewhere() -> None:
    told = "model._target_=gyral.models.{}: must be a {} for {}"
    options = [word for word in SUMMARIES if not word.startswith("model")]
    error = invoke(*options, "model=gru").error
    assert error == told.format("sequence.SequenceModel", "PointerGenerator", "SummaryTask")
    error = invoke("task=copy", "model=lead", "logger=none").error
    assert error == told.format("pointer_generator.PointerGenerator", "SequenceModel", "CopyTask")


# --- the test of a run


def test_a_test_writes_the_first_summaries_and_measures_them(directory: Path, task: SummaryTask) -> None:
    results = json.loads((directory / "DONE").read_text())
    kept = lines(directory / "summaries_test.jsonl")
    assert [line["row"] for line in kept] == [0, 1, 2]  # task.decoded=3
    encoded = task.data.encoded("test")
    assert [line["reference"] for line in kept] == [[" ".join(s) for s in encoded.reference(row)] for row in range(3)]
    scores = rouge.score([line["reference"] for line in kept], [line["summary"] for line in kept])
    for name, found in scores.items():
        assert results[f"test/{name}"] == pytest.approx(found.f1, rel=1e-5)
        assert results[f"test/{name}_low"] <= results[f"test/{name}"] <= results[f"test/{name}_high"]
    sentences = [[sentence.split() for sentence in line["summary"]] for line in kept]
    repeated = [rouge.repetition(summary)["2-grams"] for summary in sentences]
    assert results["test/repeated_2-grams"] == pytest.approx(np.mean(repeated), rel=1e-5)
    novel = [
        rouge.novel_ngrams(encoded.article(row), [word for s in sentences[row] for word in s], 1) for row in range(3)
    ]
    assert results["test/novel_1-grams"] == pytest.approx(np.mean(novel), rel=1e-5)


def test_examples_are_an_article_its_summary_and_the_one_written(directory: Path) -> None:
    example = (directory / "examples.txt").read_text().split("\n\n")[0].splitlines()
    assert re.match(r"step \d+$", example[0])
    assert [line.split()[0] for line in example[1:]] == ["input", "target", "prediction"]


def test_what_is_resumed_is_equal_to_the_bit(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = SummaryTask.training_step

    def fail_late(self: SummaryTask, batch: Any, index: int) -> Any:
        if self.global_step == 14:
            raise MemoryError
        return step(self, batch, index)

    with monkeypatch.context() as patch:
        patch.setattr(SummaryTask, "training_step", fail_late)
        assert invoke(*SUMMARIES, f"hydra.run.dir={tmp_path}").status == 1
    assert invoke(*SUMMARIES, f"hydra.run.dir={tmp_path}").status == 0
    for name, weight in load_last(directory)["state_dict"].items():
        assert torch.equal(weight, load_last(tmp_path)["state_dict"][name]), name
    assert lines(tmp_path / "summaries_test.jsonl") == lines(directory / "summaries_test.jsonl")


# --- starting from other weights


def test_coverage_starts_from_the_weights_of_a_run_without_it(directory: Path, tmp_path: Path) -> None:
    options = (*SUMMARIES, "model.coverage=true", f"weights={directory}", "optimizer.lr=0.0", "trainer.max_steps=1")
    outcome = invoke(*options, f"hydra.run.dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    assert f"Training starts from the weights of {directory}/checkpoints/best.ckpt" in outcome.err
    best = build.load_checkpoint(directory / "checkpoints" / "best.ckpt")["state_dict"]
    started = load_last(tmp_path)["state_dict"]
    assert set(started) - set(best) == {"model.decoder.attention.coverage"}
    assert started["model.decoder.attention.coverage"].eq(0).all()
    assert all(torch.equal(started[name], weight) for name, weight in best.items())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("model.encoder.hidden_size=6",), "checkpoint=*: is of another model; model.*"),
        (("task.corpus.size=30",), "the checkpoint has another vocabulary (*) than articles (*, 30 words): *"),
        (("weights=nowhere",), "run=nowhere: has no checkpoint; *"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    options: tuple[str, ...], told: str, directory: Path, tmp_path: Path
) -> None:
    error = invoke(*SUMMARIES, f"weights={directory}", *options, f"hydra.run.dir={tmp_path}").error
    pattern = ".*".join(map(re.escape, told.split("*")))
    assert re.fullmatch(pattern, error), error


def test_a_checkpoint_of_another_vocabulary_is_not_gone_on_with(directory: Path, tmp_path: Path) -> None:
    run = runs.load(directory)
    OmegaConf.update(run.config.task, "corpus.train", f"{PAIRS}[20:]")
    OmegaConf.update(run.config.task, "corpus.size", len(build.build_task(run.config).data.corpus.vocabulary))
    with pytest.raises(build.OptionError, match=r"^the checkpoint has another vocabulary"):
        build.build_trained(run, "best")


# --- summaries of any articles


def test_articles_of_a_file_are_summarized_as_in_the_test(directory: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "summaries.jsonl", tmp_path / "page.html"
    outcome = generate(directory, f"input={PAIRS}[{PARTS['test']}]", f"out={out}", f"html={page}")
    assert outcome.status == 0, outcome.err
    assert outcome.out == ""
    made = lines(out)
    assert [line["number"] for line in made] == list(range(1, 11))
    assert made[0]["place"] == "pairs.jsonl:51"
    kept = lines(directory / "summaries_test.jsonl")
    assert [line["summary"] for line in made[:3]] == [line["summary"] for line in kept]
    assert [line["score"] for line in made[:3]] == pytest.approx([line["score"] for line in kept], rel=1e-5)
    assert re.search(r"^10 articles, \S+ a second$", outcome.err, re.MULTILINE)
    assert re.search(r"^of 10 with a summary: ROUGE-1 \S+ \(\S+ to \S+\), ROUGE-2 ", outcome.err, re.MULTILINE)
    assert page.read_text().count("<section") == 10


def test_what_was_stopped_goes_on_and_counts_all_in_the_end(directory: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    told = [line for line in generate(directory, f"input={PAIRS}", f"out={whole}").err.splitlines() if "ROUGE" in line]
    first = whole.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(first[:37]) + first[37][:20])  # killed within a line
    outcome = generate(directory, f"input={PAIRS}", f"out={out}", "batch_size=7")
    assert "23 articles" in outcome.err
    assert told[0] in outcome.err
    # the batches differ, and so does the rounding of the scores
    for made, wanted in zip(lines(out), lines(whole), strict=True):
        assert made.pop("score") == pytest.approx(wanted.pop("score"), rel=1e-5)
        assert made == wanted
    assert "0 articles" in generate(directory, f"input={PAIRS}", f"out={out}").err


@pytest.mark.parametrize("form", ["text", "lines"])
def test_standard_input_is_an_article_or_lines(
    form: str, directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = [json.loads(line) for line in PAIRS.read_text().splitlines()[:2]]
    text = f"\n{given[0]['story']}\n" if form == "text" else "".join(json.dumps(pair) + "\n" for pair in given)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    outcome = generate(directory, "input=-")
    assert outcome.status == 0, outcome.err
    written = outcome.out.splitlines()
    assert len(written) == (1 if form == "text" else 2)
    generate(directory, f"input={PAIRS}[:2]", f"out={tmp_path / 'out.jsonl'}")
    assert written == [" ".join(line["summary"]) for line in lines(tmp_path / "out.jsonl")][: len(written)]


def test_what_cannot_be_used_is_named_and_counted(directory: Path, tmp_path: Path) -> None:
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
    outcome = generate(directory, f"input={path}", f"out={out}")
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
    ("options", "told"),
    [
        (("input=nowhere.jsonl",), "input=nowhere.jsonl: no such file or folder, or nothing in it"),
        (("input=page.pdf",), "input=page.pdf: must be a .jsonl, .csv or .bin file"),
        ((f"input={PAIRS}", "batch_size=0"), "batch_size=0: must be an integer ≥ 1"),
        ((f"input={PAIRS}", "beam=0"), "beam=0: must be an integer ≥ 1"),
        ((f"input={PAIRS}", "min_length=9"), "min_length=9: must be below max_length, 6"),
        ((f"input={PAIRS}", "out={}"), "out={}: cannot be written (Is a directory)"),
        ((f"input={PAIRS}", "out={}/other.txt"), "out={}/other.txt: is no file of summaries; remove it, or choose"),
        ((f"input={PAIRS}", "out={}/other.jsonl"), "out={}/other.jsonl: is of another input, whose article 1 is a:1"),
    ],
)
def test_bad_input_is_one_line(options: tuple[str, ...], told: str, directory: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("some text\n")
    (tmp_path / "other.jsonl").write_text('{"number": 1, "place": "a:1", "summary": ["b ."], "score": -1.0}\n')
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    error = generate(directory, *(option.format(tmp_path) for option in options)).error
    assert error.startswith(told.format(tmp_path)), error
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_page_shows_attention_and_what_was_copied(directory: Path, tmp_path: Path, task: SummaryTask) -> None:
    page = tmp_path / "page.html"
    generate(directory, f"input={PAIRS}[:1]", f"html={page}")
    text = page.read_text()
    article = json.loads(PAIRS.read_text().splitlines()[0])["story"].lower().split()[0]
    assert re.search(rf'<span style="--a:[01]\.\d\d">{article}</span>', text)
    assert "<h3>Reference</h3>" in text
    assert "http" not in text
