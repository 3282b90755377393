"""Cache of prepared corpora. A corpus is a folder of arrays and a description, and is prepared once.

The arrays are `.npy` files, which are memory-mapped, so that a large corpus loads at once and processes share its
memory. A folder is written completely or not at all, under a lock, so that one process prepares the corpus while others
wait. Its files have checksums, which are verified whenever it is read; a damaged corpus is prepared again. Nothing in a
folder is executed.

This module does not import torch, because many worker processes import it.
"""

import hashlib
import json
import logging
import os
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np
from numpy.lib import format as npy

from gyral.core.cache import cache_candidates
from gyral.core.errors import OptionError
from gyral.core.files import remove
from gyral.core.locks import lock_file

log = logging.getLogger(__name__)

FORMAT = 3  # version of the folders; increment it to invalidate all earlier caches
DESCRIPTION = "corpus.json"

Corpus = TypeVar("Corpus")


class Prepared(NamedTuple):
    """The content of a folder.

    Attributes:
        folder: the folder.
        arrays: the arrays by their names, memory-mapped and read-only.
        about: the description, of values that JSON represents.
    """

    folder: Path
    arrays: Mapping[str, np.ndarray]
    about: dict[str, Any]


class Writer:
    """Writes the arrays of a corpus.

    Args:
        folder: an empty folder.
        files: closes the files.
        parts: folder for files that a preparation makes first; if it is interrupted, the next one finds them.

    Attributes:
        parts: as given.
        about: the description, to which a preparation adds.
    """

    def __init__(self, folder: Path, files: ExitStack, parts: Path) -> None:
        self.parts = parts
        self.about: dict[str, Any] = {}
        self._folder, self._files = folder, files
        self._arrays: dict[str, tuple[BinaryIO, np.dtype[Any], list[int]]] = {}

    def append(self, name: str, values: np.ndarray | bytes) -> None:
        """Add values to the end of an array, whose type and other dimensions are those of the first values.

        Raises:
            OSError: they cannot be written.
        """
        values = np.frombuffer(values, dtype=np.uint8) if isinstance(values, bytes) else values
        if name not in self._arrays:
            file: BinaryIO = self._files.enter_context((self._folder / f"{name}.npy").open("wb"))
            self._arrays[name] = file, values.dtype, [0, *values.shape[1:]]
            _write_header(*self._arrays[name])
        file, dtype, shape = self._arrays[name]
        file.write(np.ascontiguousarray(values, dtype).data)
        shape[0] += len(values)

    def end(self) -> None:
        """Write the sizes of the arrays."""
        for file, dtype, shape in self._arrays.values():
            file.seek(0)
            _write_header(file, dtype, shape)


def _write_header(file: BinaryIO, dtype: np.dtype[Any], shape: list[int]) -> None:
    """Write the header of an array, whose length does not depend on the size of the first dimension."""
    npy.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": tuple(shape)})


def load_or_prepare(
    name: str,
    key: list[Any],
    data_dir: str | Path,
    prepare: Callable[[], Callable[[Writer], None]],
    build: Callable[[Prepared], Corpus],
) -> Corpus:
    """Return a corpus from a cache; if no cache contains it, prepare it.

    Args:
        name: name of the corpus.
        key: values that identify the content of the corpus, besides its name, which JSON can represent.
        data_dir: data folder, which contains the cache if it is writable.
        prepare: called before anything is written or locked, so that what it refuses leaves no trace; it returns the
            function that writes the corpus.
        build: returns the corpus of a folder.

    Raises:
        OptionError: no cache directory is writable.
    """
    digest = hashlib.sha256(json.dumps([FORMAT, name, *key]).encode()).hexdigest()[:16]
    stem = f"{name[:40]}-{digest}"
    folders = cache_candidates(Path(data_dir))
    for folder in folders:
        if corpus := read_corpus(folder / stem, build):
            return corpus
    log.info("preparing %s, once", name)
    write = prepare()
    failures = []
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _wait_for_lock(folder / f"{stem}.lock"):
                found = read_corpus(folder / stem, build)  # another process may have prepared it
                if found is None:
                    _write(folder / stem, write)
                    found = read_corpus(folder / stem, build)
        except OSError as error:
            failures.append(f"{error.filename or folder}: {error.strerror or error}")
            log.warning("%s", failures[-1])
            continue
        if found is not None:
            return found
        failures.append(f"{folder / stem}: the written corpus differs when it is read back")
    raise OptionError("data_dir", data_dir, f"no folder can be written to cache {name} ({'; '.join(failures)})")


def _wait_for_lock(path: Path) -> AbstractContextManager[Any]:
    """Acquire a lock, after a log message if another process is preparing the same corpus."""
    try:
        return lock_file(path)
    except BlockingIOError:
        log.info("%s: waiting for another process that prepares it", path.stem)
        return lock_file(path, seconds=None)


def _write(target: Path, write: Callable[[Writer], None]) -> None:
    """Write the folder of a corpus completely or not at all."""
    unfinished, parts = (target.with_name(f"{target.name}.{end}") for end in ("tmp", "parts"))
    remove(unfinished)  # a killed process has left it
    unfinished.mkdir()
    try:
        with ExitStack() as files:
            writer = Writer(unfinished, files, parts)
            write(writer)
            writer.end()
        checksums = {path.name: checksum(path) for path in unfinished.iterdir()}
        saved: dict[str, Any] = {"about": writer.about, "checksums": checksums}
        (unfinished / DESCRIPTION).write_text(json.dumps({**saved, "checksum": checksum(saved)}), encoding="utf-8")
        remove(target)  # it is damaged
        os.replace(unfinished, target)
        remove(parts)
    finally:
        remove(unfinished)


def checksum(content: Path | dict[str, Any]) -> int:
    """Return the CRC-32 of a file, or of a description as JSON."""
    if not isinstance(content, Path):
        return zlib.crc32(json.dumps(content, sort_keys=True).encode())
    value = 0
    with content.open("rb") as file:
        while block := file.read(2**20):
            value = zlib.crc32(block, value)
    return value


def read_corpus(folder: Path, build: Callable[[Prepared], Corpus]) -> Corpus | None:
    """Return the corpus of a folder, or None if the folder is missing or damaged."""
    try:
        if any(path.exists() and not path.is_file() for path in folder.iterdir()):  # reading a named pipe would block
            raise ValueError("not a file")
        saved = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        if saved.pop("checksum") != checksum(saved):
            raise ValueError(f"checksum of {DESCRIPTION}")
        if not {*saved["checksums"]} <= {path.name for path in folder.iterdir()}:
            raise ValueError("checksums of files elsewhere")
        for file, expected in saved["checksums"].items():
            if checksum(folder / file) != expected:
                raise ValueError(f"checksum of {file}")
        arrays = {Path(file).stem: npy.open_memmap(folder / file, mode="r") for file in saved["checksums"]}
        return build(Prepared(folder, arrays, saved["about"]))
    except NotADirectoryError:
        return None
    except Exception as error:  # NumPy and JSON raise many kinds
        if folder.exists():
            log.warning("%s is damaged (%s) and is prepared again", folder, error)
        return None
