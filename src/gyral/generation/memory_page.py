"""An HTML page of an external memory while a model reads a sequence and answers."""

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gyral.core.html import write_html
from gyral.models.memory_trace import Keys, MemoryTrace

MOST_USED = 3  # slots of a head that the table shows
LEAST_WEIGHT = 0.02  # smallest weight of these slots, except the first
SIZE = 400  # size of the plane, in its units
MARGIN = 24


class Answered(NamedTuple):
    """A sequence with the answer of a model, T steps in all.

    Attributes:
        question: the sequence as the user wrote it.
        answer: the printed answer.
        right: the correct answer in the same form.
        inputs: the names of the T inputs.
        outputs: the names of the T outputs; empty at steps that are not part of the answer.
        trace: the trace of the memory.
    """

    question: str
    answer: str
    right: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    trace: MemoryTrace


class _Write(NamedTuple):
    """A vector in the plane: its step, position and strength, and the input at this step."""

    step: int
    x: float
    y: float
    strength: float
    symbol: str


class _Plane(NamedTuple):
    """Positions of keys in a picture: writes, reads (T, 2), and the keys at its lower left and upper right corners."""

    writes: list[_Write]
    reads: list[list[float]]
    low: str
    high: str


def write_page(path: Path, answered: Answered) -> None:
    """Write a self-contained HTML page.

    The page has a table with a row for each step, the plane of the keys if the memory has keys in a plane, and the
    weightings of each head. A slider selects the last step that they show.
    """
    trace = answered.trace
    write_html(
        path,
        __file__,
        title=f"Memory: {answered.question}",
        answered=answered,
        last=len(answered.inputs) - 1,
        heads=["strength", *trace.weightings] if trace.keys else list(trace.weightings),
        rows=_rows(answered),
        size=SIZE,
        plane=None if trace.keys is None else _plane(trace.keys, trace.writable, answered.inputs),
        largest=100 * max((float(weights.max()) for weights in trace.weightings.values()), default=0.0),
        weightings=[(name, *weights.shape, _opacities(trace, name)) for name, weights in trace.weightings.items()],
    )


def _rows(answered: Answered) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield for each step the table cells with text and, for each head, the slots with the largest weights."""
    trace = answered.trace
    written = [] if trace.keys is None else list(written_steps(trace.keys, trace.writable))
    for step, (source, output) in enumerate(zip(answered.inputs, answered.outputs, strict=True)):
        texts = [str(step), _visible(source), _visible(output)]
        if trace.keys is not None:
            texts.append(f"{trace.keys.strength[step]:.2f}" if trace.writable[step] else "")
        names = [f"{_visible(answered.inputs[at])} (step {at})" for at in written[step]] if written else None
        yield texts, [most_used(weights[step], names) for weights in trace.weightings.values()]


def most_used(weights: np.ndarray, names: Sequence[str] | None = None) -> list[str]:
    """Return the slots with the largest weights of a head, in descending order; empty without positive weights.

    Args:
        weights: (slots,).
        names: names of the first slots; the other slots are empty. None: the slots have numbers.
    """
    best = np.argsort(-weights, kind="stable")[:MOST_USED]
    best = best[weights[best] >= min(LEAST_WEIGHT, weights[best[0]])]
    used = [slot for slot in best.tolist() if weights[slot] > 0 and (names is None or slot < len(names))]
    return [f"{f'slot {slot}' if names is None else names[slot]}: {100 * weights[slot]:.0f} %" for slot in used]


def written_steps(keys: Keys, writable: np.ndarray) -> Iterator[np.ndarray]:
    """Yield for each step the write steps of the vectors in the memory, in the order of its slots."""
    written = np.flatnonzero(writable)
    for step, count in enumerate(keys.stored.tolist()):
        before = written[written <= step]
        yield before[len(before) - count :]  # a full memory drops the oldest vectors


def _plane(keys: Keys, writable: np.ndarray, inputs: Sequence[str]) -> _Plane:
    """Return the positions of the keys in a picture that fits all of them."""
    points = np.concatenate((keys.read, keys.write[writable]))
    points = points[np.isfinite(points).all(axis=1)]
    low, high = (points.min(axis=0), points.max(axis=0)) if len(points) else (np.zeros(2), np.ones(2))
    scale = (SIZE - 2 * MARGIN) / max(*(high - low), 1e-6)
    center = (low + high) / 2

    def place(key: np.ndarray) -> tuple[float, float]:
        x, y = (np.nan_to_num(key) - center) * scale
        return round(float(SIZE / 2 + x), 1), round(float(SIZE / 2 - y), 1)

    writes = [
        _Write(step, *place(keys.write[step]), float(keys.strength[step]), _visible(inputs[step]))
        for step in np.flatnonzero(writable).tolist()
    ]
    low, high = (f"({x:.3g}, {y:.3g})" for x, y in (center - SIZE / 2 / scale, center + SIZE / 2 / scale))
    return _Plane(writes, [list(place(key)) for key in keys.read], low, high)


def _opacities(trace: MemoryTrace, head: str) -> str:
    """Return the bytes of a picture of the weighting of a head, slots by steps with slot 0 at the bottom, as base64."""
    largest = max(float(weights.max()) for weights in trace.weightings.values())
    weights = trace.weightings[head] / max(largest, 1e-6)
    shown = np.round(255 * np.clip(np.nan_to_num(weights), 0, 1)).astype(np.uint8)
    return base64.b64encode(shown.T[::-1].tobytes()).decode()


def _visible(symbol: str) -> str:
    """Return a symbol with signs for spaces and control characters."""
    return "".join("␣" if sign == " " else sign if sign.isprintable() else "�" for sign in symbol)
