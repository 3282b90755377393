"""The words of scenes: attributes, concepts, relations, operators of programs, answers.

They come from CLEVR (Johnson et al., CVPR 2017, arXiv:1612.06890). A program computes sets of objects on a stack
that has room for two of them. "What shape is the red thing left of the sphere" has the program

    scene filter(sphere) relate(left) filter(red) query(shape)

which is query(shape, filter(red, relate(left, filter(sphere, scene)))) in the notation of Mao et al. (ICLR 2019). The
operator `unique` of CLEVR is left out: relate, same, query and equal take the one object that a set has.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "shape": ("cube", "sphere", "cylinder"),
    "color": ("gray", "red", "blue", "green", "brown", "purple", "cyan", "yellow"),
    "size": ("small", "large"),
    "material": ("rubber", "metal"),
}
CONCEPTS = tuple(concept for concepts in ATTRIBUTES.values() for concept in concepts)
RELATIONS = ("left", "right", "behind", "front")
MAX_OBJECTS = 10

# Arguments of operators; number 0 is not an argument.
ARGUMENTS = ("", *CONCEPTS, *RELATIONS, *ATTRIBUTES)
ARGUMENT_IDS = {name: number for number, name in enumerate(ARGUMENTS)}
FIRST_CONCEPT, FIRST_RELATION, FIRST_ATTRIBUTE = 1, 1 + len(CONCEPTS), 1 + len(CONCEPTS) + len(RELATIONS)
KINDS = {"": (), "concept": CONCEPTS, "relation": RELATIONS, "attribute": tuple(ATTRIBUTES)}

ANSWERS = ("yes", "no", *map(str, range(MAX_OBJECTS + 1)), *CONCEPTS)
ANSWER_IDS = {answer: number for number, answer in enumerate(ANSWERS)}
YES, NO, FIRST_COUNT, FIRST_VALUE = 0, 1, 2, 2 + MAX_OBJECTS + 1


class Operator(NamedTuple):
    """An operator of programs.

    Attributes:
        name: name of the operator.
        argument: kind of its argument: concept, relation, attribute, or "" for none.
        takes: number of sets that it takes from the stack.
        type: type of the question that the operator answers at the end of a program; "" if it leaves a set on the
            stack.
    """

    name: str
    argument: str
    takes: int
    type: str = ""


OPERATORS = (
    Operator("", "", 0),  # after the end of a program
    Operator("scene", "", 0),
    Operator("filter", "concept", 1),
    Operator("relate", "relation", 1),
    Operator("same", "attribute", 1),
    Operator("intersect", "", 2),
    Operator("union", "", 2),
    Operator("exist", "", 1, "exist"),
    Operator("count", "", 1, "count"),
    Operator("query", "attribute", 1, "query"),
    Operator("equal", "attribute", 2, "compare_attribute"),
    Operator("equal_number", "", 2, "compare_number"),
    Operator("fewer", "", 2, "compare_number"),
    Operator("more", "", 2, "compare_number"),
)
OPERATOR_IDS = {operator.name: number for number, operator in enumerate(OPERATORS)}
TYPES = ("exist", "count", "query", "compare_number", "compare_attribute")

# Words that name an argument, in the singular and the plural.
SYNONYMS = {
    "cube": ("cube", "block"),
    "sphere": ("sphere", "ball"),
    "cylinder": ("cylinder",),
    "small": ("small", "tiny"),
    "large": ("large", "big"),
    "rubber": ("rubber", "matte"),
    "metal": ("metal", "metallic", "shiny"),
    "size": ("size", "how-big"),
    "material": ("material", "made"),
}
NOUNS = ("thing", "object")


class Step(NamedTuple):
    """A step of a program: an operator and its argument, "" for none."""

    operator: str
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.operator}({self.argument})" if self.argument else self.operator


class QuestionVocabulary:
    """The words of questions, and which of them name a concept, a relation or an attribute.

    Args:
        words: the words. Other words have the number of `UNKNOWN`; number 0 is padding.

    Attributes:
        words: all words by their numbers.
        arguments: (V,) for each word the number of the argument that it names; 0: none.
    """

    UNKNOWN = "<unknown>"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = ("", self.UNKNOWN, *sorted(set(words)))
        self._numbers = {word: number for number, word in enumerate(self.words)}
        self.arguments = np.array([named_argument(word) for word in self.words])

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: Sequence[str]) -> list[int]:
        """Return the numbers of words."""
        return [self._numbers.get(word, 1) for word in words]

    def decode(self, numbers: Sequence[int]) -> list[str]:
        """Return the words of numbers, without padding."""
        return [self.words[number] for number in numbers if number]


def split_words(question: str) -> list[str]:
    """Return the words of a question, in lower case. "how big" is one word, because "big" also names a concept."""
    cleaned = "".join(" " if sign in "?.,;!" else sign for sign in question.lower())
    return " ".join(cleaned.split()).replace("how big", "how-big").split()


def named_argument(word: str) -> int:
    """Return the number of the argument that a word names; 0: none."""
    return _NAMED.get(word, 0)


def nested(program: Sequence[Step]) -> str:
    """Return a program in the notation of functions, such as count(filter(red, scene))."""
    stack: list[str] = []
    for step in program:
        takes = OPERATORS[OPERATOR_IDS[step.operator]].takes
        arguments = [step.argument] if step.argument else []
        taken = [stack.pop() for _ in range(min(takes, len(stack)))]
        inside = ", ".join(arguments + taken[::-1])
        stack.append(f"{step.operator}({inside})" if inside else step.operator)
    return " ".join(stack)


def encode_program(program: Sequence[Step]) -> tuple[list[int], list[int]]:
    """Return the numbers of the operators of a program, and of their arguments."""
    return [OPERATOR_IDS[step.operator] for step in program], [ARGUMENT_IDS[step.argument] for step in program]


def decode_program(operators: Sequence[int], arguments: Sequence[int]) -> list[Step]:
    """Return the program with the given numbers, up to its end."""
    pairs = zip(operators, arguments, strict=True)
    return [Step(OPERATORS[operator].name, ARGUMENTS[argument]) for operator, argument in pairs if operator]


def _named() -> dict[str, int]:
    found = {}
    for name in ARGUMENTS[1:]:
        for word in SYNONYMS.get(name, (name,)):
            found[word] = ARGUMENT_IDS[name]
            if name in ATTRIBUTES["shape"]:
                found[f"{word}s"] = ARGUMENT_IDS[name]
    return {**found, "grey": ARGUMENT_IDS["gray"]}


_NAMED = _named()
