"""Options of a class as annotated attributes, as in a dataclass: name, type, range and default in one line."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field
from functools import cache, partial
from inspect import Parameter, Signature, get_annotations
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Union, dataclass_transform, get_args, get_origin

from gyral.core.checks import check_boolean, check_choice, check_integer, check_integers, check_real

Check = Callable[[str, Any], Any]  # returns the value of an option of this name, or raises `OptionError`


@dataclass(frozen=True)
class Range:
    """The range of a number: `Annotated[int, Range(2, 200)]`, or `Annotated[float, Range(above=0)]`."""

    minimum: float = -math.inf
    maximum: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def check(self, kind: type) -> Check:
        if kind is int:
            maximum = None if self.maximum == math.inf else int(self.maximum)
            return partial(check_integer, minimum=int(self.minimum), maximum=maximum)
        return partial(check_real, **vars(self))


@dataclass(frozen=True)
class Increasing:
    """The range of increasing integers; `count` is 2 for a range, whose ends may be equal."""

    minimum: int = 1
    count: int | None = None

    def check(self, kind: type) -> Check:
        return partial(check_integers, **vars(self))


@dataclass(frozen=True, eq=False)  # with the keys of a dictionary, it could not be hashed
class OneOf:
    """The values that a text may have: `Annotated[str, OneOf(("zeros", "random"))]`."""

    choices: Collection[str]

    def check(self, kind: type) -> Check:
        return partial(check_choice, choices=tuple(self.choices))


RANGES = (Range, Increasing, OneOf)
PositiveInt = Annotated[int, Range(1)]
NonNegativeInt = Annotated[int, Range(0)]
PositiveFloat = Annotated[float, Range(above=0)]
FiniteFloat = Annotated[float, Range()]
Probability = Annotated[float, Range(0, below=1)]


def derived(*, default: None) -> Any:
    """Return the default of an option that `__post_init__` sets if it is None: the attribute itself is never None."""
    return field(default=default)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field, derived))
class Options:
    """Base class of classes whose annotated attributes are the keyword arguments of their constructor.

        class CopyData(GeneratedData):
            delay: PositiveInt = 10
            symbols: Annotated[int, Range(2, 200)] = 8
            train_size = 50_000

    `train_size` is an option of the base class, with another default here. As in a dataclass, `ClassVar` is not an
    option, `field(kw_only=False)` is positional, and an attribute with `field(init=False)` is set later. A class may
    define `__init__` instead; the arguments are then the options.

    The constructor checks each value against the annotation, calls the next constructor with the positional options,
    sets the options as attributes, and calls `check` and then `__post_init__`.

    Raises:
        OptionError: a value is out of the range that its annotation has, or has another type.
    """

    __options__: ClassVar[Mapping[str, Parameter]] = {}
    __signature__: ClassVar[Any] = None  # of the constructor, for `inspect.signature`
    __positional__: ClassVar[Sequence[str]] = ()
    __defaults__: ClassVar[Mapping[str, Any]] = {}
    __checks__: ClassVar[Mapping[str, tuple[bool, Sequence[Check]]]] = {}  # by name; whether None passes

    def __init_subclass__(cls, **further: Any) -> None:
        inherited: dict[str, Parameter] = {}
        checks: dict[str, tuple[bool, Sequence[Check]]] = {}
        for base in reversed(cls.__bases__):
            if issubclass(base, Options):
                inherited |= base.__options__
                checks |= base.__checks__
        own = _own_options(cls, inherited)
        new = {name: one for name, one in own.items() if name not in inherited}
        found = sorted({**new, **inherited, **own}.values(), key=attrgetter("kind"))  # positional ones first
        cls.__options__ = {one.name: one for one in found}
        cls.__positional__ = [one.name for one in found if one.kind is one.POSITIONAL_OR_KEYWORD]
        cls.__defaults__ = {one.name: one.default for one in found if one.default is not one.empty}
        checks |= {name: checks_of(one.annotation) for name, one in own.items()}
        cls.__checks__ = {one.name: checks[one.name] for one in found}
        constructor = next(owner for owner in cls.__mro__ if "__init__" in vars(owner))
        cls.__signature__ = _OfClass(Signature(found) if constructor is Options else None)
        super().__init_subclass__(**further)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        values = self._checked(arguments, options)
        super().__init__(*map(values.__getitem__, self.__positional__))
        for name, value in values.items():
            setattr(self, name, value)
        self.check()
        self.__post_init__()

    def check(self) -> None:
        """Raise `OptionError` unless the options fit together. This method reads no other attributes."""

    def __post_init__(self) -> None:
        """Set the attributes that follow from the options."""

    @classmethod
    def check_options(cls, *arguments: Any, **options: Any) -> None:
        """Raise `OptionError` if the class refuses the options; nothing is built from them."""
        unbuilt = cls.__new__(cls)
        for name, value in cls._checked(arguments, options).items():
            setattr(unbuilt, name, value)
        unbuilt.check()

    @classmethod
    def _checked(cls, arguments: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all options, each within its range."""
        known = cls.__options__
        named = {**dict(zip(cls.__positional__, arguments, strict=False)), **options}
        values = {**cls.__defaults__, **named}
        if len(named) < len(arguments) + len(options) or values.keys() != known.keys():
            try:
                Signature(list(known.values())).bind(*arguments, **options)  # raises the usual error
            except TypeError as error:
                raise TypeError(f"{cls.__name__}.__init__() {error}") from None
        for name, (allows_none, checks) in cls.__checks__.items():
            if values[name] is not None or not allows_none:
                for check in checks:
                    values[name] = check(name, values[name])
        return values


def declares_options(target: Any) -> bool:
    """Return whether something is a class whose constructor has annotated attributes as its arguments."""
    return getattr(target, "__init__", None) is Options.__init__


@dataclass
class _OfClass:
    """The value of an attribute that a class has and its instances do not have: calling them is something else."""

    value: Any

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self.value
        raise AttributeError


def kinds_of(annotation: Any) -> dict[Any, tuple[Any, ...]]:
    """Return the types that an annotation allows, with their ranges: {int: (Range(1),), NoneType: ()}."""
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return {
        get_args(each)[0] if hasattr(each, "__metadata__") else each: getattr(each, "__metadata__", ())
        for each in parts
    }


@cache  # most options share a few annotations
def checks_of(annotation: Any) -> tuple[bool, Sequence[Check]]:
    """Return whether an annotation allows None, and the checks of other values."""
    kinds = {annotation: ()} if isinstance(annotation, type) else kinds_of(annotation)
    checks = [each.check(kind) for kind, ranges in kinds.items() for each in ranges if isinstance(each, RANGES)]
    if bool in kinds and kinds.keys() <= {bool, NoneType}:
        checks.append(check_boolean)
    return NoneType in kinds, checks


def _own_options(cls: type[Options], inherited: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return the options that a class itself has, and those of its base classes to which it gives another default."""
    found = {}
    annotations = get_annotations(cls)
    with suppress(NameError):  # of a name that only type checkers import
        annotations = get_annotations(cls, eval_str=True)
    for name, value in list(vars(cls).items()):
        annotation = annotations.get(name, inherited[name].annotation if name in inherited else ClassVar)
        if ClassVar in (annotation, get_origin(annotation)) or str(annotation).startswith("ClassVar"):
            continue
        if not isinstance(value, Field):
            kind = inherited[name].kind if name in inherited else Parameter.KEYWORD_ONLY
            found[name] = Parameter(name, kind, default=value, annotation=annotation)
            continue
        if value.default is MISSING or value.init:  # a class attribute would hide a module or parameter of this name
            delattr(cls, name)
        else:
            setattr(cls, name, value.default)
        if value.init:
            kind = Parameter.POSITIONAL_OR_KEYWORD if value.kw_only is False else Parameter.KEYWORD_ONLY
            default = Parameter.empty if value.default is MISSING else value.default
            annotation = annotation | None if default is None else annotation
            found[name] = Parameter(name, kind, default=default, annotation=annotation)
    return found
