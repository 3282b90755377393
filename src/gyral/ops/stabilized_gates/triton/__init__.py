"""The gates of `gyral.ops.stabilized_gates` as Triton kernels: one launch forward and one backward, in float32."""

from gyral.ops.stabilized_gates.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
