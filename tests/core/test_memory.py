"""Keeping the heap: buffers of a training step are not faulted in anew."""

import platform

import pytest

from tests.helpers.running import spawn

FAULTS = """
import resource, sys
import torch
from gyral.core import memory as heap

if sys.argv[1] == "keep":
    heap.keep()
for _ in range(20):  # until all gaps between buffers are of use
    torch.ones(10_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    torch.ones(10_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    faults = {}
    for word in ("keep", "leave"):
        outcome = spawn("-c", FAULTS, word)
        assert outcome.status == 0, outcome.err
        faults[word] = int(outcome.out)
    assert faults["keep"] < 100
    assert faults["leave"] > 100, "otherwise this test sees nothing"
