"""Figures by name: files, and errors about runs that cannot be drawn."""

import shutil
from pathlib import Path

import pytest
from matplotlib import image

from gyral.core.errors import OptionError
from gyral.figures import landscape
from gyral.figures.drawing import FIGURES
from gyral.report import draw_figure as draw
from gyral.runs.directory import Run

DRAWN = [*FIGURES]
OF_EXAMPLES = ["keys", "gates", "weightings", "strips"]  # see test_memory


@pytest.mark.named("cosines")
@pytest.mark.parametrize("name", [name for name in DRAWN if name not in (*OF_EXAMPLES, "norms", "recovery")])
def test_drawing_writes_two_files_and_the_same_again(
    directory: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Path(shutil.copytree(directory, tmp_path / "run"))
    recorded = (directory / "cosines.csv").read_text().splitlines(keepends=True)
    (directory / "cosines.csv").write_text("".join(recorded[:2]))  # drawn as a single panel
    monkeypatch.setattr(landscape, "PLANE", landscape.PLANE[::5])  # 25 losses of the plane in place of 441

    def stamps() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}

    before = stamps()
    path = draw(name, directory)[0]
    assert path == directory / "figures" / f"{name}.png"
    written = [path, path.with_suffix(".pdf")]
    assert set(stamps()) - set(before) == set(written)
    assert stamps().items() >= before.items()
    assert image.imread(path).shape[1] > 700
    first = [each.read_bytes() for each in written]
    draw(name, directory)
    assert [each.read_bytes() for each in written] == first


def test_an_unknown_figure_is_refused() -> None:
    with pytest.raises(
        OptionError,
        match=r"^figure=plot: must be one of target_kernel, .*, derivatives, or with run=",
    ):
        draw("plot", None)


@pytest.mark.parametrize("name", DRAWN)
def test_figures_of_runs_need_one(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"^run=<nothing>: figure={name} needs a run directory$"):
        draw(name, None)
    with pytest.raises(OptionError, match=f"^run={tmp_path}: must be a run directory, one that holds config.yaml"):
        draw(name, tmp_path)


@pytest.mark.parametrize("name", [name for name in DRAWN if name not in ("cosines", "norms")])
def test_a_run_without_checkpoint_is_refused(name: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text((run.directory / "config.yaml").read_text())
    with pytest.raises(OptionError, match=f"^run={tmp_path}: has no checkpoint"):
        draw(name, tmp_path)
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("cosines", "record_cosines"),
        ("loss_line", "phase-coded weights"),
        ("loss_plane", "phase-coded weights"),
    ],
)
def test_a_cell_without_the_drawn_part_is_refused(name: str, part: str, lstm: Path) -> None:
    with pytest.raises(OptionError) as told:
        draw(name, lstm)
    assert str(told.value) == f"run={lstm}: the figure needs a cell with {part}, such as RUMCell; this is LSTMCell"
