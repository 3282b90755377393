"""An HTML page of what an external memory does while a model reads a sequence and answers."""

import base64
import html
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

import numpy as np

from gyral.core.files import replace_when_written
from gyral.core.html import page_head
from gyral.generation.memory_trace import Keys, MemoryTrace

MOST_USED = 3  # slots of a head that the table shows
LEAST_WEIGHT = 0.02  # of these slots, except the first
SIZE = 400  # of the plane, in its own units
MARGIN = 24


class Answered(NamedTuple):
    """A sequence with the answer of a model, T steps in all.

    Attributes:
        question: the sequence as the user wrote it.
        answer: the answer as it is printed.
        right: the right answer in the same form.
        inputs: the names of the T inputs.
        outputs: the names of the T outputs; empty at steps that are not part of the answer.
        trace: what the memory did.
    """

    question: str
    answer: str
    right: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    trace: MemoryTrace


def write_page(path: Path, answered: Answered) -> None:
    """Write a self-contained HTML page.

    The page has a table with a row for each step, the plane of the keys if the memory has keys in a plane, and the
    weightings of each head. A slider chooses the step up to which they are shown.
    """
    trace, steps = answered.trace, len(answered.inputs)
    largest = max((float(weights.max()) for weights in trace.weightings.values()), default=0.0)
    plane = "" if trace.keys is None else _plane(trace.keys, trace.writable, answered.inputs)
    page = BODY.substitute(
        question=html.escape(answered.question),
        answer=html.escape(answered.answer or "(empty)"),
        right="which is right" if answered.answer == answered.right else f"right: {html.escape(answered.right)}",
        named="" if trace.keys is None else ", named by the input and the step at which they were written",
        last=steps - 1,
        plane=plane,
        weightings="".join(_weighting(name, weights, largest) for name, weights in trace.weightings.items()),
        heading="".join(f"<th>{html.escape(name)}</th>" for name in ("step", "input", "output", *_columns(trace))),
        rows="".join(_rows(answered)),
    )
    text = page_head(f"Memory: {answered.question}", STYLE) + page
    replace_when_written(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _columns(trace: MemoryTrace) -> list[str]:
    """Return the names of the columns of the table that depend on the cell."""
    return [*(["strength"] if trace.keys is not None else []), *trace.weightings]


def _rows(answered: Answered) -> Iterator[str]:
    trace = answered.trace
    written = [] if trace.keys is None else list(written_steps(trace.keys, trace.writable))
    for step, (source, output) in enumerate(zip(answered.inputs, answered.outputs, strict=True)):
        cells = [html.escape(cell) for cell in (str(step), _visible(source), _visible(output))]
        if trace.keys is not None:
            cells.append(f"{trace.keys.strength[step]:.2f}" if trace.writable[step] else "")
        for weights in trace.weightings.values():
            names = [f"{_visible(answered.inputs[at])} (step {at})" for at in written[step]] if written else None
            used = most_used(weights[step], names)
            cells.append(" ".join(f"<span>{html.escape(slot)}</span>" for slot in used))
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"


def most_used(weights: np.ndarray, names: Sequence[str] | None = None) -> list[str]:
    """Return the slots that a head uses most with their weights, the most used first; nothing if it uses none.

    Args:
        weights: (slots,).
        names: names of the first slots, the others being empty; None: the slots have numbers.
    """
    best = np.argsort(-weights, kind="stable")[:MOST_USED]
    best = best[weights[best] >= min(LEAST_WEIGHT, weights[best[0]])]
    used = [slot for slot in best.tolist() if weights[slot] > 0 and (names is None or slot < len(names))]
    return [f"{f'slot {slot}' if names is None else names[slot]}: {100 * weights[slot]:.0f} %" for slot in used]


def written_steps(keys: Keys, writable: np.ndarray) -> Iterator[np.ndarray]:
    """Yield for each step the steps at which the vectors in the memory were written, in the order of its slots."""
    written = np.flatnonzero(writable)
    for step, count in enumerate(keys.stored.tolist()):
        before = written[written <= step]
        yield before[len(before) - count :]  # a full memory drops the oldest vectors


def _plane(keys: Keys, writable: np.ndarray, inputs: Sequence[str]) -> str:
    """Return the plane as an SVG picture: circles for writes, the more opaque the stronger, and a line for reads."""
    points = np.concatenate((keys.read, keys.write[writable]))
    points = points[np.isfinite(points).all(axis=1)]
    low, high = (points.min(axis=0), points.max(axis=0)) if len(points) else (np.zeros(2), np.ones(2))
    scale = (SIZE - 2 * MARGIN) / max(*(high - low), 1e-6)
    center = (low + high) / 2

    def place(key: np.ndarray) -> list[float]:
        x, y = (np.nan_to_num(key) - center) * scale
        return [round(float(SIZE / 2 + x), 1), round(float(SIZE / 2 - y), 1)]

    circles = []
    for step in np.flatnonzero(writable).tolist():
        x, y = place(keys.write[step])
        strength = keys.strength[step]
        tooltip = html.escape(f"step {step}: {_visible(inputs[step])} written with strength {strength:.2f}")
        circles.append(
            f'<circle data-step="{step}" cx="{x}" cy="{y}" r="7" fill-opacity="{strength:.2f}">'
            f"<title>{tooltip}</title></circle>"
        )
    reads = json.dumps([place(key) for key in keys.read])
    corners = [f"({x:.3g}, {y:.3g})" for x, y in (center - SIZE / 2 / scale, center + SIZE / 2 / scale)]
    return PLANE.substitute(size=SIZE, circles="".join(circles), reads=reads, low=corners[0], high=corners[1])


def _weighting(name: str, weights: np.ndarray, largest: float) -> str:
    """Return the weighting (T, slots) of a head as a picture of slots by steps, slot 0 at the bottom."""
    shown = np.round(255 * np.clip(np.nan_to_num(weights / max(largest, 1e-6)), 0, 1)).astype(np.uint8)
    return WEIGHTING.substitute(
        name=html.escape(name),
        values=base64.b64encode(shown.T[::-1].tobytes()).decode(),
        steps=weights.shape[0],
        slots=weights.shape[1],
        largest=f"{100 * largest:.0f}",
    )


def _visible(symbol: str) -> str:
    """Return a symbol with signs for spaces and control characters."""
    return "".join("␣" if sign == " " else sign if sign.isprintable() else "�" for sign in symbol)


STYLE = """\
:root { --read: 213 94 0 }
@media (prefers-color-scheme: dark) { :root { --read: 255 150 60 } }
body { margin: 0 auto; max-width: 75rem; padding: 0.75rem 1.25rem }
h2 { margin: 1rem 0 0.25rem; font-size: 0.95rem; color: var(--faint) }
.faint { color: var(--faint) }
.beside { display: grid; grid-template-columns: minmax(18rem, 2fr) 3fr; gap: 0 2rem; align-items: start }
@media (max-width: 50rem) { .beside { grid-template-columns: 1fr } }
.step { position: sticky; top: 0; padding: 0.5rem 0; background: var(--page); display: flex; gap: 1rem }
.step input { flex: 1 }
svg { width: 100%; max-width: 32rem; border: 1px solid var(--line); border-radius: 3px }
svg circle { fill: var(--ink); stroke: var(--ink) }
svg polyline { fill: none; stroke: rgb(var(--read)); stroke-width: 1.5; stroke-linejoin: round }
svg #here { fill: rgb(var(--read)); stroke: none }
svg text { fill: var(--faint); font-size: 11px }
.picture { position: relative }
canvas { display: block; box-sizing: border-box; width: 100%; image-rendering: pixelated;
  min-height: 6rem; max-height: 16rem; border: 1px solid var(--line) }
.now { position: absolute; top: 0; bottom: 0; width: 2px; background: rgb(var(--read)) }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th { text-align: left; font-weight: 600; color: var(--faint); white-space: nowrap }
td, th { padding: 0.1rem 0.5rem; border-bottom: 1px solid var(--line) }
tbody tr { cursor: pointer }
td span { white-space: nowrap; margin-right: 0.75rem }
tr.chosen { outline: 2px solid rgb(var(--read)) }
"""

BODY = Template("""\
<header>
<h1>$question</h1>
<p>Answer: <strong>$answer</strong> <span class="faint">($right)</span></p>
<p class="faint">The table has, for each head, the slots with the largest weights$named.</p>
</header>
<main>
<label class="step">step <input type="range" min="0" max="$last" value="$last"><output>$last</output></label>
<div class="beside">
<div>
$plane
$weightings
</div>
<table>
<thead><tr>$heading</tr></thead>
<tbody>
$rows</tbody>
</table>
</div>
</main>
<script>
const slider = document.querySelector("input"), rows = [...document.querySelectorAll("tbody tr")];
const line = document.querySelector("polyline"), reads = line ? JSON.parse(line.dataset.reads) : [];
for (const canvas of document.querySelectorAll("canvas")) {
  const values = Uint8Array.from(atob(canvas.dataset.values), sign => sign.charCodeAt(0));
  const context = canvas.getContext("2d"), picture = context.createImageData(canvas.width, canvas.height);
  values.forEach((value, place) => picture.data.set([120, 120, 120, value], 4 * place));
  context.putImageData(picture, 0, 0);
}
function show(step) {
  slider.value = step;
  document.querySelector("output").textContent = step;
  rows.forEach((row, place) => row.classList.toggle("chosen", place == step));
  for (const circle of document.querySelectorAll("circle[data-step]"))
    circle.style.display = circle.dataset.step <= step ? "" : "none";
  if (line) {
    line.setAttribute("points", reads.slice(0, step + 1).join(" "));
    const here = document.querySelector("#here");
    here.setAttribute("cx", reads[step][0]);
    here.setAttribute("cy", reads[step][1]);
  }
  for (const now of document.querySelectorAll(".now")) now.style.left = (step + 0.5) / rows.length * 100 + "%";
}
slider.addEventListener("input", () => {
  show(+slider.value);
  rows[+slider.value].scrollIntoView({block: "nearest"});
});
rows.forEach((row, step) => row.addEventListener("click", () => show(step)));
show(rows.length - 1);
</script>
</body>
</html>
""")

PLANE = Template("""\
<h2>Keys in the plane</h2>
<p class="faint">Circles are writes, the more opaque the stronger; the line joins the reads, up to the chosen step.</p>
<svg viewBox="0 0 $size $size">
$circles
<polyline data-reads="$reads"/>
<circle id="here" r="5"/>
<text x="4" y="${size}" dy="-5">$low</text>
<text x="${size}" y="13" dx="-4" text-anchor="end">$high</text>
</svg>
""")

WEIGHTING = Template("""\
<h2>Weighting: $name</h2>
<p class="faint">From left to right the steps, from the bottom the slots; the most opaque: $largest %.</p>
<div class="picture"><canvas width="$steps" height="$slots" data-values="$values"></canvas><div class="now"></div></div>
""")
