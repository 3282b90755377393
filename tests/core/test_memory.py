"""Memory that this machine does not have is refused before a process uses it."""

import resource
from pathlib import Path

import pytest
import torch

from gyral.core import memory
from gyral.training.callbacks.statistics import peak_memory


def test_allocation_beyond_the_memory_of_the_machine_fails() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory.limited_memory():
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] <= memory.machine_memory()
        with pytest.raises(RuntimeError) as raised:
            torch.empty(memory.machine_memory(), dtype=torch.uint8)
    assert memory.is_out_of_memory(raised.value)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_freed_memory_is_returned_and_not_in_the_peak() -> None:
    before = peak_memory()
    memory.release_freed_memory()
    tensor = torch.ones(100_000_000)
    peak = peak_memory()
    assert peak > min(before, 400)
    del tensor
    memory.release_freed_memory()
    assert peak_memory() < peak - 350


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"memory.max": "max\n", "memory.limit_in_bytes": "1000000\n"}.items():
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(memory, "CONTAINER_LIMITS", [str(tmp_path / name), str(tmp_path / "none")])
        assert (memory.machine_memory() == 1_000_000) == (text != "max\n")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("Storage size calculation overflowed with sizes=[9]")])
def test_errors_of_memory_are_known(error: Exception) -> None:
    assert memory.is_out_of_memory(error)
    assert not memory.is_out_of_memory(ValueError("must be positive"))
