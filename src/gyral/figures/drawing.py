"""Draws a figure of a run by its name and saves it as PNG and PDF."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.figures.common import describe_run
from gyral.figures.cosines import cosines
from gyral.figures.derivatives import derivatives
from gyral.figures.gates import gates
from gyral.figures.keys import draw_keys
from gyral.figures.landscape import loss_line, loss_plane
from gyral.figures.norms import norms
from gyral.figures.recovery import recovery
from gyral.figures.strips import strips
from gyral.figures.target_kernel import target_kernel
from gyral.figures.weightings import weightings
from gyral.plotting.style import save, save_animation, style
from gyral.runs.directory import Run

FOLDER = "figures"
FOLDER_WITHOUT_RUN = Path("outputs") / FOLDER
# Figures of the runs of any task; a task offers others, see `gyral.tasks.base.Task.figures`.
FIGURES: dict[str, Callable[..., Any]] = {
    "target_kernel": target_kernel,
    "cosines": cosines,
    "norms": norms,
    "loss_line": loss_line,
    "loss_plane": loss_plane,
    "recovery": recovery,
    "keys": draw_keys,
    "gates": gates,
    "weightings": weightings,
    "strips": strips,
}
WITHOUT_RUN: dict[str, Callable[[], Figure]] = {"derivatives": derivatives}


def draw_without_run(name: str, saved: Sequence[Path] = ()) -> list[Path]:
    """Draw a figure of `WITHOUT_RUN`, save it in files or as outputs/figures/<name>.png and .pdf, and return these."""
    with style():
        title = "Derivatives of the activations"
        return _save(WITHOUT_RUN[name](), saved or _default_files(FOLDER_WITHOUT_RUN / name), title)


def draw(
    name: str,
    run: Run,
    further: Mapping[str, Callable[..., Any]],
    others: Sequence[Run] = (),
    saved: Sequence[Path] = (),
) -> list[Path]:
    """Draw a figure of a finished or stopped run, with the weights of its best checkpoint, and return its files.

    If the run has recorded how it changes during training, an animation is saved beside the first file as .gif.

    Args:
        name: one of `FIGURES` or `further`.
        run: the run.
        further: the figures that the task of the run offers.
        others: runs that are shown beside it, for figures that can show several.
        saved: the files; none for <run directory>/figures/<name>.png and .pdf.

    Raises:
        OptionError: The name is unknown; the run has no checkpoint or no recorded file; the run's cell does not have
            the part that the figure shows; or the figure is not of several runs.
    """
    functions = {**FIGURES, **further}
    check_choice("figure", name, (*functions, *WITHOUT_RUN))
    function = functions[name]
    if others and not takes_several(function):
        raise OptionError("beside", others[0].directory, f"figure={name} shows one run")
    with style():
        drawn = function(run, *others)
        figure, frames = drawn if isinstance(drawn, tuple) else (drawn, None)
        files = saved or _default_files(run.directory / FOLDER / name)
        written = _save(figure, files, f"{describe_run(run)}: {name.replace('_', ' ')}")
        if frames is not None:
            written.append(files[0].with_suffix(".gif"))
            save_animation(frames, written[-1])
        return written


def takes_several(function: Callable[..., Any]) -> bool:
    """Return whether a figure can show several runs beside each other."""
    return any(one.kind is Parameter.VAR_POSITIONAL for one in signature(function).parameters.values())


def _default_files(stem: Path) -> list[Path]:
    return [stem.with_suffix(suffix) for suffix in (".png", ".pdf")]


def _save(figure: Figure, files: Sequence[Path], title: str) -> list[Path]:
    for path in files:
        save(figure, path, title)
    return [*files]
