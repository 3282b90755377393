"""RUM over a whole sequence as Triton kernels.

Up to 128 hidden units one program runs a block of sequences through all steps: for λ = 0 it owns a block of batch rows,
for λ = 1 one sequence and its associative memory. Programs do not synchronize with each other. The row-wise part of a
step holds whole rows, so that sums over the hidden units are plain reductions; the recurrent products and the memory
are processed in tiles. A barrier separates two phases of a step where the second one reads from global memory values
that other threads of the program wrote in the first one.

For larger hidden sizes the host runs the steps, which a CUDA graph records: a recurrent product of all rows, and
kernels with one program or several for each sequence.

All arithmetic is float32, except that the factors of the recurrent products have the dtype of autocast, if it is on.
For λ = 1 up to 128 hidden units only the weights are rounded to it.
"""

from gyral.ops.rum.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
