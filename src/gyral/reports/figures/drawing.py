"""Draws a figure by its name and saves it as PNG and PDF."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from gyral.applications.babi.figures.answers import answers
from gyral.applications.babi.figures.attention import attention
from gyral.applications.boxes.figure import animate_boxes, boxes
from gyral.applications.probes.figure import parse
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.reports.figures.common import describe_run
from gyral.reports.figures.cosines import cosines
from gyral.reports.figures.derivatives import derivatives
from gyral.reports.figures.gates import gates
from gyral.reports.figures.keys import animate_keys, keys
from gyral.reports.figures.landscape import loss_line, loss_plane
from gyral.reports.figures.norms import norms
from gyral.reports.figures.strips import strips
from gyral.reports.figures.style import save, save_animation, style
from gyral.reports.figures.target_kernel import target_kernel
from gyral.reports.figures.weightings import weightings
from gyral.runs.directory import Run, load_run

FOLDER = "figures"
FOLDER_WITHOUT_RUN = Path("outputs") / FOLDER

FIGURES_OF_RUNS: dict[str, Callable[..., Figure]] = {
    "target_kernel": target_kernel,
    "cosines": cosines,
    "norms": norms,
    "loss_line": loss_line,
    "loss_plane": loss_plane,
    "attention": attention,
    "answers": answers,
    "boxes": boxes,
    "keys": keys,
    "gates": gates,
    "weightings": weightings,
    "strips": strips,
    "parse": parse,
}
OF_TWO = ("answers",)  # figures that show another run beside the first
ANIMATIONS: dict[str, Callable[[Run], Iterator[Figure] | None]] = {"keys": animate_keys, "boxes": animate_boxes}
NAMES = (*FIGURES_OF_RUNS, "derivatives")


def draw(name: str, run_directory: Path | None, trust: Any = None, beside: Path | None = None) -> Path:
    """Draw a figure of a finished or stopped run, with the weights of its best checkpoint.

    The figure is saved as <run directory>/figures/<name>.png and .pdf. The figure `derivatives` needs no run and is
    saved in outputs/figures. If the run has recorded how a figure of `ANIMATIONS` changes during training, an animation
    is saved beside it as <name>.gif.

    Args:
        name: one of `NAMES`.
        run_directory: the run directory, None for `derivatives`.
        trust: the modules that the configuration of the run may name, see `gyral.config.trust`.
        beside: the directory of a second run that is shown beside it, for figures of `OF_TWO`.

    Returns:
        The path of the PNG file.

    Raises:
        OptionError: The name is unknown; there is no run directory, or it has no checkpoint or no recorded file; the
            run's cell does not have the part that the figure shows; or the figure is not of two runs.
    """
    check_choice("figure", name, NAMES)
    if name == "derivatives":
        with style():
            return _save(derivatives(), FOLDER_WITHOUT_RUN / name, "Derivatives of the activations")
    if run_directory is None:
        raise OptionError("run", "<nothing>", f"figure={name} needs a run directory")
    if beside is not None and name not in OF_TWO:
        raise OptionError("beside", beside, f"figure={name} is of one run; of two is {', '.join(OF_TWO)}")
    run = load_run(run_directory, trust)
    others = [] if beside is None else [_load_beside(beside, trust)]
    with style():
        stem = run.directory / FOLDER / name
        path = _save(FIGURES_OF_RUNS[name](run, *others), stem, f"{describe_run(run)}: {name.replace('_', ' ')}")
        frames = ANIMATIONS[name](run) if name in ANIMATIONS else None
        if frames is not None:
            save_animation(frames, stem.with_suffix(".gif"))
        return path


def _load_beside(directory: Path, trust: Any) -> Run:
    """Return the second run of a figure; errors name its option."""
    try:
        return load_run(directory, trust)
    except OptionError as error:
        raise OptionError("beside" if error.option == "run" else error.option, error.value, error.reason) from None


def _save(figure: Figure, stem: Path, title: str) -> Path:
    for suffix in (".pdf", ".png"):
        save(figure, stem.with_suffix(suffix), title)
    return stem.with_suffix(".png")
