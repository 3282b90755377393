"""Logical inference (Bowman et al. 2015, arXiv:1506.04834): the relation between two formulas of propositional logic.

An example; the second formula implies the first:

    input       ( ( d ( or e ) ) ( and f ) ) ? ( f ( and e ) )
    target      > reverse entailment
"""

import logging
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gyral.applications.logic.data import corpus
from gyral.applications.logic.data.corpus import CLASSES, OPERATORS, SYMBOLS, Pairs
from gyral.applications.logic.data.formulas import RELATIONS
from gyral.applications.logic.model import PairClassifier
from gyral.core.measures import ACCURACY, SUBSTITUTE, percentage
from gyral.core.options import Probability, Range
from gyral.data.batching import IGNORED, Batch, Examples
from gyral.data.vocabulary import PADDING_ID
from gyral.tasks.baselines import frequency_loss
from gyral.tasks.data_module import ExampleData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import CategoryMetrics, CategoryShares

log = logging.getLogger(__name__)
TESTED = OPERATORS[1:]  # numbers of operators with a separate accuracy; only a few pairs have no operator


class CategorizedPairs:
    """The pairs of a test; the categories of a batch are the numbers of operators."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self.lengths = pairs.lengths

    def __len__(self) -> int:
        return len(self.pairs)

    def batch(self, rows: np.ndarray) -> Batch:
        categories = torch.ones(len(rows), 1 + len(TESTED), dtype=torch.bool)
        categories[:, 1:] = torch.from_numpy(self.pairs.operators[rows, None] == np.array(TESTED))
        return self.pairs.batch(rows)._replace(categories=categories)


class LogicData(ExampleData):
    """Pairs of formulas.

    Args:
        train_operators, generated, path, data_dir: see `gyral.applications.logic.data.corpus.load`.
        classifier_dropout: dropout probability, in [0, 1), of the inputs of both layers of the classifier.
        batch_size, eval_batch_size, data_seed: see `gyral.tasks.data_module.ExampleData`; `data_seed` is also the seed
            of generated pairs.

    Raises:
        UserError: an option is out of bounds, or a file is missing or is not in the format.
    """

    small: ClassVar = {"generated": True, "batch_size": 8, "eval_batch_size": 8}
    longest_first = True

    data_dir: str | Path = field()
    train_operators: Annotated[int, Range(1, max(OPERATORS))] = 6
    generated: bool = False
    path: str | Path | None = None
    classifier_dropout: Probability = 0.0
    batch_size = 128
    eval_batch_size = 256

    def __post_init__(self) -> None:
        self.pairs = corpus.load(
            self.data_dir,
            path=self.path,
            train_operators=self.train_operators,
            generated=self.generated,
            seed=self.data_seed,
        )
        if self.pairs.substitute:
            log.warning("%s", self.pairs.substitute)
        log.info(
            "logical inference: %s; one pass over the training split takes %d steps",
            ", ".join(f"{len(own):,} {split} pairs" for split, own in self.pairs.splits.items()),
            -(-len(self.pairs.splits["train"]) // self.batch_size),
        )

    def examples(self, split: str) -> Examples[Batch]:
        pairs = self.pairs.splits[split]
        return CategorizedPairs(pairs) if split == "test" else pairs


class RelationMetrics(CategoryMetrics):
    """Loss and accuracy; a test also reports the accuracy by operators, such as `accuracy_7_operators`."""

    names = (*CategoryMetrics.names, "accuracy")

    def __init__(self) -> None:
        super().__init__([f"{number}_operators" for number in TESTED])
        self.accuracy = CategoryShares(len(self.categories))

    def update(self, logits: Tensor, batch: Batch, loss: Tensor) -> None:
        """Add one batch: its logits (B, classes) and its mean loss."""
        counted, categories = batch.targets != IGNORED, self.membership(batch)
        self.update_loss(loss, counted.sum(), categories)
        self.accuracy.update(logits.argmax(dim=-1) == batch.targets, counted, categories)


class LogicalInferenceTask(DataTask[LogicData]):
    """Logical inference, trained on few operators and tested on more (Shen et al., ICLR 2019, section 5.4).

    The model reads both formulas with the same network, and a classifier compares its last outputs
    (`gyral.applications.logic.model.PairClassifier`). The baseline is the loss on the test split of a predictor that
    knows the frequency of each relation in training. Without files, the task generates pairs and logs the metric
    `substitute` = 1.
    """

    data_class = LogicData
    measures = (
        ACCURACY,
        *(percentage(f"accuracy_{count}_operators", f"accuracy, operators: {count}", at_end=True) for count in TESTED),
    )
    remarks = (SUBSTITUTE,)
    generators: ClassVar = {"relate_formulas": "gyral.applications.logic.generation.relate_formulas"}
    predictor = "gyral.applications.logic.generation.predict_relations"

    @classmethod
    def arguments(cls, data: LogicData) -> dict[str, Any]:
        pairs = data.pairs
        return {
            "vocabulary_size": len(SYMBOLS),
            "output_size": len(CLASSES),
            "readout": partial(PairClassifier, dropout=data.classifier_dropout),
            "baseline": partial(_baseline, pairs),
            "metrics": RelationMetrics(),
            "max_writes": max(int(own.lengths.max()) for own in pairs.splits.values()),
        }

    def data_metrics(self, split: str = "test") -> dict[str, float]:
        return {**super().data_metrics(split), "substitute": float(bool(self.data.pairs.substitute))}

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits (B, classes). The model reads the first and the second formulas as one batch."""
        formulas = torch.cat(batch.inputs.unbind(dim=2))
        logits: Tensor = self.model(formulas, lengths=(formulas != PADDING_ID).sum(dim=1))[0]
        return logits

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        formulas = (
            " ".join(SYMBOLS[token] for token in tokens.tolist() if token != PADDING_ID)
            for tokens in batch.inputs[row].unbind(dim=1)
        )
        lines = {"input": " ? ".join(formulas)}
        for name, classes in (("target", batch.targets), ("prediction", predicted)):
            sign = CLASSES[int(classes[row])]
            lines[name] = f"{sign} {RELATIONS[sign]}"
        return "\n".join(f"{name:<12}{line}" for name, line in lines.items())

    def probabilities(self, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the probabilities (classes,) of the relations between two formulas, given as tokens."""
        pairs = corpus.encode("\t".join((CLASSES[0], " ".join(first), " ".join(second))), 0, "formulas")
        batch = self.transfer_batch_to_device(pairs.batch(np.arange(1)), self.device, 0)
        with self.evaluating():
            return self(batch).softmax(dim=-1)[0]


def _baseline(pairs: corpus.LogicCorpus, split: str) -> float:
    return frequency_loss(pairs.splits["train"].relations, pairs.splits[split].relations, len(CLASSES))
