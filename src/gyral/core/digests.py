"""Digests of files of data, by which a run recognizes the data that it was trained on. Imports no torch.

The digest of a file is the SHA-256 of its content, which `sha256sum` prints. Within a process, no file is read twice
for it; the digests of large files are kept in the user's cache, too, while size and modification time stay the same.
"""

import functools
import hashlib
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gyral.core.cache import cache_directory
from gyral.core.files import write_atomically

LARGE = 2**26  # bytes; reading as much takes a tenth of a second


def digest_of(files: Sequence[tuple[str, Path]]) -> str:
    """Return the digest of one file, or that of the digests of several files and of their names in it.

    Raises:
        OSError: a file cannot be read.
    """
    states = [(name, str(path.absolute()), *_state(path)) for name, path in files]
    return _digest(tuple(states))


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@functools.cache
def _digest(states: tuple[tuple[str, str, int, int], ...]) -> str:
    if sum(size for _, _, size, _ in states) < LARGE:
        return _read(states)
    key = hashlib.sha256(json.dumps(states).encode(errors="surrogateescape")).hexdigest()
    kept = cache_directory() / "digests" / key[:32]
    with suppress(OSError, UnicodeDecodeError):
        if re.fullmatch(r"[0-9a-f]{64}", found := kept.read_text(encoding="ascii")):
            return found
    digest = _read(states)
    with suppress(OSError):  # the disk may be full
        write_atomically(kept, digest)
    return digest


def _read(states: Sequence[tuple[str, str, int, int]]) -> str:
    digests = []
    for name, path, *_ in states:
        with open(path, "rb") as content:
            digests.append((hashlib.file_digest(content, "sha256").hexdigest(), name))
    if len(digests) == 1:
        return digests[0][0]
    return hashlib.sha256(
        "".join(f"{digest}  {name}\n" for digest, name in digests).encode("utf-8", "replace")
    ).hexdigest()
