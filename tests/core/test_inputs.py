"""Input files: pipes and devices are refused, errors name the option and the file."""

import gzip
import re
from pathlib import Path

import pytest

from gyral.core.errors import OptionError
from gyral.core.inputs import excerpt, find_fault, open_input, read_bytes, read_text, suffix_of
from tests.faults.damages import OTHERS


def test_a_file_and_a_link_to_it_have_no_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    assert find_fault(tmp_path / "file") is find_fault(tmp_path / "link") is None


def test_a_packed_file_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "Text.TXT.gz"
    path.write_bytes(gzip.compress("\ufeffäö\r\nü".encode()))
    assert read_text("data", path) == "äö\nü"
    assert suffix_of(path) == ".txt"
    path.write_bytes(path.read_bytes()[:-4])
    for content in (path.read_bytes(), b"no archive", b""):
        path.write_bytes(content)
        if content:
            with pytest.raises(OptionError, match=r"^data=\S+Text.TXT.gz: is not a complete gzip file \("):
                read_bytes("data", path)
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(gzip.compress(b"archive"))
    assert read_bytes("data", archive) == archive.read_bytes()  # its reader unpacks it


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("missing", "cannot be read (No such file or directory)"),
        ("a directory", "cannot be read (Is a directory)"),
        ("a named pipe", "is a named pipe, and must be a file"),
        ("a socket", "is a socket, and must be a file"),
        ("an endless device", "is a device, and must be a file"),
        ("a dangling link", "is a link to a file that does not exist"),
        ("a link to itself", "cannot be read (Too many levels of symbolic links)"),
    ],
)
def test_special_files_are_refused_by_their_kind(kind: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "given"
    OTHERS[kind](path)
    with pytest.raises(OptionError) as caught, open_input("data", path):
        pytest.fail("was opened")
    assert str(caught.value) == f"data={path}: {reason}"
    with pytest.raises(OptionError) as caught, open_input("train", "*.bin", path):
        pytest.fail("was opened")
    assert str(caught.value) == f"train=*.bin: {path}: {reason}"


def test_a_path_with_a_null_character_is_refused() -> None:
    assert re.fullmatch(r"cannot be read \(.*embedded null .*\)", find_fault(Path("a\0b")) or "")


def test_errors_while_reading_name_the_file(tmp_path: Path) -> None:
    OTHERS["unreadable"](tmp_path / "given")
    with (
        pytest.raises(OptionError, match=rf"^data={tmp_path / 'given'}: cannot be read \(.+\)$"),
        open_input("data", tmp_path / "given"),
    ):
        (tmp_path / "given").read_bytes()


def test_long_names_are_shortened() -> None:
    assert excerpt(["a", "b"]) == "a, b"
    assert excerpt(["a" * 300, "b"]) == "a" * 200 + "…"


def test_text_is_read_without_a_byte_order_mark_and_with_plain_line_ends(tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes("\ufeffä\r\nb\rc".encode())
    assert read_text("data", tmp_path / "given") == "ä\nb\nc"
    assert read_bytes("data", "*", tmp_path / "given").startswith(b"\xef\xbb\xbf")


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("utf-8", "is not UTF-8: byte 0xff at offset 5"), ("ascii", "is not ASCII: byte 0xc3 at offset 0")],
)
def test_text_in_another_encoding_is_refused(encoding: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes("äbc".encode() + b"\n\xff")
    with pytest.raises(OptionError) as caught:
        read_text("data", tmp_path / "given", encoding=encoding)
    assert str(caught.value) == f"data={tmp_path / 'given'}: {said}"
