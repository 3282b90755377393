"""Checks of what Lightning restores from a checkpoint, before the first step; errors name the checkpoint.

A checkpoint may be whole and still have states that no run has: text in place of random states, states of an optimizer
of another shape, negative counts. Lightning and PyTorch take most of them, and fail later or train with them.
"""

from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from torch import Tensor
from torch.optim import Optimizer

from gyral.core.forms import FormError, as_rate, check_form, check_methods, check_number, check_tensor
from gyral.training.callbacks.checkpoints import Checkpoints
from gyral.training.checkpoints import named_contents


def guard_restoring(trainer: Trainer) -> None:
    """Check the states that a trainer restores from a checkpoint, and restore those of callbacks for training alone.

    Lightning restores callbacks for a test after training, too. Its `WeightAveraging` then replaces the averages by the
    weights of the last step. Lightning offers no hook between the restoring and the first step that sees all states;
    its three methods are replaced on this one object.
    """
    connector: Any = trainer._checkpoint_connector
    restore_model, restore_training = connector._restore_modules_and_callbacks, connector.restore_training_state
    restore_callbacks = connector.restore_callbacks

    def restore_modules_and_callbacks(path: Any = None, *arguments: Any, **options: Any) -> None:
        with named_contents(path):
            restore_model(path, *arguments, **options)

    def restore_callbacks_of_training() -> None:
        if trainer.state.fn != "fit":
            return
        fresh = {callback.state_key: callback.state_dict() for callback in trainer.callbacks if _has_form(callback)}
        restore_callbacks()
        saved = connector._loaded_checkpoint.get("callbacks", {})
        for key in fresh.keys() & saved.keys():
            check_form(f"callbacks.{key}", saved[key], fresh[key])

    def restore_training_state() -> None:
        checkpoint = connector._loaded_checkpoint
        with named_contents(connector._ckpt_path):
            if not checkpoint or trainer.state.fn != "fit":
                return restore_training()
            _check_loops(checkpoint, trainer)
            schedules = [config.scheduler for config in trainer.lr_scheduler_configs]
            check_form("lr_schedulers", checkpoint["lr_schedulers"], [each.state_dict() for each in schedules])
            for schedule, state in zip(schedules, checkpoint["lr_schedulers"], strict=True):
                check_methods("lr_schedulers", state, schedule)
            for optimizer, state in zip(trainer.optimizers, checkpoint["optimizer_states"], strict=True):
                _check_states(optimizer, state)
            restore_training()
            for optimizer in trainer.optimizers:
                _check_options(optimizer)

    connector._restore_modules_and_callbacks = restore_modules_and_callbacks
    connector.restore_callbacks = restore_callbacks_of_training
    connector.restore_training_state = restore_training_state


def _has_form(callback: Callback) -> bool:
    """Return whether the states of a callback keep their form; those of the user may grow, `Checkpoints` checks its."""
    module = type(callback).__module__
    return module.startswith(("gyral.", "pytorch_lightning.")) and not isinstance(callback, Checkpoints)


def _check_loops(checkpoint: dict[str, Any], trainer: Trainer) -> None:
    loops = checkpoint["loops"]["fit_loop"]
    check_form("loops", loops, trainer.fit_loop.state_dict())
    _check_counts("loops", loops)
    steps = loops["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]["step"]["total"]["completed"]
    if steps != checkpoint["global_step"]:
        raise FormError(f"global_step is {checkpoint['global_step']}, and its loops have taken {steps} steps")


def _check_counts(place: str, content: Any) -> None:
    """Check that all numbers in the states of the loops are counts."""
    if isinstance(content, dict | list | tuple):
        for name, value in content.items() if isinstance(content, dict) else enumerate(content):
            _check_counts(f"{place}.{name}", value)
    elif content is not None and not isinstance(content, bool):
        check_number(place, content, 0)


def _check_options(optimizer: Optimizer) -> None:
    """Check the options of an optimizer that were restored; those that an earlier version lacked are the defaults."""
    for group in optimizer.param_groups:
        for name, default in optimizer.defaults.items():
            if name not in group:
                raise FormError(f"optimizer_states has no {name}")
            check_form(f"optimizer_states.{name}", group[name], as_rate(default))
        if group.get("lr", 0) < 0:
            raise FormError(f"optimizer_states.lr is {float(group['lr'])}, and must be ≥ 0")


def _check_states(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    """Check the states of parameters in a checkpoint: numbers, and tensors whose shape fits that of the parameter."""
    if not type(optimizer).__module__.startswith("torch.optim") or isinstance(optimizer, torch.optim.LBFGS):
        return  # it may keep tensors of any shape
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    by_number = dict(zip(numbers, parameters, strict=True))
    for number, state in saved["state"].items():
        for name, value in state.items():
            _check_entry(f"optimizer_states.{name}", name, value, by_number[number])
    names = {frozenset(state) for state in saved["state"].values() if state}
    if len(names) > 1:
        raise FormError("optimizer_states has other entries for some parameters than for others")


def _check_entry(place: str, name: str, value: Any, parameter: Tensor) -> None:
    if name == "step":
        check_number(place, value, 0)
    elif isinstance(value, Tensor):
        check_tensor(place, value, value)
        if value.is_complex() and not parameter.is_complex():
            raise FormError(f"{place} is of {value.dtype}, and its parameter of {parameter.dtype}")
        try:
            fits = torch.broadcast_shapes(value.shape, parameter.shape) == parameter.shape
        except RuntimeError:
            fits = False
        if not fits:
            raise FormError(f"{place} is of shape {tuple(value.shape)}, and its parameter {tuple(parameter.shape)}")
    elif value is not None:
        check_number(place, value)
