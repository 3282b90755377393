"""Chains of mentions that are read from a file."""

import json
from pathlib import Path

import pytest

from gyral.applications.reading.data.chain_files import read_chains
from gyral.core.errors import UserError
from gyral.data.mentions import Mention

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
        (CONLL.replace("1)|(2)", "(2)"), r"line 8, document news/one: a mention of chain 1 has no end"),
        (CONLL.replace("NNP (1\n", "NNP -\n"), r"line 3, document news/one: a mention of chain 1 ends that has not"),
        (CONLL.replace("(1|(3)", "(1|3"), r"line 6, document news/one: the last column has '\(1\|3', and must have"),
        (CONLL.removesuffix("#end document\n"), r"has no end of document two: the file is truncated"),
        (
            CONLL.replace("#end document\n", "", 1),
            r"line 8, document news/one: has no end of document before",
        ),
        ('{"document": "one"}\n', r"line 1: must be a document with its chains, such as"),
        ('{"document": "one", "chains": [[[1, 0]]]}\n', r"line 1: must be a document with its chains"),
        ('{"document": "one", "chains": [[[0, true]]]}\n', r"line 1: must be a document with its chains"),
        ('{"document": 1, "chains": []}\n', r"line 1: must be a document with its chains"),
        ('{"document": "a", "chains": []}\n{"document": "a", "chains": []}\n', r"line 2: the document a must"),
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
    with pytest.raises(UserError, match=r"is not UTF-8: byte 0xff at offset 0"):
        read_chains(tmp_path / "chains.txt")
