"""Word problems of groups: read elements one by one, and say after each one what their product is so far.

An example of S3 with two generators, the transposition 213 and the cycle 231; ^ begins the word:

    input       ^ 213 231 231 213
    target        213 132 321 231

With 213 = (1 2) and 231 = (1 2 3), the second label is 213 · 231 = 132, which maps 1 → 2 → 1, 2 → 3 → 3 and 3 → 1 → 2.
"""

from pathlib import Path

import numpy as np

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.options import PositiveInt
from gyral.data.automata import Automaton, read_automaton
from gyral.data.groups import make_group
from gyral.tasks.tracking import AutomatonData, TrackingTask


class GroupData(AutomatonData):
    """Words over elements of a group, or over the alphabet of any finite automaton.

    The state is the product of the elements so far; the letters are uniform. The words of an automaton are random
    walks: each letter is uniform among those that the state allows.

    Args:
        group: Z2 … Z120, S3 … S6, A4 … A6, or a product, such as A4xZ5; see `gyral.data.groups`. Z2 is parity.
        generators: m, the size of the alphabet. It has the generators of the group: 1 for Z_n; (1 2) and (1 2 … n) for
            S_n; (1 2 3) and (1 2 … n) or, if n is even, (2 3 … n) for A_n; and those of both factors for a product.
            If m is greater, the other elements follow in lexicographic order, beginning with the identity. None: the
            alphabet is all elements, in lexicographic order.
        automaton: path of a JSON file with the states, alphabet, start and transitions of an automaton in place of the
            group; see `gyral.data.automata.read_automaton`. The label is that of the state.
        length, shortest, test_factors, test_range, labels, bos: see `gyral.tasks.tracking.TrackingData`.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Raises:
        OptionError: an option is out of bounds, or the file is not an automaton.
    """

    group: str = "S3"
    generators: PositiveInt | None = None
    automaton: str | Path | None = None

    def check(self) -> None:
        super().check()
        if self.automaton is not None and self.generators is not None:
            reason = "must be null for an automaton, whose file has the alphabet"
            raise OptionError("generators", self.generators, reason)
        self.make_automaton()

    def make_automaton(self) -> Automaton:
        if self.automaton is not None:
            return read_automaton(self.automaton)
        return group_automaton(self.group, self.generators)


def group_automaton(name: str, generators: int | None = None) -> Automaton:
    """Return the automaton whose state is the product of the letters so far.

    Args:
        name: name of the group.
        generators: size of the alphabet, as in `GroupData`; None: all elements.

    Raises:
        OptionError: there is no such group, or an alphabet of this size does not generate it.
    """
    group = make_group(name)
    size = len(group.elements)
    alphabet = list(range(size))
    if generators is not None:
        check_integer("generators", generators, minimum=max(2, len(group.generators)), maximum=size)
        alphabet = list(dict.fromkeys([*group.generators, *alphabet]))[:generators]
    letters = [group.elements[each] for each in alphabet]
    return Automaton(letters, group.table[:, alphabet], np.arange(size), group.elements)


class GroupTask(TrackingTask[GroupData]):
    """The word problem of a finite group, as in Merrill et al. (2024), arXiv:2404.08819, or of an automaton.

    In that paper, the alphabet is all elements of A5, A4 × Z5 or Z60, and words of 2 to 20 elements are in training and
    test. Terzić et al. (2025), arXiv:2509.22284, write (A5, 2) for an alphabet of two elements. Which two, and the
    order of further ones, is a choice here. The difficulty depends more on the size of the alphabet than on the group.

    If all elements are equally likely, the product is uniform from the first step on: the loss of a predictor
    without memory is ln |G|, and its accuracy 1/|G|. With fewer letters, both are computed from the table.
    """

    data_class = GroupData
