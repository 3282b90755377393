"""Rendered examples."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from gyral.data.batching import Batch
from gyral.training.callbacks.examples import Examples
from gyral.training.loggers import TensorBoard


def test_examples_are_appended_with_their_step(task: Any, batch: Batch, tmp_path: Path) -> None:
    examples = Examples()
    trainer = SimpleNamespace(state=SimpleNamespace(fn="fit"), global_step=3, default_root_dir=tmp_path, loggers=[])
    examples.setup(trainer, task, "fit")
    examples.on_validation_epoch_end(trainer, task)
    assert not (tmp_path / "examples.txt").exists()
    examples.on_validation_batch_start(trainer, task, batch, 0)
    examples.on_validation_batch_start(trainer, task, None, 1)
    examples.on_validation_epoch_end(trainer, task)
    trainer.global_step = 6
    examples.on_validation_epoch_end(trainer, task)
    with torch.no_grad():
        drawn = task.render(batch, task(batch).argmax(-1))
    assert (tmp_path / "examples.txt").read_text() == f"step 3\n{drawn}\n\nstep 6\n{drawn}\n\n"


def test_what_a_corpus_brings_is_text(batch: Batch, tmp_path: Path) -> None:
    task: Any = SimpleNamespace(render=lambda *_: "\x1b[2J<b>", predict=lambda _: None)
    shown: list[str] = []
    board = TensorBoard(tmp_path)
    board._experiment = SimpleNamespace(add_text=lambda name, text, step: shown.append(text))
    trainer: Any = SimpleNamespace(global_step=3, default_root_dir=tmp_path, loggers=[board])
    examples = Examples()
    examples.setup(trainer, task, "fit")
    examples.inspect(trainer, task, batch)
    assert (tmp_path / "examples.txt").read_text() == "step 3\n\\x1b[2J<b>\n\n"
    assert shown == ["<pre>\\x1b[2J&lt;b&gt;</pre>"]
