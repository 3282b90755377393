"""Diagonal linear recurrences as Triton kernels: one launch forward and one backward.

They are `diagonal_scan` of `gyral.ops.diagonal`, and `min_gated`, `rg_lru` and `blend` of `gyral.ops.min_gated`, whose
a_t and b_t are computed from the projected inputs in registers. All arithmetic is float32.
"""

from gyral.ops.diagonal.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
