"""Gated recurrences over a whole sequence as Triton kernels.

A program of `loop` runs one sequence through all steps.
"""

from gyral.ops.gated.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
