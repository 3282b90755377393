"""Reading comprehension: the base class of tasks that answer questions about documents."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MeanMetric

from gyral.applications.reading.data.questions import ReadingBatch
from gyral.applications.reading.models.reader import Reader
from gyral.applications.reading.models.readouts import AttentionClassifier, AttentionSum
from gyral.cells.graph import GraphCell
from gyral.core.errors import OptionError
from gyral.core.measures import ACCURACY, SPLITS, SUBSTITUTE, Measure, Remark
from gyral.data.batching import IGNORED, Examples
from gyral.data.vocabulary import Vocabulary
from gyral.tasks.base import ModelFactory, SequenceTask
from gyral.tasks.data_module import ExampleData
from gyral.tasks.metrics import Metrics

log = logging.getLogger(__name__)
LINE_WIDTH = 108  # columns of a rendered question
ABSENT = "(none of the candidates)"  # rendering of an answer that is not a candidate


class ReadingData(ExampleData):
    """Questions about documents. A subclass makes them in `__post_init__`.

    Args:
        batch_size, eval_batch_size, data_seed: see `gyral.tasks.data_module.ExampleData`.

    Attributes:
        splits: the encoded questions of "train", "val" and "test".
        vocabulary: the words of the indices.
    """

    small: ClassVar = {"batch_size": 8, "eval_batch_size": 8}

    splits: Mapping[str, Examples[ReadingBatch]] = field(init=False)
    vocabulary: Vocabulary = field(init=False)

    def examples(self, split: str) -> Examples[ReadingBatch]:
        return self.splits[split]


class ReadingMetrics(Metrics):
    """Loss over the questions whose answer is a candidate, and accuracy over all questions.

    Args:
        tasks: numbers of the tasks within the data. If there are several, `accuracy_qa1` and so on are the accuracies
            on each task.
    """

    names: tuple[str, ...] = (*Metrics.names, "accuracy")

    def __init__(self, tasks: Sequence[int] = ()) -> None:
        super().__init__()
        self.accuracy = MeanMetric()
        self._tasks = sorted(tasks) if len(tasks) > 1 else []
        for task in self._tasks:
            self.add_module(f"accuracy_qa{task}", MeanMetric())
        self.names = (*type(self).names, *(f"accuracy_qa{task}" for task in self._tasks))

    def update(self, logits: Tensor, batch: ReadingBatch, loss: Tensor) -> None:
        """Add one batch: its logits (B, C) and its mean loss."""
        self.loss.update(loss, weight=(batch.targets != IGNORED).sum())
        correct = (logits.argmax(dim=-1) == batch.targets).float()
        self.accuracy.update(correct)
        for task in self._tasks:
            getattr(self, f"accuracy_qa{task}").update(correct, weight=(batch.tasks == task).float())


class ReadingTask(SequenceTask[ReadingData]):
    """Base class of tasks that answer questions about documents with a reader.

    The answer is one of the candidates that the document mentions, or one of several classes. A question with
    another answer has no loss and counts as wrong. If the data is a substitute, the task logs `substitute`, and the
    metric `substitute` = 1.

    Args:
        model: makes the model from the sizes of the task and the readout.
        data: the questions.
        name: name of the data, for the log.
        baseline: loss of a predictor that reads neither document nor question, in nats.
        output_size: largest number of candidates of a question, or number of classes.
        in_document: whether the answer is a candidate that the document mentions; False: it is a class.
        classes: names of the candidates if all questions have the same candidates; None: the candidates of a question
            have the names of their mentions.
        edge_types: E, number of types of edges.
        tasks: numbers of the tasks within the data; see `ReadingMetrics`.
        substitute: description of the missing data and its substitute; empty for the data that the task is named after.
        **options: see `gyral.tasks.base.SequenceTask`: optimizer, scheduler, monitor, mode, overfit, prefetch, metrics.

    Raises:
        OptionError: a cell of the model reads another number of types of edges.
    """

    measures: tuple[Measure, ...] = (ACCURACY,)
    remarks: tuple[Remark, ...] = (SUBSTITUTE,)
    model_type = Reader
    label_notes: tuple[str, ...] = ()  # below the table of an evaluation by labels
    generators: ClassVar = {"answer_questions": "gyral.applications.reading.generation.answer_questions"}
    figures: ClassVar = {"answers": "gyral.applications.reading.figures.answers"}
    evaluations: ClassVar = {"labels": "gyral.applications.reading.labels.score_labels"}

    def __init__(
        self,
        model: ModelFactory,
        data: ReadingData,
        *,
        name: str,
        baseline: float,
        output_size: int,
        in_document: bool,
        classes: Sequence[str] | None = None,
        edge_types: int = 1,
        tasks: Sequence[int] = (),
        substitute: str = "",
        **options: Any,
    ) -> None:
        self.classes = None if classes is None else tuple(classes)
        self.in_document = in_document
        self.edge_types = edge_types
        self.substitute = substitute
        if substitute:
            log.warning("%s", substitute)
        log.info(
            "%s: %s; one pass over the training split takes %d steps",
            name,
            ", ".join(f"{len(data.splits[split]):,} {split} questions" for split in SPLITS),
            -(-len(data.splits["train"]) // data.batch_size),
        )
        super().__init__(
            model,
            data,
            baseline=baseline,
            vocabulary_size=len(data.vocabulary),
            output_size=output_size,
            readout=AttentionSum if in_document else AttentionClassifier,
            max_writes=max(int(data.splits[split].lengths.max(initial=1)) for split in SPLITS),
            **{"metrics": ReadingMetrics(tasks), **options},
        )
        for cell in self.model.modules():
            if isinstance(cell, GraphCell) and cell.edge_types != edge_types:
                reason = f"must be {edge_types}, the types of edges of this task"
                raise OptionError("edge_types", cell.edge_types, reason)

    def symbols(self) -> Sequence[str]:
        return (*self.data.vocabulary.symbols, *(self.classes or ()))

    def data_metrics(self, split: str = "test") -> dict[str, float]:
        return {**super().data_metrics(split), "substitute": float(bool(self.substitute))}

    def forward(self, batch: ReadingBatch) -> Tensor:
        """Return the logits (B, C) of the candidates or classes."""
        logits: Tensor = self.model(batch)
        return logits

    def loss(self, logits: Tensor, batch: ReadingBatch) -> Tensor:
        """Return the mean cross-entropy, in nats, of the questions that have an answer; 0 without such questions."""
        total = F.cross_entropy(logits, batch.targets, ignore_index=IGNORED, reduction="sum")
        return total / (batch.targets != IGNORED).sum().clamp(min=1)

    def render(self, batch: ReadingBatch, predicted: Tensor, row: int = 0) -> str:
        """Draw the end of a document with its question, the answer and the prediction (`predicted`, (B,))."""
        words = self.words(batch, row)
        split = int(batch.document_lengths[row])
        text = " ".join((*words[:split], "|", *words[split:]))
        if len(text) > LINE_WIDTH:
            text = f"… {text[2 - LINE_WIDTH :].partition(' ')[2]}"
        target = self.candidate(batch, row, int(batch.targets[row]))
        prediction = self.candidate(batch, row, int(predicted[row]))
        return f"input       {text}\ntarget      {target}\nprediction  {prediction}"

    def words(self, batch: ReadingBatch, row: int) -> list[str]:
        """Return the words of a document and then of its question."""
        steps = batch.inputs[row, : batch.lengths[row]].tolist()
        return [self.data.vocabulary.symbols[step] for step in steps]

    def candidate(self, batch: ReadingBatch, row: int, index: int) -> str:
        """Return the name of a candidate: the name of its class, or the words of its first mention."""
        if index == IGNORED:
            return ABSENT
        if self.classes is not None:
            return self.classes[index]
        mentions = batch.mentions[row].tolist()
        if index + 1 not in mentions:
            return "(not in the document)"
        first = mentions.index(index + 1)
        end = first + 1
        while end < len(mentions) and mentions[end] == index + 1:
            end += 1
        return " ".join(self.words(batch, row)[first:end])

    def batch_of(self, split: str, rows: Sequence[int]) -> ReadingBatch:
        """Return questions of a split by their indices as one batch, on the device of the task."""
        batch = self.data.splits[split].batch(np.array(rows))
        moved: ReadingBatch = self.transfer_batch_to_device(batch, self.device, 0)
        return moved

    def probabilities(self, batch: ReadingBatch) -> Tensor:
        """Return the probabilities (B, C) of the candidates or classes."""
        with self.evaluating():
            return self(batch).softmax(dim=-1)

    def attention(self, batch: ReadingBatch) -> Tensor:
        """Return the attention (B, T) of the questions to the words of their documents; rows have sum 1."""
        with self.evaluating():
            output: Any = self.model.read(batch)
            weights = output.attention.t()
            return F.pad(weights, (0, batch.inputs.shape[1] - weights.shape[1]))

    def probabilities_after(self, batch: ReadingBatch, steps: list[int]) -> Tensor:
        """Return the probabilities (n, B, C) after n steps of the documents; see `Reader.answers_after`."""
        with self.evaluating():
            answers: Tensor = self.model.answers_after(batch, steps)
            return answers.softmax(dim=-1)
