"""The delta rule as Triton kernels: three launches forward, three backward, and one for heads that share keys.

All arithmetic is float32. The forward pass keeps the memories before all chunks and, with `erase`, U; the backward pass
computes all else again.
"""

from gyral.ops.delta.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
