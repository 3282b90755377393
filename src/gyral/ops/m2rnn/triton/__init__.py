"""M²RNN as Triton kernels: one launch forward and one backward, which run rows of a memory through all steps.

The rows of a memory do not depend on each other, only their outputs are added up: a program has 16 rows of the memory
of a head, and W. The forward pass keeps the memory before each 16th step; the backward pass computes
the others again. To keep all of them would leave out a third of the dependent steps, but at 128 rows, 150 steps and 250
hidden units it would take 4.9 GB in place of 0.9.
"""

from gyral.ops.m2rnn.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
