"""Files of the bAbI release (Weston et al. 2015, arXiv:1502.05698), version 1.2 in English.

Twenty tasks, each with 1,000 or 10,000 training questions and with 1,000 test questions, which are the same for both
sizes.
"""

import functools
import gzip
import hashlib
import io
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from gyral.core.errors import UserError
from gyral.core.inputs import BoundedReader, most_bytes, open_input, read_bytes
from gyral.data.babi.stories import Story, parse
from gyral.data.catalogue import CATALOGUE

TASKS = range(1, 21)
SIZES = {"1k": 1_000, "10k": 10_000}  # training questions per task
TEST_SIZE = 1_000
FOLDERS = {  # folders of the release, by validation split and size
    ("cut", "1k"): "en",
    ("cut", "10k"): "en-10k",
    ("official", "1k"): "en-valid",
    ("official", "10k"): "en-valid-10k",
}
RELEASE = "tasks_1-20_v1-2"
ARCHIVE = CATALOGUE["babi"].files[0].name
FILE = re.compile(r"qa(\d+)_(?:.+_)?(train|valid|test)\.txt")

# The first digits of the SHA-256 of the files of version 1.2; earlier versions have files of the same names. Each line
# is a task: its test file, its training file with 1k questions and, except for task 3, the file with 10k questions.
DIGESTS = """
    55acf66cef2f c64ba9b1a49b 749ea9f7c990
    eff93fb9cd81 a4978af5bc0d d4074c0c5d54
    17795c977100 a6e78019f36a
    07f0ca18ddee c9370502d85f 5d11b821d352
    ec825c1c8a76 086cd59c3ca9 2506910935b7
    b108b16f1ecc 5a133115ee35 602f379184bf
    a74d1f2b9132 dca03bd91876 4a2508733bef
    362a653c821a 058604df6f94 9518da2d3aa5
    63590aff3f89 0c3b89921af0 5f8949f6ef7d
    fde8f20ed0b3 0b7691689447 c5c0788b0446
    46f3290d0158 9468de9a1f25 edfcd97fecd4
    6437718f8f98 45c2764bb2d3 39d58df35649
    76a25b684f23 533a391edbda c530fdf122d2
    e3f0b19858ff b7561cbc6242 c322e0814eef
    32b77e117fe9 e856ebfdcce4 0a86673f7faf
    4a11e55366f2 20121005137e 27fef347ce0b
    9e1e0250ed4e 20083bf56ff7 8a383651e009
    d34f70eb7228 18b7dcf52c9a 9e7c15107067
    023e391f0d7f dcb788352a56 6cfdc6f448e3
    bd3bde3788ac 29580ad55fb7 36f20f3baf6b
"""
PUBLISHED_DIGESTS = {
    task: dict(zip(("test", *SIZES), line.split(), strict=False))
    for task, line in enumerate(DIGESTS.strip().splitlines(), start=1)
}


class NoReleaseError(UserError):
    """The folder or file does not contain the release."""


class ReleaseFile(NamedTuple):
    """A file of the release: its name for messages, and its content with `\\n` line ends."""

    label: str
    content: bytes


class Release:
    """Files of some folders and tasks of the release.

    Args:
        path: the .tar.gz archive, which is read without unpacking; the unpacked folder, or the folder in it that
            contains the files; or a folder that contains the archive or the unpacked folder.
        folders: names of the folders to read.
        tasks: tasks to read.
        option: the option that selects the release, and its value, for errors. None: path, and the path.

    Attributes:
        path: as given.
        files: the files by folder, task and part ("train", "valid" or "test").

    Raises:
        NoReleaseError: the path does not contain the release.
        UserError: a file cannot be read, there are two files for the same task and part, or the archive is incomplete.
    """

    def __init__(self, path: Path, folders: set[str], tasks: list[int], option: tuple[str, Any] | None = None) -> None:
        self.path = path
        self.option: tuple[str, Any] = option or ("path", path)
        self.folders = folders
        self.tasks = tasks
        self.files: dict[tuple[str, int, str], ReleaseFile] = {}
        if not self._read_folder():
            self._read_archive(path / ARCHIVE if path.is_dir() else path)

    def _add(self, folder: str, name: str, label: str, read: Callable[[], bytes]) -> None:
        matched = FILE.fullmatch(name)
        if folder in self.folders and matched and int(matched[1]) in self.tasks:
            key = folder, int(matched[1]), matched[2]
            if key in self.files:
                other = self.files[key].label
                raise UserError(f"{label}: is in the same folder as {other}: one of them is of another version")
            self.files[key] = ReleaseFile(label, read().replace(b"\r\n", b"\n"))

    def _read_folder(self) -> bool:
        """Read the files of an unpacked release and return whether there is one."""
        for root in (self.path, self.path / RELEASE):
            contains_files = root.is_dir() and any(FILE.fullmatch(path.name) for path in root.iterdir())
            if contains_files or any((root / folder).is_dir() for folder in FOLDERS.values()):
                for folder in self.folders:
                    # a folder of files has one size; `stories` checks the number of questions
                    for path in sorted((root if contains_files else root / folder).glob("qa*.txt")):
                        self._add(folder, path.name, str(path), functools.partial(read_bytes, *self.option, path))
                return True
        return False

    def _read_archive(self, archive: Path) -> None:
        if not os.path.lexists(archive):
            origin = CATALOGUE["babi"].origin
            raise NoReleaseError(
                f"{self.path}: has neither {RELEASE} nor {ARCHIVE}; `gyral fetch babi` downloads it {origin}"
            )
        with open_input(*self.option, archive) as packed:
            try:
                self._read_members(archive, packed)
            except UserError:
                raise
            except Exception:  # damaged archives raise many kinds
                raise UserError(f"{archive}: is not a complete .tar.gz: fetch it again") from None

    def _read_members(self, archive: Path, packed: BinaryIO) -> None:
        with io.BufferedReader(BoundedReader(gzip.GzipFile(fileobj=packed), most_bytes(0))) as unzipped:
            with tarfile.open(fileobj=unzipped, mode="r:") as members:
                for info in members:
                    inside = PurePosixPath(info.name)
                    if info.isfile() and not info.issparse() and (member := members.extractfile(info)):
                        self._add(inside.parent.name, inside.name, f"{archive}, {inside}", member.read)
            while unzipped.read(2**18):  # up to the checksum: tarfile takes damaged data for the end
                pass

    def stories(self, folder: str, task: int, part: str) -> list[Story]:
        """Return the stories of a file.

        Raises:
            UserError: the file does not exist or is not in the format.
        """
        file = self.files.get((folder, task, part))
        if file is None:
            hint = "; stand_in=true takes the 1k one of this task" if folder.endswith("10k") and part == "train" else ""
            origin = CATALOGUE["babi"].origin
            name = f"{folder}/qa{task}_*{part}.txt"
            raise UserError(f"{self.path}: has no {name}, which is part of the release {origin}{hint}")
        try:
            text = file.content.decode()
        except UnicodeDecodeError as error:
            raise UserError(f"{file.label}: is not UTF-8 at offset {error.start}") from None
        return parse(text, task, file.label)

    def check(self, folder: str, task: int, part: str, count: int, size: int, digest: str | None) -> None:
        """Check that a file is the published file.

        Args:
            folder, task, part: key of the file.
            count: number of questions that were read.
            size: number of questions that were published.
            digest: first digits of the SHA-256 of the published file, if known.

        Raises:
            UserError: the number of questions or the content differs.
        """
        file = self.files[folder, task, part]
        if count != size:
            raise UserError(
                f"{file.label}: has {count:,} questions, and {size:,} were published: it is truncated or of another "
                "size"
            )
        actual = hashlib.sha256(file.content).hexdigest()
        if digest is not None and not actual.startswith(digest):
            raise UserError(
                f"{file.label}: is not the file of version 1.2 (sha256 {actual[: len(digest)]}…, published {digest}…): "
                "take all files from one release"
            )
