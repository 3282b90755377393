"""The C library's allocator: retained buffers of a training step are not faulted in again."""

import platform

import pytest

from tests.helpers.running import spawn

FAULTS = """
import resource
import torch
from gyral.core.memory import retain_freed_memory

def page_faults():
    for _ in range(20):  # until all gaps between buffers are of use
        torch.ones(10_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        torch.ones(10_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(page_faults())
retain_freed_memory()
print(page_faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    outcome = spawn("-c", FAULTS)
    assert outcome.status == 0, outcome.err
    default, retained = map(int, outcome.out.split())
    assert default > 100, "otherwise this test sees nothing"
    assert retained < 100
