"""Whether a cell corrects, keeps or amplifies an error in its state."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from gyral.config.plain import plain_values
from gyral.core.errors import OptionError
from gyral.core.measures import percent
from gyral.figures.common import add_title
from gyral.plotting.layout import finish, make_grid, set_limits
from gyral.plotting.style import BASELINE, add_legend, cell_styles, without_formulas
from gyral.runs.directory import Run
from gyral.runs.names import model_name
from gyral.runs.run_record import cell_of
from gyral.tasks.tracking import TrackingTask
from gyral.training import build

NOISE = 0.1  # norm of the disturbance, relative to that of the state
SEED = 1
DRAWN = (1e-4, 1e2)  # relative distances beyond these are drawn at the edge, and so are states that are not finite


class Recovery(NamedTuple):
    """A disturbed state and its undisturbed twin, after 1, 2, 4, 8, … further letters of the same words.

    Attributes:
        letters: (n,) letters since the disturbance.
        distance: (n,) the median over the words of ‖s′ − s‖ / ‖s‖, with the disturbed state s′.
        right: (n,) the share of words whose label is right in spite of it.
        undisturbed: (n,) this share without the disturbance.
    """

    letters: np.ndarray
    distance: np.ndarray
    right: np.ndarray
    undisturbed: np.ndarray


def recovery(*runs: Run) -> Figure:
    """Draw the distance between a disturbed state and its undisturbed twin, and the labels that remain right.

    Words of the longest test are read up to the length of training. Then Gaussian noise with a tenth of the norm of
    the state is added to it, and the rest of the words is read from both states. Runs whose models have the same name
    share a line, their median, with a band from the smallest to the largest value; it ends where the shortest of their
    longest tests does.

    Raises:
        OptionError: A run's task is not one of state tracking with a label after each letter, or none of its tests is
            longer than its training.
    """
    groups: dict[str, list[Recovery]] = {}
    cells: dict[str, str] = {}
    for run in runs:
        config = plain_values(run.config)
        name = without_formulas(model_name(config)) if len(runs) > 1 else ""
        task, _ = build.load_trained(run, "best")
        if not isinstance(task, TrackingTask):
            reason = f"the figure needs a task of state tracking, such as group; this is {type(task).__name__}"
            raise OptionError("run", run.directory, reason)
        try:
            groups.setdefault(name, []).append(measure_recovery(task))
        except OptionError as error:
            raise OptionError("run", run.directory, error.reason) from None
        cells[name] = cell_of(config)
    figure, panels = make_grid(2, "page", share_x=True, share_y=False)
    panels[0].axhline(NOISE, label="neither corrected nor amplified", **BASELINE)
    drawn = []
    for (name, found), look in zip(groups.items(), cell_styles([*cells.values()]), strict=True):
        letters = min((each.letters for each in found), key=len)
        drawn.append(letters)
        distances = np.nan_to_num([each.distance[: len(letters)] for each in found], nan=np.inf).clip(*DRAWN)
        right = 100 * np.array([each.right[: len(letters)] for each in found])
        for axes, values in zip(panels, (distances, right), strict=True):
            axes.plot(letters, np.median(values, axis=0), label=name, **look)
            band = values.min(axis=0), values.max(axis=0)
            axes.fill_between(letters, *band, color=look["color"], alpha=0.15, linewidth=0)
    if len(groups) == 1:
        add_title(figure, runs[0], f"a state with an error of {percent(NOISE)}")
    panels[0].set(yscale="log", ylabel="relative distance of the state")
    panels[1].set(ylabel="last label right (%)")
    set_limits(panels[1], "y", np.array([0.0, 100.0]), log=False, bounds=(0.0, 100.0))
    for axes in panels:
        axes.set(xscale="log", xlabel="letters since the error")
    add_legend(figure, *panels[0].get_legend_handles_labels())
    finish(panels, integer_x=True)
    marked = max(drawn, key=len)[::2]
    for axes in panels:
        axes.minorticks_off()
        axes.set_xticks(marked, map(str, marked))
    return figure


def measure_recovery(task: TrackingTask[Any]) -> Recovery:
    """Disturb the state of a trained task after words of the training length, on one batch of its longest test.

    Raises:
        OptionError: No test is longer than the training, or the words have one label.
    """
    data = task.data
    if data.end:
        raise OptionError("labels", "end", "the figure needs a label after each letter")
    fixed = [len(lengths) == 1 and int(lengths[0]) for lengths in data.lengths]
    trained, longest = int(data.lengths[0].max()), max(fixed)
    if longest <= trained:
        raise OptionError("test_factors", fixed, "the figure needs a test with longer words than those of training")
    drawn = data.draw(np.random.default_rng(SEED), "test", fixed.index(longest))
    batch = task.transfer_batch_to_device(drawn, task.device, 0)
    begin = data.bos + trained
    with task.evaluating():
        _, state = task.model(batch.inputs[:, :begin])
        twin = disturb(state)
        rows = []
        for seen, letters in pairwise([0, *(2**k for k in range((longest - trained).bit_length()))]):
            steps = slice(begin + seen, begin + letters)
            inputs, targets = batch.inputs[:, steps], batch.targets[:, steps][:, -1]
            (outputs, state), (disturbed, twin) = task.model(inputs, state), task.model(inputs, twin)
            shares = [_share_right(each, targets) for each in (disturbed, outputs)]
            rows.append([letters, _distance(twin, state), *shares])
    letters, *measured = np.array(rows).T
    return Recovery(letters.astype(int), *measured)


def disturb(state: Any) -> Any:
    """Return a state with Gaussian noise whose norm is `NOISE` times that of the state, in each row."""
    generator = torch.Generator().manual_seed(SEED)
    noise = tree_map(lambda leaf: torch.randn(leaf.shape, generator=generator).to(leaf), state)
    scale = NOISE * _rows(state).norm(dim=1) / _rows(noise).norm(dim=1)

    def add(leaf: Tensor, random: Tensor) -> Tensor:
        disturbed = leaf + random * scale.view(-1, *[1] * (leaf.dim() - 1))
        return disturbed.to(leaf.dtype) if _continuous(leaf) else leaf

    return tree_map(add, state, noise)


def _continuous(leaf: Tensor) -> bool:
    """Return whether a part of a state has real or complex values, and is not a counter or a flag of each row."""
    return leaf.dim() > 1 and (leaf.is_floating_point() or leaf.is_complex())


def _rows(state: Any) -> Tensor:
    """Return all values of a state but counters and flags, (B, …), in double precision, where no norm overflows."""
    leaves = [torch.view_as_real(leaf) if leaf.is_complex() else leaf for leaf in tree_leaves(state)]
    return torch.cat([leaf.flatten(1).double() for leaf in leaves if _continuous(leaf)], dim=1)


def _distance(one: Any, other: Any) -> float:
    return ((_rows(one) - _rows(other)).norm(dim=1) / _rows(other).norm(dim=1)).median().item()


def _share_right(logits: Tensor, targets: Tensor) -> float:
    return (logits[:, -1].argmax(dim=-1) == targets).float().mean().item()
