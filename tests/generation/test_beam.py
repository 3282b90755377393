"""Beam search against a plain one, hypothesis by hypothesis, on tables of random probabilities."""

import itertools
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from gyral.core.errors import OptionError
from gyral.generation.beam import BeamSearch
from gyral.nn.recurrent import reorder

WORDS, START, STOP = 7, 1, 2


class State(NamedTuple):
    """What was read so far, as a number that no other sequence has, and which table is looked up, (R, 1) each."""

    history: Tensor
    table: Tensor


def step(state: State, tokens: Tensor) -> tuple[Tensor, State]:
    """Return log-probabilities that depend on all that was read, in a way that looks random."""
    history = (state.history * 31 + tokens.unsqueeze(1) * 7 + 3) % 10007
    angles = (history + 1) * torch.arange(1, WORDS + 1) * (1 + state.table)
    return (3 * torch.sin(angles.double() * 12.9898)).log_softmax(dim=1), State(history, state.table)


def beginning(rows: int) -> State:
    return State(torch.zeros(rows, 1, dtype=torch.long), torch.arange(rows, dtype=torch.double).unsqueeze(1) / 3)


def repeats(tokens: list[int], size: int) -> bool:
    ngrams = [tuple(tokens[place : place + size]) for place in range(len(tokens) - size + 1)]
    return size > 0 and len(set(ngrams)) < len(ngrams)


def plain(search: BeamSearch, step: Any, state: Any, start: int, stop: int) -> list[tuple[float, list[int]]]:
    """Search for one row, one hypothesis after the other, as See et al. (2017) do: (score, tokens), best first."""
    going: list[tuple[float, list[int], Any]] = [(0.0, [], state)]
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, search.max_length + 1):
        candidates = []
        for score, tokens, before in going:
            log_probabilities, after = step(before, torch.tensor(tokens[-1:] or [start]))
            for word, log_probability in enumerate(log_probabilities[0].tolist()):
                banned = word in search.forbidden or (word == stop and length <= search.min_length)
                if not banned and not repeats([*tokens, word], search.block_ngrams):
                    candidates.append((score + log_probability, [*tokens, word], after))
        going = []
        for candidate in sorted(candidates, key=lambda one: -one[0])[: 2 * search.beam]:
            if len(going) == search.beam or len(finished) == search.beam:
                break
            if candidate[1][-1] == stop:
                finished.append((candidate[0] / length**search.length_penalty, candidate[1]))
            else:
                going.append(candidate)
        if len(finished) == search.beam:
            break
    found = finished or [(score / length**search.length_penalty, tokens) for score, tokens, _ in going]
    return sorted(found, key=lambda one: -one[0])


OPTIONS = [
    {},
    {"min_length": 6},
    {"min_length": 6, "length_penalty": 0.0},
    {"length_penalty": 2.5, "forbidden": [0, 4]},
    {"block_ngrams": 1},
    {"block_ngrams": 2, "min_length": 8},
    {"block_ngrams": 3, "min_length": 9, "max_length": 10},
    {"min_length": 9, "max_length": 11},
]


@pytest.mark.parametrize(("beam", "options"), list(itertools.product([1, 2, 4], OPTIONS)))
def test_batched_search_equals_single_search(beam: int, options: dict[str, Any]) -> None:
    search = BeamSearch(beam, **{"min_length": 0, "max_length": 14, **options})
    state = beginning(5)
    found = search(step, state, start=START, stop=STOP)
    assert found.tokens.shape == (5, beam, search.max_length)
    for row in range(5):
        expected = plain(search, step, reorder(state, torch.tensor([row])), START, STOP)
        for place, (score, tokens) in enumerate(expected):
            assert found.lengths[row, place] == len(tokens)
            filled = tokens + [STOP] * (search.max_length - len(tokens))
            assert found.tokens[row, place].tolist() == filled
            assert found.scores[row, place].item() == pytest.approx(score, abs=1e-9)
        assert found.scores[row, len(expected) :].isneginf().all()
        assert found.lengths[row, len(expected) :].eq(0).all()


@pytest.mark.parametrize("min_length", [0, 5])
def test_a_beam_of_one_is_greedy(min_length: int) -> None:
    state, tokens, total = beginning(6), torch.full((6,), START), torch.zeros(6, dtype=torch.double)
    found = BeamSearch(1, min_length=min_length, max_length=12)(step, state, start=START, stop=STOP)
    ended = torch.zeros(6, dtype=torch.bool)
    for length in range(12):
        log_probabilities, state = step(state, tokens)
        log_probabilities[:, STOP] -= torch.inf if length < min_length else 0
        best, tokens = log_probabilities.max(dim=1)
        tokens = tokens.where(~ended, STOP)
        assert torch.equal(found.tokens[:, 0, length], tokens)
        total += best.where(~ended, 0)
        ended |= tokens == STOP
    torch.testing.assert_close(found.scores[:, 0], total / found.lengths[:, 0])


def test_rows_are_independent() -> None:
    search = BeamSearch(3, min_length=2, max_length=9)
    state = beginning(5)
    whole = search(step, state, start=START, stop=STOP)
    part = search(step, reorder(state, torch.tensor([3])), start=START, stop=STOP)
    for ours, theirs in zip(part, whole, strict=True):
        torch.testing.assert_close(ours[0], theirs[3], rtol=0, atol=0)


def test_a_wider_beam_finds_better_sequences() -> None:
    # word 3 is likelier than 4 at first, but its continuations are not
    table = torch.tensor(
        [[0, 0, 0, 0.6, 0.4], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0.3, 0.4, 0.3], [0, 0, 1, 0, 0]]
    )
    table[1], table[2] = table[0], table[0]

    def look_up(state: tuple[Tensor], tokens: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        return table[tokens].log(), state

    searches = [BeamSearch(beam, min_length=0, max_length=2, length_penalty=0.0) for beam in (1, 2)]
    greedy, wide = (search(look_up, (torch.zeros(1, 1),), start=START, stop=STOP) for search in searches)
    assert greedy.tokens[0, 0].tolist() == [3, 3]
    assert wide.tokens[0].tolist() == [[4, STOP], [3, STOP]]
    torch.testing.assert_close(wide.scores[0].exp(), torch.tensor([0.4, 0.18]))


def test_impossible_words_are_not_found() -> None:
    def only_one(state: tuple[Tensor], tokens: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        log_probabilities = torch.full((len(tokens), WORDS), -torch.inf)
        log_probabilities[torch.arange(len(tokens)), (tokens + 1) % WORDS] = 0.0
        return log_probabilities, state

    found = BeamSearch(4, min_length=0, max_length=9)(only_one, (torch.zeros(2, 1),), start=3, stop=STOP)
    assert found.tokens[:, 0].tolist() == [[4, 5, 6, 0, 1, STOP, STOP, STOP, STOP]] * 2
    assert found.scores[:, 0].tolist() == [0.0, 0.0]
    assert found.lengths.tolist() == [[6, 0, 0, 0]] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, r"beam=0: must be an integer ≥ 1"),
        ({"min_length": -1}, r"min_length=-1: must be an integer ≥ 0"),
        ({"min_length": 9, "max_length": 9}, r"min_length=9: must be below max_length, 9"),
        ({"length_penalty": -1.0}, r"length_penalty=-1.0: must be a finite number ≥ 0"),
        ({"block_ngrams": -1}, r"block_ngrams=-1: must be an integer ≥ 0"),
        ({"forbidden": [-1]}, r"forbidden=-1: must be an integer ≥ 0"),
    ],
)
def test_wrong_options_are_errors_of_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}$"):
        BeamSearch(**options)


def test_a_changed_search_keeps_the_other_options() -> None:
    search = BeamSearch(3, min_length=2, max_length=9, length_penalty=0.5, block_ngrams=3, forbidden=[1])
    changed = search.changed(beam=5)
    assert vars(changed) == {**vars(search), "beam": 5}
    assert search.beam == 3
    with pytest.raises(OptionError, match=r"^min_length=9: must be below max_length, 9$"):
        search.changed(min_length=9)
