"""The short convolution as Triton kernels: one launch forward; one backward, and one that sums the weights' gradients.

All arithmetic is float32, and every sum has one order: results are the same bits again.
"""

from gyral.ops.short_convolution.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
