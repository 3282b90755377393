"""The cache of encoded corpora: reuse, damage, concurrent processes, folders that cannot be written."""

import functools
import json
import multiprocessing
import os
import shutil
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest

from gyral.core.errors import OptionError
from gyral.core.measures import SPLITS
from gyral.data.text.corpora import load, load_file
from gyral.data.text.synthetic import synthetic_text
from gyral.data.vocabulary import Vocabulary
from tests.data.text.conftest import LETTERS, lengths, write


def test_a_file_that_changes_after_it_was_cached_is_refused(letters: Path, data: Path) -> None:
    load("letters", data)
    times = letters.stat()
    write(letters, b"T" + LETTERS[1:])
    os.utime(letters, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(OptionError, match="sha256"):
        load("letters", data)


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


def test_every_option_and_change_has_a_separate_cache(tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "abc " * 100)
    load = functools.partial(load_file, path, tmp_path)
    seen = [load(), load(level="byte"), load(val_fraction=0.2), load(test_fraction=0.2), load(minimum_count=3)]
    write(path, "abd " * 100)
    seen.append(load())
    assert len(list((tmp_path / ".cache").glob("*/train.npy"))) == len(seen)
    assert [corpus.vocabulary.symbols[3] for corpus in (seen[0], seen[-1])] == ["c", "d"]


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    changed = content[:-1] + bytes([content[-1] ^ 1])
    path.write_bytes({"empty": b"", "half": content[: len(content) // 2], "changed": changed}[how])


@pytest.mark.parametrize("name", ["train.npy", "corpus.json"])
@pytest.mark.parametrize("how", ["empty", "half", "changed"])
def test_a_damaged_cache_is_encoded_again(letters: Path, data: Path, name: str, how: str) -> None:
    load("letters", data)
    (path,) = (data / ".cache").glob(f"*/{name}")
    whole = path.read_bytes()
    damage(path, how)
    corpus = load("letters", data)
    assert corpus.vocabulary.decode(corpus.splits["train"]) == LETTERS.decode()[:396]
    assert path.read_bytes() == whole


def test_a_cache_with_a_changed_vocabulary_is_encoded_again(letters: Path, data: Path) -> None:
    load("letters", data)
    (path,) = (data / ".cache").glob("*/corpus.json")
    saved = json.loads(path.read_text())
    saved["about"]["vocabulary"]["symbols"].reverse()
    path.write_text(json.dumps(saved))
    assert load("letters", data).vocabulary.symbols[0] == " "


def test_a_cache_with_another_type_is_encoded_again(letters: Path, data: Path) -> None:
    load("letters", data)
    (path,) = (data / ".cache").glob("*/train.npy")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"|u1", b"|i1", 1))
    assert load("letters", data).splits["train"].dtype == np.uint8
    assert path.read_bytes() == whole


def load_at_once(path: Path, data: Path, barrier: Barrier) -> None:
    barrier.wait()
    assert lengths(load_file(path, data)) == [396, 22, 22]


def test_processes_may_encode_at_once(letters: Path, data: Path) -> None:
    context = multiprocessing.get_context("fork")  # spawned ones import for seconds
    barrier = context.Barrier(3)
    processes = [context.Process(target=load_at_once, args=(letters, data, barrier)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 3
    (folder,) = (data / ".cache").glob("*/")
    assert {path.name for path in (data / ".cache").iterdir()} == {folder.name, f"{folder.name}.lock"}


def test_a_protected_or_missing_data_folder_is_not_changed(letters: Path, data: Path, user_cache: Path) -> None:
    data.chmod(0o555)
    assert lengths(load("letters", data)) == [396, 22, 22]
    assert not (data / ".cache").exists()
    assert sorted(path.suffix for path in user_cache.iterdir()) == ["", ".lock"]
    load_file(None, data / "nowhere")
    assert not (data / "nowhere").exists()
    data.chmod(0o755)


def test_a_cache_that_cannot_be_written_is_an_error_of_one_line(letters: Path, data: Path, user_cache: Path) -> None:
    (data / ".cache").write_text("a file")
    user_cache.parent.mkdir()
    user_cache.write_text("a file", encoding="utf-8")
    reasons = rf"{data / '.cache'}: File exists; {user_cache}: File exists"
    with pytest.raises(
        OptionError, match=rf"^data_dir={data}: no folder can be written to cache letters \({reasons}\)$"
    ):
        load("letters", data)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["char", "byte", "word"])
def test_a_hundred_megabytes_are_encoded_once(tmp_path: Path, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = synthetic_text(10**6)
    path = write(tmp_path / "large.txt", text * (10**8 // len(text)))
    first = load_file(path, tmp_path, level=level)
    monkeypatch.setattr(Vocabulary, "encode", None)
    second = load_file(path, tmp_path, level=level)
    assert lengths(first) == lengths(second)
    shutil.rmtree(tmp_path / ".cache")
