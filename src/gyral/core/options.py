"""Options of a class as annotated attributes, as in a dataclass: name, type, range and default in one line."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field
from inspect import Parameter, Signature
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Union, dataclass_transform, get_args, get_origin

from gyral.core.checks import check_boolean, check_choice, check_integer, check_integers, check_real


@dataclass(frozen=True)
class Range:
    """The range of a number: `Annotated[int, Range(2, 200)]`, or `Annotated[float, Range(above=0)]`."""

    minimum: float = -math.inf
    maximum: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def check(self, name: str, value: Any, kind: Any) -> float:
        if kind is int:
            return check_integer(
                name, value, int(self.minimum), None if self.maximum == math.inf else int(self.maximum)
            )
        return check_real(name, value, **vars(self))


@dataclass(frozen=True)
class Increasing:
    """The range of increasing integers; `count` is 2 for a range, whose ends may be equal."""

    minimum: int = 1
    count: int | None = None

    def check(self, name: str, value: Any, kind: Any) -> list[int]:
        return check_integers(name, value, self.minimum, self.count)


@dataclass(frozen=True, eq=False)  # with the keys of a dictionary, it could not be hashed
class OneOf:
    """The values that a text may have: `Annotated[str, OneOf(("zeros", "random"))]`."""

    choices: Collection[str]

    def check(self, name: str, value: Any, kind: Any) -> str:
        return check_choice(name, value, tuple(self.choices))


PositiveInt = Annotated[int, Range(1)]
NonNegativeInt = Annotated[int, Range(0)]
Probability = Annotated[float, Range(0, below=1)]


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class Options:
    """Base class of classes whose annotated attributes are the keyword arguments of their constructor.

        class CopyData(GeneratedData):
            delay: PositiveInt = 10
            symbols: Annotated[int, Range(2, 200)] = 8
            train_size = 50_000

    `train_size` is an option of the base class, with another default here. As in a dataclass, `ClassVar` is no option,
    `field(kw_only=False)` is positional, and an attribute with `field(init=False)` is set later. A class may have a
    constructor of its own instead; its arguments are then the options.

    The constructor checks each value against the annotation, sets it as an attribute, and calls `check` and then
    `__post_init__`.

    Raises:
        OptionError: a value is out of the range that its annotation has, or has another type.
    """

    options: ClassVar[Mapping[str, Parameter]] = {}
    __signature__: ClassVar[Signature | None] = Signature()

    def __init_subclass__(cls, **further: Any) -> None:
        super().__init_subclass__(**further)
        inherited: dict[str, Parameter] = {}
        for base in reversed(cls.__bases__):
            inherited |= base.options if issubclass(base, Options) else {}
        own = _own_options(cls, inherited)
        new = {name: one for name, one in own.items() if name not in inherited}
        found = sorted({**new, **inherited, **own}.values(), key=lambda one: one.kind)  # positional ones first
        cls.options = {one.name: one for one in found}
        constructor = next(owner for owner in cls.__mro__ if "__init__" in vars(owner))
        signature = Signature(found)
        cls.__signature__ = signature if constructor is Options else None  # None: that of the constructor

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self._set_options(arguments, options)
        self.__post_init__()

    def check(self) -> None:
        """Raise `OptionError` unless the options fit together. It is called before any other attribute is set."""

    def __post_init__(self) -> None:
        """Set the attributes that follow from the options."""

    @classmethod
    def check_options(cls, **options: Any) -> None:
        """Raise `OptionError` if the class refuses the options; nothing is built from them."""
        cls.__new__(cls)._set_options((), options)

    def _set_options(self, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
        known = type(self).options
        try:
            bound = Signature(list(known.values())).bind(*arguments, **options)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}.__init__() {error}") from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            setattr(self, name, check_value(name, value, known[name].annotation))
        self.check()


def check_value(name: str, value: Any, annotation: Any) -> Any:
    """Return the value of an option if it is within the range of an annotation, such as `PositiveInt | None`.

    Raises:
        OptionError: it is not.
    """
    kinds = kinds_of(annotation)
    if value is None and NoneType in kinds:
        return None
    if set(kinds) <= {bool, NoneType}:
        return check_boolean(name, value)
    for kind, ranges in kinds.items():
        for each in ranges:
            value = each.check(name, value, kind)
    return value


def kinds_of(annotation: Any) -> dict[Any, tuple[Any, ...]]:
    """Return the types that an annotation allows, with their ranges: {int: (Range(1),), NoneType: ()}."""
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return {
        get_args(each)[0] if hasattr(each, "__metadata__") else each: getattr(each, "__metadata__", ())
        for each in parts
    }


def _own_options(cls: type[Options], inherited: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return the options that a class itself has, and those of its base classes to which it gives another default."""
    found = {}
    annotations = vars(cls).get("__annotations__", {})
    for name, value in list(vars(cls).items()):
        annotation = annotations.get(name, inherited[name].annotation if name in inherited else ClassVar)
        if ClassVar in (annotation, get_origin(annotation)) or str(annotation).startswith("ClassVar"):
            continue
        if not isinstance(value, Field):
            kind = inherited[name].kind if name in inherited else Parameter.KEYWORD_ONLY
            found[name] = Parameter(name, kind, default=value, annotation=annotation)
            continue
        if value.default is MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, value.default)
        if value.init:
            default = Parameter.empty if value.default is MISSING else value.default
            found[name] = Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)
    return found
