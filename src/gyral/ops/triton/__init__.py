"""Code that the Triton kernels of several families share."""
