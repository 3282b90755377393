"""An HTML page of a scene with its questions, the programs of a model, and the sets after each step."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.image import imsave

from gyral.applications.scenes.data.collection import CROP
from gyral.applications.scenes.data.language import Step, nested
from gyral.core.html import write_html


class Asked(NamedTuple):
    """A question about a scene.

    Attributes:
        words: its words.
        program: the program of the model.
        attention: for each step but the last, which gives the answer, the probability that each object is in the set
            on top of the stack.
        answer: the model's answer.
        probability: the probability of this answer.
        right: the correct answer.
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
        places: (N, 2) centers of its objects, in pixels.
        asked: the questions.
        title: title of the page.
    """
    buffer = io.BytesIO()
    imsave(buffer, image, format="png")
    height, width = image.shape[:2]
    write_html(
        path,
        __file__,
        title=title,
        data=base64.b64encode(buffer.getvalue()).decode(),
        width=width,
        height=height,
        places=places.tolist(),
        radius=CROP / 2 - 1,
        asked=asked,
        nested=nested,
    )
