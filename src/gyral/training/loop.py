"""Training, evaluation and final test of a run: what every process of the run executes."""

from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Trainer

from gyral.core.measures import SPLITS
from gyral.runs.directory import LAST_CHECKPOINT, Run, choose_checkpoint
from gyral.tasks.base import Task
from gyral.training.callbacks.checkpoints import Checkpoints
from gyral.training.callbacks.statistics import Statistics, count_parameters, peak_memory


def describe(trainer: Trainer, task: Task) -> str:
    """Return the number of parameters, where they are trained, and the sizes of the data, in one line."""
    device, processes = trainer.strategy.root_device, trainer.world_size
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    text = f"{count_parameters(task):,} parameters on {where}"
    if processes > 1:
        text += f" in {processes} processes"
    sizes = {split: task.data.split_size(split) for split in SPLITS}
    known = [f"{size:,} {split}" for split, size in sizes.items() if size is not None]
    drawn = "training data is drawn anew, " if sizes["train"] is None else ""
    return f"{text}; {drawn}{', '.join(known)} {task.data.counted}" if known else text


def fit(trainer: Trainer, task: Task, run: Run) -> None:
    """Train from the start or from the last checkpoint. A model without parameters is not trained."""
    if count_parameters(task):
        trainer.fit(task, datamodule=task.data, ckpt_path=run.checkpoint, weights_only=True)
    else:  # a model without parameters; the checkpoint lets other commands load the run
        trainer.validate(task, datamodule=task.data, verbose=False)
        trainer.save_checkpoint(run.directory / LAST_CHECKPOINT)


def test(trainer: Trainer, task: Task, run: Run) -> dict[str, Any]:
    """Test the best checkpoint after training, and return the final metrics with the statistics of training."""
    statistics = summarize(trainer)
    writes = any(isinstance(callback, Checkpoints) for callback in trainer.callbacks)
    checkpoint = choose_checkpoint(run.directory, "best") if writes else None
    metrics = evaluate(trainer, task, "test", checkpoint)
    trainer.strategy.barrier()  # no process ends while another may still communicate with it
    return {**metrics, **statistics}


def evaluate(trainer: Trainer, task: Task, split: str, checkpoint: Path | None) -> dict[str, float]:
    """Return the metrics of a task on a split.

    Args:
        trainer: runs the evaluation.
        task: the task with its model.
        split: "train", "val" or "test".
        checkpoint: the checkpoint whose weights are evaluated. None: the current weights.
    """
    task.tested = split
    try:
        trainer.test(task, task.data.loader(split), checkpoint, verbose=False, weights_only=True)
    finally:
        task.tested = "test"
    return {name.replace("test/", f"{split}/"): value.item() for name, value in trainer.callback_metrics.items()}


def summarize(trainer: Trainer) -> dict[str, float | None]:
    """Return the best value of the monitored metric, sizes, speed, memory and number of steps after training."""
    task = trainer.lightning_module
    callbacks = {type(callback): callback for callback in trainer.callbacks}
    monitored = trainer.callback_metrics.get(task.monitor)
    last = None if monitored is None else monitored.item()
    return {
        "monitor": callbacks[Checkpoints].best_score if Checkpoints in callbacks else last,
        "parameters": count_parameters(task),
        "state_size": task.state_size(),
        "seconds_a_step": callbacks[Statistics].seconds if Statistics in callbacks else None,
        "peak_memory_mb": peak_memory(),
        "steps": trainer.global_step,
    }
