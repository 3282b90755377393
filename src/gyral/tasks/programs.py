"""Python programs: read a program that prints an integer, and answer with the integer.

An example, where ? ends the input and . ends the answer, whose least significant digit comes first:

    input       p r i n t ( ( 1 4 * 5 6 0 8 ) ) ? ? ? ? ? ?
    target      · · · · · · · · · · · · · · · · 2 1 5 8 7 .

The sign of a negative number is last: -67032 is 23076-. `gyral.data.programs.drawing` shows programs of all six kinds.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from torch import Tensor

from gyral.core.checks import check_integer
from gyral.core.errors import ChoiceError, OptionError
from gyral.core.inputs import excerpt
from gyral.core.measures import percentage
from gyral.core.options import Increasing, OneOf, PositiveInt
from gyral.data.batching import IGNORED, Batch, pad_rows
from gyral.data.drawn import answer_batch
from gyral.data.programs.curriculum import CURRICULA, Curriculum
from gyral.data.programs.drawing import KINDS, OPERANDS, SYMBOLS, Program, draw_programs, longest_program
from gyral.data.programs.evaluation import ProgramError, evaluate_program
from gyral.tasks.answer import AnswerData, AnswerTask

END_OF_INPUT = "?"
ANSWER_SYMBOLS = "0123456789-."
LARGEST_DIGITS = 12  # digits of an operand, so that values are 64-bit integers
TOKENS = {symbol: token for token, symbol in enumerate(SYMBOLS)}
CLASSES = {symbol: index for index, symbol in enumerate(ANSWER_SYMBOLS)}


class ProgramData(AnswerData):
    """Programs with their answers. Validation and test have operands of mixed numbers of digits.

    Args:
        kinds: one or several of arithmetic, identity, multiplication, loop, substitution and conditional, which are
            equally frequent. None: all.
        digits: smallest and largest number of digits of an operand.
        curriculum: numbers of digits in training: none, naive, mixed or combined; see
            `gyral.data.programs.curriculum.Curriculum`.
        patience: validations without a new best value of the monitored metric, before "naive" and "combined" add a
            digit.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    inputs = (*SYMBOLS, END_OF_INPUT)
    outputs = tuple(ANSWER_SYMBOLS)
    end = CLASSES["."]

    kinds: str | Sequence[str] | None = None
    digits: Annotated[Sequence[int], Increasing(count=2)] = (2, 4)
    curriculum: Annotated[str, OneOf(CURRICULA)] = "mixed"
    patience: PositiveInt = 3
    batch_size = 32
    test_batches = 100

    def check(self) -> None:
        kinds = self.chosen()
        for kind in kinds:
            if kind not in KINDS:
                raise ChoiceError("kinds", kind, tuple(KINDS))
        if not kinds or len(set(kinds)) < len(kinds):
            raise OptionError("kinds", self.kinds, f"must be distinct values from {', '.join(KINDS)}")
        check_integer("digits", self.digits[1], maximum=LARGEST_DIGITS)

    def __post_init__(self) -> None:
        smallest, largest = self.digits
        self.in_training = Curriculum(self.curriculum, smallest, largest, self.patience)
        self.in_evaluation = Curriculum("mixed", smallest, largest, self.patience)
        self.follows_training = self.in_training.grows
        self.counts = range(smallest, largest + 1)
        self.categories = [*self.chosen(), *(f"{count}_digits" for count in self.counts)]
        self.max_writes = longest_program(self.chosen(), largest)

    def chosen(self) -> tuple[str, ...]:
        """Return the kinds of the programs."""
        kinds = tuple(KINDS) if self.kinds is None else self.kinds
        return (kinds,) if isinstance(kinds, str) else tuple(kinds)

    def draw(self, generator: np.random.Generator, split: str, test: int) -> Batch:
        curriculum = self.in_training if split == "train" else self.in_evaluation
        digits = curriculum.draw(generator, self.size_of(split), OPERANDS)
        return self.assemble(draw_programs(generator, self.chosen(), digits))

    def assemble(self, programs: Sequence[Program]) -> Batch:
        """Return a batch of programs with their answers."""
        questions = [[TOKENS[symbol] for symbol in program.text] for program in programs]
        answers = [[CLASSES[symbol] for symbol in answer_text(program.value)] for program in programs]
        kinds = self.chosen()
        categories = np.array(
            [
                [True, *(program.kind == kind for kind in kinds), *(program.digits == n for n in self.counts)]
                for program in programs
            ]
        )
        return answer_batch(*_padded(questions), *_padded(answers), len(SYMBOLS), categories=categories)


class ProgramsTask(AnswerTask[ProgramData]):
    """Learning to execute programs (Zaremba and Sutskever 2014, arXiv:1410.4615), in the form of Yang (2016).

    The programs are of six kinds and print one integer. The model reads a program symbol by symbol, then answers with
    the integer while its input is the end-of-input symbol. The loss is the cross-entropy over the answer. "fine" is the
    share of correct symbols, including the end, and "coarse" is the share of answers without an error. A test also
    reports both for each kind, such as `test/coarse_loop`, and for each largest number of digits of the operands, such
    as `test/coarse_4_digits`.

    The level of the curriculum changes after validations, and checkpoints contain it.
    """

    data_class = ProgramData
    separator = ""
    measures = (
        *AnswerTask.measures,
        percentage("coarse_4_digits", "right answers, 4 digits"),
        percentage("fine_4_digits", "right symbols, 4 digits"),
    )

    def encode(self, text: str) -> Batch:
        """Return a program as a batch of one row.

        Args:
            text: the program; `gyral.data.programs.evaluation` describes the form.
        """
        if unknown := [symbol for symbol in text if symbol not in TOKENS]:
            reason = f"{unknown[0]!r} is not a symbol; the symbols of programs are {SYMBOLS.strip()} and the space"
            raise OptionError("sequence", excerpt([text]), reason)
        try:
            value = evaluate_program(text)
        except ProgramError as error:
            raise OptionError("sequence", excerpt([text]), str(error)) from None
        return self.data.assemble([Program(text, value, kind="", digits=0)])

    def decode(self, answer: Sequence[int]) -> str:
        """Return an answer as Python prints it, with the sign first; "…" replaces the missing end of an answer."""
        found = list(answer)
        ended = self.end in found
        digits = "".join(self.outputs[each] for each in reversed(found[: found.index(self.end) if ended else None]))
        return digits if ended else f"…{digits}"

    def data_metrics(self, split: str = "test") -> dict[str, float]:
        """Return the numbers of all tasks and, for a curriculum that grows, its current number of digits."""
        curriculum = self.data.in_training
        digits = {"curriculum_digits": float(curriculum.level)} if curriculum.grows else {}
        return {**super().data_metrics(split), **digits}

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        assert batch.write is not None
        answered = batch.targets[row] != IGNORED
        lines = [f"input       {''.join(self.inputs[token] for token in batch.inputs[row][batch.write[row]].tolist())}"]
        for name, classes in (("target", batch.targets[row]), ("prediction", predicted[row])):
            lines.append(f"{name:<11} {''.join(self.outputs[each] for each in classes[answered].tolist())}")
        return "\n".join(lines)

    def step_validation(self, monitored: Tensor) -> None:
        super().step_validation(monitored)
        self.data.in_training.update(monitored.item() if self.mode == "max" else -monitored.item())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["curriculum"] = self.data.in_training.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.data.in_training.load_state_dict(checkpoint["curriculum"])


def answer_text(value: int) -> str:
    """Return the answer for an integer: the least significant digit first, then the sign and the end."""
    return f"{str(abs(value))[::-1]}{'-' if value < 0 else ''}."


def _padded(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of different lengths as one array, padded with 0, and their lengths."""
    return pad_rows(rows), np.array([len(row) for row in rows])
