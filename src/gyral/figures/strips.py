"""Targets, predictions and their difference as strips of rectangles, for the first validation examples."""

from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure

from gyral.core.errors import OptionError
from gyral.figures.common import add_title, first_batch
from gyral.plotting.layout import finish
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import COLORS
from gyral.runs.directory import Run
from gyral.tasks.base import SequenceTask
from gyral.training import build

MAX_EXAMPLES = 4
MAX_STEPS = 200  # of an example; more rectangles would be too narrow
TOKEN = 0.17  # inches, the height of the rectangle of a token, at least that of its label
COMPONENT = 0.075  # inches, the height of the rectangle of a vector
MAX_HEIGHT = 1.0  # inches of a strip
TITLE = 0.3  # inches, with the distance to the example above
GOLDEN = 0.618034  # multiples of the golden ratio give neighboring classes different colors
WRONG = ListedColormap(["#ffffff", "#000000"])


class Strip(NamedTuple):
    """An example: T classes (T,), or T vectors (T, Y)."""

    target: np.ndarray
    prediction: np.ndarray


def strips(run: Run) -> Figure:
    """Draw the first validation examples: target, prediction and difference, at the steps that have a target.

    A class is a colored rectangle, and a vector is a column of rectangles. If the task says which targets are answers,
    only these are shown. The difference of classes is black where the prediction is wrong.

    Raises:
        OptionError: The task of the run does not have a target for each step.
    """
    task, step = build.load_trained(run, "best")
    examples = predict_examples(task)
    if not examples:
        reason = f"the figure needs a task with a target for each step; this is {type(task).__name__}"
        raise OptionError("run", run.directory, reason)
    longest = max(len(example.target) for example in examples)
    width = examples[0].target.shape[1] if examples[0].target.ndim > 1 else 0
    height = min(MAX_HEIGHT, max(TOKEN, COMPONENT * width))
    size = (WIDTHS["page"], 0.9 + len(examples) * (TITLE + 3 * (height + 0.05)))
    figure = Figure(figsize=size, layout="constrained")
    add_title(figure, run, f"validation examples at step {step:,}; gray: beyond the end")
    panels = figure.subplots(3 * len(examples), sharex=True)
    for example, axes in zip(examples, panels.reshape(-1, 3), strict=True):
        _draw_example(axes, example, task.objective.output_size)
    for axes in panels[:-1]:
        axes.tick_params(bottom=False)
    panels[-1].set(xlabel="step of the answer", xlim=(-0.5, longest - 0.5))
    finish(list(panels), integer_x=True, y_is_numeric=False)
    return figure


def predict_examples(task: SequenceTask) -> list[Strip] | None:
    """Return targets and predictions of the first validation examples; None if they are not one for each step."""
    batch = first_batch(task, "val")
    with task.evaluating():  # without gradients, which real predictions have
        targets, predictions = task.targets(batch), task.predict(batch)
    shown = task.objective.has_target(targets)
    if shown.dim() != 2 or predictions.shape != targets.shape:
        return None
    answers = getattr(batch, "answers", None)
    if answers is not None:
        shown = answers if answers.dim() == 2 else answers.any(dim=-1)
    examples = []
    for target, prediction, own in zip(targets, predictions, shown, strict=True):
        own = own.nonzero().squeeze(1)[:MAX_STEPS]
        if not len(own):  # a text that only warms up the state
            continue
        examples.append(Strip(target[own].cpu().numpy(), prediction[own].cpu().numpy()))
    return examples[:MAX_EXAMPLES]


def _draw_example(axes: np.ndarray, example: Strip, classes: int) -> None:
    """Draw target, prediction and difference of an example on three axes."""
    target, prediction = example
    if target.ndim == 1:
        shades = [COLORS[i] if classes <= len(COLORS) else colormaps["turbo"](GOLDEN * i % 1) for i in range(classes)]
        wrong, limits = target != prediction, (-0.5, classes - 0.5)
        colors: Colormap = ListedColormap(shades)
        shown = [(target[None], colors, limits), (prediction[None], colors, limits), (wrong[None], WRONG, (0.0, 1.0))]
        axes[0].set_title(f"{len(wrong)} steps, {wrong.sum()} wrong", loc="left")
    else:
        difference, colors = np.abs(target - prediction), colormaps["viridis"]
        low, high = limits = float(target.min()), float(target.max())
        shown = [(target.T, colors, limits), (prediction.T, colors, limits)]
        shown.append((difference.T, colormaps["Greys"], (0.0, high - low)))
        axes[0].set_title(f"{len(difference)} steps, mean difference {difference.mean():.3g}", loc="left")
    names = ("target", "prediction", "difference")
    for one, name, (values, cmap, (least, most)) in zip(axes, names, shown, strict=True):
        one.imshow(values, aspect="auto", interpolation="nearest", cmap=cmap, vmin=least, vmax=most)
        one.vlines(np.arange(1, values.shape[1]) - 0.5, -0.5, len(values) - 0.5, "white", linewidth=0.3)
        one.set_facecolor("#ececec")  # beyond the end of a short example
        one.spines[:].set_visible(True)
        one.set_yticks([])
        one.set_ylabel(name, rotation=0, ha="right", va="center")
