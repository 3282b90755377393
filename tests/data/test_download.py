"""Fetching: what comes is checked and whole, goes on where it stopped, and fails in one line."""

import hashlib
import http.server
import io
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gyral.core.errors import OptionError
from gyral.data import download as module
from gyral.data.download import SOURCES, File, Source, fetch, spell

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("DATA_DIR", ROOT / "data"))
CONTENT = b" aer banknote \n pierre <unk> N \n" * 100
SPELT = spell(CONTENT)


def described(name: str, content: bytes) -> File:
    return File(name, len(content), hashlib.sha256(content).hexdigest())


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


class Server(http.server.ThreadingHTTPServer):
    """Serves files from memory, in parts where these are asked for; may break off."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.break_after: int | None = None  # bytes of an answer
        self.knows_ranges = True
        self.asked: list[str | None] = []  # ranges

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        content = self.server.files.get(self.path[1:])
        if content is None:
            return self.send_error(404)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.knows_ranges else 0
        if start >= len(content):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:][: self.server.break_after])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def sources(server: Server) -> dict[str, Source]:
    """One corpus with a derived file, in an archive on the server."""
    server.files["words.zip"] = zipped({"__MACOSX/._words.txt": b"?", "deep/er/words.txt": CONTENT, "other": b"!"})
    words, characters = described("words.txt", CONTENT), described("characters.txt", SPELT)
    return {"words": Source((words,), (server.address("words.zip"),), "free", (characters,), spell)}


def folder_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


WHOLE = {"words.txt": CONTENT, "characters.txt": SPELT}


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_files_come_out_of_archives_and_others_are_derived(
    tmp_path: Path, server: Server, sources: dict[str, Source], pack, capsys: pytest.CaptureFixture[str]
) -> None:
    server.files["words.zip"] = pack({"./deep/words.txt": CONTENT, "deep/others.txt": b"?"})
    fetch("words", tmp_path, sources)
    assert folder_of(tmp_path / "words") == WHOLE
    address = server.address("words.zip")
    assert capsys.readouterr().out == f"words: from {address} (free)\nwords: fetched into {tmp_path / 'words'}\n"


def test_what_is_there_is_not_fetched_again(
    tmp_path: Path, server: Server, sources: dict[str, Source], capsys: pytest.CaptureFixture[str]
) -> None:
    fetch("words", tmp_path, sources)
    (tmp_path / "words" / "characters.txt").unlink()
    fetch("words", tmp_path, sources)
    assert folder_of(tmp_path / "words") == WHOLE
    capsys.readouterr()
    fetch("words", tmp_path, sources)
    assert server.asked == [None]
    assert capsys.readouterr().out == f"words: all there, in {tmp_path / 'words'}\n"


def test_addresses_of_files_work_too(tmp_path: Path, sources: dict[str, Source]) -> None:
    archive = tmp_path / "archive.zip"
    archive.write_bytes(zipped({"words.txt": CONTENT}))
    fetch("words", tmp_path, {"words": sources["words"]._replace(addresses=(archive.as_uri(),))})
    assert folder_of(tmp_path / "words") == WHOLE


def test_a_download_that_broke_off_goes_on(tmp_path: Path, server: Server, sources: dict[str, Source]) -> None:
    size = len(server.files["words.zip"])
    server.break_after = 100
    with pytest.raises(OptionError, match=rf"broke off after 100 of {size} bytes\): the same command tries again"):
        fetch("words", tmp_path, sources)
    assert folder_of(tmp_path / "words") == {"words.zip.part": server.files["words.zip"][:100]}
    server.break_after = None
    fetch("words", tmp_path, sources)
    assert folder_of(tmp_path / "words") == WHOLE
    assert server.asked == [None, "bytes=100-"]


def test_a_server_that_knows_no_parts_gives_all_again(
    tmp_path: Path, server: Server, sources: dict[str, Source]
) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "words.zip.part").write_bytes(b"anything")
    server.knows_ranges = False
    fetch("words", tmp_path, sources)
    assert folder_of(tmp_path / "words") == WHOLE


def test_a_whole_or_longer_part_is_fetched_anew(tmp_path: Path, server: Server, sources: dict[str, Source]) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "words.zip.part").write_bytes(server.files["words.zip"])
    fetch("words", tmp_path, sources)
    assert folder_of(tmp_path / "words") == WHOLE
    assert server.asked == [f"bytes={len(server.files['words.zip'])}-", None]


def test_an_archive_may_be_kept_packed(tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    content = tarred({"en/words.txt": CONTENT, "de/words.txt": CONTENT})
    server.files["words.tar.gz"] = content[:-1] + b"?"
    source = Source((described("words.tar.gz", content),), (server.address("words.tar.gz"),), "free")
    with pytest.raises(OptionError, match=r"not an archive with the published words\.tar\.gz\): "):
        fetch("words", tmp_path, {"words": source})
    assert folder_of(tmp_path / "words") == {}
    server.files["words.tar.gz"] = content
    fetch("words", tmp_path, {"words": source})
    assert folder_of(tmp_path / "words") == {"words.tar.gz": content}
    capsys.readouterr()
    fetch("words", tmp_path, {"words": source})
    assert capsys.readouterr().out == f"words: all there, in {tmp_path / 'words'}\n"


@pytest.mark.parametrize(
    "content",
    [
        b"<html>moved</html>",
        zipped({"others.txt": CONTENT}),
        zipped({"words.txt": CONTENT[:-1]}),
        tarred({"words.txt": b"?" + CONTENT[1:]}),
        tarred({"words.txt": os.urandom(10_000)})[:-200],
        zipped({"words.txt": os.urandom(10_000)})[:-200],
    ],
    ids=["page", "without it", "shorter", "other content", "half a tgz", "half a zip"],
)
def test_what_is_not_the_published_file_is_not_kept(
    tmp_path: Path, server: Server, sources: dict[str, Source], content: bytes
) -> None:
    server.files["words.zip"] = content
    with pytest.raises(OptionError, match=r"zip: not an archive with the published words\.txt\)") as caught:
        fetch("words", tmp_path, sources)
    assert "\n" not in str(caught.value)
    assert folder_of(tmp_path / "words") == {}


def test_the_next_address_is_tried(tmp_path: Path, server: Server, sources: dict[str, Source]) -> None:
    good = server.address("words.zip")
    server.files["bad.zip"] = b"?"
    addresses = (server.address("missing.zip"), server.address("bad.zip"), good)
    fetch("words", tmp_path, {"words": sources["words"]._replace(addresses=addresses)})
    assert folder_of(tmp_path / "words") == WHOLE
    (tmp_path / "words" / "words.txt").unlink()
    with pytest.raises(OptionError) as caught:
        fetch("words", tmp_path, {"words": sources["words"]._replace(addresses=addresses[:2])})
    assert str(caught.value) == (
        f"words: cannot be fetched ({addresses[0]}: status 404, Not Found; {addresses[1]}: not an archive with the "
        f"published words.txt): the same command tries again, or put words.txt into {tmp_path / 'words'}"
    )


def test_another_file_of_the_name_is_left_alone(tmp_path: Path, sources: dict[str, Source]) -> None:
    (tmp_path / "words").mkdir()
    own = tmp_path / "words" / "words.txt"
    own.write_bytes(b"mine")
    with pytest.raises(OptionError, match=rf"^{own}: has 4 bytes, the published file {len(CONTENT):,}: move it away"):
        fetch("words", tmp_path, sources)
    own.write_bytes(b"?" + CONTENT[1:])
    with pytest.raises(OptionError, match=rf"^{own}: has another sha256 .* move it away"):
        fetch("words", tmp_path, sources)
    assert own.read_bytes() == b"?" + CONTENT[1:]


def test_two_processes_do_not_write_the_same_part(tmp_path: Path, sources: dict[str, Source]) -> None:
    (tmp_path / "words").mkdir()
    with (tmp_path / "words" / "words.zip.part").open("ab") as part:
        module.fcntl.flock(part, module.fcntl.LOCK_EX)
        with pytest.raises(OptionError, match=r"words\.zip\.part: another process is fetching it$"):
            fetch("words", tmp_path, sources)


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["fetch", *arguments])
    with pytest.raises(SystemExit) as caught:
        module.main()
    return int(caught.value.code or 0)


def test_the_command_tries_all_and_says_in_one_line_each_what_failed(
    tmp_path: Path,
    server: Server,
    sources: dict[str, Source],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # a port that nobody listens to: as good as no network
    closed = Source((described("text8", b"?"),), ("http://127.0.0.1:9/text8.zip",), "free")
    monkeypatch.setitem(SOURCES, "text8", closed)
    monkeypatch.setitem(SOURCES, "ptb", sources["words"])
    assert run(["text8", "ptb", "--data-dir", str(tmp_path)], monkeypatch) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: text8: cannot be fetched (http://127.0.0.1:9/text8.zip: ")
    assert "refused" in line
    assert folder_of(tmp_path / "ptb") == WHOLE
    assert folder_of(tmp_path / "text8") == {}
    assert run(["ptb", "--data-dir", str(tmp_path)], monkeypatch) == 0


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, sources: dict[str, Source], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(SOURCES, "ptb", sources["words"])
    (tmp_path / "file").write_text("")
    assert run(["ptb", "--data-dir", str(tmp_path / "file")], monkeypatch) == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'file' / 'ptb'}: Not a directory\n"


def test_make_data_runs_it_after_installing() -> None:
    command = ["make", "data", "CORPORA=ptb text8", "--dry-run", "--always-make"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.index("pip install") < printed.index("-m src.fetch ptb text8")


def test_spelling_a_line() -> None:
    assert spell(b" no it 's \n a \n") == b"n o _ i t _ ' s \n a \n "


def test_the_penn_treebank_by_characters_is_derived_byte_for_byte() -> None:
    source = SOURCES["ptb"]
    for words, characters in zip(source.files, source.derived, strict=True):
        path = DATA / "ptb" / words.name
        if not path.is_file():
            pytest.skip(f"no ptb/{words.name} in {DATA} (set DATA_DIR)")
        assert module.is_there(path.parent, words)
        assert described(characters.name, spell(path.read_bytes())) == characters


def test_what_the_sources_say_is_complete() -> None:
    for source in SOURCES.values():
        assert source.licence
        assert all(address.startswith("http") for address in source.addresses)
        for file in source.files + source.derived:
            assert file.size > 0
            assert len(file.sha256) == 64
        assert len(source.derived) in (0, len(source.files))
