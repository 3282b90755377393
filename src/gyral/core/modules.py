"""Modules that can be called like functions."""

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def make_callable(name: str, function: Callable[..., Any]) -> None:
    """Make a call of a module a call of a function, for a public function that has the name of a module.

    Importing `gyral.runs.directory` sets `gyral.runs` to the module, so that a function of this name would be lost.

    Args:
        name: full name of the module, which is being imported.
        function: the function.
    """

    class CallableModule(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return function(*arguments, **options)

    module = sys.modules[name]
    module.__class__ = CallableModule
    module.__dict__["__signature__"] = inspect.signature(function)  # for help() and editors
