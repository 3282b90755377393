"""Small runs on pairs of sentences, and data of translation for the suites of all tasks; tests/helpers/slices.py."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.applications.translation.data.corpus import TranslationCorpus
from gyral.applications.translation.model import Translator
from gyral.applications.translation.task import TranslationTask
from gyral.core.measures import SPLITS
from gyral.data.batching import IGNORED
from tests.helpers.running import SMALL

PAIRS = Path(__file__).with_name("pairs.tsv")
PARTS = {"train": ":60", "val": "60:70", "test": "70:"}  # of the tests' own pairs
OPTIONS: dict[str, Any] = {
    **{f"corpus.{split}": f"{PAIRS}[{taken}]" for split, taken in PARTS.items()},
    "corpus.source": 0,
    "corpus.target": 1,
    "corpus.size": 80,
    "label_smoothing": 0.0,
    "decoding.beam": 2,
    "decoding.max_length": 6,
}
# Other applications have options of the same names.
QUICK_TO_BUILD = {f"translation/{name}": value for name, value in OPTIONS.items()}
SHORT: dict[str, Any] = {  # overrides for the commands of the documentation; Hydra needs quotes around brackets
    **{f"task.corpus.{split}": f"'{PAIRS}[{taken}]'" for split, taken in PARTS.items()},
    "task.corpus.source": 0,
    "task.corpus.target": 1,
    "task.corpus.size": 80,
    "task.decoded": 2,
    "task.decoding.max_length": 6,
    **{f"model.{name}": 16 for name in ("embedding_size", "encoder.hidden_size", "decoder.hidden_size")},  # 16 heads
}

ALTERNATIVES: dict[str, list[Any]] = {
    **{f"corpus.{split}": [f"{PAIRS}[3:33]"] for split in SPLITS},
    "corpus.source": [1],
    "corpus.target": [0],
    "corpus.size": [90],
    "longest": [18],
    "decoded": [3],
}

# a run of a second
TRANSLATIONS = (
    *(option for option in SMALL if not option.startswith(("model.", "task.train", "task.val", "task.test"))),
    "model=conv_translator",
    "model.embedding_size=8",
    "model.encoder_kernels=[3,5]",
    "model.decoder_kernels=[3]",
    "model.encoder.hidden_size=8",
    "model.decoder.hidden_size=8",
    "optimizer=adam",
    "task=translation",
    "task.decoded=3",
    # in quotes for Hydra, whose grammar has brackets
    *(f"task.{name}={value!r}" for name, value in OPTIONS.items()),
)
SHORTER = (*TRANSLATIONS, "trainer.max_steps=12", "trainer.val_check_interval=4")


def model_options(required: type, cell: str, size: int) -> tuple[str, ...] | None:
    """Return the options of a small translator with a cell."""
    if required is not Translator:
        return None
    sides = [(f"cell@model.{side}={cell}", f"model.{side}.hidden_size={size}") for side in ("encoder", "decoder")]
    return ("model=translator", "model.num_layers=1", f"model.embedding_size={4 * size}", *sides[0], *sides[1])


def excerpt(corpus: Any, lengths: dict[str, int]) -> TranslationCorpus | None:
    """Return the first pairs of each split."""
    if not isinstance(corpus, TranslationCorpus):
        return None
    return replace(corpus, bounds={name: corpus.bounds[name][: 2 * size + 1] for name, size in lengths.items()})


def oracle(task: Any, batch: Any) -> Tensor | None:
    """Return logits that are sure of every subword."""
    if not isinstance(task, TranslationTask):
        return None
    return 50.0 * F.one_hot(batch.targets[batch.targets != IGNORED], task.model.vocabulary_size).float()


def uniform(task: Any, batch: Any) -> Tensor | None:
    """Return logits that take all subwords for equally likely."""
    if not isinstance(task, TranslationTask):
        return None
    return torch.zeros(int((batch.targets != IGNORED).sum()), task.model.vocabulary_size)


def effects(task: Any) -> list[Any] | None:
    """Return further values that an option may change, besides the data and the sizes of the model."""
    if not isinstance(task, TranslationTask):
        return None
    batch = next(iter(task.data.loader("val")))
    options = (vars(task.decoding), task.decoded, task.bleu_tokens)
    return [task.loss(oracle(task, batch), batch).item(), *options, task.text(batch.source[0])]
