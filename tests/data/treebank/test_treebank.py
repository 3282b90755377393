"""Trees in brackets: reading, the words and constituents of the evaluation, the form of the training text, errors."""

import hashlib
import re
import zipfile
from pathlib import Path

import pytest

from gyral.core.errors import OptionError, UserError
from gyral.data.catalogue import CATALOGUE, PublishedCorpus, PublishedFile
from gyral.data.treebank.brackets import Node, read_trees
from gyral.data.treebank.sentences import Constituent, load, parse_sentence, treebank_sentences

TEXT = """
( (S
    (NP-SBJ (NP (DT The) (CD 1,000) (NNS shares)) (, ,) (NP ($ $) (CD 61.5) (-NONE- *U*)))
    (VP (VBD rose)
      (ADVP (RB n't)) (NP (CD 5) (NN %)))
    (. .) ))
(S (NP-SBJ (-NONE- *)) (VP (VB Stop)))
((X (: --)))
"""
FIRST = ("the", "N,N", "shares", "N.N", "rose", "n't", "N", "%")


def test_trees_are_read() -> None:
    (tree,) = read_trees("(S (NP (NN time))\n (VP (VBZ flies)))", "file")
    assert tree == Node("S", (Node("NP", (Node("NN", ("time",)),)), Node("VP", (Node("VBZ", ("flies",)),))))
    assert [*tree.leaves()] == [("NN", "time"), ("VBZ", "flies")]
    assert [tree] == [*read_trees("(\nS (NP (\nNN\ntime)\n)(VP(VBZ flies)))", "file")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NN time))\n)", "file.mrg, line 2: a closing bracket without an opening one"),
        ("\nand (S (NN time))", "file.mrg, line 2: 'and' outside of brackets"),
        ("(S (NN time))\n\n(S\n(NP (NN flies))", "file.mrg, line 3: the bracket of this tree is never closed"),
        ("(S\n(NP ) (NN time))", r"file.mrg, line 2: the node \(NP\) has no words"),
        ("()", r"file.mrg, line 1: the node \(\) has no words"),
    ],
)
def test_errors_have_file_and_line(text: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        list(read_trees(text, "file.mrg"))


def test_words_and_constituents_equal_the_standard_evaluation(tmp_path: Path) -> None:
    (tmp_path / "a.mrg").write_text(TEXT)
    (tmp_path / "README").write_text("no tree")
    first, second = load(tmp_path, tmp_path)
    assert first.words == FIRST
    assert first.constituents == (
        Constituent(0, 8, "S"),
        Constituent(0, 4, "NP"),
        Constituent(0, 3, "NP"),
        Constituent(3, 4, "NP"),
        Constituent(4, 8, "VP"),
        Constituent(5, 6, "ADVP"),
        Constituent(6, 8, "NP"),
    )
    assert second == (("stop",), (Constituent(0, 1, "S"), Constituent(0, 1, "VP")))
    assert load(tmp_path / "a.mrg", tmp_path) == [first, second]


def test_brackets_may_be_deep() -> None:
    (tree,) = read_trees("(S " * 5000 + "(NN time)" + ")" * 5000, "file")
    assert parse_sentence(tree).constituents == (Constituent(0, 1, "S"),) * 5000


def test_function_labels_are_left_out() -> None:
    (tree,) = read_trees("(S (PP-LOC-CLR=2 (IN in) (NP|X (NN time))))", "file")
    assert [each.label for each in parse_sentence(tree).constituents] == ["S", "PP", "NP|X"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "has no file whose name ends in .mrg"),
        (b"", "has no sentence with words tagged as in the Penn Treebank"),
        (b"(X (Y z))", "has no sentence with words tagged as in the Penn Treebank"),
        (b"(S", r"\S+bad.mrg, line 1: the bracket of this tree is never closed"),
        (b"(S \xff)", r"\S+bad.mrg: is not UTF-8: byte 0xff at offset 3"),
    ],
)
def test_a_bad_treebank_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "bad.mrg").write_bytes(content)
    with pytest.raises(OptionError, match=f"^parse={re.escape(str(tmp_path))}: {message}"):
        load(tmp_path, tmp_path)
    with pytest.raises(OptionError, match=r"^parse=\S+nowhere: cannot be read \(No such file or directory\)$"):
        load(tmp_path / "nowhere", tmp_path)


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a sample of two sentences, and a training text."""
    path = tmp_path / "treebank" / "treebank.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("treebank/combined/wsj_0001.mrg", TEXT)
        archive.writestr("treebank/combined/README", "no tree")
    file = PublishedFile(path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setitem(CATALOGUE, "treebank", PublishedCorpus((file,), ("http://example.org/treebank.zip",), "free"))
    (tmp_path / "ptb").mkdir()
    (tmp_path / "ptb" / "ptb.train.txt").write_text(" the N shares $ N rose n't N N \n a b stop \n")
    return tmp_path


def test_the_sample_is_read_from_its_archive(sample: Path) -> None:
    assert [sentence.words for sentence in load("treebank", sample)] == [FIRST, ("stop",)]


def test_sentences_are_tokenized_as_the_training_text(sample: Path) -> None:
    assert ("the", "N", "shares", "$", "N", "rose", "n't", "N", "N") in treebank_sentences(sample)
    (sample / "ptb" / "ptb.train.txt").unlink()
    found = treebank_sentences(sample, {"the", "N"})
    assert ("the", "N", "<unk>", "<unk>", "N", "<unk>", "<unk>", "N", "N") in found


def test_a_missing_sample_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"^parse=treebank: \S+zip does not exist; `gyral fetch treebank` downloads"):
        load("treebank", tmp_path)
    with pytest.raises(OptionError, match=r"^paths.data_dir=\S+: \S+ptb.train.txt: cannot be read"):
        treebank_sentences(tmp_path)
