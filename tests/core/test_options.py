"""Options as annotated attributes: the constructor, ranges, other defaults in subclasses, constructors of one's own."""

import inspect
from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar

import pytest
from torch import nn

from gyral.core.errors import OptionError
from gyral.core.options import Increasing, NonNegativeInt, OneOf, Options, PositiveInt, Range
from gyral.core.signatures import parameters_of
from gyral.tasks.copy import CopyData


class Sized(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.made = size < 0


class Base(Options, Sized):
    kind: ClassVar[str] = "base"
    size: PositiveInt = field(kw_only=False)
    rows: NonNegativeInt = 4
    share: Annotated[float, Range(above=0, below=1)] | None = None
    weight: nn.Parameter = field(init=False)
    kept: bool = field(init=False, default=True)

    def check(self) -> None:
        if self.rows > self.size:
            raise OptionError("rows", self.rows, f"must be at most size, {self.size}")


class Derived(Base):
    form: Annotated[str, OneOf(("line", "circle"))] = "line"
    factors: Annotated[Sequence[int], Increasing(2)] = (2, 3)
    rows = 1
    is_new: bool = False

    def __post_init__(self) -> None:
        self.made = True
        self.layer = nn.Linear(self.size, self.rows)


class Written(Derived):
    def __init__(self, size: int, *, rows: int = 2) -> None:
        super().__init__(size, rows=rows, form="circle")


def test_options_of_a_class_stand_before_those_of_its_base_which_may_have_other_defaults() -> None:
    defaults = {name: one.default for name, one in inspect.signature(Derived).parameters.items()}
    empty = inspect.Parameter.empty
    assert list(defaults.items()) == [
        ("size", empty),
        ("form", "line"),
        ("factors", (2, 3)),
        ("is_new", False),
        ("rows", 1),
        ("share", None),
    ]
    made = Derived(3, share=0.5)
    assert (made.size, made.rows, made.factors, made.share, made.form) == (3, 1, [2, 3], 0.5, "line")
    assert (made.made, Base(9).made, Base(9).kept, made.layer.in_features) == (True, False, True, 3)
    assert not hasattr(Base(9), "weight")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows": -1}, "rows=-1: must be an integer ≥ 0"),
        ({"rows": None}, "rows=None: must be an integer ≥ 0"),
        ({"rows": 6}, "rows=6: must be at most size, 5"),
        ({"share": 1}, "share=1: must be a finite number > 0 and < 1"),
        ({"form": "square"}, "form=square: must be one of line, circle"),
        ({"factors": [1]}, "factors=[1]: must be increasing integers ≥ 2, such as [3, 5]"),
        ({"is_new": 1}, "is_new=1: must be true or false"),
    ],
)
def test_values_are_checked_with_and_without_building(options: dict[str, Any], said: str) -> None:
    for check in (Derived, Derived.check_options):
        with pytest.raises(OptionError) as raised:
            check(**{"size": 5, **options})
        assert str(raised.value) == said
    Derived.check_options(size=5, share=None)


@pytest.mark.parametrize("arguments", [((), {}), ((1, 2), {}), ((1,), {"size": 1}), ((1,), {"lines": 1})])
def test_other_arguments_are_errors_of_the_constructor(arguments: Any) -> None:
    with pytest.raises(TypeError, match=r"^Derived\.__init__\(\) "):
        Derived(*arguments[0], **arguments[1])


def test_a_class_may_have_a_constructor_of_its_own() -> None:
    class Further(Written):
        pass

    for each in (Written, Further):
        assert list(inspect.signature(each).parameters) == list(parameters_of(each) or {}) == ["size", "rows"]
        assert (each(5).rows, each(5).form, each(5).made) == (2, "circle", True)


def test_annotations_may_be_texts_and_instances_are_called_as_before() -> None:
    class Text(Derived):
        steps: "PositiveInt" = 2
        of_class: "ClassVar[int]" = 3

        def forward(self, inputs: Any) -> Any:
            return inputs

    with pytest.raises(OptionError, match=r"^steps=0: must be an integer ≥ 1"):
        Text(3, steps=0)
    assert next(iter(inspect.signature(Text).parameters)) == "size"
    assert "of_class" not in inspect.signature(Text).parameters
    assert "size" not in inspect.signature(Text(3)).parameters


def test_parameters_of_data_have_their_ranges() -> None:
    parameters = parameters_of(CopyData) or {}
    assert list(parameters)[:3] == ["delay", "symbols", "recalled"]
    assert parameters["symbols"].annotation.__metadata__ == (Range(2, 200),)
