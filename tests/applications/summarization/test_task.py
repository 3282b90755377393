"""Summarization beyond the contract of tasks: loss, baseline, ROUGE of a test, summaries of any articles, starting from
the weights of another run."""

import json
import logging
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from gyral.applications.summarization import rouge
from gyral.applications.summarization.data.batches import STOP_ID
from gyral.applications.summarization.models.summarizer import Predictions
from gyral.applications.summarization.task import SummaryTask, frequency_loss
from gyral.core.errors import OptionError, UserError
from gyral.data.batching import IGNORED
from gyral.figures.norms import read_step_gradients
from gyral.runs.directory import load_run
from gyral.training import build
from gyral.training.checkpoints import load_checkpoint, load_weights
from tests.applications.summarization.small import SUMMARIES
from tests.helpers.moments import copy_at
from tests.helpers.running import assert_same_run, build_task, invoke, load_last

PAIRS = Path(__file__).with_name("pairs.jsonl")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- training


@pytest.fixture(scope="module")
def built() -> SummaryTask:
    return build_task(*SUMMARIES)


def test_each_summary_counts_once_and_coverage_by_its_weight(built: SummaryTask) -> None:
    covered = build_task(*SUMMARIES, "model.coverage=true", "task.coverage_weight=0.5")
    batch = next(iter(built.data.loader("val")))
    batch = batch._replace(targets=torch.tensor([[5, STOP_ID, IGNORED], [5, 6, STOP_ID]]))
    predictions = Predictions(
        torch.tensor([[-1.0, -3.0, 0.0], [-1.0, -2.0, -6.0]]), torch.tensor([[0.2, 0.4, 0.0], [0.0, 0.3, 0.6]])
    )
    assert covered.loss(predictions, batch).item() == pytest.approx((2 + 3) / 2 + 0.5 * (0.3 + 0.3) / 2)
    assert built.loss(predictions, batch).item() == pytest.approx(2.5)


def test_the_baseline_is_the_loss_of_the_word_frequencies(built: SummaryTask) -> None:
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


def test_tokens_count_articles_and_summaries(built: SummaryTask) -> None:
    batch = next(iter(built.data.loader("val")))
    assert built.tokens(batch) == batch.article.numel() + batch.inputs.numel()


def test_models_and_tasks_of_another_kind_are_refused() -> None:
    task = "task._target_=gyral.applications.summarization.task.SummaryTask"
    message = f"model._target_=gyral.models.sequence.SequenceModel: {task} needs a Summarizer, one of all_rum, "
    options = [word for word in SUMMARIES if not word.startswith("model")]
    with pytest.raises(OptionError) as raised:
        build_task(*options, "model=gru")
    assert str(raised.value).startswith(message)
    with pytest.raises(
        OptionError, match=r"PointerGenerator: task=copy needs a SequenceModel, one of .*, lstm, .*, rum, "
    ):
        build_task("task=copy", "model=pointer_generator")


# --- the test of a run


def test_a_test_writes_the_first_summaries_and_measures_them(summary_run: Path, loaded: SummaryTask) -> None:
    results = json.loads((summary_run / "DONE").read_text())
    kept = lines(summary_run / "summaries_test.jsonl")
    assert [line["row"] for line in kept] == [0, 1, 2]  # task.decoded=3
    encoded = loaded.data.examples("test")
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


def test_rendered_examples_have_article_summary_and_prediction(summary_run: Path) -> None:
    example = (summary_run / "examples.txt").read_text().split("\n\n")[0].splitlines()
    assert re.match(r"step \d+$", example[0])
    assert [line.split()[0] for line in example[1:]] == ["input", "target", "prediction"]


def test_a_resumed_run_is_equal_bit_for_bit(summary_run: Path, tmp_path: Path) -> None:
    killed = Path(shutil.copytree(copy_at(summary_run, "before_step", 8), tmp_path / "killed"))
    assert load_last(killed)["global_step"] == 6
    assert not (killed / "summaries_test.jsonl").exists()
    outcome = invoke(f"resume={killed}")
    assert outcome.status == 0, outcome.err
    assert_same_run(summary_run, killed)
    assert lines(killed / "summaries_test.jsonl") == lines(summary_run / "summaries_test.jsonl")


# --- starting from other weights


def test_coverage_starts_from_the_weights_of_a_run_without_it(
    summary_run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started = build_task(*SUMMARIES, "model.coverage=true")
    with caplog.at_level(logging.INFO):
        load_weights(started, str(summary_run))
    assert f"Training starts from the weights of {summary_run}/checkpoints/best.ckpt (step " in caplog.text
    best = load_checkpoint(summary_run / "checkpoints" / "best.ckpt")["state_dict"]
    weights = started.state_dict()
    assert set(weights) - set(best) == {"model.decoder.attention.coverage"}
    assert weights["model.decoder.attention.coverage"].eq(0).all()
    assert all(torch.equal(weights[name], weight) for name, weight in best.items())


@pytest.mark.parametrize(
    ("option", "weights", "message"),
    [
        ("model.encoder.hidden_size=6", None, "weights=*: its checkpoint best.ckpt is of another model; model.*"),
        (
            "task.corpus.size=30",
            None,
            "weights=*: its checkpoint best.ckpt was trained with other symbols than the*",
        ),
        ("seed=1", "nowhere", "weights=nowhere: must be a run directory*"),
        ("seed=1", 3, "weights=3: must be a run directory"),
    ],
)
def test_weights_that_do_not_fit_are_refused(option: str, weights: Any, message: str, summary_run: Path) -> None:
    with pytest.raises(UserError) as raised:
        load_weights(build_task(*SUMMARIES, option), str(summary_run) if weights is None else weights)
    pattern = ".*".join(map(re.escape, message.split("*")))
    assert re.fullmatch(pattern, str(raised.value)), raised.value


def test_a_checkpoint_of_another_vocabulary_is_refused(summary_run: Path) -> None:
    run = load_run(summary_run)
    OmegaConf.update(run.config.task, "corpus.train", f"{PAIRS}[20:]")
    OmegaConf.update(run.config.task, "corpus.size", len(build.build_task(run.config).data.corpus.vocabulary))
    with pytest.raises(OptionError, match=r"^checkpoint=.*best\.ckpt: was trained with other symbols than"):
        build.load_trained(run, "best")


def test_the_norms_of_encoder_and_decoder_are_recorded(summary_run: Path) -> None:
    _, gradients = read_step_gradients(summary_run)
    assert set(gradients) == {"encoder.cells.0", "encoder.cells.1", "decoder.cell"}
    assert all(np.nansum(values) > 0 for values in gradients.values())
