"""Uninitialized memory that is made recognizable."""

from typing import Any

import pytest
import torch
from torch import Tensor

MAKERS = ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty"))


def poison(patch: pytest.MonkeyPatch) -> list[str]:
    """Fill uninitialized memory with NaN, integers with −1; return the list to which each call appends its name."""
    called: list[str] = []

    def poisoned(name: str, make: Any) -> Any:
        def made(*arguments: Any, **options: Any) -> Tensor:
            called.append(name)
            tensor = make(*arguments, **options)
            return tensor.fill_(torch.nan if tensor.is_floating_point() else -1)

        return made

    for owner, name in MAKERS:
        patch.setattr(owner, name, poisoned(name, getattr(owner, name)))
    return called
