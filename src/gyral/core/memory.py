"""The C library's heap."""

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h


def keep() -> None:
    """Let memory that is freed stay with this process, where the C library is glibc.

    It would give large buffers back to the system, and every training step would fault its pages in again: a third of
    the time of an LSTM's step at 128 × 520 × 100. The price is a process that stays as large as it ever was, and was
    seen up to half as large again.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
