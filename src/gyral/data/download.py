"""Download of published corpora into the data folder.

An archive is downloaded to a file named `.part`, so that an interrupted download resumes. Then it is unpacked, or kept
unchanged. A file gets its final name after its checksum is verified, so that a file of that name is complete.
"""

import errno
import functools
import gzip
import io
import lzma
import os
import shutil
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import requests
from tqdm import tqdm  # type: ignore[import-untyped]

from gyral.core.cache import DATA_CACHE
from gyral.core.errors import UserError
from gyral.core.files import replace_when_written
from gyral.core.inputs import BoundedReader, find_fault
from gyral.core.locks import lock_file
from gyral.core.streams import unescaped
from gyral.data.catalogue import CATALOGUE, PublishedCorpus, PublishedFile, has_file, sha256

BLOCK = 2**18  # bytes per read
LARGEST = 2**31  # bytes of an archive, and of what is unpacked before a file in it is found
TIMEOUT = 30  # seconds without data
BROKEN_ARCHIVE = (
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, KeyError, ValueError),
    *(NotImplementedError, RuntimeError),  # for members that are marked as encrypted or as compressed otherwise
)


class DownloadError(Exception):
    """A URL does not provide the expected file; the message gives the reason."""


def fetch(name: str, data_dir: Path, catalogue: Mapping[str, PublishedCorpus] = CATALOGUE) -> None:
    """Download the missing files of a corpus into its folder, and print a summary to standard output.

    Raises:
        UserError: no URL provides the files, another process is downloading them, or other files have
            these names.
        OSError: the folder cannot be written.
    """
    corpus, folder = catalogue[name], data_dir / name
    missing = [file for file in corpus.files if not has_file(folder, file)]
    pairs = zip(corpus.files, corpus.derived, strict=False)
    underived = [pair for pair in pairs if not has_file(folder, pair[1])]
    if missing:
        print(f"{name}: {corpus.origin}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            _download_from_any(corpus.urls, folder, missing)
    for file, derived in underived:
        content = corpus.derive((folder / file.name).read_bytes())
        replace_when_written(folder / derived.name, functools.partial(Path.write_bytes, data=content))
        has_file(folder, derived)
    print(f"{name}: {'downloaded to' if missing or underived else 'already complete in'} {folder}")


def _lock(folder: Path) -> AbstractContextManager[Any]:
    try:
        return lock_file(folder.parent / DATA_CACHE / f"{folder.name}.lock")
    except BlockingIOError:
        raise UserError(f"{folder}: another process is downloading to it") from None


def _download_from_any(urls: tuple[str, ...], folder: Path, files: list[PublishedFile]) -> None:
    failures = []
    for url in urls:
        try:
            return _download_archive(url, folder, files)
        except DownloadError as error:
            failures.append(f"{url}: {error}")
    names = ", ".join(file.name for file in files)
    raise UserError(
        f"{folder.name}: the download failed ({'; '.join(failures)}): run the same command again, or put {names} into "
        f"{folder}"
    )


def _download_archive(url: str, folder: Path, files: list[PublishedFile]) -> None:
    archive = folder / f"{url.rsplit('/', 1)[-1]}.part"
    fault = "is a link" if archive.is_symlink() else find_fault(archive) if archive.exists() else None
    if fault is not None:
        raise UserError(f"{archive}: {fault}; remove it")
    whole = [file.size for file in files if archive.name == f"{file.name}.part"]
    try:
        with archive.open("ab") as part:
            _download(url, _Part(part, max(whole, default=LARGEST)))
        for file in files:
            _unpack(archive, file, folder / file.name)
    except DownloadError:
        if archive.stat().st_size == 0:
            archive.unlink()
        raise
    except BROKEN_ARCHIVE as error:
        archive.unlink()
        names = ", ".join(file.name for file in files)
        raise DownloadError(f"not an archive with the published {names}") from error
    except OSError as error:  # errors of open files lack the file name
        raise OSError(error.errno, error.strerror or str(error), error.filename or str(archive)) from error
    archive.unlink()


class _Part:
    """A file that is downloaded, up to a number of bytes."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self.file, self.most = file, most

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, block: bytes) -> int:
        """Append bytes.

        Raises:
            DownloadError: the file has too many, and is empty afterwards.
        """
        if self.file.seek(0, os.SEEK_END) + len(block) > self.most:
            self.file.truncate(0)
            raise DownloadError(f"provides more than {self.most:,} bytes")
        return self.file.write(block)


def _download(url: str, part: "IO[bytes] | _Part") -> None:
    """Append the missing bytes of a URL to a file.

    Raises:
        DownloadError: the download failed. The bytes received so far are kept, and the next download resumes there.
    """
    if url.startswith("file:"):
        part.truncate(0)
        with open(url2pathname(urlsplit(url).path), "rb") as local:
            return shutil.copyfileobj(local, part)
    start = part.seek(0, os.SEEK_END)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            if not start or response.status_code != requests.codes.requested_range_not_satisfiable:
                return _receive(response, part)
    except requests.RequestException as error:
        raise DownloadError(str(_root(error)) or type(error).__name__) from error
    part.truncate(0)  # the file of the server is not longer than `start`
    _download(url, part)


def _receive(response: requests.Response, part: "IO[bytes] | _Part") -> None:
    """Append the content of a response to a file, or replace the file if the server sends it from its start.

    Raises:
        DownloadError: the status of the response is an error.
    """
    if not response.ok:
        raise DownloadError(f"status {response.status_code}, {response.reason}")
    if response.status_code == requests.codes.ok:
        part.truncate(0)
    # the bar is drawn with control characters
    stream = unescaped(sys.stderr)
    total = int(response.headers.get("Content-Length", 0)) or None
    with tqdm(total=total, ncols=79, unit="B", unit_scale=True, file=stream, disable=not sys.stderr.isatty()) as bar:
        for block in response.iter_content(BLOCK):
            part.write(block)
            bar.update(len(block))


def _root(error: BaseException) -> BaseException:
    """Return the error that caused another one, which requests describes in terms of its connection pool."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return error


def _unpack(archive: Path, file: PublishedFile, target: Path) -> None:
    """Write one file of a .zip or a .tgz archive, from any folder in it, or the archive itself, and verify it.

    Raises:
        KeyError: the archive does not contain the published file.
    """

    def write(path: Path) -> None:
        with _open_member(archive, file.name) as member, path.open("wb") as unpacked:
            shutil.copyfileobj(io.BufferedReader(BoundedReader(member, file.size)), unpacked)
        if path.stat().st_size != file.size or sha256(path) != file.sha256:
            raise KeyError(file.name)

    replace_when_written(target, write)


@contextmanager
def _unpacked(archive: Path) -> Iterator[IO[bytes]]:
    """Open a .tgz or .tar archive; what precedes a member is unpacked, too."""
    with archive.open("rb") as content:
        is_packed = content.read(2) == b"\x1f\x8b"
        content.seek(0)
        unpacked = gzip.GzipFile(fileobj=content) if is_packed else content
        yield io.BufferedReader(BoundedReader(unpacked, LARGEST))


@contextmanager
def _open_member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    if archive.name == f"{name}.part":
        with archive.open("rb") as whole:
            yield whole
    elif zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            path = next((path for path in zipped.namelist() if path.rsplit("/", 1)[-1] == name), name)
            try:
                member = zipped.open(path)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                raise zipfile.BadZipFile("a member begins before the archive") from error
            with member:
                yield member
    else:
        with _unpacked(archive) as content, tarfile.open(fileobj=content) as tarred:
            for info in tarred:
                if info.isfile() and info.name.rsplit("/", 1)[-1] == name:
                    extracted = tarred.extractfile(info)
                    assert extracted is not None, "a regular file has content"
                    with extracted:
                        yield extracted
                    return
            raise KeyError(name)
