"""Buffers that are used again."""

import pytest
import torch

from gyral.ops import buffers


def test_a_buffer_of_inference_mode_is_writable_in_training() -> None:
    buffers._pool.clear()
    with torch.inference_mode():
        left = buffers.acquire(10, torch.ones(1))
        torch.add(torch.ones(10), 1, out=left)
        buffers.release(left)
    again = buffers.acquire(8, torch.ones(1))
    assert again.data_ptr() == left.data_ptr()
    torch.add(torch.ones(8), 2, out=again)
    assert again.eq(3).all()


def test_a_released_buffer_is_reused() -> None:
    buffers._pool.clear()
    like = torch.empty(0)
    first = buffers.acquire(100, like)
    buffers.release(first)
    again = buffers.acquire(60, like)
    assert again.shape == (60,)
    assert again.data_ptr() == first.data_ptr()
    assert buffers.acquire(60, like).data_ptr() != first.data_ptr(), "one buffer for two"


@pytest.mark.parametrize(
    ("size", "dtype"), [(101, torch.float32), (49, torch.float32), (100, torch.float64)], ids=["small", "large", "type"]
)
def test_a_buffer_that_does_not_fit_is_freed(size: int, dtype: torch.dtype) -> None:
    buffers._pool.clear()
    buffers.release(torch.empty(100))
    taken = buffers.acquire(size, torch.empty(0, dtype=dtype))
    assert (taken.shape, taken.dtype) == ((size,), dtype)
    assert buffers._pool == []


def test_spare_buffers_are_few() -> None:
    buffers._pool.clear()
    for _ in range(20):
        buffers.release(torch.empty(10))
    assert len(buffers._pool) == buffers.MAX_BUFFERS
    buffers._pool.clear()
