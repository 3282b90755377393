"""Text pictures of examples, for `gyral.tasks.base.SequenceTask.render`."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gyral.data.batching import Batch
from gyral.tasks.metrics import answers_of

LINE_WIDTH = 108  # columns of text
LAST = 4  # number of last steps that are always shown


def align(lines: Mapping[str, Sequence[str]]) -> str:
    """Draw lines of words below each other, a column for each step. The middle of long sequences is left out.

    Args:
        lines: the words of each line by its name. A line with fewer words than the longest one ends with its last step.
    """
    steps = max(map(len, lines.values()))
    rows = {name: [""] * (steps - len(words)) + list(words) for name, words in lines.items()}
    widths = [max(map(len, column)) for column in zip(*rows.values(), strict=True)]
    shown = list(range(steps))
    if sum(widths) + steps > LINE_WIDTH and steps > LAST + 1:
        tail = shown[-LAST:]
        room = LINE_WIDTH - sum(widths[step] + 1 for step in tail) - len(f"…{steps}… ")
        ends = [sum(widths[: step + 1]) + step + 1 for step in shown]
        head = [step for step in shown[:-LAST] if ends[step] <= room]
        shown = [*head, *tail]
    left_out = f"…{steps - len(shown)}…"
    drawn = []
    for name, words in rows.items():
        cells = [words[step].rjust(widths[step]) for step in shown]
        if len(shown) < steps:
            cells.insert(len(shown) - LAST, left_out if name == next(iter(rows)) else " " * len(left_out))
        drawn.append(f"{name:<11} {' '.join(cells)}")
    return "\n".join(drawn)


def align_answers(batch: Batch, predicted: Tensor, row: int, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """Draw the tokens of a sequence and, below the steps that have an answer, the targets and the predictions.

    Args:
        batch, predicted, row: see `gyral.tasks.base.Task.render`.
        inputs, outputs: names of the tokens and of the classes.
    """
    answered = answers_of(batch)[row]
    steps = torch.arange(len(answered), device=answered.device) if batch.steps is None else batch.steps[row]
    lines = {"input": [inputs[token] for token in batch.inputs[row].tolist()]}
    for name, classes in (("target", batch.targets[row]), ("prediction", predicted[row])):
        shown = dict(zip(steps[answered].tolist(), classes[answered].tolist(), strict=True))
        lines[name] = [outputs[shown[step]] if step in shown else "" for step in range(len(lines["input"]))]
    return align(lines)


def describe_value(value: float | Sequence[float]) -> str:
    """Return a number with three significant digits, or several with commas between them."""
    if isinstance(value, Sequence):
        return ",".join(map(describe_value, value))
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def describe_bits(bits: Sequence[float]) -> str:
    """Return the bits of a vector, such as 0110."""
    return "".join(str(int(bit)) for bit in bits)
