"""Compiling on first use: kept, shared, whole or not at all; and what is said where it cannot be done."""

import ctypes
import logging
import os
import tempfile
from pathlib import Path

import pytest
import torch

from gyral.cells.rum import RUMCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from gyral.ops.native import build, library
from gyral.ops.operator import KernelUnavailableError
from tests.helpers.found import at_least
from tests.helpers.kernels import forget_kernels
from tests.helpers.running import spawn


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Give every test a cache of its own, on disk and in this process."""
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "cache"))
    forget_kernels()
    yield tmp_path / "cache"
    forget_kernels()


def source(folder: Path, text: str = 'extern "C" int answer() { return 42; }') -> Path:
    path = folder / "answer.cpp"
    path.write_text(text)
    return path


def libraries(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.so"))


def needs_compiler() -> None:
    if library.compiler() is None:
        pytest.skip("there is no C++ compiler")


def test_a_library_is_compiled_once_and_kept(tmp_path: Path, cache: Path) -> None:
    needs_compiler()
    assert library.load(source(tmp_path)).answer() == 42
    (made,) = libraries(cache)
    before = made.stat().st_mtime_ns
    library.load_or_reason.cache_clear()
    assert library.load(source(tmp_path)).answer() == 42
    assert [path.stat().st_mtime_ns for path in libraries(cache)] == [before]
    library.load_or_reason.cache_clear()
    assert library.load(source(tmp_path, 'extern "C" int answer() { return 43; }')).answer() == 43
    assert len(libraries(cache)) == 2, "another source is another library"


def test_a_library_depends_on_the_headers_that_its_source_includes_and_on_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    needs_compiler()
    monkeypatch.setattr(library, "SOURCES", tmp_path / "ops")
    number, family, other = (tmp_path / "ops" / name for name in ("a/number.hpp", "b/family.hpp", "b/other.hpp"))
    for folder in (number.parent, family.parent):
        folder.mkdir(parents=True)
    family.write_text('#pragma once\n#include "a/number.hpp"\n#include "b/family.hpp"\n')
    own = '#include <cmath>\n#include "b/family.hpp"\nextern "C" int answer() { return NUMBER; }'
    # a header that is included through another one; then again the first, and one that nothing includes
    for text, unrelated, count in (("42", "", 1), ("43", "", 2), ("42", "", 2), ("42", "// new", 2)):
        number.write_text(f"#define NUMBER {text}\n")
        other.write_text(unrelated)
        library.load_or_reason.cache_clear()
        assert library.load(source(tmp_path, own)).answer() == int(text)
        assert len(libraries(cache)) == count


def test_the_cache_follows_the_conventions_of_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    needs_compiler()
    monkeypatch.delenv("GYRAL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    library.load(source(tmp_path))
    assert len(list((tmp_path / "xdg" / "gyral").glob("answer-*.so"))) == 1


def failing(tmp_path: Path) -> str:
    """Return a compiler that tells its version and compiles nothing."""
    path = tmp_path / "c++"
    path.write_text(
        f'#!/bin/sh\necho "$1" >>{tmp_path}/calls\n'
        '[ "$1" = --version ] || { echo "x.cpp:1: error: out of luck" >&2; exit 1; }\n'
    )
    path.chmod(0o755)
    return str(path)


def test_a_compiler_failure_is_logged_in_one_line_and_leaves_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    monkeypatch.setenv("CXX", failing(tmp_path))
    with pytest.raises(KernelUnavailableError, match=r"c\+\+ failed: x\.cpp:1: error: out of luck$"):
        library.load(source(tmp_path))
    assert [path.name for path in cache.iterdir()] == [library.LOCK]


def test_a_compiler_that_fails_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> None:
    monkeypatch.setenv("CXX", failing(tmp_path))
    model = Recurrent(lambda size: RUMCell(size, 4), 3)
    for _ in range(3):
        model(torch.zeros(2, 1, 3))
    assert model.backend == "reference"
    assert len((tmp_path / "calls").read_text().split()) == 2, "its version, and one compilation"


def test_a_cache_that_cannot_be_made_is_named_and_the_kernel_compiled_for_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    needs_compiler()
    (tmp_path / "file").touch()
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "file" / "cache"))
    with caplog.at_level(logging.WARNING, "gyral"):
        assert library.load(source(tmp_path)).answer() == 42
    [record] = caplog.records
    assert record.getMessage().endswith("file/cache: Not a directory; compiling answer.cpp for this process alone")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    library.load_or_reason.cache_clear()
    with pytest.raises(KernelUnavailableError, match=r"/none/gyral-\w+: No such file or directory$"):
        library.load(source(tmp_path))


def test_a_damaged_library_and_one_without_a_digest_are_compiled_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    needs_compiler()
    library.load(source(tmp_path))
    (made,) = libraries(cache)
    whole = made.read_bytes()
    flipped = bytearray(whole)
    flipped[len(flipped) // 2] ^= 1
    for number, content in enumerate((b"", b"half", whole[: len(whole) // 2], whole[:-32], bytes(flipped))):
        other = tmp_path / str(number)  # the loader remembers what it has loaded by its path
        other.mkdir()
        (other / made.name).write_bytes(content)
        monkeypatch.setenv("GYRAL_CACHE", str(other))
        library.load_or_reason.cache_clear()
        assert library.load(source(tmp_path)).answer() == 42
        assert library._is_whole(other / made.name)


def test_a_library_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> None:
    needs_compiler()
    library.load(source(tmp_path))
    (made,) = libraries(cache)
    other = tmp_path / "other"
    other.mkdir()
    content = b"of another system"
    (other / made.name).write_bytes(content + library._digest(content, made.name))
    monkeypatch.setenv("GYRAL_CACHE", str(other))
    library.load_or_reason.cache_clear()
    with pytest.raises(KernelUnavailableError, match=f"{made.name} does not load: "):
        library.load(source(tmp_path))


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o077])
def test_a_compiled_library_is_trusted_later_under_any_umask(mask: int, tmp_path: Path, cache: Path) -> None:
    needs_compiler()
    former = os.umask(mask)
    try:
        library.load(source(tmp_path))
    finally:
        os.umask(former)
    (made,) = libraries(cache)
    before = made.stat().st_mtime_ns
    library.load_or_reason.cache_clear()
    assert library.load(source(tmp_path)).answer() == 42
    assert made.stat().st_mtime_ns == before


def test_without_a_compiler_the_reference_runs_and_logs_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with caplog.at_level(logging.INFO, "gyral"):
        model = Recurrent(lambda size: RUMCell(size, 4), 3)
        assert model.backend == "reference"
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "RUMCell runs on the reference backend (requested: auto; there is no C++ compiler"
    )
    with pytest.raises(OptionError, match=r"^backend=fused: there is no C\+\+ compiler .*; allowed here: auto, "):
        Recurrent(lambda size: RUMCell(size, 4), 3, backend="fused")


def test_recurrent_dropout_of_rum_has_no_kernels() -> None:
    message = r"^backend=fused: recurrent_dropout has no fused path; allowed here: "
    with pytest.raises(OptionError, match=message):
        Recurrent(lambda size: RUMCell(size, 4, recurrent_dropout=0.5), 3, backend="fused")


def test_half_precision_has_no_kernels_on_the_cpu() -> None:
    needs_compiler()
    assert "torch.bfloat16 on cpu" in str(RUMCell(3, 4).bfloat16().fused_unsupported_reason())


@pytest.mark.slow
def test_processes_that_compile_at_once_all_get_a_whole_library(tmp_path: Path, cache: Path) -> None:
    needs_compiler()
    script = tmp_path / "both.py"
    script.write_text(
        "import subprocess, sys\n"
        "code = 'from gyral.ops.rum import cpu as rum_cpu; print(rum_cpu.KERNEL.blocks(8))'\n"
        "jobs = [subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE) for _ in range(3)]\n"
        "print(*(int(job.communicate()[0]) for job in jobs))\n"
    )
    outcome = spawn(str(script), GYRAL_CACHE=str(cache), PYTHONPATH=os.getcwd())
    assert outcome.status == 0, outcome.err
    assert len(set(outcome.out.split())) == 1
    assert len(libraries(cache)) == 1


# ---------------------------------------------------------------- the arguments of a kernel


def test_the_fields_that_are_read_equal_those_of_the_compiled_structure() -> None:
    needs_compiler()
    for path in at_least(18, build.sources()):
        kernel = library.Kernel(path)
        fields = library.read_fields(path)
        assert kernel.Arguments._fields_ == fields
        assert {"batch", "threads", "workspace"} <= {name for name, _ in fields}, path
        assert kernel.function("arguments_size")() == ctypes.sizeof(kernel.Arguments), path


def kernel_of(folder: Path, fields: str, header: str = "") -> library.Kernel:
    """Return a kernel whose structure, in a header or else in the source, has these fields."""
    text = f"struct Arguments {{\n{fields}}};\n"
    path = source(folder, "" if header else text)
    if header:
        (folder / header).write_text(text)
    return library.Kernel(path)


@pytest.mark.parametrize("header", ["", "answer.hpp"], ids=["source", "header"])
def test_fields_are_read_in_their_order_without_comments(tmp_path: Path, header: str) -> None:
    fields = "    Index batch, steps;  // (B; T)\n    double eta;\n    // float old;\n    void* x;\n"
    expected = [("batch", ctypes.c_int64), ("steps", ctypes.c_int64), ("eta", ctypes.c_double), ("x", ctypes.c_void_p)]
    assert library.read_fields(kernel_of(tmp_path, fields, header).source) == expected


def test_a_field_of_another_type_is_named(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, "    Index batch;\n    float eta, epsilon;\n", "answer.hpp")
    message = r"^answer\.cpp: float eta, epsilon: the type must be one of Index, double, void\*$"
    with pytest.raises(TypeError, match=message):
        library.read_fields(kernel.source)


def test_a_source_without_arguments_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"^answer\.cpp: there is no struct Arguments$"):
        library.read_fields(source(tmp_path))


def test_a_number_that_is_left_out_is_named(tmp_path: Path) -> None:
    kernel = kernel_of(
        tmp_path, "    Index batch, threads, steps;\n    double eta;\n    void* workspace;\n    void* x;\n"
    )
    with pytest.raises(TypeError, match=r"^answer\.cpp needs eta, steps$"):
        kernel.run(backward=False, batch=2)


def test_an_unknown_argument_is_named_with_the_allowed_ones(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, "    Index batch, threads, steps;\n    void* workspace, x;\n")
    for unknown in ("outputs", "threads", "workspace"):  # the last two are filled in
        with pytest.raises(TypeError, match=rf"^answer\.cpp has no argument {unknown}; it has batch, steps, x$"):
            kernel.run(backward=False, batch=2, steps=1, **{unknown: 1})
