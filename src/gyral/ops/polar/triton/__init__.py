"""`gyral.ops.polar` as Triton kernels: one launch forward and one backward, in float32."""

from gyral.ops.polar.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
