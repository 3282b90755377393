"""Where published corpora come from, and how they get into the data folder.

    python -m src.fetch ptb text8 enwik8 babi

An archive is downloaded to a file named .part, which a killed download goes on with, and unpacked, or kept as it is; a
file gets its name once its checksum is right, so that what has its name is whole.
"""

import fcntl
import functools
import hashlib
import http.client
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from gyral.core.errors import OptionError
from gyral.core.files import replace_when_written

BLOCK = 2**18  # bytes that are read at once
TIMEOUT = 30  # seconds without a byte
BROKEN_ARCHIVE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, KeyError)


class File(NamedTuple):
    """A file as it was published; `size` in bytes."""

    name: str
    size: int
    sha256: str


class Source(NamedTuple):
    """A corpus, in the folder of its name in the data folder.

    Attributes:
        files: what the archive has, or the archive itself, by the name that ends its address.
        addresses: of archives that have these files, tried in turn.
        licence: on what terms the text may be used.
        derived: files made from the others.
        derive: makes the content of a derived file from that of the file in the same place of `files`.
    """

    files: tuple[File, ...]
    addresses: tuple[str, ...]
    licence: str
    derived: tuple[File, ...] = ()
    derive: Callable[[bytes], bytes] = bytes

    @property
    def origin(self) -> str:
        """Where the corpus comes from and on what terms, in one phrase."""
        return f"from {self.addresses[0]} ({self.licence})"


def spell(words: bytes) -> bytes:
    """Make the character-level Penn Treebank from the word-level one.

    The spaces around a line are left out, those within become `_`; each character, the line's end too, is followed by a
    space.
    """
    lines = (line.strip(b" ").replace(b" ", b"_") + b"\n" for line in words.splitlines())
    characters = b"".join(lines)
    spelt = bytearray(b" " * (2 * len(characters)))
    spelt[::2] = characters
    return bytes(spelt)


WIKIPEDIA = "Wikipedia's text: CC BY-SA and GFDL"

# It has files of one name in several folders, so it stays packed. Size and checksum are those that Hugging Face's data
# set babi_qa records for the address below.
BABI = File("tasks_1-20_v1-2.tar.gz", 15_719_851, "0364ebde659f14d11bc21744516c5ec49d3d06cb692733f66680771244998898")

# text8 and enwik8: https://mattmahoney.net/dc/textdata.html. The second address of ptb is a copy with the same bytes.
SOURCES = {
    "ptb": Source(
        (
            File("ptb.train.txt", 5_101_618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
            File("ptb.valid.txt", 399_782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
            File("ptb.test.txt", 449_945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
        ),
        (
            "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",
            "https://raw.githubusercontent.com/timbmg/RNNLM/e26dff5d8f4b5d07ee459f192ee2131923d7584f/data/ptb.zip",
        ),
        "no licence: for research, not to be passed on",
        (
            File("ptb.char.train.txt", 10_034_964, "e313d91425e06c4f0a8fb6e881dcce0c291f2a0e9f4dda54833069b122f91da9"),
            File("ptb.char.valid.txt", 786_084, "21661f63ec355085879458b6524644d4add5573541b4be14fb52ab2e2e995eb8"),
            File("ptb.char.test.txt", 884_846, "1ef5607ac3c463b16e38bfe7900dd3bfc91de5a96e0f21e7eab5188b465b8ebe"),
        ),
        spell,
    ),
    "text8": Source(
        (File("text8", 100_000_000, "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7"),),
        ("http://mattmahoney.net/dc/text8.zip",),
        WIKIPEDIA,
    ),
    "enwik8": Source(
        (File("enwik8", 100_000_000, "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"),),
        ("http://mattmahoney.net/dc/enwik8.zip",),
        WIKIPEDIA,
    ),
    "babi": Source(
        (BABI,),
        (f"http://www.thespermwhale.com/jaseweston/babi/{BABI.name}",),
        "CC BY 3.0",
    ),
}


class DownloadError(Exception):
    """An address does not give what it should, and why."""


def fetch(name: str, data_dir: Path, sources: Mapping[str, Source] = SOURCES) -> None:
    """Fetch what a corpus lacks into its folder, and say on standard output what was done.

    Raises:
        OptionError: no address gives it, another process is fetching it, or there are other files of these names.
        OSError: the folder cannot be written.
    """
    source, folder = sources[name], data_dir / name
    missing = [file for file in source.files if not is_there(folder, file)]
    underived = [pair for pair in zip(source.files, source.derived, strict=False) if not is_there(folder, pair[1])]
    if missing:
        print(f"{name}: {source.origin}", flush=True)
        failures = []
        for address in source.addresses:
            try:
                _fetch_archive(address, folder, missing)
                break
            except DownloadError as error:
                failures.append(f"{address}: {error}")
        else:
            names = ", ".join(file.name for file in missing)
            raise OptionError(
                f"{name}: cannot be fetched ({'; '.join(failures)}): the same command tries again, or put {names} "
                f"into {folder}"
            )
    for file, derived in underived:
        content = source.derive((folder / file.name).read_bytes())
        replace_when_written(folder / derived.name, functools.partial(Path.write_bytes, data=content))
        is_there(folder, derived)
    print(f"{name}: {'fetched into' if missing or underived else 'all there, in'} {folder}")


def is_there(folder: Path, file: File) -> bool:
    """Return whether a file is in a folder.

    Raises:
        OptionError: it is, but it is not the one that was published.
        OSError: it cannot be read.
    """
    path = folder / file.name
    if not path.exists():
        return False
    size = path.stat().st_size
    if size != file.size:
        raise OptionError(f"{path}: has {size:,} bytes, the published file {file.size:,}: move it away and fetch it")
    found = sha256(path)
    if found != file.sha256:
        raise OptionError(
            f"{path}: has another sha256 ({found[:12]}…) than the published file ({file.sha256[:12]}…): "
            "move it away and fetch it"
        )
    return True


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch_archive(address: str, folder: Path, files: list[File]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{address.rsplit('/', 1)[-1]}.part"
    with archive.open("ab") as part:
        try:
            fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OptionError(f"{archive}: another process is fetching it") from None
        try:
            _download(address, part)
            for file in files:
                _unpack(archive, file, folder / file.name)
        except DownloadError:
            if archive.stat().st_size == 0:
                archive.unlink()
            raise
        except BROKEN_ARCHIVE as error:
            archive.unlink()
            raise DownloadError(f"not an archive with the published {file.name}") from error
        archive.unlink()


def _download(address: str, part: IO[bytes]) -> None:
    """Append to a file what it lacks of an address.

    Raises:
        DownloadError: it cannot be had. What came is kept, and gone on with the next time.
    """
    start = part.seek(0, os.SEEK_END)
    request = urllib.request.Request(address, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            if response.status != http.client.PARTIAL_CONTENT:  # all of it, from the start
                start = part.truncate(0)
            length = response.headers.get("Content-Length")
            total = start + int(length) if length else None
            with _progress(address.rsplit("/", 1)[-1], start, total) as advance:
                while block := response.read(BLOCK):
                    part.write(block)
                    advance(len(block))
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:  # there is no more than that
            part.truncate(0)
            return _download(address, part)
        raise DownloadError(f"status {error.code}, {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise DownloadError(str(getattr(error, "reason", "") or error or type(error).__name__)) from error
    finally:
        part.flush()
    got = os.stat(part.fileno()).st_size
    if total is not None and got < total:
        raise DownloadError(f"broke off after {got:,} of {total:,} bytes")


@contextmanager
def _progress(name: str, start: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error, if that is a terminal; give a function that advances it by bytes."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, completed=start, total=total)
        yield lambda count: progress.advance(task, count)


def _unpack(archive: Path, file: File, target: Path) -> None:
    """Write one file of a .zip or a .tgz, wherever it lies there, or the archive itself, and check it.

    Raises:
        KeyError: the archive has no such file, or another one of this name.
    """

    def write(path: Path) -> None:
        with _open_member(archive, file.name) as member, path.open("wb") as unpacked:
            shutil.copyfileobj(member, unpacked)
        if path.stat().st_size != file.size or sha256(path) != file.sha256:
            raise KeyError(file.name)

    replace_when_written(target, write)


@contextmanager
def _open_member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    if archive.name == f"{name}.part":
        with archive.open("rb") as whole:
            yield whole
    elif zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            path = next((path for path in zipped.namelist() if path.rsplit("/", 1)[-1] == name), name)
            with zipped.open(path) as member:
                yield member
    else:
        with tarfile.open(archive) as tarred:
            for info in tarred:
                if info.isfile() and info.name.rsplit("/", 1)[-1] == name:
                    extracted = tarred.extractfile(info)
                    assert extracted is not None, "a regular file has content"
                    with extracted:
                        yield extracted
                    return
            raise KeyError(name)
