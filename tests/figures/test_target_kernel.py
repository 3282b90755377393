"""The kernel of the memory target."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from torch import Tensor

import gyral
from gyral.figures.target_kernel import kernels_of, target_kernel
from gyral.runs.directory import Run
from gyral.training import build
from tests.figures.conftest import RUM
from tests.helpers.running import build_task, load_last


def best_weights(directory: Path) -> dict[str, Tensor]:
    return torch.load(directory / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]


def test_the_target_kernel_equals_that_of_the_best_checkpoint(directory: Path, run: Run) -> None:
    figure = target_kernel(run)
    assert [axes.get_ylabel() for axes in figure.axes if axes.images] == [
        *("unit of τ", "unit of u"),
        *("unit of τ", "unit of u", "unit of ε̃"),
    ]
    [picture] = figure.axes[0].images
    kernel = best_weights(directory)["model.recurrent.cells.0.weight_hh"][:8]
    assert np.array_equal(picture.get_array(), kernel)
    assert not torch.equal(kernel, load_last(directory)["state_dict"]["model.recurrent.cells.0.weight_hh"][:8])
    low, high = picture.get_clim()
    assert low == -high == -kernel.abs().max()
    # the colour map is symmetric about white: colder below zero, warmer above
    assert to_hex(picture.cmap(picture.norm(0.0))) == "#f7f6f6"
    assert figure.get_suptitle() == ("RUM λ = 1, zoneout = 0.2 on recall\nkernels, step 8")


def test_every_cell_of_a_deep_model_has_its_target_kernel(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    task = build_task(*RUM, "model.num_layers=2", "model.bidirectional=true")
    monkeypatch.setattr(build, "load_trained", lambda run, checkpoint: (task, 0))
    drawn = [axes for axes in target_kernel(run).axes if axes.images]
    targets = [axes for axes in drawn if (axes.get_xlabel(), axes.get_ylabel()) == ("unit of h", "unit of τ")]
    pictures = [axes.images[0] for axes in targets]
    for index, picture in enumerate(pictures):
        assert np.array_equal(picture.get_array(), task.state_dict()[f"model.recurrent.cells.{index}.weight_hh"][:8])
    assert [axes.get_title(loc="left") for axes in targets] == [
        f"layer {layer}, {direction}" for layer in (1, 2) for direction in ("forward", "backward")
    ]


@pytest.mark.parametrize("weight_drop", [0, 0.5])
@pytest.mark.parametrize(("cell", "count"), [("rum_no_gate", 3), ("lstm", 8), ("goru", 5), ("rnn", 2)])
def test_cells_with_gates_have_their_kernels(cell: str, count: int, weight_drop: float) -> None:
    options = "task=recall", "task.train_size=128", "model.cell.hidden_size=6", f"model.weight_drop={weight_drop}"
    model = build_task(*options, f"model={cell}").model.eval()
    kernels = kernels_of(model.recurrent.cells[0])
    assert sum(map(len, kernels.values())) == count
    assert all(len(kernel) == 6 for own in kernels.values() for kernel in own.values())
    assert all(kernel.shape == (6, 6) for kernel in kernels["weight_hh"].values())


def test_a_layer_that_holds_the_weights_of_its_cells_has_their_kernels() -> None:
    layer = gyral.GRU(3, 4, num_layers=2)
    assert np.array_equal(kernels_of(layer.cells[1])["weight_hh"]["z"], layer.weight_hh_l1.detach()[4:8])
