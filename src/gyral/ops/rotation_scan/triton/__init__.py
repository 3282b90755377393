"""The rotation scan as Triton kernels: three launches forward and three backward, in float32.

One kernel computes the mirrors, one rotates the queries, and that of `gyral.ops.min_gated.blend` runs the last
recurrence.
"""

from gyral.ops.rotation_scan.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
