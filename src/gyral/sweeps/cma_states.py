"""States of Optuna's CMA-ES sampler as JSON. Imports Optuna only if it is called.

Optuna keeps the optimizer of this sampler as a pickle in the study, and unpickles it for each trial. A study may come
from somebody else, and a pickle executes what its author wants.
"""

import json
from typing import Any

import numpy as np

NUMBERS = "biuf"  # kinds of arrays: booleans and numbers


def use_json() -> None:
    """Let the sampler write its optimizers as JSON, and read only what it has written so.

    Without an optimizer that it can read, as in studies of earlier versions, it begins a new one.
    """
    from optuna.samplers import _cmaes

    vars(_cmaes)["pickle"] = States


class States:
    """Takes the place of the module `pickle`."""

    @staticmethod
    def dumps(optimizer: Any) -> bytes:
        """Return an optimizer of the package cmaes as JSON."""
        return json.dumps(_encode(optimizer)).encode()

    @staticmethod
    def loads(content: bytes) -> Any:
        """Return the optimizer that `dumps` has written, or None for other content."""
        try:
            found = json.loads(content)
            return _decode(found) if "class" in found else None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None


def _encode(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return {"array": value.ravel().tolist(), "dtype": str(value.dtype), "shape": value.shape}
    if value is None or isinstance(value, bool | int | float):
        return value
    state = value.__reduce_ex__(4)[2]  # as pickle asks for it
    return {"class": type(value).__name__, "state": {name: _encode(each) for name, each in state.items()}}


def _decode(content: Any) -> Any:
    import cmaes  # type: ignore[import-untyped]

    if not isinstance(content, dict):
        return content
    if "array" in content:
        kind = np.dtype(content["dtype"])
        if kind.kind not in NUMBERS:
            raise ValueError(f"an array of {kind}")
        return np.array(content["array"], dtype=kind).reshape(content["shape"])
    optimizer = object.__new__({"CMA": cmaes.CMA, "SepCMA": cmaes.SepCMA, "CMAwM": cmaes.CMAwM}[content["class"]])
    state = {name: _decode(each) for name, each in content["state"].items()}
    restore = getattr(optimizer, "__setstate__", vars(optimizer).update)
    restore(state)
    return optimizer
