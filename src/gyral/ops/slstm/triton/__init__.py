"""sLSTM as Triton kernels. A program runs a head of a row through all steps; heads above 128 units, one step at a time.

All arithmetic is float32. The gradient of the recurrent weights is a product after the backward kernels.
"""

from gyral.ops.slstm.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
