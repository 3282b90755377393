"""bAbI question answering (Weston et al. 2015, arXiv:1502.05698): read a story, then a question; answer in one word.

A question of task 2 with its story. A step is a sentence, and the last step is the question:

    input       john got the milk there . | mary moved to the attic . | john went to the hallway . | where is the milk ?
    target      hallway

With `level=word`, each word is a step. With `level=sentence`, the input of a step is the mean or the sum of the
embeddings of its words.
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
from torch.nn import functional as F
from torchmetrics import MeanMetric

from gyral.applications.babi.batches import EncodedQuestions, QuestionBatch
from gyral.cells.inputs import LinkedInputs
from gyral.core.errors import OptionError
from gyral.core.measures import ACCURACY, SPLITS, Remark, percentage
from gyral.core.options import OneOf
from gyral.data.babi import corpus as babi
from gyral.data.babi.answers import answer_counts, frequency_loss
from gyral.data.babi.corpus import Babi, load_stories
from gyral.data.babi.entities import EDGES, EntityMentions
from gyral.data.babi.stories import Question
from gyral.data.batching import IGNORED
from gyral.data.vocabulary import PADDING_ID
from gyral.models.attention import Attention, LastStep, ReadoutFactory, RotationalAttention
from gyral.tasks.data_module import ExampleData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import AccuracyMetrics

log = logging.getLogger(__name__)
READOUTS: dict[bool | str, ReadoutFactory] = {False: LastStep, True: Attention, "rotational": RotationalAttention}
LINE_WIDTH = 108  # columns of a rendered story


class BabiData(ExampleData):
    """Questions with their stories.

    Args:
        qa: number of the task, 1 to 20, or "all": one model for all tasks.
        size: training questions per task, including those for validation: "1k" or "10k".
        level: unit of a step: "sentence", with the embeddings of its words pooled by the model, or "word".
        attention: attention over the states of the story: False, True (`gyral.models.attention.Attention`), or
            "rotational".
        edges: "entities": edges between consecutive mentions of an entity or, at the level of sentences, between the
            sentences that have them, for cells that read edges; "none".
        validation, stand_in, path, data_dir: see `gyral.data.babi.corpus.load`.
        files: your own questions, see `gyral.data.babi.corpus.load_files`. None: the release.
        generated: whether to use generated stories of tasks 1 and 2 even if there is a release; False: only if
            `data_dir` has no release.
        batch_size, eval_batch_size, data_seed: see `gyral.tasks.data_module.ExampleData`; `data_seed` is also the seed
            of generated stories.

    Attributes:
        babi: the questions.

    Raises:
        UserError: an option is out of bounds; the data is missing, or is not the published data.
    """

    small: ClassVar = {"generated": True, "size": "1k", "batch_size": 8, "eval_batch_size": 8}

    qa: int | str = field()
    data_dir: str | Path = field()
    size: str = "10k"
    level: str = "sentence"
    attention: bool | str = False
    edges: Annotated[str, OneOf(EDGES)] = "none"
    validation: str = "cut"
    stand_in: bool = False
    generated: bool = False
    path: str | Path | None = None
    files: Sequence[str | Path] | None = None
    eval_batch_size = 256

    def check(self) -> None:
        if self.attention not in READOUTS or not isinstance(self.attention, bool | str):
            raise OptionError("attention", self.attention, "must be true, false or rotational")

    def __post_init__(self) -> None:
        self.babi = load_stories(
            self.qa,
            self.size,
            self.data_dir,
            path=self.path,
            files=self.files,
            validation=self.validation,
            stand_in=self.stand_in,
            generated=self.generated,
            seed=self.data_seed,
        )
        self._mentions = EntityMentions.of("all") if self.edges == "entities" else None
        self._encoded = {"train": self.encode(self.babi.splits["train"])}
        log.info(
            "%s: %s; one pass over the training split takes %d steps",
            self.babi.name,
            ", ".join(f"{sum(map(len, stories)):,} {split} questions" for split, stories in self.babi.splits.items()),
            -(-len(self.examples("train")) // self.batch_size),
        )

    def encode(self, stories: Sequence[Sequence[Question]]) -> EncodedQuestions:
        """Return the encoded questions of stories."""
        lists = [list(story) for story in stories]
        return EncodedQuestions(lists, self.babi.vocabulary, self.babi.classes, self.level, self._mentions)

    def examples(self, split: str) -> EncodedQuestions:
        """Return the encoded questions of a split; the first call encodes them."""
        if split not in self._encoded:
            self._encoded[split] = self.encode(self.babi.splits[split])
        return self._encoded[split]


class QuestionMetrics(AccuracyMetrics):
    """Loss over the questions whose answer is a class, and accuracy over all questions.

    `majority` is the accuracy of a predictor that always returns the most frequent answer of the task in training. If
    there are several tasks, `accuracy_qa1` and so on are the accuracies on each task.

    Args:
        babi: the questions.
    """

    names: tuple[str, ...] = (*AccuracyMetrics.names, "majority")

    def __init__(self, babi: Babi) -> None:
        super().__init__(len(babi.classes))
        self.accuracy = MeanMetric()
        self.majority = MeanMetric()
        most = {task: min(counts, key=lambda a: (-counts[a], a)) for task, counts in answer_counts(babi).items()}
        self._most = {task: babi.classes.index(answer) for task, answer in most.items()}
        self._tasks = sorted(most) if len(most) > 1 else []
        for task in self._tasks:
            self.add_module(f"accuracy_qa{task}", MeanMetric())
        self.names = (*QuestionMetrics.names, *(f"accuracy_qa{task}" for task in self._tasks))

    def update(self, logits: Tensor, batch: QuestionBatch, loss: Tensor) -> None:
        """Add one batch: its logits (B, classes) and its mean loss."""
        self.loss.update(loss, weight=(batch.answers != IGNORED).sum())
        correct = (logits.argmax(dim=-1) == batch.answers).float()
        self.accuracy.update(correct)
        most = torch.tensor([self._most[task] for task in batch.tasks.tolist()], device=correct.device)
        self.majority.update((most == batch.answers).float())
        for task in self._tasks:
            getattr(self, f"accuracy_qa{task}").update(correct, weight=(batch.tasks == task).float())


class BabiTask(DataTask[BabiData]):
    """bAbI with the protocol of Dangovski et al. (TACL 2019, Table 2).

    The model predicts one class per question, at the last step: one of the answers of the training split. An answer of
    several words, such as "football,milk", is one class. The baseline is the loss on the test split of a predictor that
    knows the frequency of each answer of the task in training. Without a release, the task generates stories and logs
    the metric `generated` = 1. The metric `stand_ins` is the number of tasks with fewer training questions than `size`.
    """

    data_class = BabiData
    measures = (ACCURACY, percentage("majority", "most frequent answer", at_end=True, floor_of=ACCURACY.name))
    remarks = (
        babi.STAND_INS,
        Remark("generated", "*", "on GENERATED stories, which are not from bAbI", "GENERATED stories"),
    )
    generators: ClassVar = {"answer_story": "gyral.applications.babi.generation.answer_story"}
    predictor = "gyral.applications.babi.generation.predict_answers"
    figures: ClassVar = {
        "answers": "gyral.applications.babi.figures.answers.answers",
        "attention": "gyral.applications.babi.figures.attention.attention",
    }

    @classmethod
    def arguments(cls, data: BabiData) -> dict[str, Any]:
        return {
            "readout": READOUTS[data.attention],
            "vocabulary_size": len(data.babi.vocabulary),
            "output_size": len(data.babi.classes),
            "baseline": partial(frequency_loss, data.babi),
            "metrics": QuestionMetrics(data.babi),
            "max_writes": max(int(data.examples(split).lengths.max(initial=1)) for split in SPLITS),
        }

    def data_metrics(self, split: str = "test") -> dict[str, float]:
        found = self.data.babi
        return {
            **super().data_metrics(split),
            "generated": float(found.name == babi.GENERATED),
            "stand_ins": float(len(found.stand_ins)),
        }

    def model_inputs(self, batch: QuestionBatch) -> Any:
        return batch.inputs if batch.edges is None else LinkedInputs(batch.inputs, batch.edges)

    def targets(self, batch: QuestionBatch) -> Tensor:
        return batch.answers

    def symbols(self) -> Sequence[str]:
        return (*self.data.babi.vocabulary.symbols, *self.data.babi.classes)

    def loss(self, logits: Tensor, batch: QuestionBatch) -> Tensor:
        """Return the mean cross-entropy, in nats, of the questions whose answer is a class; 0 if none is."""
        total = F.cross_entropy(logits, batch.answers, ignore_index=IGNORED, reduction="sum")
        return total / (batch.answers != IGNORED).sum().clamp(min=1)

    def render(self, batch: QuestionBatch, predicted: Tensor, row: int = 0) -> str:
        """Draw the end of a story with its question, the answer and the prediction (`predicted`, (B,))."""
        steps = batch.inputs[row, : batch.lengths[row]].tolist()
        symbols, classes = self.data.babi.vocabulary.symbols, self.data.babi.classes
        if self.data.level == "word":
            story = " ".join(symbols[word] for word in steps)
        else:
            story = " | ".join(" ".join(symbols[word] for word in step if word != PADDING_ID) for step in steps)
        if len(story) > LINE_WIDTH:
            story = f"… {story[2 - LINE_WIDTH :].partition(' ')[2]}"
        answer = batch.answers[row].item()
        target = "(not in the training data)" if answer == IGNORED else classes[int(answer)]
        return f"input       {story}\ntarget      {target}\nprediction  {classes[int(predicted[row])]}"

    def batch_of(self, asked: Sequence[Question]) -> QuestionBatch:
        """Return questions of any stories as one batch, on the device of the task."""
        encoded = self.data.encode([[question] for question in asked])
        return self.transfer_batch_to_device(encoded.batch(np.arange(len(encoded))), self.device, 0)

    def probabilities(self, asked: Sequence[Question]) -> Tensor:
        """Return the probabilities (n, classes) of the answers to n questions of any stories."""
        with self.evaluating():
            return self(self.batch_of(asked)).softmax(dim=-1)

    def attention(self, asked: Sequence[Question]) -> Tensor:
        """Return the attention of n questions to the steps before them, (T, n); each column has sum 1.

        Raises:
            OptionError: the task has no attention.
        """
        readout = self.model.readout
        if not isinstance(readout, Attention):
            raise OptionError("task.attention", False, "must be true or rotational")
        with self.evaluating():
            batch = self.batch_of(asked)
            outputs = self.model.run(self.model_inputs(batch), lengths=batch.lengths)[0]
            return readout.weights(outputs, batch.lengths)
