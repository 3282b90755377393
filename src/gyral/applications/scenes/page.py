"""An HTML page of a scene with its questions, the programs that a model finds, and the sets after each step."""

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

import numpy as np
from matplotlib.image import imsave

from gyral.applications.scenes.data.collection import CROP
from gyral.applications.scenes.data.language import Step, nested
from gyral.core.files import replace_when_written
from gyral.core.html import page_head

WIDTH = 200  # of the picture of a step, in CSS pixels


class Asked(NamedTuple):
    """A question about a scene.

    Attributes:
        words: its words.
        program: the program that the model finds.
        attention: for each step but the last, which gives the answer, the probability of each object to be in the set
            on top of the stack.
        answer: the model's answer.
        probability: its probability.
        right: the right answer.
    """

    words: list[str]
    program: list[Step]
    attention: list[list[float]]
    answer: str
    probability: float
    right: str


def write_page(path: Path, image: np.ndarray, places: np.ndarray, asked: Sequence[Asked], title: str) -> None:
    """Write a self-contained HTML page.

    Args:
        path: the file.
        image: (H, W, 3) uint8, the picture of the scene.
        places: (N, 2) middles of its objects, in pixels.
        asked: the questions.
        title: title of the page.
    """
    buffer = io.BytesIO()
    imsave(buffer, image, format="png")
    data = base64.b64encode(buffer.getvalue()).decode()
    height, width = image.shape[:2]
    head = HEAD.substitute(title=html.escape(title), data=data, width=width, height=height)
    sections = "".join(_section(each, places, (width, height)) for each in asked)
    text = page_head(title, STYLE) + head + sections + "</main>\n</body>\n</html>\n"
    replace_when_written(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _section(asked: Asked, places: np.ndarray, size: tuple[int, int]) -> str:
    is_right = asked.answer == asked.right
    steps = "".join(
        STEP.substitute(
            name=html.escape(str(step)),
            picture=_picture(attention, places, size),
        )
        for step, attention in zip(asked.program[:-1], asked.attention, strict=True)
    )
    return SECTION.substitute(
        question=html.escape(" ".join(asked.words)),
        answer=html.escape(asked.answer),
        probability=f"{asked.probability:.0%}",
        kind="right" if is_right else "wrong",
        remark="right" if is_right else f"wrong, right is {html.escape(asked.right)}",
        program=html.escape(nested(asked.program)),
        steps=steps,
    )


def _picture(attention: Sequence[float], places: np.ndarray, size: tuple[int, int]) -> str:
    """Return the scene as an SVG picture in which objects outside the set are faded."""
    width, height = size
    half = CROP / 2 - 1
    rings = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{half}" stroke-opacity="{weight:.2f}" '
        f'fill-opacity="{0.75 * (1 - weight):.2f}">'
        f"<title>{weight:.1%}</title></circle>"
        for (x, y), weight in zip(places.tolist(), attention, strict=False)
    )
    return f'<svg viewBox="0 0 {width} {height}" width="{WIDTH}" role="img"><use href="#scene"/>{rings}</svg>'


STYLE = """\
:root { --ring: #d40078; --right: #007a5a; --wrong: #b0232f }
@media (prefers-color-scheme: dark) { :root { --ring: #ff5fb2; --right: #3cc79f; --wrong: #ff7f8a } }
body { margin: 0 auto; max-width: 80rem; padding: 0.75rem 1.25rem }
h2 { margin: 0; font-size: 1.05rem }
.faint { color: var(--faint) }
.right { color: var(--right) } .wrong { color: var(--wrong) }
section { border-top: 1px solid var(--line); margin-top: 1.25rem; padding-top: 0.75rem }
code { font-size: 0.9rem; overflow-wrap: anywhere }
ol { list-style: none; display: flex; flex-wrap: wrap; gap: 0.75rem; margin: 0.5rem 0 0; padding: 0 }
li { font: 0.85rem ui-monospace, monospace }
svg { display: block; border-radius: 4px }
image { image-rendering: pixelated }
svg circle { fill: #bcbcbc; stroke: var(--ring); stroke-width: 1.5 }
"""

HEAD = Template("""\
<header>
<h1>$title</h1>
<p class="faint">Each picture shows the set of objects after a step of the program: a ring marks an object in the set,
and an object outside it is faded. The number beside the pointer is the probability of an object to be in the set.
The last step, which gives the answer, has no picture.</p>
<svg viewBox="0 0 $width $height" width="480" role="img" style="margin-top:0.75rem">
<defs><image id="scene" width="$width" height="$height" href="data:image/png;base64,$data"/></defs>
<use href="#scene"/></svg>
</header>
<main>
""")

SECTION = Template("""\
<section>
<h2>$question? <strong class="$kind">$answer</strong> <span class="faint">($probability, $remark)</span></h2>
<p><code>$program</code></p>
<ol>
$steps</ol>
</section>
""")

STEP = Template("<li>$name$picture</li>\n")
