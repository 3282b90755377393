"""How two boxes overlap by their distance, and conditional probabilities beside those that models have learned."""

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from gyral.applications.boxes.model import Box, BoxModel, GaussianBoxes, HardBoxes, SmoothedBoxes
from gyral.applications.boxes.tasks.conditionals import ConditionalTask
from gyral.core.errors import OptionError
from gyral.figures.common import add_title, describe_run
from gyral.plotting.layout import finish, make_grid
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import SMALL, add_legend, line_style, without_formulas
from gyral.runs.directory import Run
from gyral.training import build

FARTHEST = 3.0  # distance of the centers of two intervals of length 1
SHOWN = 10  # concepts, of which each pair has a number
CELL = 0.42  # inches


def overlaps(run: Run) -> Figure:
    """Draw the overlap of two intervals of length 1 by the distance of their centers, as in Li et al. (ICLR 2019).

    The lines are the three overlap functions at the temperature of the run's model; the second panel has logarithms.
    Hard edges have a gradient only where the intervals overlap, and smooth edges everywhere.

    Raises:
        OptionError: the model of the run has no temperature.
    """
    task, _ = build.load_trained(run, "best")
    if not isinstance(task.model, SmoothedBoxes):
        raise OptionError("run", run.directory, "the figure needs a temperature, such as that of model=smoothed_box")
    temperature = task.model.temperature
    distances = torch.linspace(0, FARTHEST, 301)
    figure, panels = make_grid(2, "page", share_x=False, share_y=False)
    for index, (name, logarithms) in enumerate(log_overlaps(distances, temperature).items()):
        look = {**line_style(index), "marker": ""}
        panels[0].plot(distances, logarithms.exp(), label=name, **look)
        panels[1].plot(distances, logarithms.masked_fill(logarithms < -20, torch.nan), **look)  # hard: log 0
    for axes, label in zip(panels, ("overlap", "logarithm of the overlap"), strict=True):
        axes.set(xlabel="distance of the centers", ylabel=label, xlim=(0, FARTHEST))
    add_title(figure, run, f"overlap of two intervals of length 1 at temperature {temperature:g}")
    add_legend(figure, *panels[0].get_legend_handles_labels())
    finish(panels, integer_x=False)
    return figure


def log_overlaps(distances: Tensor, temperature: float) -> dict[str, Tensor]:
    """Return the logarithms of the overlaps (n,) of two intervals of length 1 by the distance of their centers (n,)."""
    intersection = Box(distances[:, None], torch.ones(len(distances), 1))
    models: dict[str, BoxModel] = {
        "hinge": HardBoxes(1, dimension=1),
        "Gaussian": GaussianBoxes(1, dimension=1, temperature=temperature),
        "softplus": SmoothedBoxes(1, dimension=1, temperature=temperature),
    }
    return {name: model.log_volume(intersection) for name, model in models.items()}


def conditionals(*runs: Run) -> Figure:
    """Draw the probabilities P(a | b) of pairs of concepts: the true ones, and those of one model or two, as numbers.

    Raises:
        OptionError: the second run has other concepts.
    """
    loaded = [build.load_trained(run, "best") for run in runs]
    tasks: list[ConditionalTask] = [task for task, _ in loaded]
    for run, task in zip(runs[1:], tasks[1:], strict=True):
        if list(task.names) != list(tasks[0].names):
            raise OptionError("beside", run.directory, f"must have the same concepts as {runs[0].directory}")
    shown = tasks[0].shown_concepts(SHOWN)
    names = [without_formulas(tasks[0].names[concept].partition(".")[0].replace("_", " ")) for concept in shown]
    steps = [f"{describe_run(run)}, step {step:,}" for run, (_, step) in zip(runs, loaded, strict=True)]
    tables = {
        "true": true_table(tasks[0], shown),
        **dict(zip(steps, (table(task, shown) for task in tasks), strict=True)),
    }
    side = CELL * len(shown)
    width = max(WIDTHS["page"], len(tables) * (side + 0.1) + 1)
    figure = Figure(figsize=(width, side + 1.7), layout="constrained")
    panels = figure.subplots(1, len(tables), sharey=True)
    for axes, (title, values) in zip(panels, tables.items(), strict=True):
        axes.set_title(without_formulas(title), fontsize=SMALL)
        axes.imshow(values, cmap="Blues", vmin=0, vmax=1.4, aspect="equal")  # light enough for dark numbers
        for (row, column), value in np.ndenumerate(values):
            text = "" if np.isnan(value) else f"{value:.2f}".removeprefix("0") if value < 0.995 else "1"
            axes.text(column, row, text, ha="center", va="center", fontsize=SMALL)
        axes.set_xticks(range(len(shown)), names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_xlabel("a")
    panels[0].set_yticks(range(len(shown)), names)
    panels[0].set_ylabel("given b")
    figure.suptitle("probability of a, given b")
    return figure


def true_table(task: ConditionalTask, concepts: list[int]) -> np.ndarray:
    """Return the true P(a | b) of concepts, (b, a); NaN where no split has the pair."""
    places = {concept: place for place, concept in enumerate(concepts)}
    values = np.full((len(concepts), len(concepts)), np.nan)
    for labelled in task.data.splits.values():
        rows = np.isin(labelled.pairs, concepts).all(axis=1)
        for (first, second), probability in zip(labelled.pairs[rows].tolist(), labelled.targets[rows], strict=True):
            values[places[second], places[first]] = probability
    return values


@torch.no_grad()
def table(task: ConditionalTask, concepts: list[int]) -> np.ndarray:
    """Return P(a | b) of a model for different concepts, (b, a); NaN for a concept given itself."""
    numbers = torch.tensor(concepts, device=task.device)
    second, first = torch.meshgrid(numbers, numbers, indexing="ij")
    values = task.model(torch.stack((first, second), dim=-1)).clamp(max=0).exp().cpu().double()
    return values.fill_diagonal_(torch.nan).numpy()
