"""Families of checks in one case of a test: a case each would cost more than many a check itself."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch


def for_each(name: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with each value of an argument, as `pytest.mark.parametrize` does, but in one case.

    Each call begins with the same random numbers, and undoes its own changes by `monkeypatch`. A failure names the
    value.
    """
    listed = list(values)
    assert listed, f"there are no values of {name}"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**given: Any) -> None:
            for value in listed:
                torch.default_generator.manual_seed(0)
                with pytest.MonkeyPatch.context() as patch:
                    if "monkeypatch" in given:
                        given["monkeypatch"] = patch
                    try:
                        test(**given, **{name: value})
                    except Exception as error:
                        error.add_note(f"with {name}={value}")
                        raise

        others = [parameter for parameter in signature.parameters.values() if parameter.name != name]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate
