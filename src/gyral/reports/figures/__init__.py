"""Figures of a run: its memory target's kernel, angles and norms in training, its loss around its weights, answers."""

import csv
from collections.abc import Callable
from inspect import signature
from itertools import islice
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import torch
from hydra.utils import get_object
from matplotlib import colormaps
from matplotlib.figure import Figure
from omegaconf import DictConfig
from torch import Tensor

from gyral import runs
from gyral.cells.base import RecurrentCell
from gyral.cells.rum import ACTIVATIONS, RUMCell
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.data.babi.stories import Question, Words
from gyral.models.attention import Attention
from gyral.tasks.babi import BabiTask
from gyral.tasks.base import SequenceTask
from gyral.training import build
from gyral.training.callbacks import Cosines, Norms

FOLDER = "figures"
WITHOUT_RUN = Path("outputs") / FOLDER
WIDEST_TITLE = 64  # letters

BATCHES = 2  # first batches of the validation split that a loss is taken over
DIRECTIONS = 5  # lines; direction n is drawn with seed n
LINE = np.linspace(-1, 1, 41)
PLANE = np.linspace(-1, 1, 21)  # every other point of the lines
SENTENCES = 24  # that a story may have, to be drawn
ANSWERS = 12  # drawn at most


def draw(name: str, run_directory: Path | None) -> Path:
    """Draw a figure of a run, finished or stopped; return the picture's path.

    Written are <run directory>/figures/<name>.png and .pdf; of `derivatives`, which takes no run, the same in
    outputs/figures/. Weights are those of the run's best checkpoint.

    Args:
        name: one of `NAMES`.
        run_directory: of the run, None for `derivatives`.

    Raises:
        OptionError: an unknown name, no run or one without checkpoint or recorded cosines, or a cell that lacks what
            the figure shows.
    """
    check_choice("figure", name, NAMES)
    if name == "derivatives":
        return _save(derivatives(), WITHOUT_RUN / name)
    if run_directory is None:
        raise OptionError(f"run=<nothing>: must be a run directory, of which figure={name} is drawn")
    run = runs.load(run_directory)
    return _save(OF_RUNS[name](run), run.directory / FOLDER / name)


def _save(figure: Figure, stem: Path) -> Path:
    stem.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(stem.with_suffix(".pdf"), metadata={"CreationDate": None})  # the same run, the same bytes
    figure.savefig(stem.with_suffix(".png"), dpi=150)
    return stem.with_suffix(".png")


def build_of(run: runs.Run) -> SequenceTask:
    """Return a run's task as its training began with."""
    build.prepare(run.config)
    return build.build_task(run.config)


def cells_of(task: SequenceTask) -> list[RecurrentCell]:
    """Return a task's cells in the order of its layers."""
    return [module for module in task.modules() if isinstance(module, RecurrentCell)]


def names_of(task: SequenceTask) -> str:
    """Return the classes of a task's cells, each once."""
    return ", ".join(sorted({type(cell).__name__ for cell in cells_of(task)}))


def phases_of(task: SequenceTask) -> list[Tensor]:
    """Return the phase-coded weights of a task's cells, as parameters or views of them."""
    cells = cells_of(task)
    # a cell made of cells answers for them
    inner = {module for cell in cells for module in cell.modules() if module is not cell}
    return [phase for cell in cells if cell not in inner for phase in cell.phases()]


def lacks(run: runs.Run, task: SequenceTask, part: str) -> OptionError:
    """Return the error of a run whose cell lacks a part that a figure shows and that RUM has."""
    return OptionError(f"run={run.directory}: its cell must have {part}, as RUMCell has; it is {names_of(task)}")


def add_title(figure: Figure, run: runs.Run, shown: str) -> None:
    """Head a figure with the run's task and model, and below what is shown."""
    task = run.config.task["_target_"].rpartition(".")[2]
    figure.suptitle(f"{fill(f'{task}, {described(run.config.model)}', WIDEST_TITLE)}\n{shown}", fontsize="medium")


def described(node: Any) -> str:
    """Return a value of the configuration, a class as its name and the options that are not its defaults."""
    if not isinstance(node, DictConfig) or "_target_" not in node:
        return str(node)
    defaults = {name: option.default for name, option in signature(get_object(node["_target_"])).parameters.items()}
    given = [name for name, default in defaults.items() if name in node and node[name] != default]
    options = ", ".join(f"{name}={described(node[name])}" for name in given)
    return f"{node['_target_'].rpartition('.')[2]}({options})"


def target_kernel(run: runs.Run) -> Figure:
    """Draw W_hh^τ of every RUM in the model (Fig. 5A)."""
    task, step = build.build_trained(run, "best")
    cells = [cell for cell in cells_of(task) if isinstance(cell, RUMCell)]
    if not cells:
        raise lacks(run, task, "a memory target")
    figure = Figure(figsize=(5.4 * len(cells), 5), layout="constrained")
    add_title(figure, run, rf"kernel of the memory target, $W_{{hh}}^τ$, at step {step}")
    for axes, cell in zip(figure.subplots(1, len(cells), squeeze=False).flat, cells, strict=True):
        kernel = cell.weight_hh[: cell.hidden_size].detach().cpu().numpy()
        largest = np.abs(kernel).max()
        picture = axes.imshow(kernel, cmap="RdBu_r", vmin=-largest, vmax=largest)
        axes.set(xlabel="unit of the hidden state h", ylabel="unit of the memory target τ")
        figure.colorbar(picture, label="weight", shrink=0.85)
    return figure


def cosines(run: runs.Run) -> Figure:
    """Draw how cos θ_t is spread along training, from what `Cosines` recorded (Fig. 5 B, C)."""
    task = build_of(run)
    if not any(hasattr(cell, "record_cosines") for cell in cells_of(task)):
        raise lacks(run, task, "record_cosines")
    steps, centres, shares = read_cosines(run.directory)
    width = centres[1] - centres[0]
    chosen = sorted({0, (len(steps) - 1) // 2, len(steps) - 1})

    figure = Figure(figsize=(7.5, 6), layout="constrained")
    add_title(figure, run, f"angle θ from embedded input to memory target, up to step {steps[-1]}")
    grid = figure.add_gridspec(2, len(chosen), height_ratios=(3, 2))
    axes = figure.add_subplot(grid[0, :])
    # a column covers the steps since the validation before
    picture = axes.pcolormesh([0, *steps], np.linspace(-1, 1, len(centres) + 1), shares.T, cmap="viridis", vmin=0)
    axes.set(xlabel="optimizer steps", ylabel="cos θ")
    figure.colorbar(picture, label="share of time steps")
    first = None
    for column, index in enumerate(chosen):
        first = axes = figure.add_subplot(grid[1, column], sharey=first)
        axes.bar(centres, shares[index], width)
        axes.set(
            xlabel="cos θ",
            xlim=(-1, 1),
        )
        axes.set_title(f"step {steps[index]}", fontsize="medium")
        axes.label_outer()
        axes.grid(alpha=0.3)
    figure.axes[2].set_ylabel("share of time steps")
    return figure


def read_cosines(directory: Path) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return a run's cosines.csv: numbers of steps taken (validations), centres (bins), shares (validations, bins).

    Raises:
        OptionError: there is no such file, or no validation in it.
    """
    if not (directory / Cosines.FILE).is_file():
        raise OptionError(f"run={directory}: holds no {Cosines.FILE}, which a training with callbacks=cosines records")
    header, values = read_numbers(directory, Cosines.FILE)
    return [int(step) + 1 for step in values[:, 0]], np.array(header[1:], dtype=float), values[:, 1:]


def norms(run: runs.Run) -> Figure:
    """Draw what `Norms` recorded (Fig. 6): norms of gradient and last hidden state along training, and of the gradient
    at each step that a cell takes, at some validations."""
    if not (run.directory / Norms.FILE).is_file():
        raise OptionError(f"run={run.directory}: holds no {Norms.FILE}, which a training with callbacks=norms records")
    steps, gradients = read_step_gradients(run.directory)
    columns = max(2, len(gradients))
    figure = Figure(figsize=(3.6 * columns, 6), layout="constrained")
    add_title(figure, run, f"norms, up to step {steps[-1]}")
    grid = figure.add_gridspec(2, 2 * columns)
    for place, (name, label) in enumerate(
        (("train/gradient_norm", "gradient"), ("train/hidden_norm", "last hidden state"))
    ):
        axes = figure.add_subplot(grid[0, place * columns : (place + 1) * columns])
        axes.plot(*runs.read_metrics(run.directory, name), linewidth=1.2)
        axes.set(xlabel="optimizer steps", ylabel=f"norm of the {label}", yscale="log")
        axes.grid(alpha=0.3)
    chosen = sorted({0, (len(steps) - 1) // 3, 2 * (len(steps) - 1) // 3, len(steps) - 1})
    width = 2 * columns // len(gradients)
    for place, (cell, values) in enumerate(gradients.items()):
        axes = figure.add_subplot(grid[1, place * width : (place + 1) * width])
        for shade, index in enumerate(chosen):
            colour = colormaps["viridis"](0.9 * shade / max(len(chosen) - 1, 1))
            axes.plot(values[index], label=f"after {steps[index]:,}", color=colour, linewidth=1.2)
        axes.set(xlabel=f"step of {cell}", ylabel="norm of ∂loss/∂hidden", yscale="log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small", title="optimizer steps", title_fontsize="small")
    return figure


def read_step_gradients(directory: Path) -> tuple[list[int], dict[str, np.ndarray]]:
    """Return a run's step_gradients.csv: numbers of steps taken (validations), and of each cell (validations, T).

    Raises:
        OptionError: there is no validation in it.
    """
    header, values = read_numbers(directory, Norms.FILE)
    cells = dict.fromkeys(name.rpartition("/")[0] for name in header[1:])
    # a gradient that vanished has no logarithm
    values = np.where(values > 0, values, np.nan)
    return [int(step) + 1 for step in values[:, 0]], {
        cell: values[:, [place for place, name in enumerate(header) if name.rpartition("/")[0] == cell]]
        for cell in cells
    }


def read_numbers(directory: Path, name: str) -> tuple[list[str], np.ndarray]:
    """Return the header and the whole rows of one of a run's CSV files.

    Raises:
        OptionError: it has no row.
    """
    with (directory / name).open(newline="") as file:
        header, *rows = csv.reader(file)
    rows = [row for row in rows if len(row) == len(header)]  # a row that a crash cut off says nothing
    if not rows:
        raise OptionError(f"run={directory}: was stopped before its first validation, {name} is empty")
    return header, np.array(rows, dtype=float)


class Landscape:
    """The validation loss around a run's phase-coded weights, the phases (Fig. 8).

    A direction is Gaussian, each tensor of it scaled to the norm of the phase that it is added to: one unit along it
    moves the phases by their own norm, whatever their scale. Two directions are orthogonal up to 1/√(their number of
    entries).

    Raises:
        OptionError: the run has no checkpoint, or a cell without phases.

    Attributes:
        task: the run's, for evaluation.
        step: number of optimizer steps taken by its best checkpoint.
    """

    def __init__(self, run: runs.Run) -> None:
        self.task, self.step = build.build_trained(run, "best")
        self.phases = phases_of(self.task)
        if not self.phases:
            raise lacks(run, self.task, "phase-coded weights")
        self.trained = [phase.detach().clone() for phase in self.phases]
        batches = islice(self.task.data.loader("val"), BATCHES)
        self.batches = [self.task.transfer_batch_to_device(batch, self.task.device, 0) for batch in batches]

    def direction(self, seed: int) -> list[Tensor]:
        """Return a random direction in the space of the phases."""
        generator = torch.Generator().manual_seed(seed)
        drawn = [torch.randn(phase.shape, generator=generator).to(phase) for phase in self.trained]
        return [change * (phase.norm() / change.norm()) for change, phase in zip(drawn, self.trained, strict=True)]

    @torch.no_grad()
    def loss(self, *moves: tuple[float, list[Tensor]]) -> float:
        """Return the loss, in nats, at the trained phases plus the sum of distances times directions."""
        try:
            for distance, direction in moves:
                torch._foreach_add_(self.phases, direction, alpha=distance)
            for index, batch in enumerate(self.batches):
                self.task.validation_step(batch, index)
            return self.task.metrics.compute()["loss"].item()
        finally:
            torch._foreach_copy_(self.phases, self.trained)


def loss_line(run: runs.Run) -> Figure:
    """Draw the loss along random lines through the phases (Fig. 8)."""
    landscape = Landscape(run)
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    add_title(figure, run, f"random lines through the phases of step {landscape.step}")
    axes = figure.add_subplot()
    for seed in range(DIRECTIONS):
        direction = landscape.direction(seed)
        axes.plot(LINE, [landscape.loss((distance, direction)) for distance in LINE], label=f"direction {seed}")
    axes.axhline(landscape.task.baseline, color="black", linestyle="--", linewidth=1.2, label="memoryless baseline")
    axes.set(xlabel="distance from the trained phases (in their norm)", ylabel="validation loss (nats)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def loss_plane(run: runs.Run) -> Figure:
    """Draw the loss on a random plane through the phases, as contours and as a surface (Fig. 8)."""
    landscape = Landscape(run)
    losses = plane_losses(landscape)
    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    add_title(figure, run, f"a random plane through the phases of step {landscape.step}")
    flat = figure.add_subplot(1, 2, 1, aspect="equal", xticks=PLANE[::5], yticks=PLANE[::5])
    flat.set(xlabel="along direction 0 (in the phases' norm)", ylabel="along direction 1 (in the phases' norm)")
    picture = flat.contourf(PLANE, PLANE, losses, levels=20, cmap="viridis")
    flat.plot(0, 0, "r+", label="trained phases")
    flat.legend(fontsize="small")
    figure.colorbar(picture, label="validation loss (nats)")
    raised: Any = figure.add_subplot(1, 2, 2, projection="3d", xticks=PLANE[::5], yticks=PLANE[::5])
    raised.set(xlabel="direction 0", ylabel="direction 1", zlabel="validation loss (nats)")
    raised.plot_surface(*np.meshgrid(PLANE, PLANE), losses, cmap="viridis")
    return figure


def plane_losses(landscape: Landscape) -> np.ndarray:
    """Return the losses on the plane of directions 0 and 1: a row is a distance along direction 1."""
    first, second = landscape.direction(0), landscape.direction(1)
    return np.array([[landscape.loss((x, first), (y, second)) for x in PLANE] for y in PLANE])


def attention(run: runs.Run) -> Figure:
    """Draw how the questions of a story of the validation split attend to its sentences."""
    task, step, story = asked_of(run)
    if not isinstance(task.model.readout, Attention):
        raise OptionError(f"run={run.directory}: its task must have attention; task.attention=true trains with it")
    told = story[-1].story
    weights = sentence_weights(task, story)
    figure = Figure(figsize=(5.5 + 0.9 * len(story), 2.6 + 0.27 * len(told)), layout="constrained")
    add_title(figure, run, f"attention at step {step}; ○ supports the answer, ✗ answered wrong")
    axes = figure.add_subplot()
    picture = axes.imshow(np.ma.masked_invalid(weights), cmap="viridis", vmin=0, vmax=1, aspect="auto")
    predicted = task.probabilities(story).argmax(dim=-1).tolist()
    labels = []
    for column, (question, best) in enumerate(zip(story, predicted, strict=True)):
        answer = task.data.babi.classes[best]
        wrong = "" if answer == question.answer else f" ✗\nright: {question.answer}"
        labels.append(f"{sentence(question.words)}\n{answer}{wrong}")
        axes.plot([column] * len(question.supports), question.supports, "o", mfc="none", mec="white", ms=11, mew=3)
        axes.plot([column] * len(question.supports), question.supports, "o", mfc="none", mec="#d55e00", ms=11, mew=1.5)
    axes.set_yticks(range(len(told)), [f"{sentence(words)} {place}" for place, words in enumerate(told, start=1)])
    axes.set_xticks(range(len(story)), labels, rotation=30, ha="right", fontsize="small")
    figure.colorbar(picture, label="weight")
    return figure


def answers(run: runs.Run) -> Figure:
    """Draw what a story's last question would be answered after each of its sentences."""
    task, step, story = asked_of(run)
    question = story[-1]
    cut = [question._replace(story=question.story[:count]) for count in range(len(question.story) + 1)]
    distributions = task.probabilities(cut).cpu().numpy()
    classes = task.data.babi.classes
    shown = sorted(np.argsort(-distributions.max(axis=0), kind="stable")[:ANSWERS])
    figure = Figure(figsize=(5.5 + 0.55 * len(shown), 2.4 + 0.27 * len(cut)), layout="constrained")
    add_title(
        figure, run, f"{sentence(question.words)} (right: {question.answer}) asked after each sentence; step {step}"
    )
    axes = figure.add_subplot()
    picture = axes.imshow(distributions[:, shown], cmap="viridis", vmin=0, vmax=1, aspect="auto")
    supports = {place + 1 for place in question.supports}
    told = [f"{sentence(words)} {place}" for place, words in enumerate(question.story, start=1)]
    axes.set_yticks(range(len(cut)), ["(nothing told yet) 0", *told])
    for place, label in enumerate(axes.get_yticklabels()):
        label.set_fontweight("bold" if place in supports else "normal")
    axes.set_xticks(range(len(shown)), [classes[index] for index in shown], rotation=30, ha="right")
    axes.set(xlabel="answer", ylabel="last sentence told; bold: supports the answer")
    figure.colorbar(picture, label="probability")
    return figure


def asked_of(run: runs.Run) -> tuple[BabiTask, int, list[Question]]:
    """Return a run's trained task, the steps taken, and the first story of its validation split that is short enough.

    Raises:
        OptionError: the run is of another task, or its stories are too long to be drawn.
    """
    task, step = build.build_trained(run, "best")
    if not isinstance(task, BabiTask):
        raise OptionError(f"run={run.directory}: must be a run of task=babi; it is one of {type(task).__name__}")
    for story in task.data.babi.splits["val"]:
        if len(story[-1].story) <= SENTENCES:
            return task, step, story
    raise OptionError(f"run={run.directory}: every story has more than {SENTENCES} sentences, too many to draw")


def sentence_weights(task: BabiTask, story: list[Question]) -> np.ndarray:
    """Return (sentences, questions) attention, not a number where a question comes before a sentence.

    At the level of words it is that of a sentence's words together; what is left to 1 went to the question's own words.
    """
    weights = task.attention(story).cpu().numpy()
    summed = np.full((len(story[-1].story), len(story)), np.nan)
    for column, question in enumerate(story):
        step = 0
        for place, words in enumerate(question.story):
            width = len(words) if task.data.level == "word" else 1
            summed[place, column] = weights[step : step + width, column].sum()
            step += width
    return summed


def sentence(words: Words) -> str:
    """Return a sentence as it is written."""
    return " ".join(words[:-1]) + words[-1]


def derivatives() -> Figure:
    """Draw the derivatives of the activations that RUM can have (Fig. 3)."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, activation in ACTIVATIONS.items():
        inputs = torch.linspace(-4, 4, 2001, requires_grad=True)
        [derivative] = torch.autograd.grad(activation(inputs).sum(), inputs)
        axes.plot(inputs.detach(), derivative, label=name)
    axes.set(xlabel="x", ylabel="derivative of the activation f(x)", title="Derivatives of the activations")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


OF_RUNS: dict[str, Callable[[runs.Run], Figure]] = {
    "target_kernel": target_kernel,
    "cosines": cosines,
    "norms": norms,
    "loss_line": loss_line,
    "loss_plane": loss_plane,
    "attention": attention,
    "answers": answers,
}
NAMES = (*OF_RUNS, "derivatives")
