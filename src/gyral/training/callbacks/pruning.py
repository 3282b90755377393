"""Ends the run of an unpromising trial of a search."""

import logging
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from gyral.core import collectives
from gyral.core.measures import printed
from gyral.runs import trial

log = logging.getLogger(__name__)


class Pruning(Callback):
    """Reports each validation of a trial to its search, and ends the run if the search's pruner prunes the trial.

    The run is then tested and marked DONE as usual. In a run that is not a trial, this callback does nothing. The
    checkpoint records that the run was pruned: a run that is killed between its last step and its test is not trained
    further when it resumes.
    """

    def __init__(self) -> None:
        self.pruned = False
        self._reporter: trial.Reporter | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"pruned": self.pruned}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.pruned = state["pruned"]

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        trainer.should_stop = trainer.should_stop or self.pruned
        self._reporter = trial.reporter()  # None in all but the first of several processes

    def on_validation_end(self, trainer: Trainer, task: Any) -> None:
        if trainer.state.fn != "fit":
            return
        score = float(trainer.callback_metrics[task.monitor])
        prune = self._reporter is not None and self._reporter.should_prune(trainer.global_step, score)
        if collectives.any_process(prune):
            self.pruned = trainer.should_stop = True
            shown = printed(task.monitor, score, task.measures)
            log.info("Pruned after step %d: %s is %s", trainer.global_step, task.monitor, shown)
