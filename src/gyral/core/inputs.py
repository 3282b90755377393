"""Files that the user names as inputs. Every loader opens them here. A file whose name ends in .gz is unpacked.

A small file may unpack to, or declare, any size. So there are bounds.
"""

import gzip
import io
import os
import stat
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from gyral.core.errors import OptionError

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
ANY_FILE = 2**30  # bytes to which a file of any size may unpack
RATIO = 100  # bytes to which a byte of a large file may unpack; text has about ten


def path_of(value: Any) -> Path:
    """Return the path that a user means by a text or a path; ~ at its start is the home directory.

    In a locale other than UTF-8, a name with characters that the locale lacks is that of a file with these characters
    in UTF-8.
    """
    text = os.path.expanduser(os.fspath(value) if isinstance(value, os.PathLike) else str(value))
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        text = os.fsdecode(text.encode("utf-8", "surrogateescape"))
    return Path(text)


def as_utf8(text: str) -> str:
    """Return a text of the command line that was in UTF-8, although the locale may have decoded it otherwise.

    Bytes that are not text in UTF-8 stay as the locale has decoded them; `path_of` is the inverse for paths.
    """
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        return text


@contextmanager
def open_input(option: str, value: Any, file: Path | None = None) -> Iterator[io.BufferedReader]:
    """Open a file for reading bytes; within this context, errors of the operating system name the option and the file.

    The bytes of a file `*.gz` are unpacked, except those of an archive `*.tar.gz`.

    Args:
        option: the option that names the file.
        value: its value.
        file: path of the file. None: the value is the path.

    Raises:
        OptionError: the file cannot be read, is not a complete gzip file, or unpacks to more than `most_bytes`. Named
            pipes and devices are refused, because reads may block forever.
    """
    path = path_of(value if file is None else file)
    check_file(option, value, path)
    try:
        with path.open("rb") as content:
            if is_packed(path):
                most = most_bytes(os.fstat(content.fileno()).st_size)
                yield io.BufferedReader(BoundedReader(gzip.GzipFile(fileobj=content), most))
            else:
                yield content
    except BoundError as error:
        raise OptionError(option, value, f"{_at(path, value)}{error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise OptionError(option, value, f"{_at(path, value)}is not a complete gzip file ({error})") from None
    except OSError as error:
        reason = f"cannot be read ({error.strerror or error})"
        raise OptionError(option, value, _at(path, value) + reason) from None


def is_packed(path: Path) -> bool:
    """Return whether a file is a single one that is packed with gzip, by its name."""
    return path.name.lower().endswith(".gz") and not path.name.lower().endswith(".tar.gz")


def suffix_of(path: Path) -> str:
    """Return the suffix of a file name in lower case; that before .gz of a packed file."""
    return (path.with_suffix("") if is_packed(path) else path).suffix.lower()


def read_bytes(option: str, value: Any, file: Path | None = None) -> bytes:
    """Return the content of a file. It takes the arguments of `open_input` and raises its errors."""
    with open_input(option, value, file) as content:
        return content.read()


def read_text(option: str, value: Any, file: Path | None = None, encoding: str = "utf-8") -> str:
    """Return the content of a text file, without a byte order mark, with `\\n` at the end of each line.

    Args:
        option, value, file: see `open_input`.
        encoding: "utf-8" or "ascii".

    Raises:
        OptionError: the file cannot be read, or is not in the encoding.
    """
    path = path_of(value if file is None else file)
    try:
        text = decode(read_bytes(option, value, path), encoding)
    except UnicodeDecodeError as error:
        raise OptionError(option, value, f"{_at(path, value)}is not {error.encoding.upper()}: {error.reason}") from None
    return io.StringIO(text, newline=None).read()


def read_lines(option: str, value: Any) -> Iterator[str]:
    """Yield the lines of a text file in UTF-8 as they arrive, or of standard input if the value is "-".

    Args:
        option, value: see `open_input`. Lines in memory are yielded as they are.

    Raises:
        OptionError: the file cannot be read, or a line is not UTF-8.
    """
    if not isinstance(value, str | os.PathLike):
        yield from value
        return
    with nullcontext(sys.stdin.buffer) if value == "-" else open_input(option, value) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield decode(line)
            except UnicodeDecodeError as error:
                raise OptionError(option, value, f"line {number}: is not UTF-8: {error.reason}") from None


def source_of(value: Any) -> Any:
    """Return the name of the lines of `read_lines` in errors: the path of the file, or the word lines."""
    return value if isinstance(value, str | os.PathLike) else "lines"


def decode(content: bytes, encoding: str = "utf-8") -> str:
    """Return bytes as text, without a byte order mark.

    Raises:
        UnicodeDecodeError: the bytes are not in the encoding. The reason is "byte 0xff at offset 3".
    """
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        error.reason = f"byte 0x{content[error.start]:02x} at offset {error.start}"
        raise


def check_file(option: str, value: Any, file: Path | None = None) -> None:
    """Raise the error of `open_input` if a file cannot be opened. The arguments are the same."""
    path = path_of(value if file is None else file)
    if fault := find_fault(path):
        raise OptionError(option, value, _at(path, value) + fault)


def find_fault(path: Path) -> str | None:
    """Return the reason why a path is not a regular file, as the end of a sentence, or None."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if isinstance(error, FileNotFoundError) and path.is_symlink():
            return "is a link to a file that does not exist"
        return f"cannot be read ({error.strerror})"
    except ValueError as error:  # an embedded null character
        return f"cannot be read ({error})"
    if stat.S_ISDIR(mode):
        return "cannot be read (Is a directory)"
    return None if stat.S_ISREG(mode) else f"is {KINDS.get(stat.S_IFMT(mode), 'something else')}, and must be a file"


def check_exists(option: str, value: str) -> None:
    """Raise the error of `open_input` for a text that looks like the path of a file, with a /, where nothing exists.

    A text with one of `:*?[` may be an address, a pattern, or a path with a slice.
    """
    looks_like_path = "/" in value and not set(":*?[") & set(value)
    if looks_like_path and not os.path.lexists(path := path_of(value)):
        raise OptionError(option, value, find_fault(path) or "does not exist")


def _at(path: Path, value: Any) -> str:
    """Return the beginning of a reason: the path, unless it is the value."""
    return "" if str(path) == str(value) else f"{path}: "


def excerpt(content: Iterable[str], size: int = 200) -> str:
    """Return names from a file, separated by commas and shortened, for an error: a damaged file may have any names."""
    text = ", ".join(content)
    return text if len(text) <= size else f"{text[:size]}…"


def count_of(number: int, noun: str) -> str:
    """Return a number of things in words, such as "1 step" or "2,000 steps"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class BoundError(ValueError):
    """A file unpacks to more than its bound, or declares more than it has."""


def most_bytes(packed: int) -> int:
    """Return the number of bytes to which a packed file of some bytes may unpack."""
    return max(ANY_FILE, RATIO * packed)


class BoundedReader(io.RawIOBase):
    """Reads from another stream up to a number of bytes.

    Args:
        content: the other stream, such as an unpacked one.
        most: the number of bytes after which reading raises `BoundError`.
    """

    def __init__(self, content: IO[bytes] | gzip.GzipFile, most: int) -> None:
        self.content, self.most = content, most

    @property
    def name(self) -> str:
        """The name of the other stream's file, for errors."""
        return str(getattr(self.content, "name", ""))

    def fileno(self) -> int:
        return self.content.fileno()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self.content.seekable()

    def readinto(self, buffer: Any) -> int:
        block = self.content.read(len(buffer))
        if self.content.tell() > self.most:
            raise BoundError(f"unpacks to more than {self.most:,} bytes")
        buffer[: len(block)] = block
        return len(block)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self.content.seek(offset, whence)

    def tell(self) -> int:
        return self.content.tell()


def check_members(archive: zipfile.ZipFile, packed: int, most: int | None = None) -> None:
    """Check the sizes that the members of a ZIP archive declare, beyond which none unpacks.

    Args:
        archive: the archive.
        packed: the size of its file.
        most: the largest sum of the sizes. None: `most_bytes`.

    Raises:
        BoundError: they declare more.
    """
    declared = sum(member.file_size for member in archive.infolist())
    allowed = most_bytes(packed) if most is None else most
    if declared > allowed:
        raise BoundError(f"declares {declared:,} bytes, and may have {allowed:,}")
