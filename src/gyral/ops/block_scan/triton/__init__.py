"""The scan of `gyral.ops.block_scan` as Triton kernels: one launch forward and one backward, in float32."""

from gyral.ops.block_scan.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
