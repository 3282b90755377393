"""Memory: settings of the C library's allocator, and errors instead of a process that the system kills."""

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator
from pathlib import Path

# The memory limit of the container, of both versions of Linux's control groups.
CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # from malloc.h

GPU_DRIVERS = ("/dev/nvidiactl", "/dev/kfd")


def retain_freed_memory() -> None:
    """Make glibc keep freed memory in this process instead of returning it to the operating system.

    By default glibc returns large buffers, and every training step faults their pages in again. This takes a third of
    the time of an LSTM's step at 128 × 520 × 100. The cost is that the process never shrinks; its memory was measured
    to be up to half as large again. With another C library this function does nothing.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def release_freed_memory() -> None:
    """Return freed memory to the operating system, and measure the peak memory of this process anew.

    A run then neither has nor reports the memory of a run before it in the same process. With another C library or
    system than glibc and Linux, the memory remains.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        # sets the peak to the present size, see proc(5)
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error reports a failed allocation; torch raises a RuntimeError for the CPU."""
    message = str(error)
    too_large = "Storage size calculation overflowed" in message
    return isinstance(error, MemoryError) or too_large or ("memory" in message and "allocate" in message)


def machine_memory() -> int:
    """Return the memory of this machine, or the limit of the container if that is lower, in bytes."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in CONTAINER_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            sizes.append(int(Path(name).read_text(encoding="utf-8")))
    return min(sizes)


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Within this context, this process cannot allocate more memory than the machine or the container has.

    Without a limit, Linux lets a process allocate more than there is, and kills it as soon as it uses that. On a
    machine with a GPU there is no limit, because the driver maps much more memory than it uses.
    """
    if any(map(os.path.exists, GPU_DRIVERS)):
        yield
        return
    import resource  # Unix only

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (soft, hard, machine_memory()) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
