"""Catalogue of published corpora: their origin, license, and the checksums of their files."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gyral.core.errors import UserError


class PublishedFile(NamedTuple):
    """A published file; `size` is in bytes."""

    name: str
    size: int
    sha256: str


class PublishedCorpus(NamedTuple):
    """A corpus, which is stored in the folder of its name in the data folder.

    Attributes:
        files: files of the archive, or the archive itself, which has the file name at the end of its URL.
        urls: URLs of archives with these files, in the order of attempts.
        license: terms of use of the text.
        derived: files that are computed from `files`, in the same order.
        derive: computes the content of a derived file from the content of the published file.
    """

    files: tuple[PublishedFile, ...]
    urls: tuple[str, ...]
    license: str
    derived: tuple[PublishedFile, ...] = ()
    derive: Callable[[bytes], bytes] = bytes

    @property
    def origin(self) -> str:
        """Phrase with the first URL and the license."""
        return f"from {self.urls[0]} ({self.license})"


def to_characters(words: bytes) -> bytes:
    """Convert the word-level Penn Treebank to the character-level one.

    Spaces at the ends of a line are removed and the others become `_`. Each character, including the line end, is
    followed by a space.
    """
    lines = (line.strip(b" ").replace(b" ", b"_") + b"\n" for line in words.splitlines())
    text = b"".join(lines)
    spaced = bytearray(b" " * (2 * len(text)))
    spaced[::2] = text
    return bytes(spaced)


def has_file(folder: Path, file: PublishedFile) -> bool:
    """Return whether a folder contains a published file.

    Raises:
        UserError: the folder contains another file of that name.
        OSError: the file cannot be read.
    """
    path = folder / file.name
    if not path.exists():
        return False
    size = path.stat().st_size
    if size != file.size:
        raise UserError(f"{path}: has {size:,} bytes, the published file {file.size:,}: move it away and fetch it")
    found = sha256(path)
    if found != file.sha256:
        raise UserError(
            f"{path}: has another sha256 ({found[:12]}…) than the published file ({file.sha256[:12]}…): "
            "move it away and fetch it"
        )
    return True


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


WIKIPEDIA = "Wikipedia's text: CC BY-SA and GFDL"

# This archive is not unpacked, because it contains files of the same name in several folders. Size and checksum are
# the values of Hugging Face's data set babi_qa for the URL below.
BABI = PublishedFile(
    "tasks_1-20_v1-2.tar.gz", 15_719_851, "0364ebde659f14d11bc21744516c5ec49d3d06cb692733f66680771244998898"
)

# text8 and enwik8: https://mattmahoney.net/dc/textdata.html. The second URL of ptb is a copy with the same bytes.
CATALOGUE = {
    "ptb": PublishedCorpus(
        (
            PublishedFile(
                "ptb.train.txt", 5_101_618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"
            ),
            PublishedFile("ptb.valid.txt", 399_782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
            PublishedFile("ptb.test.txt", 449_945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
        ),
        (
            "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",
            "https://raw.githubusercontent.com/timbmg/RNNLM/e26dff5d8f4b5d07ee459f192ee2131923d7584f/data/ptb.zip",
        ),
        "no license: for research, not for redistribution",
        (
            PublishedFile(
                "ptb.char.train.txt", 10_034_964, "e313d91425e06c4f0a8fb6e881dcce0c291f2a0e9f4dda54833069b122f91da9"
            ),
            PublishedFile(
                "ptb.char.valid.txt", 786_084, "21661f63ec355085879458b6524644d4add5573541b4be14fb52ab2e2e995eb8"
            ),
            PublishedFile(
                "ptb.char.test.txt", 884_846, "1ef5607ac3c463b16e38bfe7900dd3bfc91de5a96e0f21e7eab5188b465b8ebe"
            ),
        ),
        to_characters,
    ),
    "text8": PublishedCorpus(
        (PublishedFile("text8", 100_000_000, "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7"),),
        ("http://mattmahoney.net/dc/text8.zip",),
        WIKIPEDIA,
    ),
    "enwik8": PublishedCorpus(
        (PublishedFile("enwik8", 100_000_000, "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"),),
        ("http://mattmahoney.net/dc/enwik8.zip",),
        WIKIPEDIA,
    ),
    "babi": PublishedCorpus(
        (BABI,),
        (f"http://www.thespermwhale.com/jaseweston/babi/{BABI.name}",),
        "CC BY 3.0",
    ),
    "lambada": PublishedCorpus(
        (
            PublishedFile(
                "lambada_development_plain_text.txt",
                1_668_790,
                "f5b0f1e38fcdad6a1cd3a17bee4b6932a28cd9c5f463ada970c61de0f8679f2f",
            ),
            PublishedFile(
                "lambada_test_plain_text.txt",
                1_755_107,
                "4ab6062b68422bf2e83653d367c9765d42404f7ec21b8b59b6518b45606aaef2",
            ),
        ),
        ("https://zenodo.org/records/2630551/files/lambada-dataset.tar.gz",),
        "CC BY 4.0; 335 MB, because the archive also has the novels",
    ),
    "treebank": PublishedCorpus(
        (PublishedFile("treebank.zip", 1_740_034, "9da92d76c3666cfb6cddeaed0f7e86b344cce0f0928a286d439e555f19c37399"),),
        (
            "https://raw.githubusercontent.com/nltk/nltk_data/5db857e6f7df11eabb5e5665836db9ec8df07e28/packages/"
            "corpora/treebank.zip",
        ),
        "a sample of the Penn Treebank, for non-commercial use only",
    ),
}
