"""The kernel of the memory target."""

from pathlib import Path

import numpy as np
import torch
from matplotlib.colors import to_hex
from torch import Tensor

from gyral.figures.target_kernel import target_kernel
from gyral.runs.directory import Run, load_run
from tests.figures.conftest import RUM
from tests.helpers.running import load_last, train


def best_weights(directory: Path) -> dict[str, Tensor]:
    return torch.load(directory / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]


def test_the_target_kernel_is_that_of_the_best_checkpoint(directory: Path, run: Run) -> None:
    figure = target_kernel(run)
    [picture] = figure.axes[0].images
    kernel = best_weights(directory)["model.recurrent.cells.0.weight_hh"][:8]
    assert np.array_equal(picture.get_array(), kernel)
    assert not torch.equal(kernel, load_last(directory)["state_dict"]["model.recurrent.cells.0.weight_hh"][:8])
    low, high = picture.get_clim()
    assert low == -high == -kernel.abs().max()
    # the colour map is symmetric about white: colder below zero, warmer above
    assert to_hex(picture.cmap(picture.norm(0.0))) == "#f7f6f6"
    assert figure.get_suptitle() == ("RUM λ = 1, zoneout = 0.2 on recall\nmemory target's kernel $W_{hh}^τ$, step 8")


def test_every_cell_of_a_deep_model_has_its_target_kernel(tmp_path: Path) -> None:
    train(tmp_path, *RUM, "model.num_layers=2", "trainer.max_steps=3")
    pictures = [axes.images[0] for axes in target_kernel(load_run(tmp_path)).axes if axes.images]
    for index, picture in enumerate(pictures):
        assert np.array_equal(
            picture.get_array(), best_weights(tmp_path)[f"model.recurrent.cells.{index}.weight_hh"][:8]
        )
    assert len(pictures) == 2
