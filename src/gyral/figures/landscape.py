"""The validation loss around the phase-coded weights of a run (Fig. 8 of Dangovski et al., TACL 2019)."""

from itertools import islice
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor, nn

from gyral.core.measures import loss_unit
from gyral.figures.common import add_title, missing_part_error
from gyral.plotting.layout import finish, make_grid
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import BASELINE, add_legend, line_style
from gyral.runs.directory import Run
from gyral.training import build

BATCHES = 2  # the loss is averaged over the first batches of the validation split
DIRECTIONS = 5  # number of lines; direction n is drawn with seed n
LINE = np.linspace(-1, 1, 41)
PLANE = np.linspace(-1, 1, 21)  # every second point of the lines


class Landscape:
    """The validation loss as a function of a run's phase-coded weights, the phases (Fig. 8).

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
        batches = islice(self.task.data.loader("val"), BATCHES)
        self.label = "validation loss"
        self.batches = [self.task.transfer_batch_to_device(batch, self.task.device, 0) for batch in batches]

    def direction(self, seed: int) -> list[Tensor]:
        """Return a random direction in the space of the phases."""
        generator = torch.Generator().manual_seed(seed)
        drawn = [torch.randn(phase.shape, generator=generator).to(phase) for phase in self.trained]
        return [change * (phase.norm() / change.norm()) for change, phase in zip(drawn, self.trained, strict=True)]

    @torch.no_grad()
    def loss(self, *moves: tuple[float, list[Tensor]]) -> float:
        """Return the loss at the trained phases plus a sum of distances times directions."""
        try:
            for distance, direction in moves:
                torch._foreach_add_(self.phases, direction, alpha=distance)
            for index, batch in enumerate(self.batches):
                self.task.validation_step(batch, index)
            measured = self.task.metrics.compute()
            self.label = f"validation loss ({loss_unit(measured)})"
            return measured["loss"].item()
        finally:
            torch._foreach_copy_(self.phases, self.trained)


def phases_of(model: nn.Module) -> list[Tensor]:
    """Return the phase-coded weights of the cells of a model, as parameters or views of them."""
    owners: Any = [module for module in model.modules() if hasattr(module, "phases")]
    return [phase for module in owners for phase in module.phases()]


def loss_line(run: Run) -> Figure:
    """Draw the loss along random lines through the trained phases (Fig. 8)."""
    landscape = Landscape(run)
    figure, [axes] = make_grid(1, "column", share_x=False, share_y=False)
    add_title(figure, run, f"random lines through the phases of step {landscape.step:,}")
    for seed in range(DIRECTIONS):
        direction = landscape.direction(seed)
        losses = [landscape.loss((distance, direction)) for distance in LINE]
        axes.plot(LINE, losses, label=f"direction {seed}", **{**line_style(seed), "marker": ""})
    axes.axhline(landscape.task.baseline, label="memoryless baseline", **BASELINE)
    axes.set(xlabel="relative distance from the trained phases", ylabel=landscape.label, xlim=(-1, 1))
    add_legend(figure, *axes.get_legend_handles_labels())
    finish([axes], integer_x=False)
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
