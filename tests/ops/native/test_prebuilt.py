"""Kernels that a wheel carries, for an installation without a compiler."""

from pathlib import Path

import pytest

from gyral.ops.native import build, library
from gyral.ops.operator import KernelUnavailableError
from tests.helpers.kernels import look_again

TEXT = 'extern "C" int answer() { return 42; }'


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the source of an installation whose kernels are one library, built for every level of x86-64."""
    if library.compiler() is None:
        pytest.skip("there is no C++ compiler to build them")
    if library.platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("there are prebuilt kernels for x86-64 alone")
    monkeypatch.setattr(library, "SOURCES", tmp_path / "ops")
    source = tmp_path / "ops" / "family" / "answer.cpp"
    source.parent.mkdir(parents=True)
    source.write_text(TEXT)
    monkeypatch.setattr(library, "PREBUILT", tmp_path / "prebuilt")
    monkeypatch.setattr(library.prebuilt_path, "__defaults__", (tmp_path / "prebuilt",))
    made = build.build(tmp_path / "prebuilt")
    assert [path.name.rsplit("-", 1)[0] for path in made] == ["answer-x86-64-v4", "answer-x86-64-v3"]
    look_again(monkeypatch)
    monkeypatch.setattr(library, "compiler", lambda: None)
    return source


@pytest.mark.parametrize(
    ("level", "others"), [("x86-64-v4", "x86-64-v3"), ("x86-64-v3", None)], ids=["with AVX-512", "without"]
)
def test_without_a_compiler_the_best_level_of_the_processor_serves(
    installation: Path, level: str, others: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = [feature for name in (level, others) if name for feature in library.LEVELS[name]]
    monkeypatch.setattr(library, "_processor", lambda: " ".join(["flags", ":", *features]))
    found = library.find_prebuilt(installation)
    assert found is not None
    assert f"-{level}-" in found.name
    assert library.origin() == f"those of the wheel for {level}"


def test_it_is_loaded(installation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = set(library._processor().split())
    if not features.issuperset(library.LEVELS["x86-64-v3"]):
        pytest.skip("this processor has not the instructions of x86-64-v3")
    monkeypatch.setattr(library, "_processor", lambda: " ".join(library.LEVELS["x86-64-v3"]))
    assert library.load(installation).answer() == 42


def test_another_source_or_processor_has_none(installation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_processor", lambda: "flags : sse2")
    with pytest.raises(KernelUnavailableError, match="there is no C\\+\\+ compiler"):
        library.load(installation)
    assert library.origin() == "unavailable: there is no C++ compiler"
    monkeypatch.setattr(library, "_processor", lambda: " ".join(library.LEVELS["x86-64-v3"]))
    installation.write_text(TEXT.replace("42", "43"), encoding="utf-8")
    assert library.find_prebuilt(installation) is None


@pytest.mark.slow
def test_every_family_can_be_built(tmp_path: Path) -> None:
    if library.compiler() is None or library.platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("there is no C++ compiler for x86-64")
    families = {path.stem for path in build.sources()}
    assert families >= {"convolution", "fast_slow", "gated", "graph_gru", "lie_access", "rum"}
    made = build.build(tmp_path)
    assert len(made) == len(families) * len(library.LEVELS)
    assert all(path.stat().st_size > 10_000 for path in made)
