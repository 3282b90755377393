"""Fast weights and WeiNet as Triton kernels: one launch forward and one backward, besides products of whole sequences.

Each program runs one sequence through all steps. A stays in registers over the steps up to 128 units, and is then read
and written in parts; it is stored before each chunk of steps, for the backward pass. All arithmetic is float32.
"""

from gyral.ops.fast_weights.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
