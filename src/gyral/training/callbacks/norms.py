"""Logs norms of hidden states and of the gradients with respect to them."""

from contextlib import ExitStack
from typing import Any

import torch
from pytorch_lightning import Trainer
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves, tree_map_only

from gyral.cells.base import RecurrentCell
from gyral.core.errors import UserError
from gyral.nn.recurrent import Recurrent
from gyral.ops.sequences import last_step
from gyral.training.callbacks.after_validation import AfterValidation, row_lengths


class Norms(AfterValidation):
    """Logs the norms of figure 6 of Dangovski et al. (TACL 2019), for any model.

    With each logged step: `train/hidden_norm`, the norm of the last hidden vector, averaged over the batch and over all
    layers and directions that read the input. `Statistics` logs the other norm of the figure, `train/gradient_norm`.

    After each validation, `val/hidden_norm_<cell>` for each cell, also for those that no layer runs, such as a decoder:
    the norm of the hidden vector after the last step, averaged over the first batch of the validation. And a row of
    step_gradients.csv: `step`, the index of the last optimizer step, from 0, then
    `<cell>/<t>`, the norm of the gradient of the loss with respect to the hidden vectors (B, N) of step t, on the same
    batch. t counts from 0 in the order in which the cell reads: a cell that reads backwards starts at
    the end. For this row the batch is run once more, step by step, with any backend. A resumed run continues the file
    as it does metrics.csv.
    """

    FILE = "step_gradients.csv"

    def __init__(self) -> None:
        super().__init__()
        self._cells: dict[str, RecurrentCell] = {}
        self._hidden: list[Tensor] = []
        self._norms: dict[str, float] = {}
        self._hooks: list[Any] = []

    def check_task(self, task: Any) -> None:
        """Check that this callback supports the task's model.

        Raises:
            UserError: the state of a cell has no vector.
        """
        for name, cell in outer_cells(task.model).items():
            if not any(leaf.dim() == 2 for leaf in tree_leaves(cell.init_state(1))):
                raise UserError(f"callbacks.norms: the state of {type(cell).__name__} ({name}) has no vector")

    def on_train_start(self, trainer: Trainer, task: Any) -> None:
        super().on_train_start(trainer, task)
        self._cells = outer_cells(task.model)
        recurrents = [module for module in task.model.modules() if isinstance(module, Recurrent)]
        self._hooks = [module.register_forward_hook(self._record_hidden) for module in recurrents]

    def on_train_end(self, trainer: Trainer, task: Any) -> None:
        for hook in self._hooks:
            hook.remove()

    def _record_hidden(self, module: nn.Module, _: Any, result: tuple[Tensor, Any]) -> None:
        if module.training:
            self._hidden = [hidden_of(state).detach() for state in result[1]]

    def on_before_optimizer_step(self, trainer: Trainer, task: Any, optimizer: Optimizer) -> None:
        if (trainer.global_step + 1) % trainer.log_every_n_steps:
            return
        hidden_norms = torch.stack([hidden.float().norm(dim=1).mean() for hidden in self._hidden])
        self._norms = {"train/hidden_norm": hidden_norms.mean().item()}

    def on_train_batch_end(self, trainer: Trainer, task: Any, *_: Any) -> None:
        if self._norms:
            task.log_row(self._norms, trainer.global_step - 1)
            self._norms = {}

    def inspect(self, trainer: Trainer, task: Any, batch: Any) -> None:
        # tensors that were created in inference mode cannot be differentiated
        with torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:
            batch = tree_map_only(Tensor, torch.clone, batch)
            recorded = {name: stack.enter_context(cell.record_steps()) for name, cell in self._cells.items()}
            loss = task.loss(task(batch), batch)
            hidden = {
                f"{name}/{number}": hidden_of(step.state)
                for name, steps in recorded.items()
                for number, step in enumerate(steps)
            }
            # the gradient is None for a state that the loss does not depend on
            gradients = torch.autograd.grad(loss, list(hidden.values()), allow_unused=True)
        states = {name: torch.stack([hidden_of(step.state) for step in steps]) for name, steps in recorded.items()}
        last = {hidden_metric(name): last_step(own, row_lengths(task, batch)) for name, own in states.items()}
        task.log_row(
            {name: state.detach().float().norm(dim=1).mean().item() for name, state in last.items()},
            trainer.global_step - 1,
        )
        norms = (0.0 if gradient is None else gradient.norm().item() for gradient in gradients)
        self.write(trainer, dict(zip(hidden, norms, strict=True)))


def hidden_metric(cell: str) -> str:
    """Return the metric of the norm of a cell's last hidden vector, given the name of the cell."""
    return f"val/hidden_norm_{cell.replace('.', '_')}"


def outer_cells(model: nn.Module) -> dict[str, RecurrentCell]:
    """Return the cells of a model by name, without cells that are part of another cell."""
    cells = {name: module for name, module in model.named_modules() if isinstance(module, RecurrentCell)}
    return {name: cells[name] for name in cells if not any(name.startswith(f"{cell}.") for cell in cells)}


def hidden_of(state: Any) -> Tensor:
    """Return the hidden vector (B, N) of a state, which is the first of its vectors.

    Raises:
        StopIteration: the state has no vector.
    """
    return next(leaf for leaf in tree_leaves(state) if leaf.dim() == 2)
