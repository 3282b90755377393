"""Logical inference (Bowman et al. 2015, arXiv:1506.04834): the relation between two formulas of propositional logic.

An example; the second formula implies the first:

    input       ( ( d ( or e ) ) ( and f ) ) ? ( f ( and e ) )
    target      > reverse entailment
"""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gyral.applications.logic.data import corpus
from gyral.applications.logic.data.corpus import CLASSES, OPERATORS, SYMBOLS, LogicCorpus, Pairs
from gyral.applications.logic.data.formulas import RELATIONS
from gyral.applications.logic.model import PairClassifier
from gyral.core.checks import check_integer, check_real
from gyral.core.measures import ACCURACY, SUBSTITUTE, percentage
from gyral.data.batching import IGNORED, Batch, Examples
from gyral.data.vocabulary import PADDING_ID
from gyral.tasks.base import ModelFactory, SequenceTask
from gyral.tasks.baselines import frequency_loss
from gyral.tasks.data_module import ExampleData
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
        pairs: the pairs.
        **options: see `gyral.tasks.data_module.ExampleData`: batch_size, eval_batch_size, data_seed.
    """

    longest_first = True

    def __init__(self, pairs: LogicCorpus, **options: int) -> None:
        super().__init__(**options)
        self.pairs = pairs

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


class LogicalInferenceTask(SequenceTask[LogicData]):
    """Logical inference, trained on few operators and tested on more (Shen et al., ICLR 2019, section 5.4).

    The model reads both formulas with the same network, and a classifier compares its last outputs
    (`gyral.applications.logic.model.PairClassifier`). The baseline is the loss on the test split of a predictor that
    knows the frequency of each relation in training. Without files, the task generates pairs and logs the metric
    `substitute` = 1.

    Args:
        model: makes the model from the sizes of the task.
        train_operators, generated, path, data_dir: see `gyral.applications.logic.data.corpus.load`.
        classifier_dropout: dropout probability, in [0, 1), of the inputs of both layers of the classifier.
        batch_size, eval_batch_size, data_seed: see `LogicData`; `data_seed` is also the seed of generated pairs.
        **options: see `gyral.tasks.base.SequenceTask`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Raises:
        UserError: an option is out of bounds, or a file is missing or is not in the format.
    """

    measures = (
        ACCURACY,
        *(percentage(f"accuracy_{count}_operators", f"accuracy, operators: {count}", at_end=True) for count in TESTED),
    )
    remarks = (SUBSTITUTE,)
    generators: ClassVar = {"relate_formulas": "gyral.applications.logic.generation.relate_formulas"}
    predictor = "gyral.applications.logic.generation.predict_relations"
    small: ClassVar = {"generated": True, "batch_size": 8, "eval_batch_size": 8}

    def __init__(
        self,
        model: ModelFactory,
        *,
        data_dir: str | Path,
        train_operators: int = 6,
        generated: bool = False,
        path: str | Path | None = None,
        classifier_dropout: float = 0.0,
        batch_size: int = 128,
        eval_batch_size: int = 256,
        data_seed: int = 0,
        **options: Any,
    ) -> None:
        check_integer("data_seed", data_seed, minimum=0)
        dropout = check_real("classifier_dropout", classifier_dropout, minimum=0, below=1)
        pairs = corpus.load(data_dir, path=path, train_operators=train_operators, generated=generated, seed=data_seed)
        data = LogicData(pairs, batch_size=batch_size, eval_batch_size=eval_batch_size, data_seed=data_seed)
        if pairs.substitute:
            log.warning("%s", pairs.substitute)
        log.info(
            "logical inference: %s; one pass over the training split takes %d steps",
            ", ".join(f"{len(own):,} {split} pairs" for split, own in pairs.splits.items()),
            -(-len(pairs.splits["train"]) // batch_size),
        )
        train, test = (pairs.splits[split].relations for split in ("train", "test"))
        super().__init__(
            model,
            data,
            vocabulary_size=len(SYMBOLS),
            output_size=len(CLASSES),
            readout=partial(PairClassifier, dropout=dropout),
            baseline=frequency_loss(train, test, len(CLASSES)),
            metrics=RelationMetrics(),
            max_writes=max(int(own.lengths.max()) for own in pairs.splits.values()),
            **options,
        )

    def data_metrics(self) -> dict[str, float]:
        return {**super().data_metrics(), "substitute": float(bool(self.data.pairs.substitute))}

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
