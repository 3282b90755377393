"""Minimal pairs: both forms of the templates, the rows of the papers, damaged files, sentences as models read them."""

import gzip
import json
import os
import pickle
from pathlib import Path

import pytest

from gyral.applications.probes.data import encoding, pairs
from gyral.applications.probes.data.encoding import SentenceEncoder
from gyral.applications.probes.data.pairs import AGREEMENT, POLARITY, load
from gyral.core.errors import OptionError, UserError
from gyral.core.measures import SPLITS
from gyral.data.text.corpora import Corpus
from gyral.data.text.penn import tokenize
from gyral.data.vocabulary import Vocabulary, split_words

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[4] / "data"))


def write_templates(data: Path, pickled: bool) -> None:
    """Write every template with two items, in either form."""
    folder = data / "lm_syneval" / ("EMNLP2018/templates" if pickled else "tsv")
    folder.mkdir(parents=True)
    for rows, sentences in ((AGREEMENT, ("good", "bad")), (POLARITY, ("none", "some", "most"))):
        for template in (template for _, _, templates in rows for template in templates):
            items = [tuple(f"{template} {sentence} {place}" for sentence in sentences) for place in (1, 2)]
            if pickled:
                (folder / f"{template}.pickle").write_bytes(pickle.dumps({"key": items}))
            else:
                text = "".join("\t".join(("key", *item)) + "\n" for item in items)
                (folder / f"{template}.tsv.gz").write_bytes(gzip.compress(text.encode()))


def write_blimp(data: Path, name: str = "adjunct_island", term: str = "island_effects") -> None:
    folder = data / "blimp" / "data"
    folder.mkdir(parents=True, exist_ok=True)
    line = {"sentence_good": "Who laughs?", "sentence_bad": "Who laugh?", "linguistics_term": term, "UID": name}
    (folder / f"{name}.jsonl").write_text(json.dumps(line) + "\n")


def test_both_forms_of_the_templates_give_the_rows_of_the_paper(tmp_path: Path) -> None:
    write_templates(tmp_path / "text", pickled=False)
    write_templates(tmp_path / "pickled", pickled=True)
    sets = load("syneval", tmp_path / "text")
    assert sets == load("syneval", tmp_path / "pickled")
    assert [one.name for one in sets if one.phenomenon == "short dependencies"] == [
        *("simple", "in a sentential complement", "short VP coordination", "in an object relative clause"),
        *("in an object relative clause, no that", "reflexive, simple", "reflexive, in a sentential complement"),
        *(f"NPI, simple: {contrast}" for contrast, _, _ in pairs.CONTRASTS),
    ]
    by_name = {one.name: one.pairs for one in sets}
    assert by_name["simple"] == [
        ("simple_agrmt good 1", "simple_agrmt bad 1"),
        ("simple_agrmt good 2", "simple_agrmt bad 2"),
    ]
    assert len(by_name["across a prepositional phrase"]) == 4  # animate and inanimate
    some_most = ("simple_npi_anim some 1", "simple_npi_anim most 1")
    assert by_name["NPI, simple: intrusive, ungrammatical"][0] == some_most


def test_blimp_has_the_phenomena_of_the_paper(tmp_path: Path) -> None:
    write_blimp(tmp_path)
    write_blimp(tmp_path, "animate_subject_trans", "s-selection")
    write_blimp(tmp_path, "npi_present_1", "npi_licensing")
    found = [(one.phenomenon, one.name) for one in load("blimp", tmp_path)]
    assert found == [
        ("argument structure", "animate_subject_trans"),
        ("island effects", "adjunct_island"),
        ("NPI licensing", "npi_present_1"),
    ]


def test_missing_and_damaged_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"^pairs=blimpp: did you mean blimp\? must be one of syneval, blimp$"):
        load("blimpp", tmp_path)
    with pytest.raises(OptionError, match=r"^pairs=blimp: \S+blimp/data has no file .*clone github.com/alexwarstadt"):
        load("blimp", tmp_path)
    with pytest.raises(OptionError, match=r"^pairs=syneval: \S+lm_syneval has no template simple_agrmt; clone"):
        load("syneval", tmp_path)
    write_blimp(tmp_path)
    (tmp_path / "blimp" / "data" / "other.jsonl").write_text('{"sentence_good": 1}\n')
    with pytest.raises(OptionError, match=r"^pairs=blimp: \S+other.jsonl, line 1: must be an object with"):
        load("blimp", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"key": [("one",)]}), "an item does not have 2 sentences"),
        (pickle.dumps(Path("x")), "names the class pathlib"),
        (b"no pickle", ""),
    ],
)
def test_only_pickles_of_plain_items_are_loaded(content: bytes, message: str, tmp_path: Path) -> None:
    write_templates(tmp_path, pickled=True)
    (tmp_path / "lm_syneval/EMNLP2018/templates/sent_comp.pickle").write_bytes(content)
    with pytest.raises(OptionError, match=rf"^pairs=syneval: \S+sent_comp.pickle is damaged \({message}"):
        load("syneval", tmp_path)


def corpus_of(text: str, level: str) -> Corpus:
    symbols = split_words(text) if level == "word" else text.encode() if level == "byte" else text
    vocabulary = Vocabulary.of(symbols, level)
    return Corpus("made", vocabulary, {split: vocabulary.encode(symbols) for split in SPLITS})


PENN = "who should n't laugh\nthe <unk> N 's\nabdefgijkmpqvxyz"
MARKED = "who ? should n't laugh .\nthe <unk> N 's\n"


@pytest.mark.parametrize(
    ("text", "level", "sentence", "read", "unknown"),
    [
        (PENN, "word", "Who shouldn't laugh?", "<eos> who should n't laugh <eos>", ""),
        (PENN, "word", "the 1,000 cats' laugh", "<eos> the N <unk> laugh <eos>", "cats"),
        (MARKED, "word", "Who shouldn't laugh?", "<eos> who should n't laugh ?", ""),
        (MARKED, "word", "who laugh", "<eos> who laugh .", ""),
        ("Who laughs . the\n <unk>", "word", "Who laughs.", "<eos> Who laughs .", ""),
        (PENN, "char", "Who shouldn't laugh?", "\nwho should n't laugh\n", ""),
        (MARKED, "char", "Who laughs", "\nwho laughs .", ""),
        ("plain words only here", "char", "Who zran ccc?", " who ran ", "zran ccc?"),
        ("It is. The end\nWho ran?", "char", "The end", "\nThe end.", ""),
        ("It is. The end", "byte", "The end", " The end.", ""),
        ("It is. The end", "byte", "The é", " The .", "é."),
    ],
)
def test_sentences_have_the_form_of_the_corpus(text: str, level: str, sentence: str, read: str, unknown: str) -> None:
    corpus = corpus_of(text, level)
    encoded = SentenceEncoder(corpus).encode(sentence)
    symbols = [corpus.vocabulary.symbols[token] for token in encoded.tokens]
    assert (" " if level == "word" else "").join(symbols) == read
    assert encoded.unknown == frozenset(unknown.split())


def test_a_vocabulary_without_unknown_words_is_refused() -> None:
    with pytest.raises(UserError, match=r"^sentence: 'cats' at position 1 does not occur in the training text"):
        SentenceEncoder(corpus_of("a b\nc d\n", "word")).encode("cats")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["syneval", "blimp"])
def test_the_published_pairs_are_complete_and_plain_words_stay_as_they_are(name: str) -> None:
    if not (DATA / {"syneval": "lm_syneval"}.get(name, name)).is_dir():
        pytest.skip(f"no {name} in {DATA} (set DATA_DIR)")
    sets = load(name, DATA)
    assert len(sets) == {"syneval": 19, "blimp": 67}[name]
    assert sum(len(one.pairs) for one in sets) == {"syneval": 184_772, "blimp": 67_000}[name]
    assert len({one.phenomenon for one in sets}) == {"syneval": 2, "blimp": 12}[name]
    for sentence in {each for one in sets for pair in one.pairs for each in pair}:
        body, end = (sentence[:-1], sentence[-1]) if sentence[-1] in ".?!" else (sentence, ".")
        if encoding.PLAIN.fullmatch(body.lower()):
            assert tokenize(body.lower() + end) == [*body.lower().split(), end]
