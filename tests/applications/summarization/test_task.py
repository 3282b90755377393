"""Summarization beyond the contract of tasks: loss, baseline, ROUGE of a test, summaries of any articles, starting from
the weights of another run."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from gyral.applications.summarization import rouge
from gyral.applications.summarization.data.batches import STOP_ID
from gyral.applications.summarization.data.corpus import OtherVocabularyError
from gyral.applications.summarization.models.summarizer import Predictions
from gyral.applications.summarization.task import SummaryTask, frequency_loss
from gyral.data.batching import IGNORED
from gyral.figures.norms import read_step_gradients
from gyral.runs.directory import load_run
from gyral.training import build
from gyral.training.checkpoints import load_checkpoint
from tests.applications.summarization.small import SUMMARIES
from tests.helpers.running import build_task, invoke, load_last, train

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
    return build.load_trained(load_run(directory), "best")[0]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


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


def test_the_baseline_is_the_loss_of_the_word_frequencies() -> None:
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


def test_tokens_count_articles_and_summaries() -> None:
    built = build_task(*SUMMARIES)
    batch = next(iter(built.data.loader("val")))
    assert built.tokens(batch) == batch.article.numel() + batch.inputs.numel()


def test_models_and_tasks_of_another_kind_are_refused() -> None:
    message = "model._target_=gyral.models.{}: must be a {} for {}"
    options = [word for word in SUMMARIES if not word.startswith("model")]
    error = invoke(*options, "model=gru").error
    assert error == message.format("sequence.SequenceModel", "Summarizer", "SummaryTask")
    error = invoke("task=copy", "model=pointer_generator", "logger=none").error
    assert error.endswith("pointer_generator.PointerGenerator: must be a SequenceModel for CopyTask")


# --- the test of a run


def test_a_test_writes_the_first_summaries_and_measures_them(directory: Path, task: SummaryTask) -> None:
    results = json.loads((directory / "DONE").read_text())
    kept = lines(directory / "summaries_test.jsonl")
    assert [line["row"] for line in kept] == [0, 1, 2]  # task.decoded=3
    encoded = task.data.examples("test")
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


def test_rendered_examples_have_article_summary_and_prediction(directory: Path) -> None:
    example = (directory / "examples.txt").read_text().split("\n\n")[0].splitlines()
    assert re.match(r"step \d+$", example[0])
    assert [line.split()[0] for line in example[1:]] == ["input", "target", "prediction"]


def test_a_resumed_run_is_equal_bit_for_bit(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    best = load_checkpoint(directory / "checkpoints" / "best.ckpt")["state_dict"]
    started = load_last(tmp_path)["state_dict"]
    assert set(started) - set(best) == {"model.decoder.attention.coverage"}
    assert started["model.decoder.attention.coverage"].eq(0).all()
    assert all(torch.equal(started[name], weight) for name, weight in best.items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("model.encoder.hidden_size=6",), "checkpoint=*: is of another model; model.*"),
        (("task.corpus.size=30",), "the checkpoint has another vocabulary (*) than articles (*, 30 words): *"),
        (("weights=nowhere",), "weights=nowhere: must be a run directory*"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    options: tuple[str, ...], message: str, directory: Path, tmp_path: Path
) -> None:
    error = invoke(*SUMMARIES, f"weights={directory}", *options, f"hydra.run.dir={tmp_path}").error
    pattern = ".*".join(map(re.escape, message.split("*")))
    assert re.fullmatch(pattern, error), error


def test_a_checkpoint_of_another_vocabulary_is_refused(directory: Path, tmp_path: Path) -> None:
    run = load_run(directory)
    OmegaConf.update(run.config.task, "corpus.train", f"{PAIRS}[20:]")
    OmegaConf.update(run.config.task, "corpus.size", len(build.build_task(run.config).data.corpus.vocabulary))
    with pytest.raises(OtherVocabularyError, match=r"^the checkpoint has another vocabulary"):
        build.load_trained(run, "best")


def test_the_norms_of_encoder_and_decoder_are_recorded(tmp_path: Path) -> None:
    train(tmp_path, *SUMMARIES, "callbacks=norms", "trainer.max_steps=8")
    _, gradients = read_step_gradients(tmp_path)
    assert set(gradients) == {"encoder.cells.0", "encoder.cells.1", "decoder.cell"}
    assert all(np.nansum(values) > 0 for values in gradients.values())
