"""Cache of encoded text corpora.

A corpus is encoded once. Its symbol indices are stored in a cache directory and memory-mapped, so that a large corpus
loads at once and processes share its memory.
"""

import hashlib
import json
import logging
import os
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gyral.core.cache import cache_candidates
from gyral.core.errors import OptionError, UserError
from gyral.core.measures import SPLITS
from gyral.data.vocabulary import Symbols, Vocabulary

log = logging.getLogger(__name__)

FORMAT = 1  # version of the cached files; increment it to invalidate all earlier caches


@dataclass(frozen=True)
class Corpus:
    """A text in three splits.

    Attributes:
        name: name of the corpus.
        vocabulary: the symbols of the text, which are characters, words or bytes: `vocabulary.level`.
        splits: "train", "val" and "test", each (n,) unsigned integers of type `vocabulary.dtype`, memory-mapped and
            read-only.
    """

    name: str
    vocabulary: Vocabulary
    splits: dict[str, np.ndarray]

    @property
    def level(self) -> str:
        """Kind of the symbols: "char", "word" or "byte"."""
        return self.vocabulary.level


def load_or_build(
    name: str,
    key: list[Any],
    data_dir: str | Path,
    build: Callable[[], tuple[Vocabulary, dict[str, Symbols]]],
    option: tuple[str, Any],
) -> Corpus:
    """Return a corpus from a cache; if no cache contains it, build, encode and store it.

    A corpus is stored in two files, the indices and their description. Their content depends only on the key, so that
    several processes may write them at the same time.

    Args:
        name: name of the corpus.
        key: values that identify the content of the corpus, besides its name.
        data_dir: data folder.
        build: returns the vocabulary and the symbols of each split.
        option: name and value of the option that selects the text, for errors.

    Raises:
        OptionError: a symbol is not in the vocabulary; no cache directory is writable.
    """
    digest = hashlib.sha256(json.dumps([FORMAT, name, *key]).encode()).hexdigest()[:16]
    stem = f"{name[:40]}-{digest}"
    folders = cache_candidates(Path(data_dir))
    for folder in folders:
        corpus = _read(folder, stem, name)
        if corpus is not None:
            return corpus
    log.info("encoding %s, once", name)
    vocabulary, pieces = build()
    try:
        encoded = [vocabulary.encode(pieces[split], f"{split} split") for split in SPLITS]
    except UserError as error:
        raise OptionError(*option, str(error)) from None
    failures = []
    for folder in folders:
        try:
            _write(folder, stem, vocabulary, encoded)
        except OSError as error:
            # NumPy's error has no number when the disk is full: "10000 requested and 3968 written"
            failures.append(f"{folder}: {error.strerror or f'No space left on device ({error})'}")
            log.warning("%s", failures[-1])
            continue
        corpus = _read(folder, stem, name)
        if corpus is not None:
            return corpus
        failures.append(f"{folder}: the written corpus differs when it is read back")
    raise OptionError("data_dir", data_dir, f"no folder can be written to cache {name} ({'; '.join(failures)})")


def _read(folder: Path, stem: str, name: str) -> Corpus | None:
    """Return a corpus from a cache, or None if it is missing or damaged."""
    files = folder / f"{stem}.json", folder / f"{stem}.npy"
    try:
        if any(path.exists() and not path.is_file() for path in files):  # reading a named pipe would block
            raise ValueError("not a file")
        saved = json.loads(files[0].read_text(encoding="utf-8"))
        numbers = np.load(files[1], mmap_mode="r")
        description = saved["description"]
        if saved["checksum"] != _checksum(numbers, description):
            raise ValueError("checksum")
        bounds = np.cumsum([0, *description["lengths"]])
        vocabulary = Vocabulary.from_json(description["vocabulary"])
        if numbers.dtype != vocabulary.dtype or numbers.shape != (bounds[-1],):  # the checksum only covers the bytes
            raise ValueError("type")
        splits = {split: numbers[bounds[i] : bounds[i + 1]] for i, split in enumerate(SPLITS)}
        return Corpus(name, vocabulary, splits)
    except FileNotFoundError:
        return None
    except Exception as error:  # NumPy and JSON raise many kinds
        log.warning("%s is damaged (%s) and is encoded again", folder / stem, error)
        return None


def _write(folder: Path, stem: str, vocabulary: Vocabulary, encoded: list[np.ndarray]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    numbers = np.concatenate(encoded)
    description = {"lengths": [len(piece) for piece in encoded], "vocabulary": vocabulary.to_json()}
    saved = {"description": description, "checksum": _checksum(numbers, description)}
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        np.save(Path(temporary, f"{stem}.npy"), numbers)
        Path(temporary, f"{stem}.json").write_text(json.dumps(saved), encoding="utf-8")
        for suffix in ("npy", "json"):
            os.replace(Path(temporary, f"{stem}.{suffix}"), folder / f"{stem}.{suffix}")


def _checksum(numbers: np.ndarray, description: dict[str, Any]) -> int:
    return zlib.crc32(numbers.data, zlib.crc32(json.dumps(description, sort_keys=True).encode()))
