"""The optimizer and the learning-rate schedule of a task."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from gyral.core.checks import check_choice, check_real
from gyral.core.errors import OptionError
from gyral.core.forms import check_form, check_methods

SchedulerFactory = Callable[..., LRScheduler]


class GroupedOptimizer:
    """Makes an optimizer that treats some parameters of a model in another way.

    The dynamics of a cell (`gyral.cells.base.RecurrentCell.no_decay_parameters`) are parameters that set how fast
    and at which frequency its memory decays. Papers train them without weight decay, and many at a lower learning rate.

    Args:
        make: Makes an optimizer from parameters or groups of parameters.
        decay: Which parameters have weight decay: "all", or "matrices", which leaves out vectors, biases, dynamics and
            the gains and biases in `vector_parameters` of a cell.
        dynamics_lr: Learning rate of the dynamics relative to that of the other parameters.

    Raises:
        OptionError: An argument is out of bounds.
    """

    def __init__(self, make: Callable[..., Optimizer], decay: str = "all", dynamics_lr: float = 1.0) -> None:
        self.make = make
        self.decay = check_choice("optimizer.decay", decay, ("all", "matrices"))
        self.dynamics_lr = check_real("optimizer.dynamics_lr", dynamics_lr, minimum=0)

    def __call__(self, model: nn.Module, **options: Any) -> Optimizer:
        """Return the optimizer, with one group of parameters if all are treated alike; options are those of `make`."""
        groups: dict[tuple[bool, bool], list[nn.Parameter]] = {(True, False): []}  # by decay and learning rate
        for path, parameter in model.named_parameters():
            owner, _, name = path.rpartition(".")
            module = model.get_submodule(owner)
            is_dynamic = name in getattr(module, "no_decay_parameters", ())
            is_vector = name.startswith("bias") or name in getattr(module, "vector_parameters", ())
            is_matrix = parameter.dim() > 1 and not is_dynamic and not is_vector
            decays = self.decay == "all" or is_matrix
            groups.setdefault((decays, is_dynamic and self.dynamics_lr != 1), []).append(parameter)
        if len(groups) == 1:
            return self.make(model.parameters(), **options)
        optimizer = self.make([{"params": parameters} for parameters in groups.values()], **options)
        for (decays, is_dynamic), group in zip(groups, optimizer.param_groups, strict=True):
            if not decays:
                group["weight_decay"] = 0.0
            if is_dynamic:
                group["lr"] = group["lr"] * self.dynamics_lr
        return optimizer


OptimizerFactory = GroupedOptimizer | Callable[..., Optimizer]


class Optimization:
    """An optimizer with its learning-rate schedule.

    Lightning steps a schedule after each optimizer step. `ReduceLROnPlateau` is the exception: it steps after each
    validation, in `step_plateau`, which the task calls. If Lightning stepped it, a run that resumes from a checkpoint
    of the same step would skip it.

    Args:
        optimizer: makes the optimizer from the parameters, or is a `GroupedOptimizer`. None: `configure` must not be
            called.
        scheduler: makes the schedule from the optimizer. None: the learning rate is constant.
    """

    def __init__(self, optimizer: OptimizerFactory | None, scheduler: SchedulerFactory | None) -> None:
        self._make_optimizer = optimizer
        self._make_scheduler = scheduler
        self._plateau: ReduceLROnPlateau | None = None
        self._plateau_state: dict[str, Any] | None = None

    def configure(self, model: nn.Module, lr: float | None = None) -> Any:
        """Return, for the parameters of a model, what `LightningModule.configure_optimizers` returns.

        Args:
            model: the model.
            lr: the learning rate. None: that of the optimizer's options.

        Raises:
            OptionError: the optimizer's ε is zero in the dtype of the parameters, or its weight decay would change
                parameters that the model holds constant.
        """
        make = self._make_optimizer
        assert make is not None, "the task was built without an optimizer"
        options = {} if lr is None else {"lr": lr}
        parameters: Any = model if isinstance(make, GroupedOptimizer) else model.parameters()
        optimizer = make(parameters, **options)
        _check_epsilon(optimizer)
        _check_constants(model, optimizer)
        if self._make_scheduler is None:
            return optimizer
        scheduler = self._make_scheduler(optimizer)
        if isinstance(scheduler, ReduceLROnPlateau):
            self._plateau = scheduler
            if self._plateau_state is not None:
                self._plateau.load_state_dict(self._plateau_state)
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def step_plateau(self, monitored: Tensor) -> None:
        """Step the schedule after a validation, if it is `ReduceLROnPlateau`.

        Args:
            monitored: value of the monitored metric.
        """
        if self._plateau is not None:
            self._plateau.step(monitored)

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Add the state that Lightning does not save to a checkpoint."""
        if self._plateau is not None:
            checkpoint["plateau"] = self._plateau.state_dict()

    def load(self, checkpoint: dict[str, Any]) -> None:
        """Load the state that `save` added.

        Raises:
            FormError: it is not the state of this schedule.
        """
        self._plateau_state = checkpoint.get("plateau")
        if self._plateau_state is not None and self._make_scheduler is not None:
            weight = nn.Parameter(torch.zeros(1))
            fresh = self._make_scheduler(torch.optim.SGD([weight], lr=1.0))
            known = {name: value for name, value in fresh.state_dict().items() if not isinstance(value, list)}
            check_form("plateau", self._plateau_state, known)
            check_methods("plateau", self._plateau_state, fresh)


def _check_epsilon(optimizer: Optimizer) -> None:
    """Raise `OptionError` if ε is zero in the parameters' dtype: parameters without a gradient would become NaN."""
    for group in optimizer.param_groups:
        epsilon = group.get("eps")
        for dtype in {parameter.dtype for parameter in group["params"]}:
            if isinstance(epsilon, float) and torch.tensor(epsilon, dtype=dtype) == 0 < epsilon:
                smallest, name = torch.finfo(dtype).smallest_normal, str(dtype).removeprefix("torch.")
                reason = f"is zero in {name} (trainer.precision); must be ≥ {smallest:.0e}, such as 1e-4"
                raise OptionError("optimizer.eps", epsilon, reason)


def _check_constants(model: nn.Module, optimizer: Optimizer) -> None:
    """Raise `OptionError` if weight decay would change parameters that have no gradient because they are constant."""
    decays = {
        p: group["weight_decay"] for group in optimizer.param_groups for p in group["params"] if "weight_decay" in group
    }
    for cell in model.modules():
        constant = {*getattr(cell, "constant_parameters", ())}
        for path, parameter in cell.named_parameters() if constant else ():
            if decays.get(parameter) and constant & {*path.split(".")}:
                reason = "must be 0: it would change kernels that the model holds constant"
                raise OptionError("optimizer.weight_decay", decays[parameter], reason)
