"""The base class of tasks that read a sequence of symbols and then answer with another one."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

from gyral.core.errors import OptionError
from gyral.core.inputs import excerpt
from gyral.core.measures import COARSE, FINE, Measure
from gyral.data.batching import IGNORED, Batch
from gyral.tasks.base import ModelFactory
from gyral.tasks.baselines import frequency_loss
from gyral.tasks.data_module import DrawnData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import AnswerMetrics
from gyral.tasks.rendering import align

FURTHER_STEPS = 8  # extra steps for the answer of the model, beyond twice the length of the correct answer


class Answer(NamedTuple):
    """The answer of a model to one sequence.

    Attributes:
        batch: one row, which has the sequence and the end-of-input symbols until the answer of the model ends.
        given: the classes that the model predicts in the last steps of the row.
        right: the classes of the correct answer.
    """

    batch: Batch
    given: list[int]
    right: list[int]


class AnswerData(DrawnData):
    """Data of an `AnswerTask`.

    Attributes:
        inputs: names of the input tokens.
        outputs: names of the classes.
        end: the class that ends an answer.
        max_writes: the most symbols of a sequence, in any split or test.
        categories: names of the categories of rows (`gyral.data.batching.Batch.categories`) after the first one.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    end: int
    max_writes: int
    categories: Sequence[str]


Data = TypeVar("Data", bound=AnswerData)


class AnswerTask(DataTask[Data]):
    """A task whose model reads a sequence of symbols and then answers with another sequence.

    During the answer the input is the end-of-input symbol, never the answer itself (no teacher forcing), and the model
    does not write to an external memory. The baseline knows the frequencies of the symbols in the answers of the
    validation split, but no inputs.

    Args:
        model: makes the model from the sizes of the task.
        **options: see `gyral.tasks.data_task.DataTask`.
    """

    measures: tuple[Measure, ...] = (COARSE, FINE)
    separator = " "  # between two symbols of an answer
    generators: ClassVar = {"answer_sequence": "gyral.generation.sequences.answer_sequence"}
    predictor = "gyral.generation.sequences.predict_answers"

    def __init__(self, model: ModelFactory, **options: Any) -> None:
        super().__init__(model, **options)
        self.inputs, self.outputs, self.end = tuple(self.data.inputs), tuple(self.data.outputs), self.data.end

    @classmethod
    def arguments(cls, data: Data) -> dict[str, Any]:
        targets = torch.cat([batch.targets[batch.targets != IGNORED] for batch in data.loader("val")]).numpy()
        return {
            "vocabulary_size": len(data.inputs),
            "output_size": len(data.outputs),
            "baseline": frequency_loss(targets, targets, len(data.outputs)),
            "metrics": AnswerMetrics(data.categories),
            "max_writes": data.max_writes,
        }

    @abstractmethod
    def encode(self, text: str) -> Batch:
        """Return a sequence that a user writes as a batch of one row, with the correct answer as its targets.

        Raises:
            OptionError: the text is not a sequence of this task; the option is `sequence`.
        """

    def decode(self, answer: Sequence[int]) -> str:
        """Return the text of an answer, up to the class that ends it; "…" follows an answer that does not end."""
        found = list(answer)
        ended = self.end in found
        text = self.separator.join(self.outputs[each] for each in found[: found.index(self.end) if ended else None])
        return text if ended else f"{text}{self.separator}…"

    @torch.no_grad()
    def answer(self, text: str) -> Answer:
        """Return the answer of the model to a sequence that a user writes.

        Args:
            text: the sequence; see `encode`.

        Raises:
            OptionError: the text is not a sequence of this task, or has more symbols than an external memory of the
                model holds. The option is `sequence`.
        """
        batch = self.encode(text)
        assert batch.write is not None
        asked = int(batch.write.sum())
        self._reserve(text, asked)
        right = batch.targets[0, asked:].tolist()
        # The answer of the model may be longer than the correct answer.
        inputs = torch.cat([batch.inputs, batch.inputs[:, -1:].expand(-1, len(right) + FURTHER_STEPS)], dim=1)
        batch = self.transfer_batch_to_device(_one_row(inputs, asked), self.device, 0)
        given = self.predict(batch)[0, asked:].tolist()
        if self.end in given:
            given = given[: given.index(self.end) + 1]
        return Answer(_one_row(batch.inputs[:, : asked + len(given)], asked), given, right)

    def _reserve(self, text: str, writes: int) -> None:
        """Size the external memories of the model for a sequence.

        Raises:
            OptionError: a memory is too small.
        """
        try:
            self.reserve(writes)
        except OptionError as error:
            reason = f"has {writes} symbols, and the memory of the model holds {error.value}"
            raise OptionError("sequence", excerpt([text]), reason) from None

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        """Draw the symbols of the sequence, the correct answer, and the predictions at the steps of the answer."""
        answered = batch.targets[row] != IGNORED
        assert batch.write is not None
        lines = {"input": [self.inputs[token] for token in batch.inputs[row][batch.write[row]].tolist()]}
        for name, classes in (("target", batch.targets[row]), ("prediction", predicted[row])):
            lines[name] = [self.outputs[each] for each in classes[answered].tolist()]
        return align(lines)


def _one_row(inputs: Tensor, asked: int) -> Batch:
    """Return a batch of one row without targets, which may write to a memory only in the first `asked` steps."""
    steps = inputs.shape[1]
    write = torch.arange(steps, device=inputs.device)[None] < asked
    lengths = torch.tensor([steps], device=inputs.device)
    return Batch(inputs, torch.full_like(inputs, IGNORED), lengths=lengths, write=write)
