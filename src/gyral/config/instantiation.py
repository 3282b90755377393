"""Objects from configuration sections. Every error about an option names the option by its whole key."""

import math
import re
from functools import partial
from inspect import Parameter, isclass, signature
from typing import Any

from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from gyral.config.errors import allocation
from gyral.config.trust import known_names
from gyral.core.errors import OptionError, UserError, suggest_name
from gyral.core.memory import is_out_of_memory

# What constructors raise for an argument.
COMMON_REFUSALS = (ValueError, TypeError, MisconfigurationException)
REFUSALS = (*COMMON_REFUSALS, ArithmeticError, LookupError, AttributeError, RuntimeError, AssertionError, MemoryError)
ONE = ("task", "model", "optimizer", "trainer")  # sections that a configuration must have
OPTIONAL, SEVERAL = "scheduler", ("callbacks", "logger")  # one that it may have, and those that hold sections


ANY = Parameter("options", Parameter.VAR_KEYWORD)


class LocatedError(OptionError):
    """An option error whose option is the whole key."""

    @classmethod
    def of(cls, error: OptionError, section: str) -> "LocatedError":
        """Return the same error with the option in a section."""
        return cls(f"{section}.{error.option}", error.value, error.reason)


class Factory(partial[Any]):
    """The target of a configuration section with its options; errors of a call name the option by its whole key.

    Attributes:
        key: key of the section.
    """

    key: str

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        try:
            return super().__call__(*arguments, **named)
        except LocatedError:
            raise
        except OptionError as error:
            if str(self.keywords.get(error.option, self)) != str(error.value):
                raise  # the option of an enclosing section
            raise LocatedError.of(error, self.key) from error
        except UserError:
            raise
        except REFUSALS as error:
            if is_out_of_memory(error):
                raise self._out_of_memory(error) from error
            message = " ".join(str(error).split()) or type(error).__name__
            if not isinstance(error, COMMON_REFUSALS):
                message = f"{type(error).__name__}: {message}"
            refused = self._find_refused_option(arguments, named)
            if refused is None:
                raise UserError(f"{self.key}: {message}") from error
            raise LocatedError(f"{self.key}.{refused}", self.keywords[refused], message) from error

    def _out_of_memory(self, error: Exception) -> UserError:
        """Return the error for a call that needs too much memory; it names the option with the largest value."""
        numbers = {name: value for name, value in self.keywords.items() if type(value) in (int, float)}
        if not numbers:
            return UserError(f"{self.key}: out of memory: {allocation(error)}")
        largest = max(numbers, key=numbers.__getitem__)
        return LocatedError(f"{self.key}.{largest}", numbers[largest], f"out of memory: {allocation(error)}")

    def _find_refused_option(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> str | None:
        """Return the option that makes the call fail: with its default instead, the call succeeds.

        Only the constructors of other packages are called again: Gyral's own name the option, and may read a corpus.
        """
        if str(getattr(self.func, "__module__", None)).startswith("gyral."):
            return None
        for name, parameter in (parameters_of(self.func) or {}).items():
            if name in self.keywords and parameter.default is not Parameter.empty:
                others = {key: value for key, value in self.keywords.items() if key != name}
                try:
                    self.func(*arguments, **{**others, **named})
                except REFUSALS:
                    continue
                return name
        return None


def make(config: DictConfig, key: str, **arguments: Any) -> Any:
    """Return the object that the section `key` describes, a `Factory` if it is partial, or None if it is empty.

    Args:
        config: the whole configuration.
        key: key of the section.
        **arguments: further arguments of the target.

    Raises:
        OptionError: an option that is unknown, of the wrong type, or refused by the target.
    """
    node = OmegaConf.select(config, key)
    if node is None or (OmegaConf.is_dict(node) and not node):
        return None
    check_target(node, key)
    check_section(node, key)
    factory = _build_factory(node, key)
    try:
        return factory if node.get("_partial_") else factory(**arguments)
    except LocatedError:
        raise
    except OptionError as error:
        raise LocatedError.of(error, _find_section(config, key, error)) from error


def check_sections(config: DictConfig) -> None:
    """Check that the sections of a configuration are there and that each names its class or function.

    Raises:
        OptionError: a section is missing or is a value.
    """
    for key in (*ONE, OPTIONAL, *SEVERAL):
        node = config.get(key)
        if key in ONE and not node:
            raise LocatedError(key, "null", f"must be a section; choose one by {key}=<name>")
        if key in ONE or (key == OPTIONAL and node):
            check_target(node, key)
        elif key in SEVERAL and not (node is None or isinstance(node, DictConfig)):
            raise LocatedError(key, node, f"must hold sections; choose some by {key}=<name>")
        elif key in SEVERAL:
            for name in map(str, node or ()):
                check_target(node[name], f"{key}.{name}")


def check_target(node: Any, key: str) -> None:
    """Check that a value is a section that names its class or function.

    Raises:
        OptionError: it is not.
    """
    if not isinstance(node, DictConfig):
        removed = f"; write ~{key} to leave it out" if "." in key else ""
        raise LocatedError(key, "null" if node is None else node, f"must be a section{removed}")
    if "_target_" not in node:
        raise LocatedError(f"{key}._target_", "null", "must be the dotted name of a class or function")


def check_made(made: Any, base: type, config: DictConfig, key: str) -> None:
    """Raise `OptionError` if the object that a section describes is not of the type that its place needs."""
    if not isinstance(made, base):
        target = OmegaConf.select(config, f"{key}._target_")
        reason = f"must make a {base.__module__.partition('.')[0]} {base.__name__}, not a {type(made).__name__}"
        raise LocatedError(f"{key}._target_", target, reason)


def check_section(node: DictConfig, key: str) -> None:
    """Check the options of a section and of the sections in it against the signatures of their targets.

    Raises:
        OptionError: a target that cannot be imported, an option that it does not have, or a value of the wrong type.
    """
    for name in map(str, node):
        if isinstance(node[name], DictConfig):
            check_section(node[name], f"{key}.{name}")
    if "_target_" not in node:
        return
    parameters = parameters_of(_find_target(node["_target_"], f"{key}._target_"))
    parameters = {ANY.name: ANY} if parameters is None else parameters
    is_open = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    values = OmegaConf.to_container(node, resolve=True)
    assert isinstance(values, dict)
    for name, value in ((str(name), value) for name, value in values.items() if not str(name).startswith("_")):
        if not is_open and name not in parameters:
            hint = suggest_name(name, list(parameters))
            raise LocatedError(
                f"{key}.{name}", value, f"no such option; {hint}allowed: {', '.join(parameters) or 'none'}"
            )
        if not isinstance(value, dict):
            _check_value(f"{key}.{name}", value, parameters[name].annotation if name in parameters else Any)


def _check_value(option: str, value: Any, hint: Any) -> None:
    """Check the value of an option against the type hint of its parameter."""
    if isinstance(value, float) and not math.isfinite(value):
        raise LocatedError(option, value, "must be a finite number")
    if hint is Parameter.empty or isinstance(hint, str):
        return
    try:
        adapter = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:
        return  # not a type of plain values
    try:
        adapter.validate_python(value, strict=isinstance(value, bool | str))
    except ValidationError as error:
        reason = re.sub(r"^(Input|String) should|^Value error, must", "must", error.errors()[0]["msg"])
        raise LocatedError(option, value, reason) from None


def _find_target(target: Any, option: str) -> Any:
    """Return the class or function with a dotted name.

    Raises:
        OptionError: there is none.
    """
    if not isinstance(target, str) or not target:
        raise LocatedError(option, target, "must be the dotted name of a class or function")
    try:
        found = get_object(target)
    except Exception as error:  # a module may raise anything when it is imported
        hint = suggest_name(target, known_names())
        raise LocatedError(
            option, target, f"{hint}cannot be imported: {first_line(error.__cause__ or error)}"
        ) from error
    if not callable(found):
        raise LocatedError(option, target, "must be the dotted name of a class or function")
    return found


def parameters_of(function: Any) -> dict[str, Parameter] | None:
    """Return the parameters of a class or function, or None if they cannot be read.

    Hints that cannot be evaluated are text. If a class of Gyral passes further options to its base class, these are
    parameters, too.
    """
    if not (isclass(function) and function.__module__.startswith("gyral.")):
        return _signature(function)
    parameters: dict[str, Parameter] = {}
    for owner in function.__mro__:
        if "__init__" not in vars(owner) or owner is object:
            continue
        own = list((_signature(vars(owner)["__init__"]) or {}).values())[1:]  # without self
        for parameter in own:
            parameters.setdefault(parameter.name, parameter)
        rest = [parameter.name for parameter in own if parameter.kind is Parameter.VAR_KEYWORD]
        if not rest:
            return {name: each for name, each in parameters.items() if each.kind is not Parameter.VAR_KEYWORD}
    return parameters


def _signature(function: Any) -> dict[str, Parameter] | None:
    for evaluated in (True, False):
        try:
            return dict(signature(function, eval_str=evaluated).parameters)
        except (NameError, TypeError, ValueError):
            continue
    return None


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, or the name of its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _build_factory(node: DictConfig, key: str) -> Factory:
    """Return the target of a section with its options; the sections in it become arguments, objects or factories."""
    recursive = node.get("_recursive_", True)
    sections = {str(name): node[name] for name in node if recursive and _is_section(node[name])}
    built = {name: _build_factory(section, f"{key}.{name}") for name, section in sections.items()}
    plain = OmegaConf.masked_copy(node, [name for name in map(str, node) if name not in sections])
    plain._set_parent(node._get_parent())
    target = instantiate(plain, _partial_=True, _convert_="all")
    made = {name: factory if sections[name].get("_partial_") else factory() for name, factory in built.items()}
    result = Factory(target.func, *target.args, **target.keywords, **made)
    result.key = key
    return result


def _find_section(config: DictConfig, key: str, error: OptionError) -> str:
    """Return the key of the section that an option error is about: `key` or a section in it.

    If several have the option, it is the first that has it with this value. A task may also refuse an option of its
    model, such as the capacity of a memory.
    """
    owners: dict[str, bool] = {}
    for root in (key, "model") if key == "task" else (key,):
        owners = owners or _find_owners(OmegaConf.select(config, root), root, error)
    return max(owners, key=owners.__getitem__, default=key)


def _find_owners(node: DictConfig, key: str, error: OptionError) -> dict[str, bool]:
    """Return the sections that have the option of an error, `key` or sections in it, and whether with its value."""
    sections, owners = [(node, key)], {}
    for section, where in sections:
        found = OmegaConf.select(section, error.option, default=section)
        if not _is_section(found):  # `cell` is a section of a model, and may be an option in it
            owners[where] = str(found) == str(error.value)
        sections += [(section[name], f"{where}.{name}") for name in map(str, section) if _is_section(section[name])]
    return owners


def _is_section(value: Any) -> bool:
    return isinstance(value, DictConfig) and "_target_" in value
