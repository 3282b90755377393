"""RUM over a whole sequence as Triton kernels: one program runs a block of sequences through all steps.

For λ = 0 a program owns a block of batch rows, for λ = 1 one sequence and its associative memory. Programs do not
synchronize with each other. The row-wise part of a step holds whole rows, so that sums over the hidden units are plain
reductions; the recurrent products and the memory are processed in tiles. A barrier separates two phases of a step where
the second one reads from global memory values that other threads of the program wrote in the first one.

All arithmetic is float32, except that the factors of the recurrent products for λ = 0 have the dtype of the weights.
"""

from gyral.ops.rum.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
