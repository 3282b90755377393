"""Articles with summaries for the tests, in the forms in which they are passed around."""

import hashlib
import json
import random
import struct
from pathlib import Path
from typing import Any


def article(number: int, words: int = 12) -> dict[str, Any]:
    """Return an article of two paragraphs, with a unique name and common words."""
    uniform = random.Random(number).random
    drawn = [f"w{int(200 * uniform() ** 3)}" for _ in range(words)]
    return {
        "article": f"Name{number} met {' '.join(drawn[: words // 2])}.\n{' '.join(drawn[words // 2 :])} Place{number}.",
        "highlights": [f"Name{number} met {drawn[0]}.", f"It was {drawn[-1]}."],
        "title": f"Name{number} there",
    }


def write_lines(path: Path, rows: list[Any]) -> Path:
    """Write JSON lines; bytes are written unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows))
    return path


def _field(number: int, content: bytes) -> bytes:
    length, head = len(content), bytearray([number << 3 | 2])
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    return bytes(head) + bytes([length]) + content


def example(**texts: str) -> bytes:
    """Return a `tf.Example` as protobuf writes it."""
    entries = b""
    for name, text in texts.items():
        value = _field(1, _field(1, text.encode()))
        entries += _field(1, _field(1, name.encode()) + _field(2, value))
    return _field(1, entries)


def write_chunk(path: Path, examples: list[bytes]) -> Path:
    """Write a chunk of See et al. (2017)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(struct.pack("<q", len(one)) + one for one in examples))
    return path


def write_story(folder: Path, address: str, text: str) -> Path:
    """Write a story into the file that its address names."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha1(address.encode()).hexdigest()}.story"
    path.write_text(text)
    return path
