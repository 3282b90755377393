"""LAMBADA as reading comprehension: the document and the question, candidates, chains, files and substitutes."""

import functools
import os
from pathlib import Path

import numpy as np
import pytest

from gyral.applications.reading.data.lambada import DEVELOPMENT, MARKS, TEST, TRAIN, load_lambada, parse
from gyral.applications.reading.data.ngrams import ngram_accuracy
from gyral.core.edges import Edge
from gyral.core.errors import OptionError, UserError
from gyral.data.batching import IGNORED
from gyral.data.raw_examples import Report, UnusableError

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[4] / "data"))
PASSAGE = b"gavriel nodded to rowan . rowan was there . they walked , rowan nodded , gavriel said , hello , rowan"
matches = functools.partial(parse, place="here:1", edges="matches", max_chains=14)


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests out of the user's cache."""
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "user"))


def test_there_are_38_punctuation_marks() -> None:
    assert len(MARKS) == 38


def test_the_document_ends_at_the_last_period() -> None:
    (question,) = matches(PASSAGE, report=Report())
    assert " ".join(question.document) == "gavriel nodded to rowan . rowan was there ."
    assert " ".join(question.query) == "@begin they walked , rowan nodded , gavriel said , hello , @end"
    assert question.candidates == ("gavriel", "nodded", "to", "rowan", "was", "there")
    assert question.mentions == (1, 2, 3, 4, 0, 4, 5, 6, 0)
    assert question.candidates[question.answer] == "rowan"
    # gavriel, nodded and rowan, the latter three times; the question is read after its first word
    assert set(question.edges) == {Edge(0, 16), Edge(1, 14), Edge(3, 5), Edge(5, 13)}
    assert question.chains[:6] == (1, 2, 0, 3, 0, 3)


def test_the_chains_with_the_most_mentions_are_kept() -> None:
    (question,) = parse(PASSAGE, "here:1", Report(), edges="matches", max_chains=1)
    assert set(question.edges) == {Edge(3, 5), Edge(5, 13)}
    assert max(question.chains) == 1
    (question,) = parse(PASSAGE, "here:1", Report(), edges="none", max_chains=1)
    assert question.edges == ()
    assert max(question.chains) == 1


def test_an_answer_that_is_not_a_candidate_is_ignored() -> None:
    (question,) = matches(b"anna left . then came mary", report=Report())
    assert question.answer == IGNORED


def test_a_passage_without_period_has_no_candidates() -> None:
    report = Report()
    (question,) = matches(b"anna left ? then came anna", report=report)
    assert question.document == (".",)
    assert question.candidates == ()
    assert question.answer == IGNORED
    assert report.noted == {"without ' . ', whose document is empty": (1, "here:1")}
    with pytest.raises(UnusableError, match="fewer than three words"):
        matches(b"anna left", report=report)


def write(folder: Path, name: str, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"anna saw boris {number} . boris saw {name} . then came boris" for number in range(count)]
    (folder / name).write_text("\n".join(lines))


def test_without_training_passages_the_development_passages_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gyral.applications.reading.data.lambada.CUT", 9)
    folder = tmp_path / "lambada"
    generated = load_lambada(tmp_path)
    assert generated.substitute.startswith(f"{folder / DEVELOPMENT} does not exist; `gyral fetch lambada` downloads it")
    assert "GENERATED" in generated.substitute
    write(folder, DEVELOPMENT, 10)
    with pytest.raises(OptionError, match=rf"^data_dir={tmp_path}: {folder / TEST} does not exist"):
        load_lambada(tmp_path)
    write(folder, TEST, 3)
    substitute = load_lambada(tmp_path)
    assert {split: len(questions) for split, questions in substitute.splits.items()} == {
        **{"train": 9, "val": 1, "test": 3}
    }
    assert "SUBSTITUTE" in substitute.substitute
    assert f"{folder / TRAIN} does not exist" in substitute.substitute
    with pytest.raises(OptionError, match=rf"{folder / TRAIN} does not exist: put train.txt of http"):
        load_lambada(tmp_path, source="published")
    write(folder / "lambada-train-valid", TRAIN, 20)
    published = load_lambada(tmp_path)
    assert published.substitute == ""
    assert {split: len(questions) for split, questions in published.splits.items()} == {
        **{"train": 20, "val": 10, "test": 3}
    }
    chosen = load_lambada(tmp_path, source="development")
    assert len(chosen.splits["train"]) == 9
    assert chosen.substitute.startswith("training on a SUBSTITUTE")


def test_coreference_chains_come_from_a_file(tmp_path: Path) -> None:
    for name, count in ((DEVELOPMENT, 1), (TEST, 1), (TRAIN, 2)):
        write(tmp_path / "lambada", name, count)
    chains = tmp_path / "chains.jsonl"
    chains.write_text('{"document": "train.txt:2", "chains": [[[0, 1], [5, 6], [9, 9]]]}\n')
    corpus = load_lambada(tmp_path, edges="coreference", chains=chains)
    distances = corpus.splits["train"].batch(np.arange(2)).edges.earlier[..., 0, 0]
    assert distances.nonzero().tolist() == [[1, 5], [1, 10]]  # the document has nine words, then comes @begin
    assert distances.max() == 4
    assert corpus.reports["train"].noted == {"without coreference chains": (1, "train.txt:1")}
    chains.write_text('{"document": "train.txt:2", "chains": [[[0, 1], [5, 16]]]}\n')
    with pytest.raises(UserError, match=r": train.txt:2: mention from word 5 to word 16 of chain 1"):
        load_lambada(tmp_path, edges="coreference", chains=chains)
    for options in ({"edges": "coreference"}, {"chains": chains}):
        with pytest.raises(OptionError, match=r"^chains=.*: must be a file of coreference chains for edges=coref"):
            load_lambada(tmp_path, **options)  # type: ignore[arg-type]


def test_ngrams_choose_the_word_that_followed_in_training(tmp_path: Path) -> None:
    for name, count in ((DEVELOPMENT, 1), (TEST, 4), (TRAIN, 5)):
        write(tmp_path / "lambada", name, count)
    corpus = load_lambada(tmp_path)
    index = corpus.vocabulary.index
    added = [index["@begin"], index["@end"]]
    # "boris" comes three times in each passage, and "saw" twice; after "came" there is always "boris"
    assert ngram_accuracy(corpus.splits["train"], corpus.splits["test"], len(index), 3, added) == [1, 1, 1]
    lines = ["anna saw boris . saw saw saw saw . then came boris"] * 4
    (tmp_path / "lambada" / TRAIN).write_text("\n".join(lines))
    corpus = load_lambada(tmp_path)
    assert ngram_accuracy(corpus.splits["train"], corpus.splits["test"], len(index), 2, added) == [0, 1]


@pytest.mark.slow
def test_shares_of_passages_whose_answer_is_in_the_document() -> None:
    """The shares are .811 and .808, as in Dhingra et al. (2017), with the columns of their table exchanged."""
    if not (DATA / "lambada" / TEST).exists():
        pytest.skip("no LAMBADA")
    corpus = load_lambada(DATA, source="development", edges="none")
    kept = sum(corpus.reports[split].kept for split in ("train", "val"))
    answered = sum((corpus.splits[split].answers != IGNORED).sum() for split in ("train", "val"))
    assert (answered, kept) == (3950, 4869)
    test = corpus.splits["test"].answers != IGNORED
    assert (test.sum(), len(test)) == (4165, 5153)
    assert np.round([answered / kept, test.mean()], 3).tolist() == [0.811, 0.808]
