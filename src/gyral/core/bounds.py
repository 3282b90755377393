"""Bounds of what a file unpacks to or declares: a small file may do so to any size."""

import gzip
import io
import zipfile
from typing import IO, Any

ANY_FILE = 2**30  # bytes to which a file of any size may unpack
RATIO = 100  # bytes to which a byte of a large file may unpack; text has about ten


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
