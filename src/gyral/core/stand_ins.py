"""Stand-ins for modules that a package imports and most programs never use."""

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

Function = Callable[..., Any]
MakeStandIn = Callable[[str, str], Any]  # from the names of a module and of what it defines


class StandInModule(ModuleType):
    """A stand-in for a module; once it is not in the place of the module, it has the definitions of the module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or sys.modules.get(self.__name__) is self:
            raise AttributeError(f"{self.__name__} has no {name} here")
        return getattr(import_module(self.__name__), name)


class StandIn(type):
    """The type of a stand-in for a class or function of a module, which it imports when it is called.

    The instances of the stand-in are those of the class, of which there are none before the module is imported.
    """

    place: tuple[str, str]  # the module and the name

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        module, name = cls.place
        return getattr(import_module(module), name)(*arguments, **options)

    def __instancecheck__(cls, instance: Any) -> bool:
        module, name = cls.place
        return isinstance(instance, getattr(sys.modules.get(module), name, ()))


def definition(module: str, name: str) -> StandIn:
    """Return a stand-in for a class or function."""
    return StandIn(name, (), {"place": (module, name)})


def decorator(module: str, name: str) -> Function:
    """Return a stand-in for a decorator, which takes effect when something else has imported its module."""

    def decorate(function: Function | None = None, *arguments: Any, **options: Any) -> Function:
        if function is None:
            return lambda function: decorate(function, *arguments, **options)
        return until_imported(
            module, function, lambda: getattr(sys.modules[module], name)(function, *arguments, **options)
        )

    return decorate


def decorator_factory(module: str, name: str) -> Function:
    """Return a stand-in for a function that returns a decorator, which takes effect when the decorated is called."""

    def make(*arguments: Any) -> Function:
        def decorate(function: Function) -> Function:
            @functools.wraps(function)
            def run(*given: Any, **options: Any) -> Any:
                return getattr(import_module(module), name)(*arguments)(function)(*given, **options)

            return run

        return decorate

    return make


def until_imported(module: str, plain: Function, make: Callable[[], Function]) -> Function:
    """Return a function that calls `plain` until something has imported a module, then the function from `make()`."""
    made: list[Function] = []

    @functools.wraps(plain)
    def run(*arguments: Any, **options: Any) -> Any:
        if module not in sys.modules:
            return plain(*arguments, **options)
        if not made:
            made.append(make())
        return made[0](*arguments, **options)

    return run


def import_without(packages: tuple[str, ...], names: Mapping[str, Mapping[str, MakeStandIn]]) -> None:
    """Import a package without modules that it imports but that a program may never use.

    Meanwhile stand-ins with the names that the package takes from these modules are in their place. If they do not
    suffice, as another version of the package may take more, all is imported as usual.

    Args:
        packages: the package, and those on which it depends that import these modules, too. If it has been imported
            already, nothing happens.
        names: the modules, parents first, with what makes the stand-ins for their names.
    """
    if packages[0] in sys.modules:
        return
    before = set(sys.modules)
    try:
        with _stand_ins(names):
            import_module(packages[0])
    except (ImportError, AttributeError, TypeError):
        for name in sys.modules.keys() - before:
            if name.partition(".")[0] in packages:
                del sys.modules[name]
        import_module(packages[0])


@contextmanager
def _stand_ins(names: Mapping[str, Mapping[str, MakeStandIn]]) -> Iterator[None]:
    """Have stand-ins in the place of modules that are installed and have not been imported."""
    made: dict[str, StandInModule] = {}
    try:
        for module, makers in names.items():
            parent, _, own = module.rpartition(".")
            spec = None if parent else find_spec(module)
            if module in sys.modules or (parent in names and parent not in made) or not (parent or spec):
                continue
            made[module] = sys.modules[module] = StandInModule(module)
            made[module].__spec__ = spec  # packages are found by it
            vars(made[module]).update((name, make(module, name)) for name, make in makers.items())
            if parent in made:
                setattr(made[parent], own, made[module])
        yield
    finally:
        for module, stand_in in made.items():
            if sys.modules.get(module) is stand_in:
                del sys.modules[module]
