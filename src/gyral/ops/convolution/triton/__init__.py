"""The convolutions of `gyral.ops.convolution` as Triton kernels: one launch forward and two backward.

All arithmetic is float32, and every sum has one order: results are the same bits again.
"""

from gyral.ops.convolution.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
