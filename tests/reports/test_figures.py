"""Figures show the numbers of the run that they are drawn of; recording what they show changes no training."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import image
from matplotlib.colors import to_hex
from torch import Tensor, nn

from gyral import runs
from gyral.cells.rum import RUMCell
from gyral.core.errors import OptionError
from gyral.reports import figures
from gyral.tasks.base import SequenceTask
from gyral.training import build
from gyral.training.callbacks import Cosines
from tests.helpers.running import SMALL_BABI, SMALL_RECALL, assert_same_run, compose_config, invoke, load_last

# zoneout would tell if recording drew random numbers, or left the model in another mode
RUM = (*SMALL_RECALL, "model=rum", "model.cell.lambd=1", "model.cell.zoneout=0.2", "optimizer.lr=0.02")
DRAWN = [name for name in figures.NAMES if name != "derivatives"]
OF_QUESTIONS = ["attention", "answers"]


def train(directory: Path, *arguments: str) -> Path:
    outcome = invoke(*arguments, f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    return directory


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose cosines were recorded, after steps 8, 16 and 24; its best checkpoint is not its last."""
    with_cosines = (*RUM, "callbacks=cosines", "task.monitor=val/loss", "task.mode=max")
    return train(tmp_path_factory.mktemp("runs") / "run", *with_cosines)


@pytest.fixture(scope="module")
def lstm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "lstm", *SMALL_RECALL, "model=lstm", "trainer.max_steps=3")


@pytest.fixture(scope="module")
def goru(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "goru", *SMALL_RECALL, "model=goru", "trainer.max_steps=3")


@pytest.fixture
def run(directory: Path) -> runs.Run:
    return runs.load(directory)


def rows_of(directory: Path) -> list[dict[str, str]]:
    with (directory / "cosines.csv").open(newline="") as file:
        return list(csv.DictReader(file))


# --- recording cosines


def test_recording_changes_no_bit_of_the_training(directory: Path, tmp_path: Path) -> None:
    assert_same_run(train(tmp_path / "run", *RUM, "task.monitor=val/loss", "task.mode=max"), directory)


def test_a_row_of_shares_is_recorded_at_each_validation(directory: Path) -> None:
    rows = rows_of(directory)
    assert [row.pop("step") for row in rows] == ["7", "15", "23"]
    assert list(map(float, rows[0])) == pytest.approx(np.linspace(-0.98, 0.98, 50))
    for row in rows:
        assert sum(map(float, row.values())) == pytest.approx(1, abs=1e-12)


def test_the_shares_agree_with_cosines_recomputed_from_a_checkpoint(directory: Path, run: runs.Run) -> None:
    run.config.model.backend = "reference"
    task = build.build_task(run.config)
    task.load_state_dict(load_last(directory)["state_dict"])
    task.eval()
    recurrent = task.model.recurrent
    with torch.no_grad(), recurrent.cells[0].record_cosines() as cosines:
        task(next(iter(task.data.loader("val"))))
    total = torch.stack(cosines).numel()
    assert total == 8 * 7  # sequences, steps of four characters, two marks and the query
    counts, _ = np.histogram(torch.stack(cosines).clamp(-1, 1).numpy(), bins=50, range=(-1, 1))
    _, _, shares = figures.read_cosines(directory)
    difference = np.abs(shares * total - counts).sum(axis=1)
    assert difference[-1] <= 2  # rounding may put one on the other side of a bin's edge
    assert difference[0] > 10


@pytest.mark.parametrize("every", [3, 8])  # the last checkpoint lies before the row at step 16, or after it
def test_a_continued_run_holds_every_row_once(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    arguments = [argument for argument in RUM if "checkpoints.every" not in argument]
    arguments += ["callbacks=cosines", "task.monitor=val/loss", "task.mode=max", f"callbacks.checkpoints.every={every}"]
    step = SequenceTask.training_step

    def fail_late(self: Any, batch: Any, index: int) -> Tensor:
        if self.global_step == 17:
            raise MemoryError
        return step(self, batch, index)

    with monkeypatch.context() as patch:
        patch.setattr(SequenceTask, "training_step", fail_late)
        assert invoke(*arguments, f"hydra.run.dir={tmp_path}").status == 1
    with (tmp_path / "cosines.csv").open("a") as file:
        file.write("23,0.1,0.")  # cut off by a crash
    assert len(figures.read_cosines(tmp_path)[0]) == 2
    train(tmp_path, *arguments)
    assert (tmp_path / "cosines.csv").read_text() == (directory / "cosines.csv").read_text()


class Turning(nn.Module):
    """Stands in for a task whose model has two cells that record given cosines."""

    def __init__(self, *cosines: Tensor) -> None:
        super().__init__()
        self.cells = nn.ModuleList(TurningCell(given) for given in cosines)

    def forward(self, batch: Any) -> None:
        for cell in self.cells:
            if cell.recorded is not None:
                cell.recorded += [cell.given]


class TurningCell(nn.Module):
    def __init__(self, given: Tensor) -> None:
        super().__init__()
        self.given, self.recorded = given, None

    @contextmanager
    def record_cosines(self) -> Iterator[list[Tensor]]:
        self.recorded = []
        yield self.recorded
        self.recorded = None


def record(task: nn.Module, directory: Path) -> None:
    """Take the part of a validation that records."""
    callback, state = Cosines(), SimpleNamespace(fn="fit")
    trainer: Any = SimpleNamespace(state=state, global_step=0, default_root_dir=directory)
    callback.on_train_start(trainer, task)
    callback.on_validation_batch_start(trainer, task, "batch", 0)
    trainer.global_step = 5
    callback.on_validation_end(trainer, task)


def test_any_cell_that_records_is_counted_and_rounding_beyond_one_is_not_lost(tmp_path: Path) -> None:
    record(Turning(torch.tensor([1.0000001, -1.0000001]), torch.tensor([0.5, 0.51])), tmp_path)
    [row] = rows_of(tmp_path)
    assert {name: value for name, value in row.items() if float(value)} == {
        "step": "4",
        "-0.98": "0.25",
        "0.5": "0.5",
        "0.98": "0.25",
    }
    assert len(row) == 51


def test_a_model_that_records_nothing_is_told(tmp_path: Path) -> None:
    told = invoke(*SMALL_RECALL, "model=lstm", "callbacks=cosines", f"hydra.run.dir={tmp_path}").error
    assert told == "callbacks.cosines: LSTMCell records no cosines, RUMCell does"
    silent = Turning(torch.ones(2))
    silent.forward = lambda batch: None  # type: ignore[method-assign]
    with pytest.raises(OptionError, match=r"^callbacks\.cosines: model\.backend=graph records none; allowed: ref"):
        record(silent, tmp_path)


# --- drawing


@pytest.mark.parametrize("name", [name for name in DRAWN if name not in (*OF_QUESTIONS, "norms")])
def test_drawing_writes_two_files_and_nothing_else(directory: Path, name: str) -> None:
    def stamps() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}

    before = stamps()
    path = figures.draw(name, directory)
    assert path == directory / "figures" / f"{name}.png"
    written = [path, path.with_suffix(".pdf")]
    assert set(stamps()) - set(before) == set(written)
    assert stamps().items() >= before.items()
    assert image.imread(path).shape[1] > 700


def test_a_figure_drawn_again_is_the_same_to_the_byte(directory: Path) -> None:
    first, second = [
        [path.read_bytes(), path.with_suffix(".pdf").read_bytes()]
        for path in (figures.draw("target_kernel", directory) for _ in range(2))
    ]
    assert first == second


def test_derivatives_are_those_of_the_activations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {line.get_label(): line.get_xydata().T for line in figures.derivatives().axes[0].lines}
    sigmoid = 1 / (1 + np.exp(-lines["sigmoid"][0]))
    wanted = {
        "relu": lines["relu"][0] > 0,
        "tanh": 1 / np.cosh(lines["tanh"][0]) ** 2,
        "sigmoid": sigmoid * (1 - sigmoid),
        "softsign": 1 / (1 + np.abs(lines["softsign"][0])) ** 2,
    }
    assert lines.keys() == wanted.keys()
    for name, (_, drawn) in lines.items():
        np.testing.assert_allclose(drawn, wanted[name], atol=1e-6)
    monkeypatch.chdir(tmp_path)
    path = figures.draw("derivatives", None)
    assert path == Path("outputs/figures/derivatives.png")
    assert image.imread(path).shape[1] > 700


def best_weights(directory: Path) -> dict[str, Tensor]:
    return torch.load(directory / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]


def test_the_target_kernel_is_that_of_the_best_checkpoint(directory: Path, run: runs.Run) -> None:
    figure = figures.target_kernel(run)
    [picture] = figure.axes[0].images
    kernel = best_weights(directory)["model.recurrent.cells.0.weight_hh"][:8]
    assert np.array_equal(picture.get_array(), kernel)
    assert not torch.equal(kernel, load_last(directory)["state_dict"]["model.recurrent.cells.0.weight_hh"][:8])
    low, high = picture.get_clim()
    assert low == -high == -kernel.abs().max()
    # the colour map is symmetric about white: colder below zero, warmer above
    assert to_hex(picture.cmap(picture.norm(0.0))) == "#f7f6f6"
    assert figure.get_suptitle().replace("\n", " ") == (
        "RecallTask, SequenceModel(cell=RUMCell(hidden_size=8, lambd=1, zoneout=0.2))"
        " kernel of the memory target, $W_{hh}^τ$, at step 8"
    )


def test_a_title_tells_the_options_that_are_not_defaults() -> None:
    def described(*overrides: str) -> str:
        return figures.described(compose_config(*overrides).model)

    assert described("model=gru", "model.cell.hidden_size=7") == "SequenceModel(cell=GRUCell(hidden_size=7))"
    assert described("model=rum", "model.num_layers=3", "model.cell.hidden_size=7", "model.cell.eta=1.0") == (
        "SequenceModel(cell=RUMCell(hidden_size=7, eta=1.0), num_layers=3)"
    )
    assert described("model=external", "model.cell.options={bias: false}") == (
        "SequenceModel(cell=ExternalCell(hidden_size=100, options={'bias': False}))"
    )
    assert described("model=fs_rum", "model.cell.hidden_size=7").endswith("slow=RUMCell(eta=1.0, layer_norm=True)))")


def test_every_cell_of_a_deep_model_has_its_target_kernel(tmp_path: Path) -> None:
    train(tmp_path, *RUM, "model.num_layers=2", "trainer.max_steps=3")
    pictures = [axes.images[0] for axes in figures.target_kernel(runs.load(tmp_path)).axes if axes.images]
    for index, picture in enumerate(pictures):
        assert np.array_equal(
            picture.get_array(), best_weights(tmp_path)[f"model.recurrent.cells.{index}.weight_hh"][:8]
        )
    assert len(pictures) == 2


def test_cosines_are_drawn_as_they_were_recorded(run: runs.Run) -> None:
    figure = figures.cosines(run)
    steps, centres, shares = figures.read_cosines(run.directory)
    assert steps == [8, 16, 24]
    mesh = figure.axes[0].collections[0]
    assert np.array_equal(mesh.get_array(), shares.T)
    assert np.array_equal(mesh.get_coordinates()[0, :, 0], [0, 8, 16, 24])
    for axes, row, step in zip(figure.axes[2:], shares, steps, strict=True):
        assert axes.get_title() == f"step {step}"
        assert [bar.get_height() for bar in axes.patches] == row.tolist()
        assert [bar.get_x() + bar.get_width() / 2 for bar in axes.patches] == pytest.approx(centres.tolist())


def test_one_validation_is_enough_to_draw(run: runs.Run, tmp_path: Path) -> None:
    for name in ("config.yaml", "cosines.csv"):
        lines = (run.directory / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(lines[:2] if name == "cosines.csv" else lines))
    figure = figures.cosines(runs.load(tmp_path))
    assert len(figure.axes) == 3  # heat map, colour bar, one histogram
    assert np.ptp(figure.axes[0].collections[0].get_coordinates()[0, :, 0]) == 8


@pytest.mark.parametrize("name", ["directory", "goru"])
def test_the_lines_meet_at_the_loss_that_evaluation_gives(name: str, request: pytest.FixtureRequest) -> None:
    run = runs.load(request.getfixturevalue(name))
    printed = invoke(f"run={run.directory}", "split=val", entry="evaluate")
    assert printed.status == 0, printed.err
    loss = next(float(row.split("│")[2]) for row in printed.out.splitlines() if "val/loss" in row)
    *lines, baseline = figures.loss_line(run).axes[0].lines
    assert len(lines) == 5
    for line in lines:
        distances, losses = line.get_xydata().T
        assert losses[distances.tolist().index(0)] == pytest.approx(loss, abs=1e-6)
        assert (losses > 0).all()
    ends = [line.get_ydata()[0] for line in lines]
    assert len(set(ends)) == 5
    assert baseline.get_ydata()[0] == pytest.approx(np.log(10))


def test_the_planes_axes_are_the_first_two_lines(run: runs.Run) -> None:
    losses = figures.plane_losses(figures.Landscape(run))
    first, second = (line.get_ydata() for line in figures.loss_line(run).axes[0].lines[:2])
    assert losses[10].tolist() == pytest.approx(first[::2], abs=1e-6)
    assert losses[:, 10].tolist() == pytest.approx(second[::2], abs=1e-6)


def test_the_plane_is_drawn_the_right_way_round(run: runs.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rising = np.tile(figures.PLANE, (21, 1))  # along direction 0
    monkeypatch.setattr(figures, "plane_losses", lambda landscape: rising)
    flat, _, raised = sorted(figures.loss_plane(run).axes, key=lambda axes: axes.name == "3d")
    bands = [path.get_extents() for path in flat.collections[0].get_paths() if len(path)]
    assert len(bands) > 10
    assert all(band.width < 0.2 and band.height == 2 for band in bands)
    assert raised.get_zlim() == pytest.approx((-1, 1), abs=0.1)


def test_a_direction_moves_the_phases_by_their_norm(run: runs.Run) -> None:
    landscape = figures.Landscape(run)
    cell = landscape.task.model.recurrent.cells[0]
    trained = {name: value.clone() for name, value in landscape.task.state_dict().items()}
    direction = landscape.direction(3)
    assert [change.shape for change in direction] == [(8, 8), (8, 13)]
    for change, rows in zip(direction, (cell.weight_hh[:8], cell.weight_ih[:8]), strict=True):
        assert change.norm().item() == pytest.approx(rows.norm().item(), rel=1e-6)
    assert all(torch.equal(one, two) for one, two in zip(direction, landscape.direction(3), strict=True))
    assert abs(torch.corrcoef(torch.stack((direction[1].ravel(), landscape.direction(4)[1].ravel())))[0, 1]) < 0.4

    moved = landscape.loss((0.5, direction), (-0.25, landscape.direction(4)))
    assert all(torch.equal(value, trained[name]) for name, value in landscape.task.state_dict().items())
    with torch.no_grad():
        for rows, one, two in zip((cell.weight_hh, cell.weight_ih), direction, landscape.direction(4), strict=True):
            rows[:8] += 0.5 * one - 0.25 * two
        task = landscape.task
        losses = [task.loss(task(batch), batch).item() for batch in task.data.loader("val")]
    assert moved == pytest.approx(np.mean(losses), abs=1e-6)  # two batches of the same size


def test_a_cell_made_of_cells_is_moved_once(run: runs.Run) -> None:
    task = build.build_task(run.config)
    cell = task.model.recurrent.cells[0]
    cell.inner = RUMCell(3, 4)
    assert figures.cells_of(task) == [cell, cell.inner]
    assert [phase.shape for phase in figures.phases_of(task)] == [phase.shape for phase in cell.phases()]


def test_a_loss_is_taken_over_the_first_batches_alone(run: runs.Run) -> None:
    run.config.task.val_size = 100
    landscape = figures.Landscape(run)
    assert [len(batch.inputs) for batch in landscape.batches] == [8] * figures.BATCHES


# --- bad input


def test_an_unknown_figure_is_told() -> None:
    with pytest.raises(OptionError, match=r"^figure=plot: must be one of target_kernel, cosines, .*, derivatives$"):
        figures.draw("plot", None)


@pytest.mark.parametrize("name", DRAWN)
def test_figures_of_runs_need_one(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"^run=<nothing>: must be a run directory, of which figure={name} is drawn"):
        figures.draw(name, None)
    with pytest.raises(OptionError, match=f"^run={tmp_path}: must be a run directory, one that holds config.yaml"):
        figures.draw(name, tmp_path)


@pytest.mark.parametrize("name", [name for name in DRAWN if name not in ("cosines", "norms")])
def test_a_run_without_checkpoint_is_told(name: str, run: runs.Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text((run.directory / "config.yaml").read_text())
    with pytest.raises(OptionError, match=f"^run={tmp_path}: has no checkpoint"):
        figures.draw(name, tmp_path)
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("target_kernel", "a memory target"),
        ("cosines", "record_cosines"),
        ("loss_line", "phase-coded weights"),
        ("loss_plane", "phase-coded weights"),
    ],
)
def test_a_cell_that_lacks_what_is_shown_is_told(name: str, part: str, lstm: Path) -> None:
    with pytest.raises(OptionError) as told:
        figures.draw(name, lstm)
    assert str(told.value) == f"run={lstm}: its cell must have {part}, as RUMCell has; it is LSTMCell"


def test_a_run_that_recorded_no_cosines_is_told_how_to(run: runs.Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text((run.directory / "config.yaml").read_text())
    with pytest.raises(OptionError, match=r"holds no cosines\.csv, which a training with callbacks=cosines records$"):
        figures.draw("cosines", tmp_path)
    (tmp_path / "cosines.csv").write_text("step\n")
    with pytest.raises(OptionError, match=r"stopped before its first validation, cosines\.csv is empty$"):
        figures.draw("cosines", tmp_path)


# --- questions


@pytest.fixture(scope="module", params=["sentence", "word"])
def answering(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> runs.Run:
    """A run on generated stories of task 2, with attention."""
    arguments = ("model=gru", "task.qa=2", "task.attention=true", f"task.level={request.param}", "optimizer.lr=0.05")
    return runs.load(train(tmp_path_factory.mktemp("runs") / "run", *SMALL_BABI, *arguments))


def test_a_column_is_how_a_question_attends_to_the_sentences_before_it(answering: runs.Run) -> None:
    figure = figures.attention(answering)
    task, _, story = figures.asked_of(answering)
    axes = figure.axes[0]
    shown = np.ma.filled(axes.images[0].get_array(), np.nan)
    assert shown.shape == (len(story[-1].story), len(story))
    weights = task.attention(story).numpy()
    for column, question in enumerate(story):
        told = shown[: len(question.story), column]
        assert np.isnan(shown[len(question.story) :, column]).all()
        if task.data.level == "sentence":
            assert told == pytest.approx(weights[: len(told), column])
            assert told.sum() == pytest.approx(1, abs=1e-5)
        else:
            first = len(question.story[0])
            assert told[0] == pytest.approx(weights[:first, column].sum())
            assert 0 < told.sum() < 1, "some of it goes to the words of the question"
    best = task.probabilities(story).argmax(dim=1).tolist()
    for label, question, index in zip(axes.get_xticklabels(), story, best, strict=True):
        lines = label.get_text().splitlines()
        assert lines[0] == figures.sentence(question.words)
        assert lines[1].removesuffix(" ✗") == task.data.babi.classes[index]
        assert lines[2:] == ([] if task.data.babi.classes[index] == question.answer else [f"right: {question.answer}"])
    marked = [line.get_xydata().tolist() for line in axes.lines[::2]]
    assert marked == [[[column, fact] for fact in question.supports] for column, question in enumerate(story)]


def test_a_row_is_the_answer_after_a_sentence(answering: runs.Run) -> None:
    figure = figures.answers(answering)
    task, _, story = figures.asked_of(answering)
    axes, question = figure.axes[0], story[-1]
    shown = np.asarray(axes.images[0].get_array())
    assert shown.shape == (len(question.story) + 1, 6)
    assert shown.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert shown[-1] == pytest.approx(task.probabilities([question])[0].numpy(), abs=1e-6)
    assert shown[0] == pytest.approx(task.probabilities([question._replace(story=())])[0].numpy(), abs=1e-6)
    assert [label.get_text() for label in axes.get_xticklabels()] == list(task.data.babi.classes)
    bold = [place for place, label in enumerate(axes.get_yticklabels()) if label.get_fontweight() == "bold"]
    assert bold == sorted(fact + 1 for fact in question.supports)


@pytest.mark.parametrize("name", OF_QUESTIONS)
def test_figures_of_questions_are_written(name: str, answering: runs.Run) -> None:
    path = figures.draw(name, answering.directory)
    assert image.imread(path).shape[1] > 700
    assert path.with_suffix(".pdf").is_file()


@pytest.mark.parametrize("name", OF_QUESTIONS)
def test_figures_of_questions_need_a_run_that_has_them(name: str, lstm: Path) -> None:
    with pytest.raises(OptionError, match=rf"^run={lstm}: must be a run of task=babi; it is one of RecallTask$"):
        figures.draw(name, lstm)


def test_attention_is_drawn_of_a_task_that_has_it(tmp_path: Path) -> None:
    run = train(tmp_path / "run", *SMALL_BABI, "model=gru", "trainer.max_steps=2")
    with pytest.raises(OptionError, match=rf"^run={run}: its task must have attention; task.attention=true trains "):
        figures.draw("attention", run)


def test_stories_that_are_too_long_are_told(answering: runs.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "SENTENCES", 2)
    with pytest.raises(OptionError, match=r"every story has more than 2 sentences, too many to draw$"):
        figures.answers(answering)
