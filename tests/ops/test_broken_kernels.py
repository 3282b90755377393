"""Kernels that are broken on purpose: a wrong argument, a wrong result, a crash when they are loaded.

`test_every_kernel_loads` names the family whose kernel crashes; other tests would only end with it.
"""

import faulthandler
import shutil
from pathlib import Path

import pytest

from gyral.ops.graph_gru import KERNELS
from gyral.ops.native import build, library
from tests.faults.forks import fork
from tests.helpers.found import at_least
from tests.helpers.kernels import forget_kernels
from tests.ops.graph_gru.test_graph_gru import CONTRACT

pytestmark = pytest.mark.skipif(library.compiler() is None, reason="needs a C++ compiler")


def check_load(folder: Path, *sources: Path) -> None:
    """Load kernels in a process of its own."""

    def load() -> None:
        faulthandler.disable()  # it would write to the terminal of this process
        forget_kernels()
        for source in sources:
            print(source.stem, flush=True)
            library.Kernel(source).prepare()

    loaded = fork(load, folder, limit=600)
    last = loaded.out.split()[-1] if loaded.out else "nothing"
    assert loaded.status == 0, f"{last} ends with {loaded.status}: {loaded.err.strip()[-200:]}"


def check_equals_naive() -> None:
    CONTRACT.case((4, 3, 2, 5), {}).check()


def broken(folder: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> library.Kernel:
    """Return the kernel of `graph_gru` with a change of its source, to be compiled without optimization, and use it."""
    monkeypatch.setattr(library, "FLAGS", tuple("-O0" if flag == "-O3" else flag for flag in library.FLAGS))
    text = KERNELS.kernel.source.read_text()
    assert old in text
    source = folder / "graph_gru.cpp"
    source.write_text(text.replace(old, new))
    for header in KERNELS.kernel.source.parent.glob("*.hpp"):
        shutil.copy(header, folder)
    kernel = library.Kernel(source)
    for name, value in (("kernel", kernel), ("_fields", frozenset(kernel.names)), ("_is_checked", False)):
        monkeypatch.setattr(KERNELS, name, value)
    return kernel


def test_every_kernel_loads(tmp_path: Path) -> None:
    check_load(tmp_path, *at_least(18, build.sources()))


def test_a_crash_while_a_kernel_is_loaded_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, crash = "namespace graph_gru {", "__attribute__((constructor)) static void crash() { __builtin_trap(); }"
    kernel = broken(tmp_path, monkeypatch, begin, f"{crash}\n{begin}")
    with pytest.raises(AssertionError, match=r"^graph_gru ends with -\d+: "):
        check_load(tmp_path, kernel.source)


def test_a_wrong_argument_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(tmp_path, monkeypatch, "void* parts;", "void* part;")
    with pytest.raises(TypeError, match=r"^graph_gru\.cpp has no argument parts$"):
        check_equals_naive()


def test_a_wrong_result_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_equals_naive()
    broken(tmp_path, monkeypatch, "products + (row - first) * products_row, out", "products, out")
    with pytest.raises(AssertionError, match="not close"):
        check_equals_naive()
