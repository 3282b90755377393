"""Ways in which a file may be damaged, or be none."""

import gzip
import os
import pickle
import re
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random

PICTURE = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01\x00\x00\x00\x01\x00\x08\x06"
CONTROL = b"\x1b[2J\x1b]0;a\x07\x08\x7f\xc2\x9b31m"
NUMBER = rb"\d+(?:\.\d+)?"
PAGE = b"<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head></html>\n"


def cut(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content))]


def cut_the_beginning(content: bytes, random: Random) -> bytes:
    return content[random.randrange(1, len(content)) :]


def flip_bytes(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 3, 30))):
        changed[random.randrange(len(changed))] ^= random.randrange(1, 256)
    return bytes(changed)


def shuffle(content: bytes, random: Random) -> bytes:
    return bytes(random.sample(content, len(content)))


def drop_a_piece(content: bytes, random: Random) -> bytes:
    start = random.randrange(len(content))
    return content[:start] + content[start + random.randrange(1, 40) :]


def insert(piece: bytes) -> Callable[[bytes, Random], bytes]:
    def into(content: bytes, random: Random) -> bytes:
        place = random.randrange(len(content))
        return content[:place] + piece + content[place:]

    return into


def recode(encoding: str) -> Callable[[bytes, Random], bytes]:
    def into(content: bytes, random: Random) -> bytes:
        return (content.decode("latin-1") + "über naïve cafés").encode(encoding)

    return into


def replace_a(pattern: bytes, *others: bytes) -> Callable[[bytes, Random], bytes]:
    """Replace one match of a pattern, such as a number; content without a match gets the other at a random place."""

    def into(content: bytes, random: Random) -> bytes:
        found = [match.span() for match in re.finditer(pattern, content)]
        start, end = random.choice(found) if found else (random.randrange(len(content)),) * 2
        return content[:start] + random.choice(others) + content[end:]

    return into


def repeat_a_line(content: bytes, random: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    number = random.randrange(len(lines))
    return b"".join([*lines[: number + 1], *lines[number:]])


def reorder_lines(content: bytes, random: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join(random.sample(lines, len(lines)))


def as_one_line(content: bytes, random: Random) -> bytes:
    return content.replace(b"\n", b" ") * (2**20 // max(len(content), 1) + 1)


def replace_by(other: bytes) -> Callable[[bytes, Random], bytes]:
    return lambda content, random: other


CONTENTS: dict[str, Callable[[bytes, Random], bytes]] = {
    "cut": cut,
    "without its beginning": cut_the_beginning,
    "flipped bytes": flip_bytes,
    "shuffled": shuffle,
    "a piece is missing": drop_a_piece,
    "null characters": insert(b"\0" * 5),
    "a quotation mark": insert(b'"'),
    "a line break": insert(b"\r\n\n"),
    "invalid UTF-8": insert(b"\xed\xa0\x80\xff"),
    "a surrogate": insert(b"\\ud800"),
    "a long number": insert(b"9" * 5000),
    "brackets": insert(b"[" * 5000),
    "round brackets": insert(b"(" * 100_000),
    "closed brackets": insert(b"(" * 2000 + b"a" + b")" * 2000),
    "deep JSON": replace_by(b'{"a":' * 100_000),
    "deep lists": replace_a(NUMBER, b"[" * 100_000 + b"]" * 100_000, b"[" * 150 + b"]" * 150),
    "a negative number": replace_a(NUMBER, b"-1", b"-9223372036854775808"),
    "a huge number": replace_a(NUMBER, b"9" * 400, b"99999999999999999999", b"2147483648", b"1e999"),
    "another number": replace_a(NUMBER, b"0", b"1", b"1000"),
    "no number": replace_a(NUMBER, b"NaN", b"Infinity", b"null", b"true", b"1.5", b'"1"', b"", b"0x1", b"\xc2\xb2"),
    "no text": replace_a(rb'"[^"]*"', b"3", b"null", b"[]", b"{}", b'""', b'" "'),
    "an empty list": replace_a(rb"\[[^\[\]]*\]", b"[]", b"null", b"[null]", b"[[]]"),
    "no word": replace_a(rb"[a-z]+", b"", b" "),
    "control characters": insert(CONTROL),
    "a word of control characters": replace_a(rb"[a-z]+", CONTROL),
    "markup": replace_a(rb"[a-z]+", b"<script>alert(1)</script>", b"| **a** |\n\n# b", b"[red]a[/red]"),
    "a path": replace_a(rb"[a-z0-9_.]+", b"../../../../etc/passwd", b"/etc/passwd", b"/dev/zero"),
    "an interpolation": replace_a(rb"[a-z]+", b"${oc.env:HOME}"),
    "keys that occur twice": replace_a(rb"\{", b'{"a": 1, "a": 2, "": 3,'),
    "a line that occurs twice": repeat_a_line,
    "tabs": insert(b"\t" * 1000),
    "a line separator": insert("\u2028".encode()),
    "letters of two directions": insert("\u202e\u2066".encode()),
    "UTF-16": recode("utf-16"),
    "Latin-1": recode("latin-1"),
    "byte order mark": lambda content, random: b"\xef\xbb\xbf" + content,
    "CR LF": lambda content, random: content.replace(b"\n", b"\r\n"),
    "CR": lambda content, random: content.replace(b"\n", b"\r"),
    "reordered lines": reorder_lines,
    "one huge line": as_one_line,
    "empty": replace_by(b""),
    "only a byte order mark": replace_by(b"\xef\xbb\xbf"),
    "only line breaks": replace_by(b"\n" * 100),
    "only null characters": replace_by(b"\0" * 3000),
    "one symbol": replace_by(b"a" * 3000),
    "a picture": replace_by(PICTURE),
    "a page": replace_by(PAGE),
    "a pickle": replace_by(pickle.dumps({"inputs": [1, 2, 3]})),
    "compressed": lambda content, random: gzip.compress(content, mtime=0),
    "a number of JSON": replace_by(b"3\n"),
    "a list of JSON": replace_by(b'[{"article": 3}, null]\n' * 9),
}


def make_directory(path: Path) -> None:
    path.mkdir()
    (path / "a file").write_text("a")


def make_socket(path: Path) -> None:
    directory = os.open(path.parent, os.O_RDONLY)  # the path of a socket has at most 107 characters
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)


def make_unreadable(path: Path) -> None:
    """Root may read every file, but not what is in this one: reading it is an error of the device."""
    if os.getuid() == 0:
        path.symlink_to("/proc/self/mem")
    else:
        path.touch(mode=0)


# What may be at the path instead of a file. None of them may be read.
OTHERS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "a directory": make_directory,
    "a named pipe": os.mkfifo,
    "a socket": make_socket,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a silent device": lambda path: path.symlink_to("/dev/ptmx"),
    "a dangling link": lambda path: path.symlink_to("nothing"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "unreadable": make_unreadable,
}


def damage(path: Path, random: Random, only_contents: bool = False) -> str:
    """Damage a file in a random way, or replace it by something else, and return the way."""
    ways = CONTENTS if only_contents or random.random() >= 0.3 else OTHERS
    way = random.choice(list(ways))
    damage_as(way, path, random)
    return way


def damage_as(way: str, path: Path, random: Random) -> None:
    """Damage a file in a way of `CONTENTS`, or replace it by one of `OTHERS`."""
    content = path.read_bytes()
    if way in OTHERS:
        path.unlink()
        OTHERS[way](path)
    else:
        path.write_bytes(CONTENTS[way](content, random) if content else b"\xff")
