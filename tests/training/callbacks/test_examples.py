"""Rendered examples."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from gyral.data.batching import Batch
from gyral.training.callbacks.examples import Examples


def test_examples_are_appended_with_their_step(task: Any, batch: Batch, tmp_path: Path) -> None:
    examples = Examples()
    trainer = SimpleNamespace(state=SimpleNamespace(fn="fit"), global_step=3, default_root_dir=tmp_path, loggers=[])
    examples.setup(trainer, task, "fit")
    examples.on_validation_end(trainer, task)
    assert not (tmp_path / "examples.txt").exists()
    examples.on_validation_batch_start(trainer, task, batch, 0)
    examples.on_validation_batch_start(trainer, task, None, 1)
    examples.on_validation_end(trainer, task)
    trainer.global_step = 6
    examples.on_validation_end(trainer, task)
    with torch.no_grad():
        drawn = task.render(batch, task(batch).argmax(-1))
    assert (tmp_path / "examples.txt").read_text() == f"step 3\n{drawn}\n\nstep 6\n{drawn}\n\n"
