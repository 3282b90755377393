"""Compiled kernels that another user has put into the cache, or could have, are not loaded."""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gyral.core.cache import keep_compiler_cache_private
from gyral.ops.native import library
from tests.helpers.attacks import Attack

pytestmark = pytest.mark.skipif(library.compiler() is None, reason="needs a C++ compiler")

NOBODY = 65534  # the user of that name, who owns nothing of ours
SOURCE = 'extern "C" int answer() { return 42; }'
HOSTILE = """
#include <cstdio>
__attribute__((constructor)) static void run() { if (FILE* file = std::fopen("CANARY", "w")) std::fclose(file); }
extern "C" int answer() { return 13; }
"""


def give_away(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY)


def file_of_another_user(path: Path) -> None:
    give_away(path)
    path.chmod(0o644)


def file_that_all_may_write(path: Path) -> None:
    path.chmod(0o666)


def file_of_a_group(path: Path) -> None:
    os.chown(path, -1, 1)
    path.chmod(0o775)


def folder_of_another_user(path: Path) -> None:
    give_away(path.parent)


def folder_that_all_may_write(path: Path) -> None:
    path.parent.chmod(0o777)


def folder_above_that_all_may_write(path: Path) -> None:
    path.parent.parent.chmod(0o777)


def file_of_another_user_in_a_folder_like_tmp(path: Path) -> None:
    give_away(path)
    path.parent.chmod(0o1777)


def link_of_another_user_in_a_folder_like_tmp(path: Path) -> None:
    path.rename(path.parent.parent / "target.so")
    path.symlink_to(path.parent.parent / "target.so")
    os.lchown(path, NOBODY, NOBODY)
    path.parent.chmod(0o1777)


def link_to_a_file_of_another_user(path: Path) -> None:
    target = path.parent.parent / "target.so"
    path.rename(target)
    give_away(target)
    path.symlink_to(target)


def folder_that_is_a_link_to_one_that_all_may_write(path: Path) -> None:
    target = path.parent.parent / "target"
    path.parent.rename(target)
    target.chmod(0o777)
    path.parent.symlink_to(target)


def folder_that_is_a_link_of_another_user(path: Path) -> None:
    target = path.parent.parent / "target"
    path.parent.rename(target)
    path.parent.symlink_to(target)
    os.lchown(path.parent, NOBODY, NOBODY)
    path.parent.parent.chmod(0o1777)


def link_that_leads_to_one_of_another_user(path: Path) -> None:
    folder_that_is_a_link_of_another_user(path)
    path.parent.rename(path.parent.with_name("theirs"))
    path.parent.symlink_to("theirs")


BY_ANYBODY: tuple[Callable[[Path], None], ...] = (
    file_that_all_may_write,
    folder_that_all_may_write,
    folder_above_that_all_may_write,
    folder_that_is_a_link_to_one_that_all_may_write,
)
BY_ROOT: tuple[Callable[[Path], None], ...] = (
    file_of_another_user,
    file_of_a_group,
    folder_of_another_user,
    file_of_another_user_in_a_folder_like_tmp,
    link_of_another_user_in_a_folder_like_tmp,
    link_to_a_file_of_another_user,
    folder_that_is_a_link_of_another_user,
    link_that_leads_to_one_of_another_user,
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Return a library, named as that of a source beside it, and the file that it creates when it is loaded."""
    folder = tmp_path_factory.mktemp("hostile")
    canary, source, hostile = folder / "canary", folder / "answer.cpp", folder / "hostile.cpp"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GYRAL_CACHE", str(folder / "cache"))
        source.write_text(SOURCE)
        library.load_or_reason.cache_clear()
        library.load(source)
    (path,) = (folder / "cache").glob("*.so")
    made = folder / path.name
    hostile.write_text(HOSTILE.replace("CANARY", str(canary)))
    library._run([str(library.compiler()), "-shared", "-fPIC", str(hostile), "-o", str(made)])
    content = made.read_bytes()
    made.write_bytes(content + library._digest(content, made.name))  # its digest is right
    library._open(made)
    assert canary.exists(), "the attack has no effect"
    canary.unlink()
    yield made, canary
    library.load_or_reason.cache_clear()


@pytest.mark.attacks(sampled=2, whole=40)
def test_a_library_that_another_user_could_have_written_is_not_loaded(
    attack: Attack,
    hostile: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    way = attack.random.choice((*BY_ANYBODY, *BY_ROOT) if os.getuid() == 0 else BY_ANYBODY)
    made, canary = hostile
    path = tmp_path / "above" / "cache" / made.name
    path.parent.mkdir(parents=True)
    shutil.copy(made, path)
    path.chmod(0o755)
    way(path)
    monkeypatch.setenv("GYRAL_CACHE", str(path.parent))
    library.load_or_reason.cache_clear()
    with caplog.at_level(logging.WARNING, "gyral"):
        assert library.load(made.parent / "answer.cpp").answer() == 42
    assert not canary.exists()
    (record,) = caplog.records
    assert record.getMessage().startswith(("/", "all users may write to /", "a group may write to /"))
    assert record.getMessage().endswith("; compiling answer.cpp for this process alone")
    attack.record(way.__name__.replace("_", " "))


def test_torch_compile_has_a_cache_that_others_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    keep_compiler_cache_private()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path), "the user's choice"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    keep_compiler_cache_private()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "cache" / "torch_compile")
    assert not caplog.records
    (tmp_path / "cache").chmod(0o777)
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    keep_compiler_cache_private()
    private = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    assert not private.is_relative_to(tmp_path)
    assert private.stat().st_mode & 0o777 == 0o700
    assert f"all users may write to {tmp_path / 'cache'} (mode 777)" in caplog.text
