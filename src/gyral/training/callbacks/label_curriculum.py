"""A curriculum over the labels of sequences: training begins with the first one."""

from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from torch import Tensor

from gyral.core.checks import check_integer, check_real
from gyral.core.collectives import all_gather_object, world_size
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.training.callbacks.checkpoints import ends_step


class LabelCurriculum(Callback):
    """Trains on the first L labels of each sequence; after a batch whose loss is below a bound, L grows by one.

    Labels are counted along the sequence, and later ones are ignored in the loss. Validation and test have all labels.
    `train/curriculum_labels` is logged with the training loss, and checkpoints contain L. Siems et al. (2025,
    arXiv:2502.10297, code) compare the loss of an epoch with 0.3 nats instead.

    Args:
        loss: the bound in nats.
        labels: the first L.

    Raises:
        OptionError: an option is out of bounds.
    """

    def __init__(self, loss: float = 0.3, labels: int = 1) -> None:
        super().__init__()
        self.bound = check_real("loss", loss, above=0)
        self.labels = check_integer("labels", labels)

    def check_task(self, task: Any) -> None:
        """Check that the task repeats no batch, whose labels would be lost.

        Raises:
            OptionError: it does.
        """
        if task.data.overfit:
            raise OptionError("overfit", True, "must be false: callbacks.label_curriculum hides labels of each batch")

    def on_train_batch_start(self, trainer: Trainer, task: Any, batch: Any, index: int) -> None:
        targets = batch.targets
        if targets.dim() != 2 or targets.is_floating_point():
            name = type(task).__name__
            raise OptionError("callbacks", "label_curriculum", f"needs a class at each step, which {name} has not")
        targets.masked_fill_((targets != IGNORED).cumsum(dim=1) > self.labels, IGNORED)
        if world_size() > 1:  # the task has weighted the rows of this process by all their labels
            count = task.objective.count(targets)
            task.weigh(count, torch.tensor(sum(all_gather_object(count.item()))))

    def on_train_batch_end(
        self, trainer: Trainer, task: Any, outputs: dict[str, Tensor], batch: Any, index: int
    ) -> None:
        if ends_step(trainer, index) and trainer.global_step % trainer.log_every_n_steps == 0:
            task.log_row({"train/curriculum_labels": float(self.labels)}, trainer.global_step - 1)
        losses = all_gather_object(outputs["loss"].item() * trainer.accumulate_grad_batches)
        self.labels += sum(losses) / len(losses) < self.bound

    def state_dict(self) -> dict[str, Any]:
        return {"labels": self.labels}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.labels = state["labels"]
