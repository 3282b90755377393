"""Dropout of sequences and of weights."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from gyral.core.checks import check_boolean, check_real
from gyral.ops.dropout import dropout_mask


class SequenceDropout(nn.Module):
    """Dropout on sequences (T, B, X), in training.

    Args:
        probability: In [0, 1).
        locked: Whether to drop the same units at all steps of a sequence (Gal and Ghahramani 2016).
    """

    def __init__(self, probability: float, locked: bool = False) -> None:
        super().__init__()
        self.probability = check_real("dropout", probability, minimum=0, below=1)
        self.locked = check_boolean("locked_dropout", locked)

    def forward(self, vectors: Tensor) -> Tensor:
        if not self.training or self.probability == 0:
            return vectors
        if self.locked:
            return vectors * dropout_mask(vectors[:1], self.probability)
        return F.dropout(vectors, self.probability)


class WeightDrop(nn.Module):
    """Dropout on the entries of a weight (DropConnect, Wan et al. 2013), in training; a parametrization of the weight.

    Each read of the weight draws other entries, except within `hold_dropped_weights`.

    Args:
        probability: In [0, 1).
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        # by thread, since threads may share the module; empty outside of `hold_dropped_weights`
        self._held: dict[int, Tensor | None] = {}

    def forward(self, weight: Tensor) -> Tensor:
        thread = _thread()
        if thread not in self._held:
            return F.dropout(weight, self.probability, self.training)
        held = self._held[thread]
        if held is None:
            held = self._held[thread] = F.dropout(weight, self.probability, self.training)
        return held

    def hold(self) -> None:
        """Let all following reads of the weight in this thread have the same entries."""
        self._held[_thread()] = None

    def release(self) -> None:
        """End `hold`."""
        self._held.pop(_thread(), None)


def drop_weights(module: nn.Module, probability: float) -> int:
    """Apply `WeightDrop` to all parameters of a module whose names start with weight_hh; return their number."""
    weights = [
        (owner, name)
        for owner in module.modules()
        for name, _ in owner.named_parameters(recurse=False)
        if name.startswith("weight_hh")
    ]
    for owner, name in weights:
        _drop_weight(owner, name, probability)
    return len(weights)


def _drop_weight(owner: nn.Module, name: str, probability: float) -> None:
    parametrize.register_parametrization(owner, name, WeightDrop(probability), unsafe=True)
    # the class of this one module, which torch has made; it refuses to be pickled
    type(owner).__reduce__ = _reduce  # type: ignore[method-assign, assignment]


def _reduce(module: nn.Module) -> Any:
    """Return a module with dropped weights in the form that `pickle` stores: as it was, and what to apply again."""
    lists: Any = module.parametrizations
    if any(len(each) != 1 or not isinstance(each[0], WeightDrop) for each in lists.values()):
        return module.__getstate__()  # raises the error of torch: other parametrizations cannot be pickled
    dropped = {name: each[0].probability for name, each in lists.items()}
    state = {
        **vars(module),
        "_modules": {name: part for name, part in module._modules.items() if part is not lists},
        "_parameters": {**module._parameters, **{name: each.original for name, each in lists.items()}},
    }
    return _restored, (type(module).__bases__[0], dropped), state  # the state may contain the module


def _restored(module_class: type[nn.Module], dropped: dict[str, float]) -> nn.Module:
    """Undo `_reduce`: return a module that drops weights as soon as its state is set."""

    class Restored(module_class):  # type: ignore[misc, valid-type]
        def __setstate__(self, state: dict[str, Any]) -> None:
            self.__class__ = module_class  # type: ignore[assignment]
            module_class.__setstate__(self, state)
            for name, probability in dropped.items():
                _drop_weight(self, name, probability)

    return Restored.__new__(Restored)


@contextmanager
def hold_dropped_weights(module: nn.Module) -> Iterator[None]:
    """Within this context, all dropped weights of a module keep the entries that are drawn at its start.

    They are drawn in the order of the modules, whichever order the module reads them in.
    """
    drops = [part for part in module.modules() if isinstance(part, WeightDrop)]
    for drop in drops:
        drop.hold()
    try:
        for owner in module.modules():
            for name in getattr(owner, "parametrizations", ()):
                getattr(owner, name)
        yield
    finally:
        for drop in drops:
            drop.release()


def _thread() -> int:
    """Return the number of this thread; a compiler traces code in one thread."""
    return 0 if torch.compiler.is_compiling() else threading.get_ident()
