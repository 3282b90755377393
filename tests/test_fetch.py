"""The command `fetch`: it tries all corpora and reports each failure in one line."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gyral import fetch
from gyral.data.catalogue import CATALOGUE, PublishedCorpus, PublishedFile

ROOT = Path(__file__).parents[1]
CONTENT = b" aer banknote \n pierre <unk> N \n" * 100


def described(name: str, content: bytes) -> PublishedFile:
    return PublishedFile(name, len(content), hashlib.sha256(content).hexdigest())


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small archive in the place of the Penn Treebank."""
    with zipfile.ZipFile(tmp_path / "words.zip", "w") as archive:
        archive.writestr("words.txt", CONTENT)
    corpus = PublishedCorpus((described("words.txt", CONTENT),), ((tmp_path / "words.zip").as_uri(),), "free")
    monkeypatch.setitem(CATALOGUE, "ptb", corpus)


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["fetch", *arguments])
    try:
        fetch.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.usefixtures("words")
def test_all_corpora_are_tried_and_each_failure_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # a port without a listener has the same effect as no network
    closed = PublishedCorpus((described("text8", b"?"),), ("http://127.0.0.1:9/text8.zip",), "free")
    monkeypatch.setitem(CATALOGUE, "text8", closed)
    assert run(["text8", "ptb", "--data-dir", str(tmp_path)], monkeypatch) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: text8: the download failed (http://127.0.0.1:9/text8.zip: ")
    assert "refused" in line
    assert contents(tmp_path / "ptb") == {"words.txt": CONTENT}
    assert contents(tmp_path / "text8") == {}
    assert run(["ptb", "--data-dir", str(tmp_path)], monkeypatch) == 0


@pytest.mark.usefixtures("words")
def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run(["ptb", "--data-dir", str(tmp_path / "file")], monkeypatch) == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'file' / 'ptb'}: Not a directory\n"


def test_make_data_runs_it_after_installing() -> None:
    command = ["make", "data", "CORPORA=ptb text8", "--dry-run", "--always-make"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.index("pip install") < printed.index("gyral fetch ptb text8")


def test_the_help_names_the_data_folder_and_its_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATA_DIR", "/corpora")
    assert run(["--help"], monkeypatch) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the data folder; by default the environment variable DATA_DIR, or else data (here: /corpora)" in said
