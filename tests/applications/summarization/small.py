"""Small runs on articles, and data of summarization for the suites of all tasks: see tests/helpers/slices.py."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gyral.applications.summarization.data.corpus import SummaryCorpus
from gyral.applications.summarization.models.summarizer import Predictions, Summarizer
from gyral.applications.summarization.task import SummaryTask
from gyral.core.measures import SPLITS
from gyral.data.batching import IGNORED
from tests.helpers.running import SMALL

PAIRS = Path(__file__).with_name("pairs.jsonl")
PARTS = {"train": ":40", "val": "40:50", "test": "50:"}  # of the tests' own articles
OPTIONS: dict[str, Any] = {  # a task ignores those that it does not have
    "corpus.part": "excerpt",
    **{f"corpus.{split}": f"{PAIRS}[{taken}]" for split, taken in PARTS.items()},
    "corpus.size": 60,
}
SIZES = {
    "article_length": 12,
    "summary_length": 8,
    "decoding.beam": 2,
    "decoding.min_length": 2,
    "decoding.max_length": 6,
}
SHORT: dict[str, Any] = {  # overrides for the commands of the documentation; Hydra needs quotes around brackets
    "task.corpus.part": "excerpt",
    **{f"task.corpus.{split}": f"'{PAIRS}[{taken}]'" for split, taken in PARTS.items()},
    "task.corpus.size": 60,
    "task.article_length": 12,
    "task.summary_length": 8,
    "task.decoded": 2,
}

QUICK_TO_BUILD = {"corpus.part": "excerpt"}
OF_EVERY_CELL = ("summarization_jsonl",)
ALTERNATIVES: dict[str, list[Any]] = {
    **{f"corpus.{split}": [f"{PAIRS}[3:13]"] for split in SPLITS},
    "corpus.source": ["title"],
    "corpus.target": ["title"],
    "decoded": [3],
}
NO_EFFECT = ("corpus.part",)  # location of files
ABSENT = (r"(cnn_dailymail|science_daily)/\S+: no such file",)  # the error without a corpus

# a run of a second
SUMMARIES = (
    *(option for option in SMALL if not re.match(r"model\.|task\.(train|val|test)_size", option)),
    "model=dec_rum",
    "model.embedding_size=4",
    "model.encoder.hidden_size=5",
    "model.decoder.hidden_size=5",
    "optimizer=adam",
    "trainer.max_steps=12",
    "trainer.val_check_interval=4",
    "task=summarization_jsonl",
    "task.decoded=3",
    # in quotes for Hydra, whose grammar has brackets
    *(f"task.{name}={value!r}" for name, value in {**OPTIONS, **SIZES}.items() if name != "corpus.part"),
)


def model_options(required: type, cell: str, size: int) -> tuple[str, ...] | None:
    """Return the options of a small pointer-generator network with a cell."""
    if required is not Summarizer:
        return None
    sides = [(f"cell@model.{side}={cell}", f"model.{side}.hidden_size={size}") for side in ("encoder", "decoder")]
    return ("model=pointer_generator", "model.coverage=true", f"model.embedding_size={size}", *sides[0], *sides[1])


def classes_of(task: Any) -> int | None:
    """Return how many words a model predicts."""
    return task.model.vocabulary_size if isinstance(task.model, Summarizer) else None


def excerpt(corpus: Any, lengths: dict[str, int]) -> SummaryCorpus | None:
    """Return the first articles of each split."""
    if not isinstance(corpus, SummaryCorpus):
        return None
    return replace(corpus, bounds={name: corpus.bounds[name][: 2 * size + 1] for name, size in lengths.items()})


def oracle(task: Any, batch: Any) -> Predictions | None:
    """Return predictions that are sure of every word."""
    if not isinstance(task, SummaryTask):
        return None
    return Predictions(torch.zeros(batch.targets.shape), torch.zeros(batch.targets.shape))


def uniform(task: Any, batch: Any) -> Predictions | None:
    """Return predictions that take all words for equally likely."""
    if not isinstance(task, SummaryTask):
        return None
    written = (batch.targets != IGNORED).float()
    return Predictions(-math.log(task.model.vocabulary_size) * written, 0.5 * written)


def effects(task: Any) -> list[Any] | None:
    """Return further values that an option may change, besides the data and the sizes of the model."""
    if not isinstance(task, SummaryTask):
        return None
    batch = next(iter(task.data.loader("val")))
    return [task.loss(uniform(task, batch), batch).item(), vars(task.decoding), task.decoded, task.rouge_tokens]
