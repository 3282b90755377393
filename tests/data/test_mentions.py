"""Chains of mentions: found in a text or read from a file, and the edges between them."""

import pytest

from gyral.core.edges import Edge, check_edges
from gyral.core.errors import UserError
from gyral.data.mentions import (
    Mention,
    chain_edges,
    check_chains,
    entity_chains,
    exact_matches,
    label_chains,
    plural,
)
from gyral.data.vocabulary import split_words

WORDS = split_words("Mary got the Box of chocolates . mary ate the boxes and the box of chocolates .")
ENTITIES = ["mary", "box", "box of chocolates", "apple"]


def test_entities_are_found_in_either_case_and_number_and_the_longest_one_first() -> None:
    assert entity_chains(WORDS, ENTITIES) == {
        "mary": (Mention(0, 0), Mention(7, 7)),
        "box of chocolates": (Mention(3, 5), Mention(13, 15)),
        "box": (Mention(10, 10),),
    }
    assert list(entity_chains(WORDS, ENTITIES)) == ["mary", "box of chocolates", "box"]
    assert entity_chains([], ENTITIES) == entity_chains(WORDS, []) == {}


@pytest.mark.parametrize(
    ("singular", "expected"),
    [
        ("cat", "cats"),
        ("wolf", "wolves"),
        ("mouse", "mice"),
        ("sheep", "sheep"),
        ("box", "boxes"),
        ("story", "stories"),
        ("boy", "boys"),
        ("knife", "knives"),
        ("cliff", "cliffs"),
        ("toy box", "toy boxes"),
    ],
)
def test_plurals(singular: str, expected: str) -> None:
    assert plural(singular) == expected


def test_repeated_words_form_chains() -> None:
    assert exact_matches(split_words("a b , c b , a b"), ignored={","}) == [
        (Mention(0, 0), Mention(6, 6)),
        (Mention(1, 1), Mention(4, 4), Mention(7, 7)),
    ]


def test_edges_leave_at_the_last_word_and_enter_at_the_first_one() -> None:
    chains = entity_chains(WORDS, ENTITIES).values()
    assert chain_edges(chains) == (Edge(0, 7), Edge(5, 13))
    assert chain_edges(chains, kind=2) == (Edge(0, 7, 2), Edge(5, 13, 2))


def test_mentions_within_others_get_no_edge() -> None:
    nested = (Mention(8, 9), Mention(0, 4), Mention(2, 2), Mention(4, 6))
    assert chain_edges([nested]) == (Edge(4, 8),)
    check_edges("text", chain_edges([nested]), steps=10, types=1)


def test_words_are_labelled_by_their_first_chain() -> None:
    chains = [(Mention(1, 2), Mention(5, 5)), (Mention(2, 3),)]
    assert label_chains(chains, 6) == (0, 1, 1, 2, 0, 1)


def test_mentions_outside_a_document_are_refused_by_name() -> None:
    check_chains("news", [(Mention(0, 3),)], steps=4)
    with pytest.raises(UserError, match=r"^news: mention from word 2 to word 4 of chain 2: .* from 0 to 3$"):
        check_chains("news", [(Mention(0, 0),), (Mention(1, 1), Mention(2, 4))], steps=4)
