"""Evaluates a task on a split."""

from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer

from gyral.core.errors import OptionError
from gyral.tasks.base import Task
from gyral.tasks.dynamic_evaluation import DynamicEvaluation
from gyral.tasks.text import TextTask


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


def set_dynamic(task: Task, **options: Any) -> None:
    """Let the evaluation of a language model also report the results of dynamic evaluation.

    Args:
        task: the task.
        **options: see `gyral.tasks.dynamic_evaluation.DynamicEvaluation`.

    Raises:
        OptionError: the task is not a language model, or an option is out of bounds.
    """
    if not isinstance(task, TextTask):
        raise OptionError("dynamic.rule", options["rule"], "must be null: only language models have dynamic evaluation")
    try:
        task.dynamic = DynamicEvaluation(**options)
    except OptionError as error:
        raise OptionError(f"dynamic.{error.option}", error.value, error.reason) from None
