"""Downloads: files are verified and complete, interrupted downloads resume, errors are one line."""

import hashlib
import http.server
import io
import os
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gyral.core.errors import UserError
from gyral.core.locks import lock_file
from gyral.data.catalogue import PublishedCorpus, PublishedFile, to_characters
from gyral.data.download import BLOCK, fetch

CONTENT = b" aer banknote \n pierre <unk> N \n" * 100
CHARACTERS = to_characters(CONTENT)


def described(name: str, content: bytes) -> PublishedFile:
    return PublishedFile(name, len(content), hashlib.sha256(content).hexdigest())


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
    """Serves files from memory, with range requests; may interrupt a response."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.break_after: int | None = None  # bytes of an answer
        self.knows_ranges = True
        self.asked: list[str | None] = []  # ranges
        self.status: int | None = None  # of the next answer, which has no content

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        content = self.server.files.get(self.path[1:])
        if status := self.server.status:
            self.server.status = None
            self.send_response(status)
            self.send_header("Location", self.path)
            self.send_header("Content-Length", "0")
            return self.end_headers()
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
def catalogue(server: Server) -> dict[str, PublishedCorpus]:
    """One corpus with a derived file, in an archive on the server."""
    server.files["words.zip"] = zipped({"__MACOSX/._words.txt": b"?", "deep/er/words.txt": CONTENT, "other": b"!"})
    words, characters = described("words.txt", CONTENT), described("characters.txt", CHARACTERS)
    return {"words": PublishedCorpus((words,), (server.address("words.zip"),), "free", (characters,), to_characters)}


def folder_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


WHOLE = {"words.txt": CONTENT, "characters.txt": CHARACTERS}


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_files_are_extracted_from_archives_or_derived(
    tmp_path: Path, server: Server, catalogue: dict[str, PublishedCorpus], pack, capsys: pytest.CaptureFixture[str]
) -> None:
    server.files["words.zip"] = pack({"./deep/words.txt": CONTENT, "deep/others.txt": b"?"})
    fetch("words", tmp_path, catalogue)
    assert folder_of(tmp_path / "words") == WHOLE
    address = server.address("words.zip")
    assert capsys.readouterr().out == f"words: from {address} (free)\nwords: downloaded to {tmp_path / 'words'}\n"


def test_existing_files_are_not_downloaded_again(
    tmp_path: Path, server: Server, catalogue: dict[str, PublishedCorpus], capsys: pytest.CaptureFixture[str]
) -> None:
    fetch("words", tmp_path, catalogue)
    (tmp_path / "words" / "characters.txt").unlink()
    fetch("words", tmp_path, catalogue)
    assert folder_of(tmp_path / "words") == WHOLE
    capsys.readouterr()
    fetch("words", tmp_path, catalogue)
    assert server.asked == [None]
    assert capsys.readouterr().out == f"words: already complete in {tmp_path / 'words'}\n"


def test_file_urls_are_supported(tmp_path: Path, catalogue: dict[str, PublishedCorpus]) -> None:
    archive = tmp_path / "archive.zip"
    archive.write_bytes(zipped({"words.txt": CONTENT}))
    fetch("words", tmp_path, {"words": catalogue["words"]._replace(urls=(archive.as_uri(),))})
    assert folder_of(tmp_path / "words") == WHOLE


def test_an_interrupted_download_resumes(tmp_path: Path, server: Server, catalogue: dict[str, PublishedCorpus]) -> None:
    members = {"others": os.urandom(3 * BLOCK), "words.txt": CONTENT}
    archive = server.files["words.zip"] = zipped(members)
    server.break_after = 2 * BLOCK + 100
    missing = len(archive) - server.break_after
    with pytest.raises(UserError, match=rf"read, {missing} more expected\)\): run the same command again"):
        fetch("words", tmp_path, catalogue)
    (part,) = folder_of(tmp_path / "words").values()
    assert len(part) >= 2 * BLOCK
    assert archive.startswith(part)
    server.break_after = None
    fetch("words", tmp_path, catalogue)
    assert folder_of(tmp_path / "words") == WHOLE
    assert server.asked == [None, f"bytes={len(part)}-"]


@pytest.mark.parametrize("status", [302, 503])
def test_an_error_response_keeps_the_partial_download(
    status: int, tmp_path: Path, server: Server, catalogue: dict[str, PublishedCorpus]
) -> None:
    part = server.files["words.zip"][:200]
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "words.zip.part").write_bytes(part)
    server.status = status
    if status == 302:  # to the file itself
        fetch("words", tmp_path, catalogue)
        assert folder_of(tmp_path / "words") == WHOLE
        assert server.asked == ["bytes=200-", "bytes=200-"]
    else:
        with pytest.raises(UserError, match="status 503, Service Unavailable"):
            fetch("words", tmp_path, catalogue)
        assert folder_of(tmp_path / "words") == {"words.zip.part": part}


def test_a_server_without_range_requests_sends_the_whole_file_again(
    tmp_path: Path, server: Server, catalogue: dict[str, PublishedCorpus]
) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "words.zip.part").write_bytes(b"anything")
    server.knows_ranges = False
    fetch("words", tmp_path, catalogue)
    assert folder_of(tmp_path / "words") == WHOLE


def test_a_complete_or_too_long_partial_download_starts_from_the_beginning(
    tmp_path: Path, server: Server, catalogue: dict[str, PublishedCorpus]
) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "words.zip.part").write_bytes(server.files["words.zip"])
    fetch("words", tmp_path, catalogue)
    assert folder_of(tmp_path / "words") == WHOLE
    assert server.asked == [f"bytes={len(server.files['words.zip'])}-", None]


def test_an_archive_may_be_kept_packed(tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    content = tarred({"en/words.txt": CONTENT, "de/words.txt": CONTENT})
    server.files["words.tar.gz"] = content[:-1] + b"?"
    source = PublishedCorpus((described("words.tar.gz", content),), (server.address("words.tar.gz"),), "free")
    with pytest.raises(UserError, match=r"not an archive with the published words\.tar\.gz\): "):
        fetch("words", tmp_path, {"words": source})
    assert folder_of(tmp_path / "words") == {}
    server.files["words.tar.gz"] = content
    fetch("words", tmp_path, {"words": source})
    assert folder_of(tmp_path / "words") == {"words.tar.gz": content}
    capsys.readouterr()
    fetch("words", tmp_path, {"words": source})
    assert capsys.readouterr().out == f"words: already complete in {tmp_path / 'words'}\n"


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
def test_a_file_with_another_checksum_is_not_kept(
    tmp_path: Path, server: Server, catalogue: dict[str, PublishedCorpus], content: bytes
) -> None:
    server.files["words.zip"] = content
    with pytest.raises(UserError, match=r"zip: not an archive with the published words\.txt\)") as caught:
        fetch("words", tmp_path, catalogue)
    assert "\n" not in str(caught.value)
    assert folder_of(tmp_path / "words") == {}


def test_the_next_address_is_tried(tmp_path: Path, server: Server, catalogue: dict[str, PublishedCorpus]) -> None:
    good = server.address("words.zip")
    server.files["bad.zip"] = b"?"
    addresses = (server.address("missing.zip"), server.address("bad.zip"), good)
    fetch("words", tmp_path, {"words": catalogue["words"]._replace(urls=addresses)})
    assert folder_of(tmp_path / "words") == WHOLE
    (tmp_path / "words" / "words.txt").unlink()
    with pytest.raises(UserError) as caught:
        fetch("words", tmp_path, {"words": catalogue["words"]._replace(urls=addresses[:2])})
    assert str(caught.value) == (
        f"words: the download failed ({addresses[0]}: status 404, Not Found; {addresses[1]}: not an archive with the "
        f"published words.txt): run the same command again, or put words.txt into {tmp_path / 'words'}"
    )


def test_an_existing_file_of_the_same_name_is_not_overwritten(
    tmp_path: Path, catalogue: dict[str, PublishedCorpus]
) -> None:
    (tmp_path / "words").mkdir()
    own = tmp_path / "words" / "words.txt"
    own.write_bytes(b"mine")
    with pytest.raises(UserError, match=rf"^{own}: has 4 bytes, the published file {len(CONTENT):,}: move it away"):
        fetch("words", tmp_path, catalogue)
    own.write_bytes(b"?" + CONTENT[1:])
    with pytest.raises(UserError, match=rf"^{own}: has another sha256 .* move it away"):
        fetch("words", tmp_path, catalogue)
    assert own.read_bytes() == b"?" + CONTENT[1:]


def test_two_processes_do_not_download_the_same_corpus(
    tmp_path: Path, server: Server, catalogue: dict[str, PublishedCorpus]
) -> None:
    with (
        lock_file(tmp_path / ".cache" / "words.lock"),
        pytest.raises(UserError, match=r"words: another process is downloading to it$"),
    ):
        fetch("words", tmp_path, catalogue)
    assert server.asked == []
    fetch("words", tmp_path, catalogue)
    assert folder_of(tmp_path / "words") == WHOLE
