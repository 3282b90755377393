"""Chains of mentions: found in a text or read from a file, and the edges between them."""

import json
from pathlib import Path

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
    read_chains,
)
from gyral.data.vocabulary import split_words

WORDS = split_words("Mary got the Box of chocolates . mary ate the boxes and the box of chocolates .")
ENTITIES = ["mary", "box", "box of chocolates", "apple"]

CONLL = """\
#begin document (news/one); part 000
news/one 0 0 Mary  NNP (1
news/one 0 1 Smith NNP 1)|(2)

news/one 0 0 who   WP  -
news/one 0 1 saw   VBD (1|(3)
news/one 0 2 her   PRP 1)
#end document
#begin document (news/one); part 001
news/one 1 0 She   PRP (1)
news/one 1 1 left  VBD -
news/one 1 2 She   PRP (1)
#end document
#begin document (two); part 000
two 0 0 Nothing NN -
#end document
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "chains.txt"
    path.write_text(text)
    return path


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


def test_words_that_occur_again_are_chains() -> None:
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


def test_chains_of_conll_2012(tmp_path: Path) -> None:
    assert read_chains(written(tmp_path, CONLL)) == {
        "news/one": [
            (Mention(0, 1), Mention(3, 4)),
            (Mention(1, 1),),
            (Mention(3, 3),),
            (Mention(5, 5), Mention(7, 7)),  # chain 1 of the second part, whose words follow those of the first part
        ],
        "two": [],
    }


def test_chains_of_json_lines(tmp_path: Path) -> None:
    lines = [{"document": "one", "chains": [[[5, 5], [0, 1]], [[3, 3]]]}, {"document": "two", "chains": []}]
    path = written(tmp_path, "\n".join(map(json.dumps, lines)) + "\n\n")
    assert read_chains(path) == {"one": [(Mention(0, 1), Mention(5, 5)), (Mention(3, 3),)], "two": []}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Mary went home\n", r"line 1: must be within '#begin document \(name\); part 000' and '#end document'"),
        (CONLL.replace("1)|(2)", "(2)"), r"line 8: a mention of chain 1 has no end in document news/one"),
        (CONLL.replace("NNP (1\n", "NNP -\n"), r"line 3, document news/one: a mention of chain 1 ends that has not"),
        (CONLL.replace("(1|(3)", "(1|3"), r"line 6, document news/one: the last column has '\(1\|3', and must have"),
        (CONLL.removesuffix("#end document\n"), r"has no end of document two: the file is truncated"),
        ('{"document": "one"}\n', r"line 1: must be a document with its chains, such as"),
        ('{"document": "one", "chains": [[[1, 0]]]}\n', r"line 1: must be a document with its chains"),
        ('{"document": "one", "chains": [[[0, true]]]}\n', r"line 1: must be a document with its chains"),
        ('{"document": 1, "chains": []}\n', r"line 1: the document 1 must be a text"),
        ('{"document": "a", "chains": []}\n{"document": "a", "chains": []}\n', r"line 2: the document 'a' must"),
        ('{"document": "a", "chains": []\n', r"line 1: must be a document with its chains"),
    ],
)
def test_other_files_are_refused_with_the_line(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UserError, match=rf"chains.txt(, |: ){reason}") as raised:
        read_chains(written(tmp_path, text))
    assert "\n" not in str(raised.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"No such file"):
        read_chains(tmp_path / "chains.txt")
    (tmp_path / "chains.txt").write_bytes(b"\xff\n")
    with pytest.raises(UserError, match=r"is not UTF-8 at offset 0"):
        read_chains(tmp_path / "chains.txt")
