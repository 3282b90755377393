"""The loss around the phase-coded weights of a run, and between random ones (Fig. 8 of Dangovski et al., TACL 2019)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor, nn

from gyral.core.measures import loss_unit
from gyral.figures.common import add_title, first_batch, missing_part_error
from gyral.plotting.layout import finish, make_grid
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import BASELINE, add_legend, line_style
from gyral.runs.directory import Run
from gyral.training import build

RANGE = 10.0  # random weights are uniform in ±10, as in the authors' code
DIRECTIONS = 5  # number of lines; direction n is drawn with seed n
LINE = np.linspace(-1, 1, 41)
BETWEEN = np.linspace(0, 1, 41)
PLANE = np.linspace(-1, 1, 21)  # every second point of the lines


class Landscape:
    """The loss on the first batch of training as a function of a run's phase-coded weights, the phases (Fig. 8).

    A direction is Gaussian noise, and each of its tensors is scaled to the norm of the phase that it is added to. One
    unit along a direction therefore changes the phases by their own norm, independent of their scale. Two directions
    are orthogonal up to 1/√(number of entries).

    Raises:
        OptionError: The run has no checkpoint, or its cell has no phases.

    Attributes:
        task: the trained task.
        step: number of optimizer steps of its best checkpoint.
        label: name and unit of the loss.
    """

    def __init__(self, run: Run) -> None:
        self.task, self.step = build.load_trained(run, "best")
        self.phases = phases_of(self.task)
        if not self.phases:
            raise missing_part_error(run, self.task, "phase-coded weights")
        self.trained = [phase.detach().clone() for phase in self.phases]
        self.label = "loss"
        self.batch = first_batch(self.task, "train")

    def direction(self, seed: int) -> list[Tensor]:
        """Return a random direction in the space of the phases."""
        drawn = zip(self._draw(torch.randn, seed), self.trained, strict=True)
        return [change * (phase.norm() / change.norm()) for change, phase in drawn]

    def random_phases(self, seed: int) -> list[Tensor]:
        """Return random phases, uniform in ±`RANGE`."""
        return [RANGE * (2 * phase - 1) for phase in self._draw(torch.rand, seed)]

    def _draw(self, draw: Callable[..., Tensor], seed: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return [draw(phase.shape, generator=generator).to(phase) for phase in self.trained]

    def loss(self, *moves: tuple[float, list[Tensor]]) -> float:
        """Return the loss at the trained phases plus a sum of distances times directions."""
        phases = [phase.clone() for phase in self.trained]
        for distance, direction in moves:
            torch._foreach_add_(phases, direction, alpha=distance)
        return self.loss_at(phases)

    def loss_between(self, share: float, first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
        """Return the loss at (1 − share) first + share second."""
        return self.loss_at([torch.lerp(one, two, share) for one, two in zip(first, second, strict=True)])

    @torch.no_grad()
    def loss_at(self, phases: Sequence[Tensor]) -> float:
        """Return the loss at any phases."""
        try:
            torch._foreach_copy_(self.phases, list(phases))
            self.task.validation_step(self.batch, 0)
            measured = self.task.metrics.compute()
            self.label = f"loss ({loss_unit(measured)})"
            return measured["loss"].item()
        finally:
            torch._foreach_copy_(self.phases, self.trained)


def phases_of(model: nn.Module) -> list[Tensor]:
    """Return the phase-coded weights of the cells of a model, as parameters or views of them."""
    owners: Any = [module for module in model.modules() if hasattr(module, "phases")]
    return [phase for module in owners for phase in module.phases()]


def loss_line(run: Run) -> Figure:
    """Draw the loss along random lines through the trained phases, and between pairs of random phases (Fig. 8)."""
    landscape = Landscape(run)
    figure, panels = make_grid(2, "page", share_x=False, share_y=False)
    add_title(figure, run, f"lines through the phases of step {landscape.step:,}, and between random phases")
    for seed in range(DIRECTIONS):
        direction = landscape.direction(seed)
        ends = landscape.random_phases(2 * seed), landscape.random_phases(2 * seed + 1)
        losses = (
            [landscape.loss((distance, direction)) for distance in LINE],
            [landscape.loss_between(share, *ends) for share in BETWEEN],
        )
        for axes, places, values in zip(panels, (LINE, BETWEEN), losses, strict=True):
            axes.plot(places, values, label=f"line {seed}", **{**line_style(seed), "marker": ""})
    for axes in panels:
        axes.axhline(landscape.task.baseline, label="memoryless baseline", **BASELINE)
    panels[0].set(xlabel="relative distance from the trained phases", ylabel=landscape.label, xlim=(-1, 1))
    panels[1].set(xlabel="α in (1 − α) w₁ + α w₂", ylabel=landscape.label, xlim=(0, 1))
    add_legend(figure, *panels[0].get_legend_handles_labels())
    finish(panels, integer_x=False)
    return figure


def loss_plane(run: Run) -> Figure:
    """Draw the loss on a random plane through the trained phases, as contours and as a surface (Fig. 8)."""
    landscape = Landscape(run)
    losses = plane_losses(landscape)
    figure = Figure(figsize=(WIDTHS["page"], 3.1), layout="constrained")
    add_title(figure, run, f"a random plane through the phases of step {landscape.step:,}")
    flat = figure.add_subplot(1, 2, 1, aspect="equal", xticks=PLANE[::5], yticks=PLANE[::5])
    flat.set(xlabel="relative distance along direction 0", ylabel="relative distance along direction 1")
    picture = flat.contourf(PLANE, PLANE, losses, levels=20, cmap="viridis")
    flat.plot(0, 0, "+", color="#d55e00", markersize=7, markeredgewidth=1.4)
    flat.set_title("+ trained phases", color="#d55e00", loc="left")
    bar = figure.colorbar(picture, label=landscape.label, shrink=0.9)
    bar.locator = MaxNLocator(6)
    bar.update_ticks()
    raised: Any = figure.add_subplot(1, 2, 2, projection="3d", xticks=PLANE[::5], yticks=PLANE[::5])
    raised.set(xlabel="direction 0", ylabel="direction 1", zlabel=landscape.label)
    raised.plot_surface(*np.meshgrid(PLANE, PLANE), losses, cmap="viridis")
    raised.tick_params(pad=0)
    raised.set_box_aspect(None, zoom=0.85)  # room for the label of the vertical axis
    return figure


def plane_losses(landscape: Landscape) -> np.ndarray:
    """Return the losses on the plane of directions 0 and 1. The row index is the distance along direction 1."""
    first, second = landscape.direction(0), landscape.direction(1)
    return np.array([[landscape.loss((x, first), (y, second)) for x in PLANE] for y in PLANE])
