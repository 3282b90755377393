"""sLSTM as Triton kernels: one launch forward and one backward, which run a head of a row through all steps.

All arithmetic is float32. The gradient of the recurrent weights is a product after the backward kernel.
"""

from gyral.ops.slstm.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
