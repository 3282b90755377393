"""The scan of `gyral.ops.permutation_scan` as Triton kernels: two launches forward and two backward, in float32.

Scores do not depend on the state, so that kernels of their own compute them for all steps in parallel. In the scan, of
which a row is one program, the scores of a step would take longer than the step. No scores are ever in memory.
"""

from gyral.ops.permutation_scan.triton.launch import DTYPES, allocate, backward, forward, prepare

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]
