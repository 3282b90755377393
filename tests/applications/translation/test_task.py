"""Translation beyond the contract of tasks: loss, baseline, BLEU of a test, a resumed run, the tables."""

import json
import math
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from omegaconf import DictConfig

from gyral.applications.translation import bleu
from gyral.applications.translation.bleu import score
from gyral.applications.translation.data.corpus import STOP_ID
from gyral.applications.translation.task import TranslationTask, frequency_loss
from gyral.config.groups import choices
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.training import build
from tests.applications.translation.small import OPTIONS, PAIRS, SHORTER, TRANSLATIONS
from tests.helpers.found import at_least
from tests.helpers.running import build_task, compose_config, invoke, keep_small, load_last

MODELS = ("translator", "conv_translator", "transformer", "average_decoder", "average_attention")
TABLES = re.compile(r"(light_conv_paper/table3|translation_small(_ablation)?)/[a-z]\w*$")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_labels_are_smoothed() -> None:
    built = build_task(*TRANSLATIONS, "task.label_smoothing=0.2")
    batch = next(iter(built.data.loader("val")))
    targets = batch.targets[batch.targets != IGNORED]
    logits = torch.randn(len(targets), built.model.vocabulary_size, generator=torch.Generator().manual_seed(0))
    log_probabilities = logits.log_softmax(dim=-1)
    of_targets = -log_probabilities.gather(1, targets.unsqueeze(1)).mean()
    expected = 0.8 * of_targets - 0.2 * log_probabilities.mean()
    assert built.loss(logits, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    built.metrics.update(logits, batch, built.loss(logits, batch))
    assert built.metrics.compute()["nll"].item() == pytest.approx(of_targets.item(), rel=1e-5)


def test_the_baseline_is_the_loss_of_the_frequencies_of_subwords() -> None:
    built = build_task(*TRANSLATIONS)

    def targets(split: str) -> list[int]:
        batches = built.data.loader(split)
        return [token for batch in batches for token in batch.targets[batch.targets != IGNORED].tolist()]

    counts = Counter(targets("train"))
    total = sum(counts.values()) + built.model.vocabulary_size
    expected = np.mean([-math.log((counts[token] + 1) / total) for token in targets("test")])
    assert counts[STOP_ID] == 60
    assert frequency_loss(built.data) == pytest.approx(expected, rel=1e-12)


def test_a_test_writes_the_first_translations_and_scores_them(translation_run: Path) -> None:
    results = json.loads((translation_run / "DONE").read_text())
    kept = lines(translation_run / "translations_test.jsonl")
    given = [line.split("\t") for line in PAIRS.read_text().splitlines()[70:]]
    assert [line["row"] for line in kept] == [0, 1, 2]  # task.decoded=3
    assert [[line["source"], line["reference"]] for line in kept] == given[:3]
    references, written = zip(*((line["reference"], line["translation"]) for line in kept), strict=True)
    assert results["test/bleu"] == pytest.approx(sacrebleu.corpus_bleu(written, [references]).score, rel=1e-5)
    assert results["test/chrf"] == pytest.approx(sacrebleu.corpus_chrf(written, [references]).score, rel=1e-5)
    assert results["test/sentences_a_second"] > 0
    (saved,) = lines(translation_run / "bleu_test.json")
    assert saved["bleu"] == pytest.approx(results["test/bleu"], rel=1e-5)
    assert saved["signature"] == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"


def test_a_perfect_translation_has_a_bleu_of_100() -> None:
    references = [line.split("\t")[1] for line in PAIRS.read_text().splitlines()]
    found = score(references, references)
    assert (found.bleu, found.chrf, found.ratio) == pytest.approx((100, 100, 1))


@pytest.mark.slow
def test_a_resumed_run_is_equal_bit_for_bit(
    translation_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = TranslationTask.training_step

    def fail_late(self: TranslationTask, batch: Any, index: int) -> Any:
        if self.global_step == 8:
            raise MemoryError
        return step(self, batch, index)

    with monkeypatch.context() as patch:
        patch.setattr(TranslationTask, "training_step", fail_late)
        assert invoke(*SHORTER, f"hydra.run.dir={tmp_path}").status == 1
    assert invoke(*SHORTER, f"hydra.run.dir={tmp_path}").status == 0
    for name, weight in load_last(translation_run)["state_dict"].items():
        assert torch.equal(weight, load_last(tmp_path)["state_dict"][name]), name
    assert lines(tmp_path / "translations_test.jsonl") == lines(translation_run / "translations_test.jsonl")


def test_rendered_examples_have_source_target_and_prediction(translation_run: Path) -> None:
    example = (translation_run / "examples.txt").read_text().split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in example[1:4]] == ["source", "target", "prediction"]


def three_steps(config: DictConfig) -> None:
    """Train three steps with layers of 32 units on the pairs of the tests."""
    keep_small(config, **OPTIONS)
    config.task.batch_size = 4
    config.model.embedding_size = 32
    for side in (config.model.encoder, config.model.decoder):
        side.hidden_size = 32
        side.update({"heads": min(side.heads, 32)} if side.get("heads") else {})
    built = build.build_task(config)
    optimizer = torch.optim.Adam(built.parameters())
    built.data.trainer = SimpleNamespace(max_steps=3, accumulate_grad_batches=1)
    for batch in built.data.train_dataloader():
        optimizer.zero_grad()
        loss = built.loss(built(batch), batch)
        loss.backward()
        optimizer.step()
        assert loss.isfinite()


@pytest.mark.named("average_decoder", "transformer", "translator")
@pytest.mark.parametrize("model", MODELS)
def test_every_model_trains_three_steps(model: str) -> None:
    three_steps(compose_config("task=translation", f"model={model}"))


@pytest.mark.named("light_conv_paper/table3/dynamic_conv_no_softmax")
@pytest.mark.parametrize("experiment", at_least(25, filter(TABLES.match, choices("experiment"))))
def test_every_row_trains_three_steps(experiment: str) -> None:
    three_steps(compose_config(f"experiment={experiment}"))


def test_a_run_translates_with_its_weights(translation_run: Path, loaded: TranslationTask) -> None:
    kept = lines(translation_run / "translations_test.jsonl")
    written = loaded.translations([line["source"] for line in kept])
    assert [found.text for found in written] == [line["translation"] for line in kept]


def test_text_without_spaces_needs_another_tokenizer(caplog: pytest.LogCaptureFixture) -> None:
    references, candidates = ["天地玄黄，宇宙洪荒。", "日月盈昃"], ["天地玄黄，宇宙洪流。", "日月盈缺"]
    assert score(references, candidates).bleu < 1 < 50 < score(references, candidates, "zh").bleu
    assert "tok:char" in score(references, candidates, "char").signature
    bleu.warn_of_unspaced([*references, "a b"], "13a")
    assert "2 of 3 references have text without spaces" in caplog.text
    caplog.clear()
    bleu.warn_of_unspaced(references, "zh")
    bleu.warn_of_unspaced(["a b"], "13a")
    assert not caplog.text
    with pytest.raises(OptionError, match=r"^tokens=ja: must be one of 13a, intl, zh, char, none$"):
        score(references, candidates, "ja")
