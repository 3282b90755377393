"""Differentiable execution of programs on sets of objects (Mao et al., ICLR 2019, section 3.1 and appendix)."""

from typing import NamedTuple

import torch
from torch import Tensor

from gyral.applications.scenes.data.language import (
    ANSWERS,
    CONCEPTS,
    FIRST_ATTRIBUTE,
    FIRST_CONCEPT,
    FIRST_COUNT,
    FIRST_RELATION,
    FIRST_VALUE,
    NO,
    OPERATOR_IDS,
    RELATIONS,
    YES,
)
from gyral.applications.scenes.models.scene_concepts import Grounding
from gyral.ops.autograd import outside_autocast

SMALLEST = 1e-6  # added to probabilities before their logarithm


class Execution(NamedTuple):
    """The result of R programs.

    Attributes:
        log_probabilities: (R, answers). Answers that a program cannot give have the logarithm of `SMALLEST`.
        sets: the set on top of the stack after each step, (R, N) each.
    """

    log_probabilities: Tensor
    sets: list[Tensor]


def execute(operators: Tensor, arguments: Tensor, scenes: Tensor, grounding: Grounding) -> Execution:
    """Run all programs on scenes at once, step by step.

    A set of objects is a vector of the probabilities that each object is in it. `filter` and `intersect` take the
    minimum of two probabilities, `union` the maximum. If a program needs the only object of a set, object i has
    the probability p_i / (1 − p_i) / Σ_j p_j / (1 − p_j), the probability of i given that exactly one object is in the
    set. The number of objects in a set has the distribution of a sum of independent variables, which determines counts,
    `exist` and the comparisons of numbers.

    It differs from the authors' code (vacancy/NSCL-PyTorch-Release on GitHub, `quasi_symbolic.py`), where a set is a
    vector of scores: `exist` is the largest score of an object, `count` the sum of the probabilities σ(score),
    comparisons of numbers are differences of these sums with a margin and a temperature of 0.25, the only object of a
    set is a softmax of the scores, and an evaluation counts the objects with a score above 0. The distribution of the
    count needs no margin, and gives all answers probabilities, so that one cross-entropy trains them.

    Args:
        operators, arguments: (R, P) programs; see `gyral.applications.scenes.data.language`. They must fit the stack.
        scenes: (R,) the scene of each program.
        grounding: probabilities of the concepts in the scenes. In half precision, where 1 − `SMALLEST` is 1, and with
            autocast, programs run in float32.
    """
    grounding = Grounding(*(part.to(torch.promote_types(part.dtype, torch.float32)) for part in grounding))
    with outside_autocast(grounding.concepts.device):
        return _execute(operators, arguments, scenes, grounding)


def _execute(operators: Tensor, arguments: Tensor, scenes: Tensor, grounding: Grounding) -> Execution:
    everything = grounding.is_there[scenes]
    top = below = everything
    sets = []
    for step in range(operators.shape[1]):
        operator, argument = operators[:, step], arguments[:, step]
        rows = {name: (operator == OPERATOR_IDS[name]).nonzero().squeeze(1) for name in _LEAVING_SETS}
        new = top
        if len(own := rows["scene"]):
            below = below.index_copy(0, own, top[own])
            new = new.index_copy(0, own, everything[own])
        if len(own := rows["filter"]):
            has = _select(grounding.concepts, scenes[own], argument[own] - FIRST_CONCEPT)
            new = new.index_copy(0, own, torch.minimum(top[own], has))
        if len(own := torch.cat((rows["relate"], rows["same"]))):
            number = torch.where(
                argument[own] >= FIRST_ATTRIBUTE,
                argument[own] - FIRST_ATTRIBUTE + len(RELATIONS),
                argument[own] - FIRST_RELATION,
            )
            related = _select(grounding.relations, scenes[own], number)
            new = new.index_copy(0, own, torch.einsum("ri,rij->rj", the_one(top[own]), related))
        if len(own := rows["intersect"]):
            new = new.index_copy(0, own, torch.minimum(top[own], below[own]))
        if len(own := rows["union"]):
            new = new.index_copy(0, own, torch.maximum(top[own], below[own]))
        top = new
        sets.append(top)
    return Execution(_answer(operators, arguments, scenes, grounding, top, below), sets)


_LEAVING_SETS = ("scene", "filter", "relate", "same", "intersect", "union")


def _answer(
    operators: Tensor, arguments: Tensor, scenes: Tensor, grounding: Grounding, top: Tensor, below: Tensor
) -> Tensor:
    """Return the log-probabilities of the answers from the sets that the last steps take."""
    last = (operators > 0).sum(dim=1, keepdim=True) - 1
    operator, argument = (part.gather(1, last).squeeze(1) for part in (operators, arguments))
    result = top.new_zeros(len(top), len(ANSWERS))
    is_ = {name: operator == number for name, number in OPERATOR_IDS.items()}
    own = (is_["exist"] | is_["count"] | is_["equal_number"] | is_["fewer"] | is_["more"]).nonzero().squeeze(1)
    if len(own):
        counts = count_distribution(top[own])
        numbers = counts.shape[1]
        result = result.index_put((own,), _pad_to(counts, FIRST_COUNT) * is_["count"][own].unsqueeze(1))
        joint = counts.unsqueeze(2) * count_distribution(below[own]).unsqueeze(1)  # of top, of below
        ones = torch.ones(numbers, numbers, device=top.device, dtype=top.dtype)
        # "more A than B": A was pushed first and is below
        wanted = torch.stack((ones.tril(-1), ones.triu(1), torch.eye(numbers, device=top.device, dtype=top.dtype)))
        compared = torch.einsum("rab,kab->rk", joint, wanted)
        kinds = torch.stack((is_["fewer"][own], is_["more"][own], is_["equal_number"][own]), dim=1)
        is_true = (compared * kinds).sum(dim=1) + (1 - counts[:, 0]) * is_["exist"][own]
        result = _add_yes_or_no(result, own, is_true, ~is_["count"][own])
    own = (is_["query"] | is_["equal"]).nonzero().squeeze(1)
    if len(own):
        values = _select(grounding.values, scenes[own], argument[own] - FIRST_ATTRIBUTE)
        first, second = (torch.einsum("rn,rnc->rc", the_one(each[own]), values) for each in (top, below))
        queried = _pad_to(first, FIRST_VALUE) * is_["query"][own].unsqueeze(1)
        result = result.index_add(0, own, queried)
        result = _add_yes_or_no(result, own, (first * second).sum(dim=1), is_["equal"][own])
    return (result + SMALLEST).log()


def _add_yes_or_no(result: Tensor, rows: Tensor, is_true: Tensor, applies: Tensor) -> Tensor:
    is_true = is_true.clamp(0, 1)
    both = torch.stack((is_true, 1 - is_true), dim=1) * applies.unsqueeze(1)
    assert (YES, NO) == (0, 1)
    return result.index_add(0, rows, _pad_to(both, YES))


def _pad_to(values: Tensor, first: int) -> Tensor:
    """Return values (R, n) as the answers from number `first` on, among all answers."""
    return torch.nn.functional.pad(values, (first, len(ANSWERS) - first - values.shape[1]))


def the_one(members: Tensor) -> Tensor:
    """Return the distribution (R, N) of the only member of sets (R, N)."""
    odds = members.clamp(SMALLEST, 1 - SMALLEST).logit()
    return odds.softmax(dim=1)


def count_distribution(members: Tensor) -> Tensor:
    """Return the distribution (R, N + 1) of the number of members of sets (R, N)."""
    counts = members.new_ones(len(members), 1)
    for probability in members.unbind(1):
        is_in = probability.unsqueeze(1)
        counts = torch.nn.functional.pad(counts * (1 - is_in), (0, 1)) + torch.nn.functional.pad(counts * is_in, (1, 0))
    return counts


def _select(table: Tensor, scenes: Tensor, numbers: Tensor) -> Tensor:
    """Return table[scenes, numbers]; `index_select` has a fast backward."""
    return table.flatten(0, 1).index_select(0, scenes * table.shape[1] + numbers)


assert FIRST_VALUE + len(CONCEPTS) == len(ANSWERS)
