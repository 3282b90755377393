"""Damaged caches of compiled kernels are compiled again, and compilers that fail are refused in one line."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gyral.ops.native import library
from gyral.ops.operator import KernelUnavailableError
from tests.faults import forks
from tests.helpers.attacks import Attack
from tests.helpers.kernels import forget_kernels

pytestmark = pytest.mark.skipif(library.compiler() is None, reason="needs a C++ compiler")

SOURCE = 'extern "C" int answer() { return 42; }'
OTHER = 'extern "C" int other() { return 13; }'


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nothing")


def link_to_the_library(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere.so")
    path.symlink_to(path.parent.parent / "elsewhere.so")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").touch()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def changed_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def terabyte(path: Path) -> None:
    os.truncate(path, 2**40)


def library_of_another_source(path: Path) -> None:
    shutil.copy(next(path.parent.glob("other-*.so")), path)


def cache_that_is_a_file(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_text("")


def cache_that_is_a_link_to_itself(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.symlink_to(path.parent.name)


def lock_that_is_a_folder(path: Path) -> None:
    path.unlink()
    (path.parent / library.LOCK).unlink()
    (path.parent / library.LOCK).mkdir()


def lock_that_is_a_link(path: Path) -> None:
    path.unlink()
    (path.parent / library.LOCK).unlink()
    (path.parent / library.LOCK).symlink_to(path.parent.parent / "files of the user" / "kept")


def folders_of_killed_compilations(path: Path) -> None:
    path.unlink()
    for name in "ab":
        killed = path.parent / f"{library.FOLDER}{name}"
        (killed / "within").mkdir(parents=True)
        os.utime(killed, (0, 0))


def link_named_as_a_folder_of_a_compilation(path: Path) -> None:
    path.unlink()
    (path.parent / f"{library.FOLDER}a").symlink_to(path.parent.parent / "files of the user")


DAMAGES: tuple[Callable[[Path], None], ...] = (
    *(link_to_itself, link_to_nothing, link_to_the_library, pipe, folder, empty, half, changed_byte, terabyte),
    *(library_of_another_source, cache_that_is_a_file, cache_that_is_a_link_to_itself),
    *(lock_that_is_a_folder, lock_that_is_a_link),
    *(folders_of_killed_compilations, link_named_as_a_folder_of_a_compilation),
)
# By what happens: the lines of a shell script that is called as a compiler. "$1" is --version first.
COMPILERS = {
    "fails": "exit 1",
    "fails in several lines": "printf 'a\\nerror: b\\nerror: c\\n' >&2; exit 1",
    "has a version of bytes": "printf '\\377\\376\\n'; [ \"$1\" = --version ]",
    "fails in bytes": '[ "$1" = --version ] || { printf "error: \\377\\n" >&2; exit 1; }',
    "writes nothing": "exit 0",
    "writes a text": '[ "$1" = --version ] || for file; do :; done; [ "$1" = --version ] || echo text >"$file"',
    "is killed": '[ "$1" = --version ] || kill -9 $$',
    "writes and fails": '[ "$1" = --version ] || for file; do :; done; echo >"$file" 2>/dev/null; exit 1',
}


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """Return a source and its compiled library, which has another library beside it, and is not loaded."""
    source, other, kept = tmp_path / "answer.cpp", tmp_path / "other.cpp", tmp_path / "files of the user" / "kept"
    kept.parent.mkdir()
    kept.write_text("kept")
    source.write_text(SOURCE)
    other.write_text(OTHER)
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "made"))
    forget_kernels()
    library.load(source), library.load(other)
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "made").rename(tmp_path / "cache")  # the system's loader remembers libraries by their paths
    forget_kernels()
    (made,) = (tmp_path / "cache").glob("answer-*.so")
    yield source, made
    assert kept.read_text() == "kept"
    forget_kernels()


@pytest.mark.attacks(sampled=2, whole=len(DAMAGES))
def test_a_damaged_cache_is_mended_or_refused_in_one_line(attack: Attack, cached: tuple[Path, Path]) -> None:
    source, made = cached
    DAMAGES[attack.number % len(DAMAGES)](made)
    outcome = library.load_or_reason(source)
    if isinstance(outcome, str):
        assert "\n" not in outcome
        assert str(made.parent) in outcome
        attack.record("refused")
    else:
        assert outcome.answer() == 42
        assert not [path for path in made.parent.glob(f"{library.FOLDER}*") if not path.is_symlink()]
        attack.record("usable")


@pytest.mark.parametrize("script", COMPILERS.values(), ids=COMPILERS)
def test_a_compiler_that_fails_is_refused_in_one_line(
    script: str, cached: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    refuses(compiler, cached, monkeypatch)


def test_a_compiler_that_is_no_program_is_refused_in_one_line(
    cached: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_bytes(b"\xff\x00")
    compiler.chmod(0o755)
    refuses(compiler, cached, monkeypatch)


def refuses(compiler: Path, cached: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the error of loading a library with a compiler is one line, and that no folder is left."""
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(KernelUnavailableError) as caught:
        library.load(cached[0])
    assert str(caught.value).splitlines() == [str(caught.value)]
    assert str(compiler) in str(caught.value) or " does not load: " in str(caught.value)
    assert not list(cached[1].parent.glob(f"{library.FOLDER}*"))


def test_the_next_compilation_removes_the_folder_of_a_killed_one(
    cached: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, made = cached
    made.unlink()
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\n[ "$1" = --version ] || {{ touch {tmp_path}/started; sleep 60; }}\n')
    compiler.chmod(0o755)

    def compile_slowly() -> None:
        os.environ["CXX"] = str(compiler)
        library.load(source)

    def kill(child: int) -> None:
        until = time.monotonic() + 60
        while not (tmp_path / "started").exists() and time.monotonic() < until:
            time.sleep(0.01)
        os.killpg(child, signal.SIGKILL)

    ended = forks.fork(compile_slowly, tmp_path, meanwhile=kill)
    assert ended.status == -signal.SIGKILL, ended
    (killed,) = made.parent.glob(f"{library.FOLDER}*")
    assert library.load(source).answer() == 42
    assert killed.exists()  # it may be that of another machine, whose lock is not seen
    os.utime(killed, (0, 0))
    made.unlink()
    forget_kernels()
    assert library.load(source).answer() == 42
    assert not list(made.parent.glob(f"{library.FOLDER}*"))
