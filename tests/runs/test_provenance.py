"""The origin of a run: neither a program that hangs nor text that is not UTF-8 keeps it from starting."""

import logging
import os
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from gyral.core.commands import output_of
from gyral.core.side_outputs import SideOutput
from gyral.runs import provenance
from gyral.runs.provenance import DIFF, read_provenance, write_provenance
from gyral.sweeps.launchers.gpus import visible_gpus

LATIN = "caf\xe9\n".encode("latin-1")


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what earlier tests have asked, and wait for programs that answer, however busy the machine is."""
    monkeypatch.setattr(provenance, "SECONDS", 60.0)
    for name in ("GIT", "DRIVER", "PACKAGES"):
        before = getattr(provenance, name)
        monkeypatch.setattr(provenance, name, SideOutput(before.name, before.missing))
    for asked in (provenance.gpu, provenance.installed_packages):
        asked.cache_clear()
    yield
    for asked in (provenance.gpu, provenance.installed_packages):
        asked.cache_clear()


def install(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that come before those of the system."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def write(directory: Path) -> dict[str, object]:
    directory.mkdir(exist_ok=True)
    write_provenance(directory)
    return read_provenance(directory)


@pytest.mark.parametrize(("program", "field"), [("git", "git_commit"), ("nvidia-smi", "gpu")])
def test_a_program_that_hangs_is_asked_once(
    tools: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    program: str,
    field: str,
) -> None:
    monkeypatch.setattr(provenance, "SECONDS", 0.5)
    asked = tmp_path / "asked"
    install(tools, program, f"echo >> {asked}; exec sleep 60")
    with caplog.at_level(logging.WARNING):
        found = write(tmp_path / "run")
        write(tmp_path / "run")
    assert not asked.exists() or asked.read_text() == "\n"  # a busy machine may not have started it in half a second
    assert found[field] is None
    [line] = [record.message for record in caplog.records if record.message.startswith(f"{program}:")]
    assert f"{program}: {program} did not answer in 0.5 seconds; the origin of a run lacks its" in line


def test_a_single_run_takes_the_id_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_ask", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["train", "-m", "model=gru,rum", "model.cell.bias=choice(false)"])
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    write_provenance(tmp_path)
    assert read_provenance(tmp_path)["id"] == "mine"
    write_provenance(tmp_path, sweep="a sweep")  # whose jobs would share the id
    job = read_provenance(tmp_path)
    assert job["id"] != "mine"
    assert job["command"][1:] == ["train", "-m", "model=gru,rum", "model.cell.bias=false"], "as it was typed"
    monkeypatch.setenv("WANDB_SWEEP_ID", "agent")
    write_provenance(tmp_path, sweep="a sweep")
    assert read_provenance(tmp_path)["id"] == "mine"


@pytest.mark.parametrize("program", ["git", "nvidia-smi"])
def test_a_program_that_fails_says_nothing(
    tools: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, program: str
) -> None:
    install(tools, program, "echo wrong >&2; exit 3")
    with caplog.at_level(logging.WARNING):
        write(tmp_path / "run")
    assert not caplog.records


def test_gpus_that_hang_are_none(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "SECONDS", 0.5)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    install(tools, "nvidia-smi", "exec sleep 60")
    assert visible_gpus() == []


def test_the_difference_to_the_commit_is_plain_and_can_be_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that are not UTF-8, colors, a program that shows differences, and an empty last line."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()

    def git(*words: str) -> bytes:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        return subprocess.run(["git", *identity, *words], cwd=checkout, check=True, capture_output=True).stdout

    text = checkout / "text.txt"
    text.write_bytes(b"one\n" + LATIN + b"\n")
    git("init", "-q")
    git("add", "text.txt")
    git("commit", "-qm", "first")
    changed = b"two\n" + LATIN + b"\n"
    text.write_bytes(changed)
    git("config", "color.ui", "always")
    git("config", "diff.external", "false")
    monkeypatch.setattr(provenance, "__file__", str(checkout / "provenance.py"))
    found = write(tmp_path / "run")
    assert found["git_commit"] == git("rev-parse", "HEAD").decode().strip()
    git("checkout", "-q", "text.txt")
    git("apply", str(tmp_path / "run" / DIFF))
    assert text.read_bytes() == changed


def test_a_package_whose_description_is_not_text_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, author in (("good", b"Ren\xc3\xa9\n"), ("bad", b"Ren\xe9\n")):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_bytes(
            b"Metadata-Version: 2.1\nName: " + name.encode() + b"\nVersion: 1.0\nAuthor: " + author
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    packages = write(tmp_path / "run")["packages"]
    assert isinstance(packages, dict)
    assert packages["good"] == "1.0"
    assert "torch" in packages

    def refuse() -> list[metadata.Distribution]:
        raise PermissionError("no")

    provenance.installed_packages.cache_clear()
    monkeypatch.setattr(metadata, "distributions", refuse)
    with caplog.at_level(logging.WARNING):
        assert write(tmp_path / "run")["packages"] is None
    assert [record.message for record in caplog.records] == [
        "Installed packages: no; the origin of a run lacks their versions"
    ]


def test_the_output_of_a_program(tmp_path: Path) -> None:
    assert output_of("printf", "caf\\351").encode(errors="surrogateescape") == b"caf\xe9"
    assert output_of("pwd", folder=tmp_path).strip() == str(tmp_path.resolve())
    with pytest.raises(OSError, match=r"^no such file$"):
        output_of("sh", "-c", "echo 'no  such\nfile' >&2; exit 1")
    with pytest.raises(TimeoutError, match=r"^sleep did not answer in 0\.1 seconds$"):
        output_of("sleep", "60", seconds=0.1)
