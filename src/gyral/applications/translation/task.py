"""Translation: read a sentence in one language, write it in another.

    source      Create and add a new surname
    target      Neuen Nachnamen erstellen und hinzufügen
    prediction  Neuen Nachnamen erstellen und hinzufügen

Sentences are sequences of subwords of a vocabulary that both languages share.
"""

import json
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MeanMetric

from gyral.applications.translation import bleu
from gyral.applications.translation.data.batches import EncodedPairs, TranslationBatch, assemble
from gyral.applications.translation.data.corpus import PADDING_ID, START_ID, STOP_ID, UNKNOWN_ID, TranslationCorpus
from gyral.applications.translation.model import Translator
from gyral.core.checks import check_choice, check_integer, check_real
from gyral.core.collectives import all_gather_object, rank
from gyral.core.errors import OptionError
from gyral.core.files import replace_when_written
from gyral.core.measures import Measure
from gyral.core.options import PositiveInt
from gyral.data.batching import IGNORED
from gyral.generation.beam import BeamSearch
from gyral.tasks.base import ModelFactory
from gyral.tasks.data_module import ExampleData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import Metrics

log = logging.getLogger(__name__)


class TranslationData(ExampleData):
    """Pairs of sentences.

    Args:
        corpus: the pairs.
        longest: pairs of the training split with more subwords than this on either side are left out.
        batch_size, eval_batch_size, data_seed: see `gyral.tasks.data_module.ExampleData`.

    Raises:
        OptionError: an option is out of bounds, or no training pair is left.
    """

    small: ClassVar = {"batch_size": 8, "eval_batch_size": 8}

    corpus: TranslationCorpus = field()
    longest: PositiveInt = 100
    batch_size = 64

    def __post_init__(self) -> None:
        pairs = len(self.examples("train"))
        if not pairs:
            raise OptionError("longest", self.longest, "leaves out all pairs of the training split")
        log.info(
            "%s: %s subwords; one pass over the %s training pairs takes %s steps",
            self.corpus.name,
            f"{self.corpus.size:,}",
            f"{pairs:,}",
            f"{-(-pairs // self.batch_size):,}",
        )

    def examples(self, split: str) -> EncodedPairs:
        """Return the encoded pairs of a split."""
        return EncodedPairs(self.corpus, split, self.longest if split == "train" else None)


class TranslationMetrics(Metrics):
    """Means over the subwords of the loss, and of −log P in nats (`nll`)."""

    names = ("loss", "nll")

    def __init__(self) -> None:
        super().__init__()
        self.nll = MeanMetric()

    def update(self, logits: Tensor, batch: TranslationBatch, loss: Tensor) -> None:
        """Add the logits (n, V) and the mean loss of one batch."""
        targets = batch.targets[batch.targets != IGNORED]
        self.loss.update(loss, weight=len(targets))
        self.nll.update(F.cross_entropy(logits, targets), weight=len(targets))


class Written(NamedTuple):
    """A translation: number of the pair in its split, text, and score of the search."""

    row: int
    text: str
    score: float


class TranslationTask(DataTask[TranslationData]):
    """Translation of sentences.

    The loss is the mean over all subwords of the cross-entropy with smoothed labels, in nats: 1 − ε for the target plus
    ε spread over all subwords. The baseline is −log P of a predictor that knows the frequency of each subword in the
    translations of the training split.

    A test also translates. It measures BLEU and chrF2 of the translations, BLEU of the sources themselves
    (`bleu_of_source`), and the sentences that it translates in a second. It saves the translations and the signature of
    BLEU in the run directory.

    Args:
        model: makes the model from the sizes of the task.
        corpus: the pairs.
        decoding: the search for translations.
        longest, batch_size, eval_batch_size, data_seed: see `TranslationData`.
        label_smoothing: ε, in [0, 1).
        decoded: number of pairs, the first ones of a split, that a test translates; None: all.
        bleu_tokens: the tokenizer of BLEU: 13a, as in published numbers, intl, zh, char or none; see
            `gyral.applications.translation.bleu.score`.
        **options: see `gyral.tasks.base.SequenceTask`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Raises:
        OptionError: an option is out of bounds.
    """

    measures = (
        Measure("bleu", "BLEU", digits=1),
        Measure("chrf", "chrF2", digits=1),
        Measure("sentences_a_second", "sentences a second", digits=1),
        Measure("bleu_of_source", "BLEU of the sources", at_end=True),
    )
    data_class = TranslationData
    model_type = Translator
    generators: ClassVar = {"translate": "gyral.applications.translation.generation.translate"}
    predictor = "gyral.applications.translation.generation.predict_translations"
    small: ClassVar = {"decoding": {"beam": 2, "max_length": 6}}

    def __init__(
        self,
        model: ModelFactory,
        corpus: TranslationCorpus,
        *,
        decoding: BeamSearch,
        label_smoothing: float = 0.1,
        decoded: int | None = None,
        bleu_tokens: str = "13a",
        **options: Any,
    ) -> None:
        self.label_smoothing = check_real("label_smoothing", label_smoothing, minimum=0, below=1)
        self.bleu_tokens = check_choice("bleu_tokens", bleu_tokens, bleu.TOKENS)
        self.decoded = decoded if decoded is None else check_integer("decoded", decoded, minimum=0)
        # a translation has none of these; <unk> would become a text that is in no reference
        self.decoding = decoding.changed(forbidden=[PADDING_ID, UNKNOWN_ID, START_ID])
        super().__init__(model, corpus=corpus, **options)
        self._written: list[Written] = []
        self._seconds = 0.0

    @classmethod
    def arguments(cls, data: TranslationData) -> dict[str, Any]:
        size = data.corpus.size
        return {
            "vocabulary_size": size,
            "output_size": size,
            "baseline": partial(frequency_loss, data),
            "metrics": TranslationMetrics(),
        }

    def forward(self, batch: TranslationBatch) -> Tensor:
        return self.model(batch)

    def tokens(self, batch: TranslationBatch) -> int:
        return batch.source.numel() + batch.inputs.numel()

    def loss(self, outputs: Tensor, batch: TranslationBatch) -> Tensor:
        """Return the mean loss over the subwords of a batch, in nats, for logits (n, V)."""
        targets = batch.targets[batch.targets != IGNORED]
        return F.cross_entropy(outputs, targets, label_smoothing=self.label_smoothing)

    def predict(self, batch: Any) -> Any:
        """Return the translation (1, L) of the first sentence of a batch; other inputs as `Task.predict` does."""
        if not isinstance(batch, TranslationBatch):
            return super().predict(batch)
        with self.evaluating():
            return self.model.translate(TranslationBatch(*(part[:1] for part in batch)), self.decoding).tokens[:, 0]

    def render(self, batch: TranslationBatch, predicted: Tensor, row: int = 0) -> str:
        """Draw a sentence, its translation, and the translation by the model (`predicted`, (B, L))."""
        lines = {"source": batch.source[row], "target": batch.targets[row], "prediction": predicted[row]}
        return "\n".join(f"{name:<11} {self.text(line)}" for name, line in lines.items())

    def text(self, tokens: Tensor) -> str:
        """Return the text of subwords (L,), up to `</s>`."""
        numbers = tokens.tolist()
        end = next((place for place, number in enumerate(numbers) if number in (STOP_ID, IGNORED)), len(numbers))
        return str(self.data.corpus.subwords.decode(numbers[:end]))

    def translations(self, sentences: Sequence[str]) -> list[Written]:
        """Return the translations of sentences, as one batch."""
        sources = self.data.corpus.subwords.encode(list(sentences))
        batch = assemble(sources, [[]] * len(sources), np.arange(len(sources)))
        return self.write(self.transfer_batch_to_device(batch, self.device, 0))

    def write(self, batch: TranslationBatch) -> list[Written]:
        """Return the translations of a batch, without dropout."""
        with self.evaluating():
            found = self.model.translate(batch, self.decoding)
        rows = zip(batch.rows.tolist(), found.tokens[:, 0], found.scores[:, 0].tolist(), strict=True)
        return [Written(row, self.text(tokens), score) for row, tokens, score in rows]

    def predict_step(self, batch: TranslationBatch, index: int) -> list[str]:
        """Return the translations of a batch as texts."""
        return [found.text for found in self.write(batch)]

    def test_step(self, batch: Any, index: int) -> None:
        super().test_step(batch, index)
        chosen = batch.rows < (math.inf if self.decoded is None else self.decoded)
        if not chosen.any():
            return
        started = time.perf_counter()
        self._written += self.write(TranslationBatch(*(part[chosen] for part in batch)))
        self._seconds += time.perf_counter() - started

    def test_results(self) -> dict[str, float]:
        results = super().test_results()
        gathered = all_gather_object((self._written, self._seconds))
        written = sorted((found for part, _ in gathered for found in part), key=lambda found: found.row)
        seconds = max(own for _, own in gathered)
        self._written, self._seconds = [], 0.0
        if written:
            encoded: EncodedPairs = self.trainer.test_dataloaders.examples
            results |= self._measure(written, encoded.split)
            results["sentences_a_second"] = len(written) / max(seconds, 1e-9)
        return results

    def _measure(self, written: Sequence[Written], split: str) -> dict[str, float]:
        """Return the metrics of translations of a split, and save both with the signature of BLEU."""
        pairs = [self.data.corpus.pair(split, found.row) for found in written]
        sources, references = zip(*pairs, strict=True)
        bleu.warn_of_unspaced(references, self.bleu_tokens)
        scores = bleu.score(references, [found.text for found in written], self.bleu_tokens)
        log.info("BLEU %.2f, chrF2 %.2f (%s)", scores.bleu, scores.chrf, scores.signature)
        if rank() == 0:
            lines = [
                {"row": found.row, "source": pair.source, "reference": pair.target, "translation": found.text}
                | {"score": found.score}
                for found, pair in zip(written, pairs, strict=True)
            ]
            folder = Path(self.trainer.default_root_dir)
            save(folder / f"translations_{split}.jsonl", [json.dumps(line, ensure_ascii=False) for line in lines])
            save(folder / f"bleu_{split}.json", [json.dumps(scores._asdict())])
        return {
            "bleu": scores.bleu,
            "chrf": scores.chrf,
            "length_ratio": scores.ratio,
            "bleu_of_source": bleu.score(references, sources, self.bleu_tokens).bleu,
        }

    def symbols(self) -> Sequence[str]:
        return self.data.corpus.pieces


def save(path: Path, lines: Sequence[str]) -> None:
    """Write lines to a file, completely or not at all."""
    replace_when_written(path, lambda temporary: temporary.write_text("".join(f"{line}\n" for line in lines), "utf-8"))


def frequency_loss(data: TranslationData, split: str = "test") -> float:
    """Return −log P on a split, in nats per subword, of the frequencies in the targets of the training split.

    Counts start at 1 (add-one smoothing). `</s>` counts once for each pair.
    """
    train, test = data.examples("train"), data.examples(split)
    train_counts, test_counts = (_counts(encoded, data.corpus.size) for encoded in (train, test))
    probabilities = (train_counts + 1) / (train_counts + 1).sum()
    return float(-(test_counts * np.log(probabilities)).sum() / test_counts.sum())


def _counts(encoded: EncodedPairs, size: int) -> np.ndarray:
    counts = np.bincount(encoded.targets(), minlength=size)
    counts[STOP_ID] += len(encoded)
    return counts
