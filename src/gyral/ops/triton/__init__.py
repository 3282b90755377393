"""What the Triton kernels of several families share."""
