"""The form of a state that was read from a file: that of a state that this version would write."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

LARGEST = torch.finfo(torch.float32).max
MOST = 10**12  # of a count, such as that of steps


class FormError(ValueError):
    """A state has another form than this version would write."""


def check_form(place: str, saved: Any, fresh: Any) -> None:
    """Check that a saved state has the form of a fresh one.

    Text, tensors and containers must be so in both, and tensors of one shape. A number must be one of float32, unless
    the fresh one is infinite. A count, which is an integer ≥ 0, must stay one; integers in lists, such as those of
    learning rates, are not counts. What is None in the fresh state may be anything. Earlier versions may lack entries.

    Args:
        place: what the state belongs to, for the error.
        saved, fresh: the two states: nested containers of numbers, text and tensors.

    Raises:
        FormError: the form differs; the message names the place.
    """
    if fresh is None:
        return
    if isinstance(fresh, bool | str):
        _require(isinstance(saved, type(fresh)), place, saved, "text" if isinstance(fresh, str) else "true or false")
    elif isinstance(fresh, int | float):
        check_number(place, saved, fresh)
    elif isinstance(fresh, Tensor):
        check_tensor(place, saved, fresh)
    elif isinstance(fresh, Mapping):
        _require(isinstance(saved, Mapping), place, saved, "a dictionary")
        for name in fresh.keys() & saved.keys():
            check_form(f"{place}.{name}", saved[name], fresh[name])
        if fresh and all(type(value) is int for value in fresh.values()):
            unknown = [str(name) for name in saved if name not in fresh]
            _require(not unknown, place, ", ".join(unknown), f"only {', '.join(map(str, fresh))}")
    elif isinstance(fresh, list | tuple):
        _require(isinstance(saved, list | tuple), place, saved, "a list")
        _require(not fresh or len(saved) == len(fresh), place, f"{len(saved)} entries", f"{len(fresh)} entries")
        for index, (each, other) in enumerate(zip(saved, fresh, strict=False)):
            check_form(f"{place}.{index}", each, as_rate(other))


def as_rate(number: Any) -> Any:
    """Return an integer as a float: a learning rate that was given as 1 may be 0.5 later. Other values stay."""
    return float(number) if type(number) is int else number


def check_number(place: str, saved: Any, fresh: float = 0.0) -> None:
    """Check a number as `check_form` does; a tensor of one element is a number, too."""
    value = saved.item() if isinstance(saved, Tensor) and saved.numel() == 1 else saved
    _require(isinstance(value, int | float) and not isinstance(value, bool), place, value, "a number")
    if isinstance(fresh, int) and fresh >= 0:
        _require(value == int(value) if math.isfinite(value) else False, place, value, "an integer")
        _require(0 <= value <= MOST, place, value, f"an integer from 0 to {MOST:,}")
    elif math.isfinite(fresh):
        _require(abs(value) <= LARGEST, place, value, "a number of float32")


def check_tensor(place: str, saved: Any, fresh: Tensor) -> None:
    """Check that a value is a tensor with the shape of another one, complex only if that is, and plain."""
    _require(isinstance(saved, Tensor), place, saved, "a tensor")
    plain = saved.layout == torch.strided and not saved.is_meta and not saved.is_quantized
    _require(plain, place, f"a tensor in another form ({saved.layout}, {saved.device})", "one in memory")
    _require(saved.shape == fresh.shape, place, f"of shape {tuple(saved.shape)}", f"of shape {tuple(fresh.shape)}")
    for kind in ("is_complex", "is_floating_point"):
        same = getattr(saved, kind)() == getattr(fresh, kind)()
        _require(same, place, f"of {saved.dtype}", f"of {fresh.dtype}")


def check_methods(place: str, saved: Mapping[Any, Any], owner: Any) -> None:
    """Check that no entry of a state, which becomes an attribute of an object, takes the place of a method."""
    for name in saved:
        if callable(getattr(type(owner), str(name), None)):
            raise FormError(f"{place} has an entry {name}, which is a method")


def _require(holds: bool, place: str, found: Any, allowed: str) -> None:
    if not holds:
        shown = f"a {type(found).__name__}" if isinstance(found, Tensor | Mapping | list | tuple) else str(found)
        raise FormError(f"{place} is {shown[:80]}, and must be {allowed}")
