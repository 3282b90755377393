"""The rotation scan as Triton kernels: two launches forward and two backward, in float32.

One kernel rotates the queries, and the kernel of `gyral.ops.min_gated.blend` runs the last recurrence.
"""

from gyral.ops.rotation_scan.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
