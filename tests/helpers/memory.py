"""Uninitialized memory that is made recognizable, counted or watched."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

MAKERS = ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty"))


def _intercept(patch: pytest.MonkeyPatch, handle: Callable[[Tensor], Any]) -> None:
    """Hand each tensor of uninitialized memory to a function when it is made."""

    def intercepted(make: Any) -> Any:
        def made(*arguments: Any, **options: Any) -> Tensor:
            tensor: Tensor = make(*arguments, **options)
            handle(tensor)
            return tensor

        return made

    for owner, name in MAKERS:
        patch.setattr(owner, name, intercepted(getattr(owner, name)))


def poison(patch: pytest.MonkeyPatch, value: float = torch.nan) -> list[torch.Size]:
    """Fill uninitialized memory with a value, integers with −1; return the list that gets the shape of each tensor."""
    shapes: list[torch.Size] = []

    def fill(tensor: Tensor) -> None:
        shapes.append(tensor.shape)
        tensor.fill_(value if tensor.is_floating_point() else -1)

    _intercept(patch, fill)
    return shapes


def made_during(call: Callable[[], Any]) -> list[torch.Size]:
    """Return the shapes of the tensors that a call makes without values."""
    with pytest.MonkeyPatch.context() as patch:
        shapes: list[torch.Size] = []
        _intercept(patch, lambda tensor: shapes.append(tensor.shape))
        call()
    return shapes


def made_by(call: Callable[[], Any]) -> int:
    """Return how many numbers the tensors have that a call makes without values."""
    return sum(shape.numel() for shape in made_during(call))


def watched_during(call: Callable[[], Any]) -> list[weakref.ref[Tensor]]:
    """Return weak references to the tensors that a call makes without values."""
    with pytest.MonkeyPatch.context() as patch:
        watched: list[weakref.ref[Tensor]] = []
        _intercept(patch, lambda tensor: watched.append(weakref.ref(tensor)))
        call()
    return watched
