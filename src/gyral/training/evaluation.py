"""Evaluates a task on a split."""

from pathlib import Path

from pytorch_lightning import Trainer

from gyral.tasks.base import Task


def evaluate(trainer: Trainer, task: Task, split: str, checkpoint: Path | None) -> dict[str, float]:
    """Return the metrics of a task on a split.

    Args:
        trainer: runs the evaluation.
        task: the task with its model.
        split: "train", "val" or "test".
        checkpoint: the checkpoint whose weights are evaluated. None: the current weights.
    """
    trainer.test(task, task.data.loader(split), checkpoint, verbose=False, weights_only=True)
    return {name.replace("test/", f"{split}/"): value.item() for name, value in trainer.callback_metrics.items()}
