"""Mixed precision (trainer.precision=bf16-mixed) trains every model as float32 does; states stay in float32."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from gyral.training import build
from tests.helpers.running import SMALL, SMALL_COPY, choices, compose_config

STEPS = 12
TASKS = {
    "copy": SMALL_COPY,
    "text": (
        *(option for option in SMALL if not option.startswith("task.")),
        "task=text_file",
        "task.batch_size=4",
        "task.window=16",
    ),
}
# options that the small size of the other models does not allow
OWN = {"on_lstm": ("model.cell.chunk_size=4",)}


def train(directory: Path, task: str, model: str, *overrides: str) -> tuple[Any, list[float]]:
    """Train for some steps without validation; return the task and its losses."""
    base = [o for o in TASKS[task] if "callbacks" not in o and "max_steps" not in o]
    config = compose_config(
        *base,
        f"model={model}",
        "optimizer=adam",
        "callbacks=none",
        "+trainer.limit_val_batches=0",
        f"trainer.max_steps={STEPS}",
        f"trainer.log_every_n_steps={2 * STEPS}",
        f"paths.data_dir={directory}",
        *OWN.get(model, ()),
        *overrides,
    )
    build.configure_process(config)
    built = build.build_task(config)
    losses: list[float] = []
    compute = built.loss

    def noted(*arguments: Any) -> Any:
        loss = compute(*arguments)
        losses.append(loss.item())
        return loss

    built.loss = noted
    build.build_trainer(config, directory, []).fit(built, datamodule=built.data)
    return built, losses


@pytest.mark.parametrize("backend", ["auto", pytest.param("reference", marks=pytest.mark.slow)])
@pytest.mark.parametrize("task", [pytest.param("copy", marks=pytest.mark.slow), "text"])
@pytest.mark.parametrize("model", choices("cell"))
def test_bfloat16_trains_as_float32_does(tmp_path: Path, model: str, task: str, backend: str) -> None:
    _, expected = train(tmp_path, task, model, f"model.backend={backend}")
    mixed, losses = train(tmp_path, task, model, f"model.backend={backend}", "trainer.precision=bf16-mixed")
    assert len(losses) == STEPS
    assert losses != expected, "autocast had no effect"
    assert all(map(math.isfinite, losses))
    # single steps may differ more: early on some cells turn on the signs of numbers near zero
    assert sum(losses[-4:]) == pytest.approx(sum(expected[-4:]), rel=0.02)
    assert all(parameter.dtype == torch.float32 for parameter in mixed.parameters())
    if task == "text":
        carried = tree_leaves(mixed._states[True])
        assert carried
        assert all(leaf.dtype == torch.float32 for leaf in carried)
