"""Objects from configuration sections. Every error about an option names the option by its whole key."""

import math
import re
from functools import partial
from inspect import Parameter, signature
from typing import Any

from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from gyral.core.errors import OptionError, UserError

REFUSALS = (ValueError, TypeError, MisconfigurationException)  # what constructors raise for an argument


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
            message = " ".join(str(error).split())
            refused = self._find_refused_option(arguments, named)
            if refused is None:
                raise UserError(f"{self.key}: {message}") from error
            raise LocatedError(f"{self.key}.{refused}", self.keywords[refused], message) from error

    def _find_refused_option(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> str | None:
        """Return the option that makes the call fail: with its default instead, the call succeeds.

        Only the constructors of other packages are called again: Gyral's own name the option, and may read a corpus.
        """
        if self.func.__module__.startswith("gyral."):
            return None
        for name, parameter in signature(self.func).parameters.items():
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
    if not node:
        return None
    check_section(node, key)
    factory = _build_factory(node, key)
    try:
        return factory if node.get("_partial_") else factory(**arguments)
    except LocatedError:
        raise
    except OptionError as error:
        raise LocatedError.of(error, _find_section(node, key, error)) from error


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
    parameters = _parameters(node["_target_"], f"{key}._target_")
    is_open = not parameters or any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    values = OmegaConf.to_container(node, resolve=True)
    assert isinstance(values, dict)
    for name, value in ((str(name), value) for name, value in values.items() if not str(name).startswith("_")):
        if not is_open and name not in parameters:
            raise LocatedError(f"{key}.{name}", value, f"no such option; allowed: {', '.join(parameters)}")
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


def _parameters(target: str, option: str) -> dict[str, Parameter]:
    """Return the parameters of a target, with text as hints that cannot be evaluated; none if they cannot be read."""
    try:
        function = get_object(target)
    except (ImportError, ValueError) as error:
        raise LocatedError(option, target, f"cannot be imported: {error.__cause__ or error}") from error
    for evaluated in (True, False):
        try:
            return dict(signature(function, eval_str=evaluated).parameters)
        except (NameError, TypeError, ValueError):
            continue
    return {}


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


def _find_section(node: DictConfig, key: str, error: OptionError) -> str:
    """Return the key of the section that an option error is about: `key` or a section in it.

    If several have the option, it is the first that has it with this value.
    """
    sections, owners = [(node, key)], {}
    for section, where in sections:
        found = OmegaConf.select(section, error.option, default=section)
        if not _is_section(found):  # `cell` is a section of a model, and may be an option in it
            owners[where] = str(found) == str(error.value)
        sections += [(section[name], f"{where}.{name}") for name in map(str, section) if _is_section(section[name])]
    return max(owners, key=owners.__getitem__, default=key)


def _is_section(value: Any) -> bool:
    return isinstance(value, DictConfig) and "_target_" in value
