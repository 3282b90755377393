"""Corpora: sizes and splits, the cache, damaged and missing files, the grammar of our own text."""

import functools
import hashlib
import json
import multiprocessing
import os
import shutil
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest

from gyral.core.errors import OptionError
from gyral.data.download import SOURCES, File, Source
from gyral.data.text import corpora
from gyral.data.text.corpora import PUBLISHED, SPLITS, Corpus, Published, load, load_file, own_text
from gyral.data.vocabulary import Vocabulary, split_words

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[3] / "data"))
OWN_TEXT_SHA256 = "2dd0e2d0e1783708ecdf6e477a9621ed55953975735fe9cbf696ae85e1554f7f"
LETTERS = b"the quick brown fox jumps over the lazy dog " * 10


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the tests out of the user's cache."""
    monkeypatch.delenv("GYRAL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    return tmp_path / "user" / "gyral"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder, empty."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def ptb(data: Path) -> Path:
    """A data folder with the real Penn Treebank and a cache of its own."""
    if not (DATA / "ptb" / "ptb.char.train.txt").is_file():
        pytest.skip(f"no ptb/ptb.char.train.txt in {DATA} (set DATA_DIR)")
    (data / "ptb").symlink_to((DATA / "ptb").resolve())
    return data


@pytest.fixture
def letters(data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a published corpus, `letters`."""
    file = File("letters.txt", len(LETTERS), hashlib.sha256(LETTERS).hexdigest())
    monkeypatch.setitem(SOURCES, "letters", Source((file,), ("http://example.org/letters.zip",), "free"))
    monkeypatch.setitem(PUBLISHED, "letters", Published("letters", (file,), "char", bytes.decode))
    path = data / "letters" / "letters.txt"
    path.parent.mkdir()
    path.write_bytes(LETTERS)
    return path


def lengths(corpus: Corpus) -> list[int]:
    return [len(corpus.splits[split]) for split in SPLITS]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_penn_treebank_by_characters(ptb: Path) -> None:
    corpus = load("ptb_char", ptb)
    assert lengths(corpus) == [5_017_482, 393_042, 442_423]
    assert (corpus.name, corpus.level, len(corpus.vocabulary)) == ("ptb_char", "char", 50)
    assert {" ", "\n", "<", "N"} < set(corpus.vocabulary.symbols)
    assert "_" not in corpus.vocabulary.symbols
    assert all(tokens.dtype == np.uint8 and isinstance(tokens, np.memmap) for tokens in corpus.splits.values())
    start = corpus.vocabulary.decode(corpus.splits["test"][:56])
    assert start == "no it was n't black monday\nbut while the new york stock "


def test_penn_treebank_by_words(ptb: Path) -> None:
    corpus = load("ptb_word", ptb)
    assert lengths(corpus) == [929_589, 73_760, 82_430]
    assert (corpus.level, len(corpus.vocabulary)) == ("word", 10_000)
    assert corpus.vocabulary.symbols[:5] == ("the", "<unk>", "<eos>", "N", "of")
    assert all(tokens.dtype == np.uint16 for tokens in corpus.splits.values())
    assert corpus.vocabulary.decode(corpus.splits["test"][:10]) == "no it was n't black monday\nbut while the"


def test_words_and_characters_of_the_penn_treebank_are_the_same_text(ptb: Path) -> None:
    characters, words = load("ptb_char", ptb), load("ptb_word", ptb)
    for split in ("val", "test"):
        text = characters.vocabulary.decode(characters.splits[split])
        assert words.vocabulary.decode(words.splits[split]) == text


def test_what_is_one_file_is_cut_90_5_5(letters: Path, data: Path) -> None:
    corpus = load("letters", data)
    assert lengths(corpus) == [396, 22, 22]
    assert "".join(corpus.vocabulary.decode(corpus.splits[split]) for split in SPLITS) == LETTERS.decode()
    assert len(corpus.vocabulary) == 27


@pytest.mark.parametrize(("name", "size", "unit"), [("text8", 27, "char"), ("enwik8", 205, "byte")])
def test_mahoneys_corpora(name: str, size: int, unit: str, data: Path) -> None:
    if not (DATA / name / name).is_file():
        pytest.skip(f"no {name}/{name} in {DATA} (set DATA_DIR)")
    (data / name).symlink_to((DATA / name).resolve())
    corpus = load(name, data)
    assert lengths(corpus) == [90_000_000, 5_000_000, 5_000_000]
    assert (corpus.level, len(corpus.vocabulary)) == (unit, size)


@pytest.mark.parametrize("name", ["ptb_char", "ptb_word", "text8", "enwik8"])
def test_a_missing_file_is_named_with_its_place_and_origin(name: str, data: Path) -> None:
    published = PUBLISHED[name]
    with pytest.raises(OptionError) as caught:
        load(name, data)
    message = str(caught.value)
    path = data / published.source / published.files[0].name
    assert message.startswith(f"name={name}: {path} is not there; `make data` ")
    assert SOURCES[published.source].addresses[0] in message
    assert SOURCES[published.source].licence in message
    assert "\n" not in message


def test_a_file_of_another_size_or_checksum_is_refused(letters: Path, data: Path) -> None:
    write(letters, LETTERS + b" ")
    with pytest.raises(OptionError, match=r"^name=letters: .*letters\.txt: has 441 bytes, the published file 440: "):
        load("letters", data)
    write(letters, b"T" + LETTERS[1:])
    with pytest.raises(OptionError, match=r"^name=letters: .*letters\.txt: has another sha256 "):
        load("letters", data)


def test_a_file_that_changes_after_it_was_cached_is_refused(letters: Path, data: Path) -> None:
    load("letters", data)
    times = letters.stat()
    write(letters, b"T" + LETTERS[1:])
    os.utime(letters, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(OptionError, match="sha256"):
        load("letters", data)


def test_an_unknown_corpus_is_refused(data: Path) -> None:
    with pytest.raises(OptionError, match=r"^name=ptb: must be one of ptb_char, ptb_word, text8, enwik8$"):
        load("ptb", data)


def test_a_file_is_cut_from_its_end(tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "abcdefghij" * 10)
    corpus = load_file(path, tmp_path, val_fraction=0.1, test_fraction=0.25)
    assert lengths(corpus) == [65, 10, 25]
    assert corpus.vocabulary.decode(corpus.splits["val"]) == "fghijabcde"
    assert corpus.vocabulary.decode(corpus.splits["test"]) == "fghij" + "abcdefghij" * 2
    assert corpus.name == "text.txt"


def test_a_file_may_be_read_by_words_and_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "zwei größere Wörter\n" * 10)
    words = load_file(path, tmp_path, level="word", val_fraction=0.1, test_fraction=0.1)
    assert lengths(words) == [32, 4, 4]
    assert words.vocabulary.symbols == ("<eos>", "Wörter", "größere", "zwei", "<unk>")
    assert words.vocabulary.decode(words.splits["test"]) == "zwei größere Wörter\n"
    by_bytes = load_file(path, tmp_path, level="byte", val_fraction=0.1, test_fraction=0.1)
    assert lengths(by_bytes) == [184, 23, 23]
    assert by_bytes.vocabulary.decode(by_bytes.splits["test"]) == "zwei größere Wörter\n"


def test_line_ends_are_left_as_they_are(tmp_path: Path) -> None:
    corpus = load_file(write(tmp_path / "text.txt", "ab\r\n" * 20), tmp_path)
    assert corpus.vocabulary.symbols == ("\n", "\r", "a", "b")


def test_symbols_that_training_lacks(tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "ab" * 50 + "abéab")
    with pytest.raises(OptionError, match=rf"^path={path}: test split: 'é' \(U\+00E9\) at position 2 does not occur"):
        load_file(path, tmp_path)
    corpus = load_file(path, tmp_path, minimum_count=2)
    assert corpus.vocabulary.symbols == ("a", "b", "<unk>")
    assert corpus.splits["test"].tolist() == [0, 1, 2, 0, 1]
    words = write(tmp_path / "words.txt", "once " + "a b " * 30 + "new a")
    assert load_file(words, tmp_path, level="word").splits["test"].tolist() == [1, 2, 0]  # b <unk> a


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"", {}, "is empty"),
        (b"abc\xff" * 20, {}, r"is not UTF-8: byte 0xff at offset 3; .* level=byte"),
        (b"ab\xc3", {"level": "word"}, r"is not UTF-8: byte 0xc3 at offset 2; "),
        (b"ab" * 10, {}, "its val split has 1 chars, and must have at least 2"),
        (b"ab " * 10, {"level": "word", "val_fraction": 0.4, "test_fraction": 0.01}, "its test split has 0 words"),
        (None, {}, r"cannot be read \(No such file or directory\)"),
    ],
)
def test_bad_files_are_named_in_one_line(
    tmp_path: Path, content: bytes | None, options: dict[str, str], message: str
) -> None:
    path = tmp_path / "text.txt"
    if content is not None:
        write(path, content)
    with pytest.raises(OptionError, match=rf"^path={path}: {message}") as caught:
        load_file(path, tmp_path, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert not (tmp_path / ".cache").exists()


def test_a_folder_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot be read \(Is a directory\)$"):
        load_file(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "letter"}, "level=letter: must be one of char, word, byte"),
        ({"val_fraction": 0}, "val_fraction=0: "),
        ({"test_fraction": -0.1}, "test_fraction=-0.1: "),
        ({"val_fraction": 0.5, "test_fraction": 0.5}, "test_fraction=0.5: must be less than 1 with val_fraction, 0.5"),
        ({"minimum_count": 0}, "minimum_count=0: "),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}"):
        load_file(None, tmp_path, **options)  # type: ignore[arg-type]


def test_the_second_time_nothing_is_encoded(letters: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("letters", data)
    monkeypatch.setattr(Vocabulary, "encode", None)
    second = load("letters", data)
    assert second.vocabulary.symbols == first.vocabulary.symbols
    for split in SPLITS:
        assert isinstance(second.splits[split], np.memmap)
        assert np.array_equal(first.splits[split], second.splits[split])
        with pytest.raises(ValueError, match="read-only"):
            second.splits[split][0] = 1


def test_every_option_and_change_has_a_cache_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "abc " * 100)
    load = functools.partial(load_file, path, tmp_path)
    seen = [load(), load(level="byte"), load(val_fraction=0.2), load(test_fraction=0.2), load(minimum_count=3)]
    write(path, "abd " * 100)
    seen.append(load())
    assert len(list((tmp_path / ".cache").glob("*.npy"))) == len(seen)
    assert [corpus.vocabulary.symbols[3] for corpus in (seen[0], seen[-1])] == ["c", "d"]


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    changed = content[:-1] + bytes([content[-1] ^ 1])
    path.write_bytes({"empty": b"", "half": content[: len(content) // 2], "changed": changed}[how])


@pytest.mark.parametrize("suffix", ["npy", "json"])
@pytest.mark.parametrize("how", ["empty", "half", "changed"])
def test_what_is_damaged_is_made_anew(letters: Path, data: Path, suffix: str, how: str) -> None:
    load("letters", data)
    (path,) = (data / ".cache").glob(f"*.{suffix}")
    whole = path.read_bytes()
    damage(path, how)
    corpus = load("letters", data)
    assert corpus.vocabulary.decode(corpus.splits["train"]) == LETTERS.decode()[:396]
    assert path.read_bytes() == whole


def test_a_changed_vocabulary_is_made_anew(letters: Path, data: Path) -> None:
    load("letters", data)
    (path,) = (data / ".cache").glob("*.json")
    saved = json.loads(path.read_text())
    saved["description"]["vocabulary"]["symbols"].reverse()
    path.write_text(json.dumps(saved))
    assert load("letters", data).vocabulary.symbols[0] == " "


def load_at_once(path: Path, data: Path, barrier: Barrier) -> None:
    barrier.wait()
    assert lengths(load_file(path, data)) == [396, 22, 22]


def test_processes_may_encode_at_once(letters: Path, data: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    processes = [context.Process(target=load_at_once, args=(letters, data, barrier)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 3
    assert len(list((data / ".cache").iterdir())) == 2


def test_a_protected_or_missing_data_folder_is_left_alone(letters: Path, data: Path, user_cache: Path) -> None:
    data.chmod(0o555)
    assert lengths(load("letters", data)) == [396, 22, 22]
    assert not (data / ".cache").exists()
    assert len(list(user_cache.iterdir())) == 2
    load_file(None, data / "nowhere")
    assert not (data / "nowhere").exists()
    data.chmod(0o755)


def test_a_cache_that_cannot_be_written_is_one_line(letters: Path, data: Path, user_cache: Path) -> None:
    (data / ".cache").write_text("a file")
    user_cache.parent.mkdir()
    user_cache.write_text("a file")
    with pytest.raises(OptionError, match=rf"^data_dir={data}: neither it nor {user_cache} can be written"):
        load("letters", data)


def test_own_text_is_the_same_for_ever() -> None:
    text = own_text()
    assert 300_000 <= len(text) < 301_000
    assert text.isascii()
    assert hashlib.sha256(text.encode()).hexdigest() == OWN_TEXT_SHA256
    assert own_text(1000, seed=2) != own_text(1000) == text[: len(own_text(1000))]


def test_own_text_has_all_its_words_in_training_at_both_levels(tmp_path: Path) -> None:
    characters = load_file(None, tmp_path)
    assert (characters.name, len(characters.vocabulary)) == ("own_text", 34)
    assert sum(lengths(characters)) == len(own_text())
    words = load_file(None, tmp_path, level="word", minimum_count=1)
    assert len(words.vocabulary) == 76
    assert sum(lengths(words)) == len(split_words(own_text()))


class Grammar:
    """What own_text promises, tested word by word: a sentence is derived, or it is not."""

    def __init__(self, sentence: str) -> None:
        self.words = sentence.split()
        self.noun_phrase = functools.cache(self._noun_phrase)  # type: ignore[method-assign]
        self.clause = functools.cache(self._clause)  # type: ignore[method-assign]
        self.aside = functools.cache(self._aside)  # type: ignore[method-assign]

    def after(self, start: int, words: list[str]) -> set[int]:
        """Where one of these, of one or more words, ends that begins at `start`."""
        return {
            start + len(word.split()) for word in words if self.words[start : start + len(word.split())] == word.split()
        }

    def _noun_phrase(self, number: str, start: int) -> set[int]:
        nouns = {
            end
            for the in self.after(start, ["the"])
            for begin in {the} | self.after(the, corpora.ADJECTIVES)
            for end in self.after(begin, corpora.NOUNS[number])
        }
        ends = set(nouns)
        for noun in nouns:
            for other in corpora.NOUNS:
                for place in self.after(noun, corpora.PLACES):
                    ends |= self.noun_phrase(other, place)
                for that in self.after(noun, ["that"]):
                    for end in self.noun_phrase(other, that):
                        ends |= self.after(end, corpora.VERBS[other])
                    for verb in self.after(that, corpora.VERBS[number]):
                        ends |= self.noun_phrase(other, verb)
        return ends

    def _aside(self, start: int) -> set[int]:
        ends = set()
        for opening, closing in corpora.BRACKETS:
            for begin in self.after(start, [opening]):
                for inner in self.clause(begin) | self.after(begin, corpora.ADJECTIVES):
                    for end in {inner} | self.aside(inner):
                        ends |= self.after(end, [closing])
        return ends

    def _clause(self, start: int) -> set[int]:
        ends = set()
        for pronoun, names in corpora.NAMES.items():
            for name in self.after(start, names):
                for subject in {name} | self.aside(name):
                    for verb in self.after(subject, corpora.VERBS["singular"]):
                        ends |= self.after(verb, [pronoun])
                    for verb in self.after(subject, corpora.SPEECH):
                        for opening in self.after(verb, ['"']):
                            for quoted in self.clause(opening):
                                ends |= self.after(quoted, ['"'])
        for number in corpora.NOUNS:
            for phrase in self.noun_phrase(number, start):
                for subject in {phrase} | self.aside(phrase):
                    ends |= self.after(subject, corpora.RESTING[number])
                    for verb in self.after(subject, corpora.VERBS[number]):
                        for other in corpora.NOUNS:
                            ends |= self.noun_phrase(other, verb)
        return ends

    def holds(self) -> bool:
        return len(self.words) - 1 in self.clause(0) and self.words[-1] == "."


def test_own_text_agrees_in_number_and_gender_and_closes_what_it_opens() -> None:
    sentences = own_text().splitlines()[:1500]
    assert all(Grammar(sentence).holds() for sentence in sentences)
    wrong = [
        "the dog that the cats hear sleep .",
        "the dogs near the river sleeps .",
        "anna ( old ) sees himself .",
        "the dog ( small [ old ) ] sleeps .",
        'paul says " the dog sleeps .',
    ]
    assert not any(Grammar(sentence).holds() for sentence in wrong)
    depths = [deepest(sentence) for sentence in sentences]
    assert max(depths) == 5
    assert sum(depth > 1 for depth in depths) > 50
    assert max(sentence.count(" that ") for sentence in sentences) >= 3


def deepest(sentence: str) -> int:
    depth = most = 0
    for word in sentence.split():
        depth += (word in "([{") - (word in ")]}")
        most = max(most, depth)
    return most


@pytest.mark.slow
@pytest.mark.parametrize("level", ["char", "byte", "word"])
def test_a_hundred_megabytes_start_in_two_seconds_after_their_first_use(tmp_path: Path, level: str) -> None:
    text = own_text(10**6)
    path = write(tmp_path / "large.txt", text * (10**8 // len(text)))
    start = time.perf_counter()
    first = load_file(path, tmp_path, level=level)
    encoding = time.perf_counter() - start
    start = time.perf_counter()
    second = load_file(path, tmp_path, level=level)
    starting = time.perf_counter() - start
    print(f"{level}: encoded in {encoding:.2f} s, started in {starting:.2f} s")
    assert starting < 2
    assert lengths(first) == lengths(second)
    shutil.rmtree(tmp_path / ".cache")
