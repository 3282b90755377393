"""Draws a figure by its name and saves it as PNG and PDF."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from gyral.config.offers import find_functions
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.figures.common import describe_run
from gyral.plotting.style import save, save_animation, style
from gyral.runs.directory import Run

FOLDER = "figures"
# Figures of the runs of any task; a task offers others, see `gyral.tasks.base.Task.figures`.
FIGURES = {
    "target_kernel": "gyral.figures.target_kernel.target_kernel",
    "cosines": "gyral.figures.cosines.cosines",
    "norms": "gyral.figures.norms.norms",
    "loss_line": "gyral.figures.landscape.loss_line",
    "loss_plane": "gyral.figures.landscape.loss_plane",
    "recovery": "gyral.figures.recovery.recovery",
    "keys": "gyral.figures.keys.draw_keys",
    "gates": "gyral.figures.memory.gates",
    "weightings": "gyral.figures.memory.weightings",
    "strips": "gyral.figures.strips.strips",
}
WITHOUT_RUN = {"derivatives": "gyral.figures.derivatives.derivatives"}


def draw(
    name: str, runs: Sequence[Run], further: Mapping[str, Callable[..., Any]], saved: Sequence[Path] = ()
) -> list[Path]:
    """Draw a figure of finished or stopped runs, with the weights of their best checkpoints, and return its files.

    If the run has recorded how it changes during training, an animation is saved beside the first file as .gif.

    Args:
        name: one of `FIGURES`, `WITHOUT_RUN` or `further`.
        runs: the run, and those that are shown beside it; none for a figure of `WITHOUT_RUN`.
        further: the figures that the task of the run offers.
        saved: the files; none for <run directory>/figures/<name>.png and .pdf, or outputs/figures/<name>.png and .pdf.

    Raises:
        OptionError: The name is unknown; the run has no checkpoint or no recorded file; the run's cell does not have
            the part that the figure shows; or the figure is not of several runs.
    """
    check_choice("figure", name, (*FIGURES, *further, *WITHOUT_RUN))
    own = {**FIGURES, **WITHOUT_RUN}
    function = further[name] if name in further else find_functions({name: own[name]})[name]
    if runs[1:] and not takes_several(function):
        raise OptionError("beside", runs[1].directory, f"figure={name} shows one run")
    with style():
        drawn = function(*runs)
        figure, frames = drawn if isinstance(drawn, tuple) else (drawn, None)
        stem = (runs[0].directory if runs else Path("outputs")) / FOLDER / name
        files = [*saved] or [stem.with_suffix(suffix) for suffix in (".png", ".pdf")]
        title = ": ".join((*map(describe_run, runs[:1]), name.replace("_", " ")))
        for path in files:
            save(figure, path, title)
        if frames is not None:
            files.append(files[0].with_suffix(".gif"))
            save_animation(frames, files[-1])
        return files


def takes_several(function: Callable[..., Any]) -> bool:
    """Return whether a figure can show several runs beside each other."""
    return any(one.kind is Parameter.VAR_POSITIONAL for one in signature(function).parameters.values())
