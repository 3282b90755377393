"""bAbI question answering (Weston et al. 2015, arXiv:1502.05698): read a story, then a question; answer in one word.

A question of task 2 with its story, as the network reads it: a step is a sentence, the question the last one.

    input       john got the milk there . | mary moved to the attic . | john went to the hallway . | where is the milk ?
    target      hallway

At the level of words each word is a step; at that of sentences the mean, or sum, of its words'
embeddings.
"""

import logging
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MeanMetric

from gyral.core.checks import check_boolean, check_choice, check_integer
from gyral.core.errors import OptionError
from gyral.data.babi import release as babi
from gyral.data.babi.batches import PADDING, EncodedQuestions, QuestionBatch
from gyral.data.babi.release import Babi, NoReleaseError
from gyral.data.babi.stories import Question, Words, questions
from gyral.data.batching import IGNORED, BucketedBatches, SortedBatches, mix_seed
from gyral.models.attention import Attention, LastStep, ReadoutFactory, RotationalAttention
from gyral.tasks.base import SPLITS, Metrics, ModelFactory, SequenceTask, SplitData

log = logging.getLogger(__name__)
READOUTS: dict[bool | str, ReadoutFactory] = {False: LastStep, True: Attention, "rotational": RotationalAttention}
SHOWN = 108  # letters of an example's line


class BabiData(SplitData):
    """Questions with their stories: training in batches of similar length, the other splits once.

    Args:
        babi: the questions.
        level: what a step is: "word", or "sentence".
        batch_size, eval_batch_size: questions a batch, in training and in evaluation.
        data_seed: of the order of training batches.

    Raises:
        OptionError: an option out of its bounds.
    """

    def __init__(self, babi: Babi, *, level: str, batch_size: int, eval_batch_size: int, data_seed: int) -> None:
        super().__init__()
        self.babi = babi
        self.batch_size = check_integer("batch_size", batch_size)
        self.eval_batch_size = check_integer("eval_batch_size", eval_batch_size)
        self.data_seed = check_integer("data_seed", data_seed, minimum=0)
        self.level = level
        self._encoded = {"train": self.encode(babi.splits["train"])}

    def encode(self, stories: Sequence[Sequence[Question]]) -> EncodedQuestions:
        """Return the questions of stories as numbers."""
        return EncodedQuestions([list(story) for story in stories], self.babi.vocabulary, self.babi.classes, self.level)

    def encoded(self, split: str) -> EncodedQuestions:
        """Return the questions of a split as numbers, which they are made on first use."""
        if split not in self._encoded:
            self._encoded[split] = self.encode(self.babi.splits[split])
        return self._encoded[split]

    def loader(self, split: str) -> SortedBatches:
        """Return the questions of a split, the shortest first, for evaluation."""
        return SortedBatches(self.encoded(check_choice("split", split, SPLITS)), self.eval_batch_size)

    def stream(self) -> BucketedBatches:
        """Return the training stream: each pass over the questions in a new order."""
        seed = mix_seed(self.data_seed, "order")
        return BucketedBatches(self.encoded("train"), self.batch_size, seed=seed, length=self.steps())


class QuestionMetrics(Metrics):
    """Loss over the questions whose answer is a class, and over all questions the share that is answered right.

    `majority` is that share for who knows of each task the most frequent answer in training. Where there are several
    tasks, `accuracy_qa1` and so on are the shares of each.

    Args:
        babi: the questions.
    """

    names: tuple[str, ...] = (*Metrics.names, "majority")

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
        right = (logits.argmax(dim=-1) == batch.answers).float()
        self.accuracy.update(right)
        most = torch.tensor([self._most[task] for task in batch.tasks.tolist()], device=right.device)
        self.majority.update((most == batch.answers).float())
        for task in self._tasks:
            getattr(self, f"accuracy_qa{task}").update(right, weight=(batch.tasks == task).float())


class BabiTask(SequenceTask[BabiData]):
    """bAbI, with the protocol of Dangovski et al. (TACL 2019, section 4.3).

    One class is predicted for a question, at the last step: the answer, of those that training has; several words, as
    "football,milk", are one. The baseline is the loss on the test split of who knows how frequent each answer of the
    task is in training. Where no release is found, stories are generated, in which case the constant `generated`, which
    is logged with all metrics, is 1; `stand_ins` is the number of tasks that are trained on less than `size` says.

    Args:
        model: makes the model from the task's sizes and the readout that `attention` asks for.
        qa: the task, 1 to 20, or "all", one model for all of them.
        size: training questions a task, with those for validation: "1k" or "10k".
        level: what a step is: "sentence", its words' embeddings pooled by the model, or "word".
        attention: over the states of the story: False, True (`gyral.models.attention.Attention`), or "rotational".
        validation, stand_in, path, data_dir: of `gyral.data.babi.release.load`.
        generated: take generated stories, of tasks 1 and 2, in any case; False: only where `data_dir` has no release.
        batch_size, eval_batch_size, data_seed: of `BabiData`; generated stories are drawn from `data_seed`, too.
        **options: of `gyral.tasks.base.SequenceTask`: optimizer, scheduler, monitor, mode, overfit.

    Raises:
        OptionError: an option out of its bounds; data that is missing or not the published one.
    """

    def __init__(
        self,
        model: ModelFactory,
        *,
        qa: int | str,
        data_dir: str | Path,
        size: str = "10k",
        level: str = "sentence",
        attention: bool | str = False,
        validation: str = "cut",
        stand_in: bool = False,
        generated: bool = False,
        path: str | Path | None = None,
        batch_size: int = 32,
        eval_batch_size: int = 256,
        data_seed: int = 0,
        **options: Any,
    ) -> None:
        if attention not in READOUTS or not isinstance(attention, bool | str):
            raise OptionError(f"attention={attention}: must be true, false or rotational")
        if check_boolean("generated", generated):
            found = babi.load_generated(qa, size, data_seed)
        else:
            try:
                found = babi.load(qa, size, data_dir, path=path, validation=validation, stand_in=stand_in)
            except NoReleaseError as error:
                if path is not None:
                    raise
                found = _generate_instead(qa, size, data_seed, error)
        data = BabiData(found, level=level, batch_size=batch_size, eval_batch_size=eval_batch_size, data_seed=data_seed)
        log.info(
            "%s: %s; a pass over training takes %d steps",
            found.name,
            ", ".join(f"{sum(map(len, stories)):,} {split} questions" for split, stories in found.splits.items()),
            -(-len(data.encoded("train")) // batch_size),
        )
        super().__init__(
            partial(model, readout=READOUTS[attention]),
            data,
            vocabulary_size=len(found.vocabulary),
            output_size=len(found.classes),
            baseline=frequency_loss(found),
            metrics=QuestionMetrics(found),
            **options,
        )

    def constants(self) -> dict[str, float]:
        found = self.data.babi
        return {
            **super().constants(),
            "generated": float(found.name == babi.GENERATED_NAME),
            "stand_ins": float(len(found.stand_ins)),
        }

    def forward(self, batch: QuestionBatch) -> Tensor:
        """Return the logits (B, classes)."""
        return self.model(batch.inputs, lengths=batch.lengths)[0]

    def targets(self, batch: QuestionBatch) -> Tensor:
        return batch.answers

    def loss(self, logits: Tensor, batch: QuestionBatch) -> Tensor:
        """Return the mean cross-entropy of the questions whose answer is a class, in nats; 0 where there is none."""
        total = F.cross_entropy(logits, batch.answers, ignore_index=IGNORED, reduction="sum")
        return total / (batch.answers != IGNORED).sum().clamp(min=1)

    def render(self, batch: QuestionBatch, predicted: Tensor, row: int = 0) -> str:
        """Draw a question: the end of its story and itself, the answer and the prediction (`predicted` (B,))."""
        steps = batch.inputs[row, : batch.lengths[row]].tolist()
        symbols, classes = self.data.babi.vocabulary.symbols, self.data.babi.classes
        if self.data.level == "word":
            told = " ".join(symbols[word] for word in steps)
        else:
            told = " | ".join(" ".join(symbols[word] for word in step if word != PADDING) for step in steps)
        if len(told) > SHOWN:
            told = f"… {told[2 - SHOWN :].partition(' ')[2]}"
        answer = batch.answers[row].item()
        target = "(training lacks it)" if answer == IGNORED else classes[int(answer)]
        return f"input       {told}\ntarget      {target}\nprediction  {classes[int(predicted[row])]}"

    def batch_of(self, asked: Sequence[Question]) -> QuestionBatch:
        """Return questions of any stories as one batch, on the task's device."""
        encoded = self.data.encode([[question] for question in asked])
        return self.transfer_batch_to_device(encoded.batch(np.arange(len(encoded))), self.device, 0)

    def probabilities(self, asked: Sequence[Question]) -> Tensor:
        """Return the distribution (n, classes) of the answers to n questions of any stories."""
        with self._at_rest():
            return self(self.batch_of(asked)).softmax(dim=-1)

    def attention(self, asked: Sequence[Question]) -> Tensor:
        """Return how n questions attend to the steps before them: (T, n), each column's sum 1.

        Raises:
            OptionError: a task without attention.
        """
        readout = self.model.readout
        if not isinstance(readout, Attention):
            raise OptionError("task.attention=False: must be true or rotational")
        with self._at_rest():
            batch = self.batch_of(asked)
            return readout.weights(self.model.run(batch.inputs, lengths=batch.lengths)[0], batch.lengths)

    @contextmanager
    def _at_rest(self) -> Iterator[None]:
        """Have no dropout and no gradients for a while."""
        training = self.training
        try:
            with torch.no_grad():
                yield None if not training else self.eval()
        finally:
            self.train(training)

    def generators(self) -> list[Callable[..., Iterator[str]]]:
        return [self.answer_story]

    def answer_story(self, *, story: str) -> Iterator[str]:
        """Yield the questions of a file with their answers, a line each.

        Args:
            story: a file, or "-" for standard input; see `answer`.

        Raises:
            OptionError: it cannot be read, or has no question.
        """
        answers = self.answer(read_lines(story))
        first = next(answers, None)
        if first is None:
            raise OptionError(f"story={story}: has no question; one ends with a question mark")
        for line in chain([first], answers):
            yield f"{line}\n"

    def answer(self, lines: Iterable[str]) -> Iterator[str]:
        """Answer the questions of a story, each as soon as it was read.

        A line is a sentence, or a question, which a question mark ends. A story ends at an empty line, and, where lines
        are numbered as in the official format, before a number 1. What stands behind a tab, there the answer and its
        facts, is not looked at.

        Args:
            lines: of the stories.

        Yields:
            Each question with the answer and its probability.
        """
        story: list[Words] = []
        unknown = set[str]()
        for line in lines:
            number, text = re.fullmatch(r"\s*(\d+ )?([^\t\n\r]*)(?s:.*)", line).groups()  # type: ignore[union-attr]
            text = text.strip()
            if number == "1 " or not text:
                story = []
            if not text:
                continue
            words = (*text.rstrip(".?").split(), "?" if text.endswith("?") else ".")
            index = self.data.babi.vocabulary.index
            if new := [word for word in words if word.lower() not in index and word.lower() not in unknown]:
                unknown.update(map(str.lower, new))
                log.warning("Training has no %s: it is read as an unknown word", ", ".join(map(repr, new)))
            if words[-1] == ".":
                story.append(words)
                continue
            [distribution] = self.probabilities([Question(0, tuple(story), words, "", ())])
            best = int(distribution.argmax())
            yield f"{text} {self.data.babi.classes[best]} ({distribution[best]:.0%})"


def read_lines(name: str) -> Iterator[str]:
    """Yield the lines of a text file as they come, "-" for standard input.

    Raises:
        OptionError: it cannot be read, or is not in UTF-8.
    """
    try:
        with nullcontext(sys.stdin) if name == "-" else open(name, encoding="utf-8") as file:
            yield from file
    except OSError as error:
        raise OptionError(f"story={name}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise OptionError(f"story={name}: is not UTF-8 at offset {error.start}") from None


def _generate_instead(qa: int | str, size: str, seed: int, error: NoReleaseError) -> Babi:
    """Return generated stories in the place of a release that is not there.

    Raises:
        OptionError: none can be generated of this task; the error says what is missing, too.
    """
    try:
        generated = babi.load_generated(qa, size, seed)
    except OptionError as refused:
        raise OptionError(f"{refused}; {error}") from None
    log.warning("%s; GENERATED stories are taken instead, whose results are none of bAbI", error)
    return generated


def answer_counts(babi: Babi) -> dict[int, Counter[str]]:
    """Return for each task how often training has each answer."""
    counts: dict[int, Counter[str]] = {}
    for question in questions(babi.splits["train"]):
        counts.setdefault(question.task, Counter())[question.answer] += 1
    return counts


def frequency_loss(babi: Babi) -> float:
    """Return the cross-entropy, in nats, of the test split's answers under each task's frequencies in training.

    A class counts once more than it occurs, so that none is impossible; an answer that is no class does not count.
    """
    counts, classes = answer_counts(babi), set(babi.classes)
    losses = [
        -math.log((counts[question.task][question.answer] + 1) / (counts[question.task].total() + len(classes)))
        for question in questions(babi.splits["test"])
        if question.answer in classes
    ]
    return sum(losses) / len(losses)
