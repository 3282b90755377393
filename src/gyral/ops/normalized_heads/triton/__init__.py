"""`gyral.ops.normalized_heads` as Triton kernels: one launch forward and one backward, in float32."""

from gyral.ops.normalized_heads.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
