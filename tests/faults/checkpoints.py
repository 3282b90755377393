"""Contents of checkpoints that are whole, of a run's model, and that no run writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gyral.training.checkpoints import add_checksum

Change = Callable[[dict[str, Any]], object]
WEIGHT = "model.readout.weight"


def change_checkpoint(path: Path, change: Change) -> None:
    """Change the contents of a checkpoint, whose checksum is right afterwards."""
    content = torch.load(path, weights_only=True)
    change(content)
    torch.save(content, path)
    add_checksum(path)


def put(*keys: Any, value: Any) -> Change:
    """Return a change of the value at a place; a function is called with the value there."""

    def change(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key if key != WEIGHT else next(name for name in content if content[name].dim() == 2)]
        last = keys[-1] if keys[-1] != WEIGHT else next(name for name in content if content[name].dim() == 2)
        content[last] = (
            value(content.get(last) if isinstance(content, dict) else content[last]) if callable(value) else value
        )

    return change


def shared(_: Any = None) -> list[Any]:
    """Return lists that contain each other, with 2⁴⁰ values in all."""
    content: list[Any] = [0]
    for _ in range(40):
        content = [content, content]
    return content


def in_itself(_: Any = None) -> list[Any]:
    content: list[Any] = []
    content.append(content)
    return content


RANDOM = ("callbacks", "Checkpoints", "random")
STATE = ("optimizer_states", 0, "state", 0)
GROUP = ("optimizer_states", 0, "param_groups", 0)
LOOPS = ("loops", "fit_loop")
STEPS = (*LOOPS, "epoch_loop.automatic_optimization.optim_progress", "optimizer", "step", "total")
# What only a run reads that resumes.
OF_TRAINING: dict[str, Change] = {
    "text as random states": put(*RANDOM, value="text"),
    "no random states of a process": put(*RANDOM, 0, value={}),
    "text as the random state of torch": put(*RANDOM, 0, "torch", value="text"),
    "a short random state of torch": put(*RANDOM, 0, "torch", value=torch.zeros(3, dtype=torch.uint8)),
    "numbers as the random state of torch": put(*RANDOM, 0, "torch", value=torch.zeros(5056)),
    "text as the random state of NumPy": put(*RANDOM, 0, "numpy", value="text"),
    "a short random state of NumPy": put(*RANDOM, 0, "numpy", "state", "key", value=[1, 2]),
    "negative numbers as the random state of NumPy": put(*RANDOM, 0, "numpy", "state", "key", value=[-1] * 624),
    "a place in the random state of NumPy": put(*RANDOM, 0, "numpy", "state", "pos", value=10**9),
    "text as the random state of Python": put(*RANDOM, 0, "python", value="text"),
    "a short random state of Python": put(*RANDOM, 0, "python", value=(3, [1, 2], None)),
    "another version of the random state of Python": put(*RANDOM, 0, "python", value=lambda old: (9, *old[1:])),
    "text as the best score": put("callbacks", "Checkpoints", "best_score", value="text"),
    "text as callbacks": put("callbacks", value="text"),
    "a negative length of the examples": put("callbacks", "Examples", "length", value=-7),
    "text as the length of the examples": put("callbacks", "Examples", "length", value="7"),
    "averages of another shape": put(*STATE, "exp_avg", value=lambda old: torch.zeros(*old.shape, 3)),
    "averages of fewer entries": put(*STATE, "exp_avg", value=lambda old: old[:-1]),
    "averages that are complex": put(*STATE, "exp_avg", value=lambda old: old.to(torch.complex64)),
    "averages that are sparse": put(*STATE, "exp_avg", value=lambda old: old.to_sparse()),
    "averages without memory": put(*STATE, "exp_avg", value=lambda old: old.to("meta")),
    "text as averages": put(*STATE, "exp_avg", value="text"),
    "a list as averages": put(*STATE, "exp_avg_sq", value=[1.0]),
    "no averages of a parameter": put(*STATE, value=lambda old: {"step": old["step"]}),
    "a negative step": put(*STATE, "step", value=torch.tensor(-5.0)),
    "a step that is no number": put(*STATE, "step", value=torch.tensor(torch.nan)),
    "a step that is not whole": put(*STATE, "step", value=torch.tensor(0.5)),
    "text as a step": put(*STATE, "step", value="text"),
    "many steps": put(*STATE, "step", value=torch.arange(7.0)),
    "a learning rate of 1e300": put(*GROUP, "lr", value=1e300),
    "a learning rate that is no number": put(*GROUP, "lr", value=torch.nan),
    "a negative learning rate": put(*GROUP, "lr", value=-0.1),
    "text as the learning rate": put(*GROUP, "lr", value="0.1"),
    "a list as the learning rate": put(*GROUP, "lr", value=[0.1]),
    "one beta": put(*GROUP, "betas", value=(0.9,)),
    "text as betas": put(*GROUP, "betas", value="text"),
    "an infinite decay": put(*GROUP, "weight_decay", value=torch.inf),
    "text as an option": put(*GROUP, "amsgrad", value="yes"),
    "no parameters": put(*GROUP, "params", value=[]),
    "no groups": put("optimizer_states", 0, "param_groups", value=[]),
    "no optimizer": put("optimizer_states", value=[]),
    "text as an optimizer": put("optimizer_states", value=["text"]),
    "text as schedules": put("lr_schedulers", value=["text"]),
    "no schedules": put("lr_schedulers", value=[]),
    "text as the step of the schedule": put("lr_schedulers", 0, "last_epoch", value="text"),
    "a negative step of the schedule": put("lr_schedulers", 0, "last_epoch", value=-9),
    "a rate of 1e300 of the schedule": put("lr_schedulers", 0, "base_lrs", value=[1e300]),
    "no rates of the schedule": put("lr_schedulers", 0, "base_lrs", value=[]),
    "a method of the schedule": put("lr_schedulers", 0, "step", value="text"),
    "a method of the schedule for rates": put("lr_schedulers", 0, "get_lr", value=3),
    "negative steps of the loops": put(*STEPS, "completed", value=-4),
    "other steps of the loops": put(*STEPS, "completed", value=1),
    "text as steps of the loops": put(*STEPS, "completed", value="4"),
    "negative batches": put(*LOOPS, "epoch_loop.batch_progress", "total", "ready", value=-1),
    "very many batches": put(*LOOPS, "epoch_loop.batch_progress", "current", "ready", value=10**15),
    "a method of the loops": put(*LOOPS, "epoch_loop.batch_progress", "current", "increment_ready", value=3),
    "text as loops": put(*LOOPS, value="text"),
    "no loops": put(*LOOPS, value={}),
    "a negative place in the data": put(
        *LOOPS, "state_dict", value=lambda old: {**old, "combined_loader": [{"position": -9}]}
    ),
    "text as losses": put("losses_since_logged", value=["text"]),
    "a number as losses": put("losses_since_logged", value=3),
    "carried states of another shape": put("carried", value=lambda old: [leaf[:, :-1] for leaf in old]),
    "carried states of other rows": put("carried", value=lambda old: [leaf[:1].expand(10**6, -1) for leaf in old]),
    "carried states that are complex": put("carried", value=lambda old: [leaf.to(torch.complex64) for leaf in old]),
    "text as carried states": put("carried", value=["text"]),
    "more carried states": put("carried", value=lambda old: [*old, *old]),
    "a later version of Lightning": put("pytorch-lightning_version", value="text"),
    "a list as the version of Lightning": put("pytorch-lightning_version", value=[1]),
}
# What every command reads.
OF_ALL: dict[str, Change] = {
    "negative global steps": put("global_step", value=-4),
    "text as global steps": put("global_step", value="4"),
    "very many global steps": put("global_step", value=10**18),
    "no whole number of global steps": put("global_step", value=3.5),
    "a truth as global steps": put("global_step", value=True),
    "complex weights": put("state_dict", WEIGHT, value=lambda old: old.to(torch.complex64)),
    "whole weights": put("state_dict", WEIGHT, value=lambda old: old.to(torch.int64)),
    "sparse weights": put("state_dict", WEIGHT, value=lambda old: old.to_sparse()),
    "weights without memory": put("state_dict", WEIGHT, value=lambda old: old.to("meta")),
    "weights of another shape": put("state_dict", WEIGHT, value=lambda old: old[:, :-1]),
    "text as weights": put("state_dict", WEIGHT, value="text"),
    "a list as weights": put("state_dict", WEIGHT, value=[1.0]),
    "more weights": put("state_dict", "evil", value=torch.zeros(3)),
    "a number as the name of weights": put("state_dict", 7, value=torch.zeros(3)),
    "text in place of weights": put("state_dict", value="text"),
    "text as substitutes": put("substitutes", value="text"),
    "text among the substitutes": put("substitutes", value={"test/standin": "text"}),
    "a list as substitutes": put("substitutes", value=[1]),
    "values that contain each other": put("callbacks", value=shared),
    "a list in itself": put("loops", value=in_itself),
    "text as everything": lambda content: (content.clear(), content.update(state_dict=1, global_step=2, loops=3)),
}
