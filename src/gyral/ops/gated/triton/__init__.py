"""Gated recurrences over a whole sequence as Triton kernels."""
